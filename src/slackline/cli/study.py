"""``slackline study FILE``: a recorded stream under every policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline import report
from slackline.cli.failure import reports_errors
from slackline.cli.options import Key, Unit, help_of
from slackline.core.errors import SlacklineError
from slackline.report import Scale, disorder, params_text, share_text, verdict
from slackline.runtime.schema import RecordSchema
from slackline.study import STEADY, PolicyFigures, PolicyResult, RecordedStream, StudyResult, load_stream
from slackline.study import study as run_study


@reports_errors
def study(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV (also with semicolons or tabs), JSON lines (both also .gz) or Parquet, in the order of arrival.",
            dir_okay=False,
            exists=True,
        ),
    ],
    arrival: Annotated[str, typer.Option(help="Field of arrival times.")],
    ts: Annotated[str, typer.Option(help=help_of("ts"))],
    source: Annotated[str, typer.Option(help=help_of("source"))],
    type: Annotated[
        str | None, typer.Option(help="Field of event types; each type of a source counts as a source.")
    ] = None,
    key: Key = None,
    unit: Unit = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON, waits in the stream's unit.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with a plot to this file.", dir_okay=False)] = None,
) -> None:
    """Run a recorded stream under every policy: how many events are late, how long the others wait."""
    errors = Console(stderr=True)
    page = report.study_page if html is not None else None  # says at once if the extra is missing
    schema = RecordSchema(arrival=arrival, ts=ts, source=source, type=type, key=key, unit=unit)
    stream = load_stream(file, schema)
    for note in stream.notes:
        errors.print(f"note: {escape(note)}", highlight=False, soft_wrap=True)
    for warning in stream.warnings:
        errors.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    result = _with_progress(stream, errors)
    if html is not None and page is not None:
        try:
            html.write_text(page(result, title=file.name), encoding="utf-8")
        except OSError as cause:
            raise SlacklineError(f"cannot write {html}: {cause}.") from cause
        errors.print(f"wrote {html}", highlight=False)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _print(result, file.name)


def _with_progress(stream: RecordedStream, console: Console) -> StudyResult:
    columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        return run_study(
            stream, lambda name, done, total: bar.update(task, description=name, completed=done, total=total)
        )


def _print(result: StudyResult, name: str) -> None:
    scale = Scale.of_study(result)
    steady = result.clairvoyant.steady_mean_wait is not None
    title = f"{name}: {result.rows:,} events of {result.sources:,} sources, waits in {scale.name}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    table.add_column("parameters", no_wrap=True)
    for heading in ("late", "mean", "p99", *(("steady\nlate", "steady\nmean") if steady else ())):
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)

    def add(policy: str, params: str, waits: PolicyFigures, style: str | None) -> None:
        cells = [share_text(waits.late_share), *map(scale.text, (waits.mean_wait, waits.p99_wait))]
        if waits.steady_late_share is not None:
            cells += [share_text(waits.steady_late_share), scale.text(waits.steady_mean_wait)]
        table.add_row(policy, params, *cells, style=style)

    for p in _chosen(result):
        add(p.policy, params_text(p, result.unit), p.waits, "bold green" if p.is_default else None)
    table.add_section()
    add("clairvoyant", "", result.clairvoyant, "dim")
    console = Console()
    console.print(table)
    if steady:
        console.print(f"Steady: after the first {STEADY:,} arrivals, when most is learnt.", highlight=False)
    console.print(f"{disorder(result)} {verdict(result)}", highlight=False)


def _chosen(result: StudyResult) -> list[PolicyResult]:
    """The default first, then by policy, each from many late events to few.

    A fixed watermark with the same late share as a smaller one, as the table rounds it, is left out.
    """
    order = ["auto", "ready", "slack", "quantile", "max_slack", "fixed"]
    shown = sorted(
        result.policies,
        key=lambda p: (not p.is_default, order.index(p.policy), -p.waits.late_share, p.waits.mean_wait or 0),
    )
    watermarks = {share_text(p.waits.late_share): p for p in reversed(shown) if p.policy == "fixed"}
    return [p for p in shown if p.policy != "fixed" or p in watermarks.values()]
