"""``slackline sync FILE...``: recorded streams in one order, what that costs, and which streams are waited for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline import report
from slackline.cli.failure import reports_errors
from slackline.cli.options import Unit, help_of
from slackline.connectors.formats import format_of
from slackline.core.errors import ConfigError, SlacklineError
from slackline.report import SyncSummary
from slackline.runtime.schema import RecordSchema
from slackline.study import SyncResult, load_recording, synchronise_recording, write_ordered
from slackline.study.recording import Keep

#: So many streams and rows are printed.
STREAMS, ROWS = 20, 8


@reports_errors
def sync(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="CSV, JSON lines (both also .gz) or Parquet; each is a stream.", dir_okay=False, exists=True
        ),
    ],
    ts: Annotated[str, typer.Option(help=help_of("ts"))],
    arrival: Annotated[
        str | None, typer.Option(help="Field of arrival times; without it an event arrives when it occurs.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Field that names the stream of a row, if a file holds several.")
    ] = None,
    unit: Unit = None,
    max_delay: Annotated[
        int | None,
        typer.Option(min=0, help="Release events that waited longer; in --unit. No limit unless given."),
    ] = None,
    max_failures: Annotated[
        int, typer.Option(min=1, help="After so many time-outs a stream is disabled until it delivers again.")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the ordered stream to this file, in the format of its ending.", dir_okay=False),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.", dir_okay=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, times in --unit.")] = False,
) -> None:
    """Synchronise recorded streams: one order, how long events wait for it, and which streams are dead."""
    errors = Console(stderr=True)
    page = report.sync_page if html is not None else None  # says at once if the extra is missing
    keep = _keep(out, files)
    with _progress(errors) as bar:
        task = bar.add_task("reading", total=None)
        recording = load_recording(
            files,
            RecordSchema(ts=ts, arrival=arrival, source=source, unit=unit),
            keep=keep,
            progress=lambda name, done, total: bar.update(task, description=name, completed=done, total=total),
        )
        bar.update(task, description="synchronising", completed=0, total=len(recording.stream))
        result = synchronise_recording(
            recording,
            max_delay=max_delay,
            max_failures=max_failures,
            progress=lambda done: bar.update(task, completed=done),
        )
    summary = SyncSummary(result)
    for note in recording.stream.notes:
        errors.print(f"note: {_plain(note)}", highlight=False, soft_wrap=True)
    for warning in summary.warnings():
        errors.print(f"[yellow]warning:[/] {_plain(warning)}", highlight=False, soft_wrap=True)
    if out is not None:
        _say_written(write_ordered(result, out), result, errors)
    if html is not None and page is not None:
        try:
            html.write_text(page(result, title=_title(files)), encoding="utf-8")
        except OSError as cause:
            raise SlacklineError(f"cannot write {html}: {cause}.") from cause
        errors.print(f"wrote {html}", highlight=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _print(result, summary)


def _keep(out: Path | None, files: list[Path]) -> Keep:
    """Which columns are read. Text that becomes text again stays as it is."""
    if out is None:
        return "times"
    if any(out.resolve() == path.resolve() for path in files):
        raise ConfigError(f"--out {out} is one of the files to read. Give another name; nothing was changed.")
    return "verbatim" if format_of(out) == "csv" else "all"


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:>24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _title(files: list[Path]) -> str:
    return files[0].name if len(files) == 1 else f"{len(files)} files"


def _plain(text: str) -> str:
    """Text of others is no markup."""
    return text.replace("[", r"\[")


def _say_written(written: list[Path], result: SyncResult, errors: Console) -> None:
    errors.print(f"wrote {written[0]}: {len(result.order):,} events in order", highlight=False, soft_wrap=True)
    for path in written[1:]:
        errors.print(f"wrote {path}: {len(result.late):,} late events", highlight=False, soft_wrap=True)


def _print(result: SyncResult, summary: SyncSummary) -> None:
    console = Console()
    if not console.is_terminal:  # a file has no width
        console = Console(width=max(console.width, 120))
    console.print(f"[bold]{_plain(summary.headline())}[/]\n", highlight=False)
    console.print(_streams(result, summary))
    console.print(_plain(summary.slowest()), highlight=False)
    console.print()
    console.print(_rows(result, summary))
    for sentence in summary.dead():
        console.print(f"[bold red]dead:[/] {_plain(sentence)}", highlight=False)
    for sentence in summary.notes():
        console.print(_plain(sentence), highlight=False)


def _streams(result: SyncResult, summary: SyncSummary) -> Table:
    title = f"Which streams blocked the others (waits in {summary.waits.name})"
    more = len(result.streams) - STREAMS
    if more > 0:
        title += f": the worst {STREAMS} of {len(result.streams):,} streams; --json has all"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("stream", overflow="fold")
    for name in ("events", "released", "late", "back-\nwards", "mean\nwait", "longest\nwait", "fail-\nures"):
        table.add_column(name, justify="right")
    table.add_column("state")
    table.add_column("blocked\nevents", justify="right")
    table.add_column(f"for in\nall ({summary.sums.name})", justify="right")
    for stream in result.streams[:STREAMS]:
        counts = (stream.events, stream.released, stream.late, stream.backwards)
        table.add_row(
            _plain(stream.name),
            *[f"{count:,}" for count in counts],
            summary.waits.text(stream.wait.mean),
            summary.waits.text(stream.wait.max),
            f"{stream.failures:,}",
            summary.state(stream),
            f"{stream.blocked.all_events:,}",
            summary.sums.text(stream.blocked.all_time),
            style="red" if stream.dead else None,
        )
    return table


def _rows(result: SyncResult, summary: SyncSummary) -> Table:
    stream = result.recording.stream
    table = Table(
        title=f"The ordered stream begins (waits in {summary.waits.name})", title_justify="left", box=SIMPLE_HEAD
    )
    for name in ("position", "ts"):
        table.add_column(name, justify="right")
    table.add_column("stream", overflow="fold")
    table.add_column("waited", justify="right")
    table.add_column("for", overflow="fold")
    for position, row in enumerate(result.order[:ROWS].tolist(), 1):
        table.add_row(
            str(position),
            str(stream.ts[row]),
            _plain(result.recording.names[stream.source[row]]),
            summary.waits.text(float(result.wait[row])),
            _plain(summary.waited_for(row)),
        )
    return table
