"""``slackline simulate match``: a match with its truth, as Parquet in the order of arrival."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline.cli import reports_errors
from slackline_soccer.simulator import Simulation, check_free, save, simulate
from slackline_soccer.tracking import SECOND

#: Rows per file: about ten seconds of match.
_PART = 360_000

app = typer.Typer(help="Make up a recording whose truth is known.", no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Make up a recording whose truth is known."""


@app.command()
@reports_errors
def match(
    out: Annotated[Path, typer.Option(help="Directory to write to; empty, or not there yet.")],
    seconds: Annotated[float, typer.Option(help="Length of the match.")] = 65.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same match.")] = 7,
    delays: Annotated[
        str,
        typer.Option(
            help="'measured' (jitter, packets, bursts, loss), 'congested' (the same, the receiver fully loaded "
            "at times), 'none', or a CSV file (also .gz) with arrival_ms and ts_ms whose delays are drawn again for "
            "each packet."
        ),
    ] = "measured",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Simulate a soccer match of 144 transmitters, 36,000 positions per second, and write down what really happens."""
    check_free(out)
    simulation = simulate(seconds, seed, delays)
    rows = _write(simulation, out)
    counts = Counter(simulation.truth["type"].to_pylist())
    if as_json:
        summary = {
            "out": str(out),
            "seconds": seconds,
            "seed": seed,
            "delays": str(delays),
            "positions": rows,
            "transmitters": len(simulation.match.sids),
            "events": dict(sorted(counts.items())),
        }
        typer.echo(json.dumps(summary, indent=2))
    else:
        _print(simulation, out, rows, counts)


def _write(simulation: Simulation, out: Path) -> int:
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.fields[at]}"), TimeElapsedColumn())
    start = simulation.match.periods[0].start
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=simulation.seconds, at="")

        def progress(table: pa.Table) -> None:
            at = min((table["arrival"][-1].as_py() - start) / SECOND, simulation.seconds)
            bar.update(task, completed=at, at=f"{at:,.0f} of {simulation.seconds:,g} s")

        return save(out, simulation.match, simulation.tables(rows=_PART), lambda: simulation.truth, progress)


def _print(simulation: Simulation, out: Path, rows: int, counts: Counter[str]) -> None:
    table = Table(title="What really happens", title_justify="left")
    table.add_column("event", no_wrap=True)
    table.add_column("count", justify="right")
    for name, count in sorted(counts.items()):
        table.add_row(name, f"{count:,}")
    console = Console()
    console.print(table)
    console.print(
        f"{rows:,} positions of {len(simulation.match.sids)} transmitters in {simulation.seconds:g} s, "
        f"seed {simulation.seed}, delays {simulation.delays}: {out}",
        highlight=False,
    )
