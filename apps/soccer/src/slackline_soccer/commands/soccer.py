"""``slackline soccer FILE``: a recorded match through the detectors and the four queries of DEBS 2013."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slackline import ConfigError
from slackline.cli import reports_errors
from slackline_soccer.accuracy import Comparison, compare, load_truth
from slackline_soccer.commands.tables import print_match
from slackline_soccer.export import Export
from slackline_soccer.recordings import MatchRecording, open_recording
from slackline_soccer.run import MatchResult, run


@reports_errors
def soccer(
    file: Annotated[
        Path,
        typer.Argument(
            help="Raw DEBS 2013 positions, a folder made by `slackline simulate match`, or tracking data "
            "(CSV or Parquet with ts, object, x, y[, z]).",
            exists=True,
        ),
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(
            help="Which object of tracking data is the ball and whose player: JSON or CSV.", exists=True, dir_okay=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write every type of event and result as Parquet into this folder.", file_okay=False),
    ] = None,
    queries: Annotated[bool, typer.Option(help="Run the four queries as well.")] = True,
    policy: Annotated[Literal["auto", "ready", "slack"], typer.Option(help="Ordering policy.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Detect hits, passes, shots and possession in a recorded match, and answer the queries of DEBS 2013."""
    errors = Console(stderr=True)
    recording = open_recording(file, mapping)
    if out is not None and out.resolve() == file.resolve():
        raise ConfigError(f"--out is {out}, the recording itself; give another folder.")
    for note in recording.notes:
        errors.print(f"{file.name}: {note}", highlight=False)
    started = time.perf_counter()
    with ExitStack() as stack:
        export = None if out is None else stack.enter_context(Export(out, recording.match, queries))
        result = _with_progress(recording, errors, queries, policy, export)
    seconds = time.perf_counter() - started
    comparison = _against_truth(recording, result)
    if out is not None:
        errors.print(f"wrote {out}", highlight=False)
    if as_json:
        typer.echo(json.dumps(_figures(recording, result, comparison, seconds), indent=2))
    else:
        _print(Console(), recording, result, comparison, seconds)


def _with_progress(
    recording: MatchRecording, console: Console, queries: bool, policy: str, export: Export | None
) -> MatchResult:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(recording.path.name, total=1.0)

        def show(positions: int) -> None:
            bar.update(task, completed=recording.done(), description=f"{positions:,} positions")

        return run(
            recording, queries=queries, policy=policy, take=None if export is None else export.take, progress=show
        )


def _against_truth(recording: MatchRecording, result: MatchResult) -> Comparison | None:
    if recording.truth is None:
        return None
    until = result.stats["stream_time"]
    return None if until is None else compare(recording.match, result.events(), load_truth(recording.truth), until)


# Output.


def _figures(
    recording: MatchRecording, result: MatchResult, comparison: Comparison | None, seconds: float
) -> dict[str, Any]:
    """The figures as one JSON object; times in s, waits in ms, lengths in m."""
    figures = {
        "file": recording.path.name,
        "format": recording.format,
        "positions": result.positions,
        "late_positions": result.late_positions,
        "late": dict(result.late),
        "quarantined": dict(result.quarantined),
        "wall_seconds": seconds,
        **result.summary.to_dict(),
    }
    if comparison is not None:
        figures["truth"] = {
            score.type: {
                "found": score.found, "true": score.true, "matched": score.matched,
                "precision": score.precision, "recall": score.recall, "f1": score.f1,
            }
            for score in comparison.accuracies
        }  # fmt: skip
        figures["possession_found"] = dict(comparison.possession.found)
        figures["possession_truth"] = dict(comparison.possession.true)
    return figures


def _print(
    console: Console, recording: MatchRecording, result: MatchResult, comparison: Comparison | None, seconds: float
) -> None:
    console.print(
        f"{recording.path.name} ({recording.format}): {result.positions:,} positions, {result.summary.seconds:,.1f} s "
        f"of the match in {seconds:,.1f} s.",
        highlight=False,
    )
    print_match(console, result.summary, comparison, result.late_positions, result.positions, result.quarantined)
