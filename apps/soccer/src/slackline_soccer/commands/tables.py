"""The tables of a match on the terminal, wherever it was detected: in this process or on Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from slackline.report import share_text
from slackline_soccer import Comparison, Summary

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
