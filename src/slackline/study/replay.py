"""A recorded stream through one reorder buffer, without detectors: for studies."""

from __future__ import annotations

import numpy as np

from slackline.core.batch import Ints
from slackline.core.time import NEVER
from slackline.engine.options import Options
from slackline.ordering.arrival_time import ArrivalHistory, ArrivalWatermark
from slackline.ordering.clock import JUMP_OFF, Clock
from slackline.ordering.input import SensorInput
from slackline.ordering.startup import StartupEstimator
from slackline.study.outcome import Outcome


def replay(
    ts: Ints,
    source: Ints,
    *,
    policy: str = "auto",
    late_target: float | None = None,
    margin: float | None = None,
    window: int | None = None,
    timeout: int | None = None,
    warmup: int | None = None,
    arrival: Ints | None = None,
) -> Outcome:
    """Order a recorded stream of one event type, which is the clock type.

    ``ts`` and ``source`` (numbers from 0) are in arrival order. ``arrival`` is the arrival time of each, in the unit of
    ``ts`` and never decreasing; it is evidence under a policy with a ``late_target``.

    >>> stream = np.array([0, 1, 3, 2, 4, 5, 6])
    >>> replay(stream, np.zeros(7, dtype=np.int64), policy="slack", margin=0.0).late.tolist()
    [False, False, False, True, False, False, False]
    """
    options = Options(policy, margin, window, timeout, warmup, late_target=late_target)
    evidence = options.evidence
    input = SensorInput("event", 0, evidence, is_clock=True)
    n = len(ts)
    for number in range(int(source.max(initial=-1)) + 1):
        input.sources.slot(number)
    clk = np.empty(n, dtype=np.int64)
    Clock(JUMP_OFF).run(ts, np.ones(n, dtype=np.bool_), source, clk)
    positions = np.arange(n)
    if n == 0:
        return Outcome(positions, np.zeros(0, dtype=np.bool_), K=positions)
    startup = StartupEstimator(evidence.warmup).run(ts, NEVER, clk)
    timed = None
    if arrival is not None and evidence.late_target is not None:
        timed = ArrivalWatermark(evidence.late_target).run(ArrivalHistory(), ts, arrival, NEVER, clk, startup[1])
    reached, slack = input.run(positions, source, ts, 0, NEVER, clk, startup)
    at_once = watermark = np.maximum.accumulate(reached)
    if timed is not None:
        watermark = np.maximum.accumulate(np.maximum(reached, timed[1], out=reached.copy(), where=reached > NEVER))
    late = np.zeros(n, dtype=np.bool_)
    late[1:] = ts[1:] <= watermark[:-1]
    release = np.maximum(np.searchsorted(watermark, ts), positions)
    at = None
    if arrival is not None:
        at = arrival[np.minimum(release, n - 1)]
        if timed is not None:
            at = _between(ts, arrival, clk, np.minimum(release, n - 1), at_once, *timed)
    release[late] = -1
    return Outcome(release, late, at, slack)


def _between(
    ts: Ints, arrival: Ints, clk: Ints, release: Ints, at_once: Ints, first: Ints, last: Ints, longest: Ints
) -> Ints:
    """The times at which events were released: between two arrivals, if arrival time alone has released them."""
    passed = (np.maximum(first, at_once)[release] < ts) & (ts <= last[release])
    due = arrival[np.searchsorted(clk, ts)] + longest[release]
    following = arrival[np.minimum(release + 1, len(ts) - 1)]
    return np.where(passed, np.clip(due, arrival[release], following), arrival[release])
