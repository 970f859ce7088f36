"""A match through an engine in this process: the one way the command, the demo, the benchmark and the tests do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from slackline import Auto, Engine, Hierarchy, Late, Ordered, Output, Quarantined, Ready, Slack
from slackline_soccer.hierarchy import detectors
from slackline_soccer.model import events
from slackline_soccer.model.match import Match
from slackline_soccer.queries import queries as the_queries
from slackline_soccer.recordings import MatchRecording, open_recording
from slackline_soccer.summary import Summary

#: What happens in a match is kept whole; what the queries say many times a second is only summed up.
KEPT = tuple(kind.name for kind in events.ALL)
#: Positions that are pushed at a time.
PUSH = 50_000
#: Warm-up where there is no late target, in stream time: by then every transmitter should have sent a position.
WARMUP_SECONDS = 0.25

Take = Callable[[list[Output]], None]
Progress = Callable[[int], None]
Policy = Auto | Slack | Ready | Ordered


@dataclass(frozen=True)
class MatchResult:
    """What came out of a match.

    ``outputs`` has the events of the types that were kept, ``summary`` the figures of all. ``late`` counts per
    detector, ``late_positions`` the positions that were late for any; ``quarantined`` counts by reason.
    """

    match: Match
    positions: int
    outputs: dict[str, list[Output]]
    summary: Summary
    late: Counter[str]
    late_positions: int
    quarantined: Counter[str]
    stats: dict[str, Any]

    def events(self, *types: str) -> list[Any]:
        """The kept events of these types, or of all, in the order in which they were found."""
        return [output.event for kind in types or self.outputs for output in self.outputs.get(kind, ())]


def match_hierarchy(match: Match, queries: bool = True, ordered: bool = True) -> Hierarchy:
    """The detectors of a match, with or without the four queries; the positions are the clock."""
    chosen = [*detectors(match), *(the_queries(match) if queries else ())]
    if not ordered:
        for detector in chosen:
            detector.unsorted = detector.listens
    return Hierarchy(chosen, clock=(match.position,))


def recorded(path: Path | str) -> tuple[Hierarchy, Callable[[], Iterable[pa.Table]]]:
    """What a recording is to be run by, and its positions: ``slackline calibrate MATCH slackline_soccer:recorded``."""
    recording = open_recording(path)
    return match_hierarchy(recording.match), recording.tables


def query_hierarchy(match: Match) -> Hierarchy:
    """The four queries, and of the detectors those that they need."""
    everything = {type(detector).__name__: detector for detector in (*detectors(match), *the_queries(match))}
    whole = match_hierarchy(match)
    needed = [type(query).__name__ for query in the_queries(match)]
    for name in needed:  # grows while we go through it
        below = dict.fromkeys(whole.publisher.get(kind) for kind in whole.listens[name])
        needed += [other for other in below if other is not None and other not in needed]
    return Hierarchy([everything[name] for name in needed], clock=(match.position,))


def run(
    tables: MatchRecording | Iterable[pa.Table],
    match: Match | None = None,
    *,
    queries: bool = True,
    keep: Collection[str] = KEPT,
    take: Take | None = None,
    progress: Progress | None = None,
    history: list[dict[str, Any]] | None = None,
    ordered: bool = True,
    **engine: Any,
) -> MatchResult:
    """A recording, or tables of positions and their match, through the detectors.

    ``keep`` names the types whose events the result holds; ``take`` gets everything that is found, push by push, and
    ``progress`` the number of positions so far; ``history`` is filled with the engine's statistics after each push.
    Not ``ordered``: the detectors see everything as it comes, to show what that does. Whatever else is given goes to
    the engine; a policy that is given by name is that of :func:`match_policy`.
    """
    if isinstance(tables, MatchRecording):
        recording, match, tables = tables, tables.match, tables.tables()
    else:
        recording = None
    if match is None:
        raise TypeError("run() of tables needs their match; a recording has its own.")
    hierarchy = match_hierarchy(match, queries, ordered)
    policy = engine.pop("policy", "auto")
    if isinstance(policy, str):
        policy = match_policy(match, policy)
    machine = Engine(hierarchy, policy=policy, **engine)
    found = _Found(keep, Summary.of(match, hierarchy), take)
    positions = 0
    for table in tables:
        for start in range(0, table.num_rows, PUSH):
            part = table.slice(start, PUSH)
            found.add(machine.push(part))
            found.set_aside(*machine.drain()[:2])
            positions += part.num_rows
            if history is not None:
                history.append(machine.stats())
            if progress is not None:
                progress(positions)
    found.add(machine.close())
    found.set_aside(*machine.drain()[:2])
    if recording is not None:
        found.quarantined.update(recording.set_aside.reasons)
    return MatchResult(
        match,
        positions,
        found.outputs,
        found.summary,
        found.late,
        len(found.late_at),
        found.quarantined,
        machine.stats(),
    )


def match_policy(match: Match, name: str = "auto") -> Policy:
    """A policy for a match. ``slack`` and ``ready`` wait for all transmitters at the start, as ``auto`` does itself."""
    if name in ("auto", "ordered"):
        return Auto() if name == "auto" else Ordered()
    balls = len(match.balls)
    rate = match.ball_rate * balls + match.player_rate * (len(match.sids) - balls)
    return {"slack": Slack, "ready": Ready}[name](warmup=round(WARMUP_SECONDS * rate))


class _Found:
    """What the engine gives back, push by push, sorted into what is kept and what is counted."""

    def __init__(self, keep: Collection[str], summary: Summary, take: Take | None) -> None:
        self.outputs: dict[str, list[Output]] = {kind: [] for kind in keep}
        self.summary = summary
        self.take = take
        self.late: Counter[str] = Counter()
        self.late_at: set[int] = set()
        self.quarantined: Counter[str] = Counter()

    def add(self, outputs: list[Output]) -> None:
        for output in outputs:
            event = output.event
            self.summary.add(event, output.detected_at - event.ts)
            if (kept := self.outputs.get(event.type)) is not None:
                kept.append(output)
        if self.take is not None and outputs:
            self.take(outputs)

    def set_aside(self, late: list[Late], quarantined: list[Quarantined]) -> None:
        for item in late:
            self.late[item.detector or ""] += 1
            if item.event.type == "position" and item.position is not None:
                self.late_at.add(item.position)
        self.quarantined.update(item.reason for item in quarantined)
