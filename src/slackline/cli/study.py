"""``slackline study FILE``: a recorded stream under every policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline import report
from slackline.cli.failure import reports_errors
from slackline.core.errors import SlacklineError
from slackline.report import Scale, params_text, share_text, verdict
from slackline.study import PolicyResult, RecordedStream, StudyResult, load_stream
from slackline.study import study as run_study


@reports_errors
def study(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV, JSON lines (both also .gz) or Parquet, in the order of arrival.", dir_okay=False, exists=True
        ),
    ],
    arrival: Annotated[str, typer.Option(help="Column of arrival times.")],
    ts: Annotated[str, typer.Option(help="Column of occurrence times.")],
    source: Annotated[str, typer.Option(help="Column that names the source of an event.")],
    type: Annotated[
        str | None, typer.Option(help="Column of event types; each type of a source counts as a source.")
    ] = None,
    unit: Annotated[Literal["us", "ms", "ns", "s"], typer.Option(help="Unit of both times.")] = "us",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON, waits in the stream's unit.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with a plot to this file.", dir_okay=False)] = None,
) -> None:
    """Run a recorded stream under every policy: how many events are late, how long the others wait."""
    errors = Console(stderr=True)
    page = report.study_page if html is not None else None  # says at once if the extra is missing
    stream = load_stream(file, arrival=arrival, ts=ts, source=source, type=type, unit=unit)
    for warning in stream.warnings:
        errors.print(f"[yellow]warning:[/] {warning}")
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
    title = f"{name}: {result.rows:,} events of {result.sources:,} sources, waits in {scale.name}"
    table = Table(title=title, title_justify="left")
    table.add_column("policy", no_wrap=True)
    table.add_column("parameters", no_wrap=True)
    for heading in ("late", "mean", "median", "p99", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for p in _sorted(result):
        waits = (p.waits.mean_wait, p.waits.p50_wait, p.waits.p99_wait, p.waits.max_wait)
        cells = [
            p.policy,
            params_text(p, result.unit),
            share_text(p.waits.late_share),
            *map(scale.text, waits),
        ]
        table.add_row(*cells, style="bold green" if p.is_default else None)
    table.add_section()
    best = result.clairvoyant
    waits = (best.mean_wait, best.p50_wait, best.p99_wait, best.max_wait)
    table.add_row("clairvoyant", "knows the future", "0", *map(scale.text, waits), style="dim")
    console = Console()
    console.print(table)
    console.print(
        f"{share_text(result.late_share)} of the events arrive out of order. {verdict(result)}",
        highlight=False,
    )


def _sorted(result: StudyResult) -> list[PolicyResult]:
    """The default first, then by policy, each from many late events to few."""
    order = ["auto", "ready", "slack", "quantile", "max_slack", "fixed"]
    return sorted(
        result.policies,
        key=lambda p: (not p.is_default, order.index(p.policy), -p.waits.late_share, p.waits.mean_wait or 0),
    )
