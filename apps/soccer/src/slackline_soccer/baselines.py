"""What the detectors make of a stream without Slackline: in arrival order, and behind a fixed watermark; and the bound.

A fixed watermark follows the largest event time so far at a constant distance, as in Flink and Spark. Rows at or below
it when they arrive are dropped, all others are sorted and released as it passes them. The bound is clairvoyant: it
releases an event as soon as the last row with an earlier event time has arrived, which can be known only afterwards.
Waits are stream time from an event's occurrence to its publication, as for Slackline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slackline import Event, Output
from slackline_soccer.model.match import Match
from slackline_soccer.run import MatchResult, Progress, run
from slackline_soccer.tracking.positions import MILLISECOND


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


def arrival_order(table: pa.Table, match: Match, progress: Progress | None = None) -> Baseline:
    """The detectors on the stream in arrival order."""
    result = run([table], match, queries=False, ordered=False, progress=progress)
    return Baseline("arrival order", result.events(), 0, _mean_waits(result))


def fixed_watermark(table: pa.Table, match: Match, delay: int, progress: Progress | None = None) -> Baseline:
    """The detectors behind a watermark ``delay`` (ps) behind the largest event time."""
    ts = table["ts"].to_numpy()
    largest = np.maximum.accumulate(ts)
    late = np.zeros(len(ts), dtype=bool)
    late[1:] = ts[1:] <= largest[:-1] - delay
    result = _sorted_run(in_order(table.filter(pa.array(~late))), match, progress)
    waits = {kind: wait + delay for kind, wait in _mean_waits(result).items()}
    return Baseline(f"fixed watermark of {delay / MILLISECOND:g} ms", result.events(), int(late.sum()), waits)


def clairvoyant(table: pa.Table, match: Match, progress: Progress | None = None) -> Baseline:
    """The detectors on the perfectly ordered stream, each event as early as its order can be known."""
    ts = table["ts"].to_numpy()
    largest = np.maximum.accumulate(ts)
    order = np.argsort(ts, kind="stable")
    complete = largest[np.maximum.accumulate(order)]  # stream time when all rows up to the n-th event time have arrived
    result = _sorted_run(in_order(table), match, progress)

    def wait(output: Output) -> float:
        row = np.searchsorted(ts, output.detected_at, side="right", sorter=order) - 1
        return float(complete[row] - output.event.ts)

    waits = {kind: float(np.mean([wait(one) for one in found])) for kind, found in result.outputs.items() if found}
    return Baseline("bound", result.events(), 0, waits)


def _sorted_run(table: pa.Table, match: Match, progress: Progress | None) -> MatchResult:
    return run([table], match, queries=False, progress=progress, policy="ordered")


def _mean_waits(result: MatchResult) -> dict[str, float]:
    return {kind: waits.mean for kind, waits in result.summary.waits.items() if waits.count}
