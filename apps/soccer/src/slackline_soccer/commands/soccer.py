"""``slackline soccer FILE``: a recorded match through the detectors and the four queries of DEBS 2013."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline import ConfigError
from slackline.cli import reports_errors
from slackline.report import share_text
from slackline_soccer import Summary
from slackline_soccer.accuracy import Comparison, compare, load_truth
from slackline_soccer.recordings import MatchRecording, open_recording
from slackline_soccer.run import MatchResult, run
from slackline_soccer.summary import Export


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


#: More than 17 km/h.
FAST = ("high", "sprint")

Rows = list[tuple[Any, ...]]


def print_match(
    console: Console,
    summary: Summary,
    comparison: Comparison | None,
    late: int,
    positions: int,
    quarantined: Counter[str],
) -> None:
    """Events, teams and players, the comparison with the truth if there is one, late and quarantined rows."""
    _table(console, "Events detected, and their latency in stream time", _EVENT_HEADER, _event_rows(summary))
    _table(console, "Teams", _TEAM_HEADER, _team_rows(summary, comparison))
    _table(console, "Players", _PLAYER_HEADER, _player_rows(summary))
    if comparison is not None:
        _print_truth(console, comparison)
    _print_late(console, late, positions, quarantined)


_EVENT_HEADER = ("event", "level", "found", "mean wait ms", "max wait ms")
_TEAM_HEADER = ("team", "possession", "hits", "passes", "successful", "shots", "goals", "distance km")
_PLAYER_HEADER = ("player", "hits", "passes", "shots", "ball s", "top km/h", "distance m", "fast m")


def _event_rows(summary: Summary) -> Rows:
    return [
        (kind, summary.levels[kind], waits.count, *(_wait(waits.count, wait) for wait in (waits.mean, waits.largest)))
        for kind, waits in summary.waits.items()
    ]


def _wait(count: int, wait: float) -> str:
    return f"{wait / 1e9:,.1f}" if count else "-"


def _team_rows(summary: Summary, comparison: Comparison | None) -> Rows:
    # The query publishes possession at full seconds; a comparison has it up to its last event.
    shares = {team: own["possession_share"] for team, own in summary.teams().items()}
    if comparison is not None:
        shares |= comparison.possession.found
    return [
        (
            team, _share(shares[team]), own["hits"], own["passes"], own["successful"], own["shots"],
            own["goals"], f"{own['distance'] / 1000:,.2f}",
        )
        for team, own in summary.teams().items()
    ]  # fmt: skip


def _player_rows(summary: Summary) -> Rows:
    return [
        (
            player.name, player.hits, f"{player.successful}/{player.passes}", player.shots,
            f"{player.possession:,.1f}", f"{3.6 * player.top_speed:,.1f}",
            f"{sum(player.distance.values()):,.0f}", f"{sum(player.distance.get(name, 0.0) for name in FAST):,.0f}",
        )
        for player in sorted(summary.players.values(), key=lambda p: (p.team, len(p.name), p.name))
    ]  # fmt: skip


def _print_truth(console: Console, comparison: Comparison) -> None:
    rows: Rows = [
        (
            "ball_left (field)" if s.type == "ball_left" else s.type, s.true, s.found, s.matched,
            f"{s.precision:.3f}" if s.found else "-",
            f"{s.recall:.3f}" if s.true else "-",
            f"{s.f1:.3f}" if s.found or s.true else "-",
        )
        for s in comparison.accuracies
    ]  # fmt: skip
    header = ("event", "true", "found", "right", "precision", "recall", "F1")
    _table(console, "Compared with the truth (same players, within 100 ms)", header, rows)
    shares = comparison.possession
    teams = ", ".join(f"{team} {_share(shares.found[team])} (true {_share(shares.true[team])})" for team in shares.true)
    console.print(f"Possession: {teams}.", highlight=False)


def _print_late(console: Console, late: int, positions: int, quarantined: Counter[str]) -> None:
    share = f" ({share_text(late / positions)})" if positions else ""
    console.print(
        f"{late:,} of {positions:,} positions were late{share}; {quarantined.total():,} rows were quarantined.",
        highlight=False,
    )
    if quarantined:
        rows: Rows = [(reason, rows) for reason, rows in quarantined.most_common()]
        _table(console, "Quarantined", ("reason", "rows"), rows)


def _table(console: Console, title: str, header: tuple[str, ...], rows: Rows) -> None:
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name, justify="left" if name in ("event", "team", "player", "reason") else "right")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
