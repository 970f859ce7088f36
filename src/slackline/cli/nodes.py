"""``slackline nodes``, ``migrate`` and ``certificates``: the nodes of a cluster, what runs where, and their TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from slackline.cli.console import reports_errors, stdout, table
from slackline.cli.logs import log_to_stderr
from slackline.cli.options import At, TlsCa, TlsCert, TlsKey
from slackline.cluster import client
from slackline.cluster.links import Credentials
from slackline.cluster.registry import node_at
from slackline.core.time import PER_SECOND
from slackline.runtime.address import Address
from slackline.runtime.metrics import INTERVAL, DetectorMetrics, Metrics

#: Seconds between two overviews, for the rates.
BETWEEN = 2.0

logger = logging.getLogger("slackline.nodes")


@reports_errors
def nodes(
    at: At,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything that the node knows as JSON, without rates.")
    ] = False,
    page: Annotated[
        int | None,
        typer.Option(
            help="Serve a page to watch the cluster at http://127.0.0.1:PORT/, until Ctrl-C; 0: any free port.",
            min=0,
            max=65535,
        ),
    ] = None,
    unit: Annotated[Literal["s", "ms", "us", "ns"], typer.Option(help="Unit of the event times, for the page.")] = "us",
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Show the nodes of a cluster as seen by one of them: detectors, rates, K, load, losses. Takes two seconds."""
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    address = node_at(at)
    if page is not None:
        log_to_stderr("slackline")
        with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
            asyncio.run(_watch(address, credentials, page, PER_SECOND[unit]))
        return
    if as_json:
        typer.echo(json.dumps(asyncio.run(client.overview(address, credentials)), indent=2))
        return
    before, after = asyncio.run(_twice(address, credentials))
    _print(before, after)


async def _watch(address: Address, credentials: Credentials, port: int, ts_per_second: int) -> None:
    """Serve the page until SIGINT or SIGTERM, with an overview every second, however long a node does not answer."""
    from slackline.report.live import LivePage, Stage

    loop, watching = asyncio.get_running_loop(), asyncio.current_task()
    assert watching is not None
    # By name: a shell starts a process in the background with SIGINT ignored, and asyncio.run leaves it so.
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, watching.cancel)
    overview = await client.overview(address, credentials)
    stages = [Stage(name, **described) for name, described in overview["hierarchy"].items()]
    page = LivePage(port, f"The cluster as seen by {overview['seen_from']}", stages)
    logger.info("page to watch at %s", page.url)
    try:
        while True:
            page.show_cluster(overview, replace(_merged(overview["nodes"]), ts_per_second=ts_per_second))
            await asyncio.sleep(INTERVAL)
            try:
                overview = await client.overview(address, credentials)
            except client.NoAnswerError as error:
                logger.warning("%s", error)
    finally:
        page.close()


def _merged(nodes: dict[str, Any]) -> Metrics:
    """The metrics of all nodes as one."""
    parts = []
    for node in nodes.values():
        detectors = {name: DetectorMetrics.of(each, node["clk"]) for name, each in node.get("detectors", {}).items()}
        parts.append(
            Metrics(
                events=node.get("arrivals", 0),
                late=sum(one.late for one in detectors.values()),
                duplicates=node.get("duplicates", 0),
                K=max((one.K for one in detectors.values()), default=0),
                buffered=sum(one.buffered for one in detectors.values()),
                detectors=detectors,
            )
        )
    return Metrics.merged(parts)


async def _twice(address: Address, credentials: Credentials) -> tuple[dict[str, Any], dict[str, Any]]:
    before = await client.overview(address, credentials)
    await asyncio.sleep(BETWEEN)
    return before, await client.overview(address, credentials)


def _print(before: dict[str, Any], after: dict[str, Any]) -> None:
    shown = table(
        f"The cluster as seen by {escape(after['seen_from'])}", "node", "state", "detector",
        ">events/s", ">K", ">buffered", ">late", ">load", ">rtt", ">lost",
    )  # fmt: skip
    for name, node in after["nodes"].items():
        _add(shown, name, before["nodes"].get(name, {}), node)
    console = stdout()
    console.print(shown)
    for detector, direction in after["moving"].items():
        console.print(f"{escape(detector)} is migrating ({direction}).")
    if after["master"] is not None:
        console.print(f"{escape(after['master'])} is the master: it optimises the placement.")
    missing = after["missing"]
    if missing["detectors"] or missing["types"]:
        parts = [f"{what} {', '.join(missing[what])}" for what in ("detectors", "types") if missing[what]]
        console.print(f"[yellow]Missing:[/] {escape('; '.join(parts))}.")


def _add(shown: Table, name: str, before: dict[str, Any], node: dict[str, Any]) -> None:
    """Add a row for a node, and one for each of its detectors."""
    seconds = node["at"] - before["at"] if "at" in before and "at" in node else 0.0
    trip = node["round_trip"]
    lost = sum(received["lost"] for received in node.get("received", {}).values())
    arrivals = _rate(node.get("arrivals", 0) - before.get("arrivals", 0), seconds) if node["enters"] else ""
    enters = f"ingress: {', '.join(node['enters'])}" if node["enters"] else ""
    shown.add_row(
        escape(name), node["state"], escape(enters), arrivals, "", "", "", f"{node['load']:.0%}",
        "" if trip is None else f"{1000 * trip:,.0f} ms", f"{lost:,}", style=None if node["state"] != "lost" else "red",
    )  # fmt: skip
    for detector in node["runs"]:
        metrics = node.get("detectors", {}).get(detector)
        if metrics is None:
            shown.add_row("", "", escape(detector))
            continue
        then = before.get("detectors", {}).get(detector, metrics)
        shown.add_row(
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


@reports_errors
def migrate(
    detector: Annotated[str, typer.Argument(help="The detector to migrate, as `slackline nodes` shows it.")],
    node: Annotated[str, typer.Argument(help="The node to which it migrates.")],
    at: At,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the result.", min=0.1)] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print duration and costs as JSON.")] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Migrate a detector to another node. Its outputs do not change: none is lost, repeated or reordered."""
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    metrics = asyncio.run(client.migrate(node_at(at), credentials, detector, node, timeout))
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
        return
    typer.echo(
        f"{detector} migrated from {metrics['from']} to {node} in {1000 * metrics['seconds']:.0f} ms: "
        f"{metrics['state_bytes']:,} bytes of state, {metrics['forwarded']:,} forwarded messages."
    )


@reports_errors
def certificates(
    folder: Annotated[Path, typer.Argument(help="Where the files are written.", file_okay=False)],
    name: Annotated[list[str], typer.Option(help="Name of a node; several times.")],
    days: Annotated[int, typer.Option(help="How long the certificates of nodes are valid.", min=1)] = 365,
) -> None:
    """Make TLS certificates for nodes, signed by a certificate authority of their own.

    The authority is ca.pem and ca.key in FOLDER; it is made at first and reused later. Each node gets NAME.pem and
    NAME.key. Existing files are not overwritten. Give each machine ca.pem and the two files of its node; keep ca.key.
    """
    from slackline.cluster.certificates import AUTHORITY, make_certificates

    written = make_certificates(folder, name, days)
    typer.echo(f"Wrote {', '.join(map(str, written))}. Options of the nodes:", err=True)
    for each in dict.fromkeys(name):
        files = (folder / f"{each}.pem", folder / f"{each}.key", folder / f"{AUTHORITY}.pem")
        options = " ".join(f"--tls-{option} {path}" for option, path in zip(("cert", "key", "ca"), files, strict=True))
        typer.echo(f"{each}: {options}")
