"""``slackline nodes``: the nodes of a cluster, what runs where, and metrics."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slackline.cli.failure import reports_errors
from slackline.cli.reaching import At, TlsCa, TlsCert, TlsKey
from slackline.cluster.client import overview
from slackline.cluster.links import Credentials
from slackline.runtime.address import Address

#: Seconds between two overviews, for the rates.
BETWEEN = 2.0
#: Width of the table where the output is no terminal.
WIDE = 110


@reports_errors
def nodes(
    at: At,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that the node knows as JSON, without rates.")
    ] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Show the nodes of a cluster as seen by one of them: detectors, rates, K, load, losses. Takes two seconds."""
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    address = Address.of(at)
    if as_json:
        typer.echo(json.dumps(asyncio.run(overview(address, credentials)), indent=2))
        return
    before, after = asyncio.run(_twice(address, credentials))
    _print(before, after)


async def _twice(address: Address, credentials: Credentials) -> tuple[dict[str, Any], dict[str, Any]]:
    before = await overview(address, credentials)
    await asyncio.sleep(BETWEEN)
    return before, await overview(address, credentials)


def _print(before: dict[str, Any], after: dict[str, Any]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    title = f"The cluster as seen by {escape(after['seen_from'])}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("node", "state", "detector"):
        table.add_column(heading, overflow="fold")
    for heading in ("events/s", "K", "buffered", "late", "load", "rtt", "lost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, node in after["nodes"].items():
        _add(table, name, before["nodes"].get(name, {}), node)
    console.print(table)
    for detector, direction in after["moving"].items():
        console.print(f"{escape(detector)} is migrating ({direction}).", highlight=False)
    if after["master"] is not None:
        console.print(f"{escape(after['master'])} is the master: it optimises the placement.", highlight=False)
    missing = after["missing"]
    if missing["detectors"] or missing["types"]:
        parts = [f"{what} {', '.join(missing[what])}" for what in ("detectors", "types") if missing[what]]
        console.print(f"[yellow]Missing:[/] {escape('; '.join(parts))}.", highlight=False)


def _add(table: Table, name: str, before: dict[str, Any], node: dict[str, Any]) -> None:
    """Add a row for a node, and one for each of its detectors."""
    seconds = node["at"] - before["at"] if "at" in before and "at" in node else 0.0
    trip = node["round_trip"]
    lost = sum(received["lost"] for received in node.get("received", {}).values())
    arrivals = _rate(node.get("arrivals", 0) - before.get("arrivals", 0), seconds) if node["enters"] else ""
    shown = f"ingress: {', '.join(node['enters'])}" if node["enters"] else ""
    table.add_row(
        escape(name), node["state"], escape(shown), arrivals, "", "", "", f"{node['load']:.0%}",
        "" if trip is None else f"{1000 * trip:,.0f} ms", f"{lost:,}", style=None if node["state"] != "lost" else "red",
    )  # fmt: skip
    for detector in node["runs"]:
        metrics = node.get("detectors", {}).get(detector)
        if metrics is None:
            table.add_row("", "", escape(detector))
            continue
        then = before.get("detectors", {}).get(detector, metrics)
        table.add_row(
            "", "", escape(detector), _rate(metrics["delivered"] - then["delivered"], seconds),
            _short(metrics["K"]), f"{metrics['buffered']:,}", f"{metrics['late']:,}",
        )  # fmt: skip


def _short(time: int) -> str:
    """
    >>> _short(35), _short(412_345_678_901)
    ('35', '4.12e+11')
    """
    return f"{time:,}" if time < 1_000_000 else f"{time:.3g}"


def _rate(events: int, seconds: float) -> str:
    return f"{events / seconds:,.0f}" if seconds > 0 else ""
