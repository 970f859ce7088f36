"""A match through an engine in this process: the one way the command, the demo, the benchmark and the tests do it.

**Baselines.** What the detectors make of a stream without Slackline: in arrival order, and behind a fixed watermark;
and the bound.

A fixed watermark follows the largest event time so far at a constant distance, as in Flink and Spark. Rows at or below
it when they arrive are dropped, all others are sorted and released as it passes them. The bound is clairvoyant: it
releases an event as soon as the last row with an earlier event time has arrived, which can be known only afterwards.
Waits are stream time from an event's occurrence to its publication, as for Slackline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slackline import Auto, Engine, Event, Hierarchy, Late, Ordered, Output, Quarantined, Ready, Slack
from slackline_soccer.detectors import detectors
from slackline_soccer.model import events
from slackline_soccer.model.match import Match
from slackline_soccer.queries import queries as the_queries
from slackline_soccer.recordings import MatchRecording, open_recording
from slackline_soccer.summary import Summary
from slackline_soccer.tracking import MILLISECOND

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


@dataclass(frozen=True)
class Baseline:
    """The events that were detected, the rows that were dropped, and the mean wait (ps) of the events of each type."""

    name: str
    events: Sequence[Event]
    dropped: int
    waits: dict[str, float]


def in_order(table: pa.Table) -> pa.Table:
    """The rows sorted by event time."""
    return table.take(pa.array(np.lexsort((table["sid"].to_numpy(), table["ts"].to_numpy()))))


def arrival_order(table: pa.Table, match: Match) -> Baseline:
    """The detectors on the stream in arrival order."""
    result = run([table], match, queries=False, ordered=False)
    return Baseline("arrival order", result.events(), 0, _mean_waits(result))


def fixed_watermark(table: pa.Table, match: Match, delay: int) -> Baseline:
    """The detectors behind a watermark ``delay`` (ps) behind the largest event time."""
    ts = table["ts"].to_numpy()
    largest = np.maximum.accumulate(ts)
    late = np.zeros(len(ts), dtype=bool)
    late[1:] = ts[1:] <= largest[:-1] - delay
    result = _sorted_run(in_order(table.filter(pa.array(~late))), match)
    waits = {kind: wait + delay for kind, wait in _mean_waits(result).items()}
    return Baseline(f"fixed watermark of {delay / MILLISECOND:g} ms", result.events(), int(late.sum()), waits)


def clairvoyant(table: pa.Table, match: Match) -> Baseline:
    """The detectors on the perfectly ordered stream, each event as early as its order can be known."""
    ts = table["ts"].to_numpy()
    largest = np.maximum.accumulate(ts)
    order = np.argsort(ts, kind="stable")
    complete = largest[np.maximum.accumulate(order)]  # stream time when all rows up to the n-th event time have arrived
    result = _sorted_run(in_order(table), match)

    def wait(output: Output) -> float:
        row = np.searchsorted(ts, output.detected_at, side="right", sorter=order) - 1
        return float(complete[row] - output.event.ts)

    waits = {kind: float(np.mean([wait(one) for one in found])) for kind, found in result.outputs.items() if found}
    return Baseline("bound", result.events(), 0, waits)


def _sorted_run(table: pa.Table, match: Match) -> MatchResult:
    return run([table], match, queries=False, policy="ordered")


def _mean_waits(result: MatchResult) -> dict[str, float]:
    return {kind: waits.mean for kind, waits in result.summary.waits.items() if waits.count}
