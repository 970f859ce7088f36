"""``slackline study FILE``: a recorded stream under every policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from slackline import report
from slackline.cli.console import progress, reports_errors, say, stdout, table, write_page
from slackline.cli.options import takes
from slackline.connectors.addresses import check_output
from slackline.report import POLICIES, Scale, count_text, disorder, late_sources_text, params_text, share_text, verdict
from slackline.runtime.schema import RecordSchema
from slackline.study import FIXED, STEADY, PolicyFigures, PolicyResult, StudyResult, load_stream
from slackline.study import study as run_study


@takes("key", "unit")
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
    ts: Annotated[str, typer.Option(help="Field of event times.")],
    source: Annotated[str, typer.Option(help="Field that names the source of an event.")],
    arrival: Annotated[
        str | None, typer.Option(help="Field of arrival times; without it waits are in stream time.")
    ] = None,
    type: Annotated[
        str | None, typer.Option(help="Field of event types; each type of a source counts as a source.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON, waits in the stream's unit.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with a plot to this file.", dir_okay=False)] = None,
    **given: Any,
) -> None:
    """Run a recorded stream under every policy: how many events are late, how long the others wait."""
    page = report.study_page if html is not None else None  # says at once if the extra is missing
    if html is not None:
        check_output("--html", html, [file])
    stream = load_stream(file, RecordSchema(arrival=arrival, ts=ts, source=source, type=type, **given))
    say(stream.notes, stream.warnings)
    with progress() as show:
        result = run_study(stream, show)
    if html is not None and page is not None:
        write_page(html, page(result, title=file.name))
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _print(result, file.name)


def _print(result: StudyResult, name: str) -> None:
    scale = Scale.of_study(result)
    steady = result.clairvoyant.steady_mean_wait is not None
    title = (
        f"{name}: {count_text(result.rows, 'event')} of {count_text(result.sources, 'source')}, waits in {scale.name}"
    )
    more = (">steady\nlate", ">steady\nmean") if steady else ()
    shown = table(title, "policy", "parameters", ">late", ">mean", ">p99", *more)

    def add(policy: str, params: str, waits: PolicyFigures, style: str | None) -> None:
        cells = [share_text(waits.late_share), *map(scale.text, (waits.mean_wait, waits.p99_wait))]
        if waits.steady_late_share is not None:
            cells += [share_text(waits.steady_late_share), scale.text(waits.steady_mean_wait)]
        shown.add_row(policy, params, *cells, style=style)

    for p in _chosen(result):
        add(p.policy, params_text(p, result.unit), p.waits, "bold green" if p.is_default else None)
    shown.add_section()
    add("clairvoyant", "", result.clairvoyant, "dim")
    console = stdout()
    console.print(shown)
    if steady:
        console.print(f"Steady: after the first {STEADY:,} arrivals, when most is learnt.")
    console.print(f"{disorder(result)} {verdict(result)}")
    if text := late_sources_text(result):
        console.print(text, markup=False)


def _chosen(result: StudyResult) -> list[PolicyResult]:
    """The default first, then by policy, each from many late events to few.

    A fixed watermark or timer with the same late share as a smaller one, as the table rounds it, is left out.
    """
    shown = sorted(
        result.policies,
        key=lambda p: (not p.is_default, POLICIES.index(p.policy), -p.waits.late_share, p.waits.mean_wait or 0),
    )
    smallest = {(p.policy, share_text(p.waits.late_share)): p for p in reversed(shown)}
    return [p for p in shown if p.policy not in FIXED or p is smallest[p.policy, share_text(p.waits.late_share)]]
