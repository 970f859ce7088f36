"""``slackline sync FILE...``: recorded streams in one order, what that costs, and which streams are waited for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from slackline import report
from slackline.cli.console import progress, reports_errors, say, stdout, table, write_page, wrote
from slackline.cli.options import help_of, takes
from slackline.connectors.addresses import check_output
from slackline.connectors.formats import format_of
from slackline.report import SyncSummary
from slackline.runtime.schema import RecordSchema
from slackline.study import SyncResult, load_recording, synchronise_recording, write_ordered
from slackline.study.recording import Keep

#: So many streams and rows are printed.
STREAMS, ROWS = 20, 8


@takes("unit")
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
    max_delay: Annotated[
        int | None,
        typer.Option(min=0, help="Release events that waited longer; in --unit. No limit unless given."),
    ] = None,
    max_failures: Annotated[
        int, typer.Option(min=1, help="After so many timeouts a stream is disabled until it delivers again.")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the ordered stream to this file, in the format of its ending.", dir_okay=False),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.", dir_okay=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, times in --unit.")] = False,
    **given: Any,
) -> None:
    """Synchronise recorded streams: one order, how long events wait for it, and which streams are dead."""
    page = report.sync_page if html is not None else None  # says at once if the extra is missing
    keep = _keep(out, files)
    schema = RecordSchema(ts=ts, arrival=arrival, source=source, **given)
    with progress() as show:
        recording = load_recording(files, schema, keep=keep, progress=show)
        total = len(recording.stream)
        result = synchronise_recording(
            recording, max_delay=max_delay, max_failures=max_failures,
            progress=lambda done: show("synchronising", done, total),
        )  # fmt: skip
    summary = SyncSummary(result)
    say(recording.stream.notes, summary.warnings())
    if out is not None:
        counts = (f"{len(result.order):,} events in order", f"{len(result.late):,} late events")
        for path, what in zip(write_ordered(result, out), counts, strict=False):
            wrote(path, f": {what}")
    if html is not None and page is not None:
        write_page(html, page(result, title=files[0].name if len(files) == 1 else f"{len(files)} files"))
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _print(result, summary)


def _keep(out: Path | None, files: list[Path]) -> Keep:
    """Which columns are read. Text that becomes text again stays as it is."""
    if out is None:
        return "times"
    check_output("--out", out, files)
    return "verbatim" if format_of(out) == "csv" else "all"


def _print(result: SyncResult, summary: SyncSummary) -> None:
    console = stdout()
    console.print(f"[bold]{escape(summary.headline())}[/]\n")
    console.print(_streams(result, summary))
    console.print(escape(summary.slowest()))
    console.print()
    console.print(_rows(result, summary))
    for sentence in summary.dead():
        console.print(f"[bold red]dead:[/] {escape(sentence)}")
    for sentence in summary.notes():
        console.print(escape(sentence))


def _streams(result: SyncResult, summary: SyncSummary) -> Table:
    title = f"Which streams blocked the others (waits in {summary.waits.name})"
    more = len(result.streams) - STREAMS
    if more > 0:
        title += f": the worst {STREAMS} of {len(result.streams):,} streams; --json has all"
    shown = table(
        title, "stream", ">events", ">released", ">late", ">back-\nwards", ">mean\nwait", ">longest\nwait",
        ">fail-\nures", "state", ">blocked\nevents", f">for in\nall ({summary.sums.name})",
    )  # fmt: skip
    for stream in result.streams[:STREAMS]:
        counts = (stream.events, stream.released, stream.late, stream.backwards)
        shown.add_row(
            escape(stream.name), *[f"{count:,}" for count in counts], summary.waits.text(stream.wait.mean),
            summary.waits.text(stream.wait.max), f"{stream.failures:,}", summary.state(stream),
            f"{stream.blocked.all_events:,}", summary.sums.text(stream.blocked.all_time),
            style="red" if stream.dead else None,
        )  # fmt: skip
    return shown


def _rows(result: SyncResult, summary: SyncSummary) -> Table:
    stream = result.recording.stream
    title = f"The ordered stream begins (waits in {summary.waits.name})"
    shown = table(title, ">position", ">ts", "stream", ">waited", "for")
    for position, row in enumerate(result.order[:ROWS].tolist(), 1):
        name, waited = result.recording.names[stream.source[row]], summary.waits.text(float(result.wait[row]))
        shown.add_row(str(position), str(stream.ts[row]), escape(name), waited, escape(summary.waited_for(row)))
    return shown
