"""What a policy does to a recorded stream: when it releases each event, how long that takes, and which events are late.

Policies are those of a reorder buffer (:func:`replay`), and baselines: policies without evidence, and the bound of what
any policy can do.

All policies are measured alike (docs/concepts/ordering.md): the **watermark** after each arrival never moves back; an
event is **late** if it arrives below the watermark of the arrival before it; any other event is released at the first
position, its own or a later one, whose watermark covers it. Its **wait** is the time of that release minus its own
arrival. Late events have no wait. What only the end of the stream releases waits until the last arrival.

There are two rules for an event that arrives exactly **at** the watermark, where others of its event time have been
released. In most stream processors it is on time, and released at once. A reorder buffer promises a total order, also
among equal event times, so there such an event is late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Ints, Mask
from slackline.core.time import NEVER
from slackline.engine.options import Options
from slackline.ordering.arrival_time import ArrivalHistory, ArrivalWatermark
from slackline.ordering.clock import JUMP_OFF, Clock
from slackline.ordering.input import SensorInput
from slackline.ordering.policy import Policy, policy_of
from slackline.ordering.startup import StartupEstimator

#: After so many arrivals a policy is past its start; its figures from there on are its steady ones.
STEADY = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per event the arrival position that released it, its own or a later one (n: the end of the stream; -1: late),
    and whether it was late.

    ``at`` is the time of the release where that is not the arrival at its position: it may lie between two arrivals.
    ``K`` is the slack after each arrival, where the policy has one. ``late_sources`` are the sources, by number, of
    which far more events are late than its target allows (:meth:`SensorInput.late_sources`).
    """

    release: Ints
    late: Mask
    at: Ints | None = None
    K: Ints | None = None
    late_sources: Sequence[dict[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Late share, and waits in the stream's own unit; None where every event was late.

    The steady figures are those of the events after the first ``STEADY`` arrivals; None where there are none.
    """

    late_share: float
    mean_wait: float | None
    p50_wait: float | None
    p99_wait: float | None
    max_wait: float | None
    steady_late_share: float | None
    steady_mean_wait: float | None


def under_watermark(ts: Ints, watermark: Ints, *, ties_late: bool = False) -> Outcome:
    """The outcome of a policy that is given by its watermark after each position.

    ``ties_late`` chooses between the two rules above: late is what arrives below the watermark, or at or below it.

    >>> ts = np.array([1, 5, 3, 9, 5])
    >>> under_watermark(ts, np.maximum.accumulate(ts) - 4).release    # a fixed bound of 4
    array([1, 3, 3, 5, 4])
    >>> under_watermark(ts, np.maximum.accumulate(ts) - 4, ties_late=True).release
    array([ 1,  3,  3,  5, -1])
    """
    watermark = np.maximum.accumulate(watermark)
    late = np.zeros(len(ts), np.bool_)
    late[1:] = ts[1:] <= watermark[:-1] if ties_late else ts[1:] < watermark[:-1]
    release = np.maximum(np.searchsorted(watermark, ts, side="left"), np.arange(len(ts)))
    release[late] = -1
    return Outcome(release, late)


def measure(arrival: Ints, outcome: Outcome) -> PolicyFigures:
    """Late share and waits of an outcome; ``arrival`` must not decrease."""
    late = outcome.late
    at = outcome.at if outcome.at is not None else arrival[np.minimum(outcome.release, len(arrival) - 1)]
    waits = at - arrival
    on_time = waits[~late]
    p50, p99, longest = np.quantile(on_time, [0.5, 0.99, 1.0]).tolist() if len(on_time) else (None, None, None)
    return PolicyFigures(
        late_share=float(np.mean(late)),
        mean_wait=_mean(on_time),
        p50_wait=p50,
        p99_wait=p99,
        max_wait=longest,
        steady_late_share=_mean(late[STEADY:]),
        steady_mean_wait=_mean(waits[STEADY:][~late[STEADY:]]),
    )


def _mean(values: Ints | Mask) -> float | None:
    return float(np.mean(values)) if len(values) else None


def replay(
    ts: Ints,
    source: Ints,
    *,
    policy: str | Policy = "auto",
    late_target: float | None = None,
    arrival: Ints | None = None,
) -> Outcome:
    """Order a recorded stream of one event type, which is the clock type.

    ``ts`` and ``source`` (numbers from 0) are in arrival order. ``arrival`` is the arrival time of each, in the unit of
    ``ts`` and never decreasing; it is evidence under a policy with a ``late_target``.

    >>> from slackline import Slack
    >>> stream = np.array([0, 1, 3, 2, 4, 5, 6])
    >>> replay(stream, np.zeros(7, dtype=np.int64), policy=Slack(margin=0)).late.tolist()
    [False, False, False, True, False, False, False]
    """
    options = Options(policy_of(policy), late_target=late_target)
    evidence = options.policy.evidence(options.target)
    input = SensorInput("event", 0, evidence, is_clock=True)
    n = len(ts)
    for number in range(int(source.max(initial=-1)) + 1):
        input.sources.slot(number)
    clk = np.empty(n, dtype=np.int64)
    Clock(JUMP_OFF).run(ts, np.ones(n, dtype=np.bool_), source, clk)
    positions = np.arange(n)
    if n == 0:
        return replace(under_watermark(ts, clk), K=positions)
    startup = StartupEstimator(evidence.warmup).run(ts, NEVER, clk, arrival)
    timed = None
    if arrival is not None and evidence.late_target is not None:
        timed = ArrivalWatermark(evidence.late_target).run(ArrivalHistory(), ts, arrival, NEVER, clk, startup[1])
    at_once, times = np.empty(n, dtype=np.int64), None if timed is None else timed[1]
    reached, slack = input.run(positions, source, ts, 0, NEVER, clk, startup, times, at_once=at_once)
    outcome, at = under_watermark(ts, reached, ties_late=True), None
    if arrival is not None and timed is not None:
        released = np.minimum(np.where(outcome.late, positions, outcome.release), n - 1)
        at = _between(ts, arrival, clk, released, np.maximum.accumulate(at_once), *timed)
    return replace(outcome, at=at, K=slack, late_sources=input.late_sources() if input.tracks else ())


def _between(
    ts: Ints, arrival: Ints, clk: Ints, release: Ints, at_once: Ints, first: Ints, last: Ints, longest: Ints
) -> Ints:
    """The times at which events were released: between two arrivals, if arrival time alone has released them."""
    passed = (np.maximum(first, at_once)[release] < ts) & (ts <= last[release])
    due = arrival[np.searchsorted(clk, ts)] + longest[release]
    following = arrival[np.minimum(release + 1, len(ts) - 1)]
    return np.where(passed, np.clip(due, arrival[release], following), arrival[release])


# Baselines.


def clairvoyant(ts: Ints) -> Outcome:
    """The bound without loss: release an event when the last one not after it has arrived.

    No event is late and none waits longer than order demands.

    >>> clairvoyant(np.array([1, 5, 3, 9, 2])).release
    array([0, 4, 4, 4, 4])
    """
    order = np.argsort(ts, kind="stable")
    last = np.maximum.accumulate(order)
    # Equal event times wait for each other: take the last position of the run.
    run_end = np.searchsorted(ts[order], ts[order], side="right") - 1
    release = np.empty(len(ts), np.int64)
    release[order] = last[run_end]
    return Outcome(release, np.zeros(len(ts), np.bool_))


def fixed(ts: Ints, bound: int) -> Outcome:
    """A fixed watermark delay, as most stream processors have it: the watermark is the largest event time so far minus
    ``bound``."""
    return under_watermark(ts, np.maximum.accumulate(ts) - bound)


def lateness(ts: Ints) -> Ints:
    """How far each event is behind the largest event time before it: it is late under any smaller bound.

    Events that arrive in order have a lateness of zero or less.
    """
    behind = np.full(len(ts), np.iinfo(np.int64).min)
    behind[1:] = np.maximum.accumulate(ts)[:-1] - ts[1:]
    return behind


def smallest_bound(behind: Ints, late: int) -> int:
    """The smallest bound, from zero, under which at most ``late`` events are late: what hindsight would choose.

    ``behind`` is the lateness of the events that count, or for how long they were overtaken if the bound is a timer's.

    >>> behind = lateness(np.array([1, 5, 3, 9, 2]))
    >>> smallest_bound(behind, late=1), smallest_bound(behind, late=0)
    (2, 7)
    """
    if late >= len(behind):
        return 0
    last = len(behind) - 1 - late
    return max(0, int(np.partition(behind, last)[last]))


def timer(ts: Ints, arrival: Ints, delay: int) -> Outcome:
    """A fixed timer: an event is released ``delay`` after its arrival, and every older one in the buffer before it.

    So the watermark at any moment is the largest event time that had arrived ``delay`` before. Unlike a fixed
    watermark it moves on while nothing arrives. It is a reorder buffer: an event at the watermark is late, as the order
    among equal event times is kept. ``arrival`` must not decrease.

    >>> outcome = timer(np.array([1, 5, 3, 2, 9]), np.array([10, 20, 24, 26, 40]), 4)
    >>> outcome.at, outcome.late
    (array([14, 24, 24, 26, 40]), array([False, False, False,  True, False]))
    """
    due = arrival[np.searchsorted(np.maximum.accumulate(ts), ts)] + delay
    at = np.minimum(np.maximum(due, arrival), arrival[-1:])
    late = overtaken(ts, arrival) > delay
    release = np.searchsorted(arrival, at, side="right") - 1
    release[late] = -1
    return Outcome(release, late, at)


def overtaken(ts: Ints, arrival: Ints) -> Ints:
    """How long before each event the first that is as new or newer arrived: it is late under any shorter timer.

    Negative where no such event arrived before.
    """
    first = np.searchsorted(np.maximum.accumulate(ts), ts)
    positions = np.arange(len(ts))
    return np.where(first < positions, arrival - arrival[np.minimum(first, positions)], -1)


def max_slack(ts: Ints) -> Outcome:
    """Classic K-slack: K is the largest delay ever. The watermark is stream time minus K; every event is of a clock
    type."""
    clock = np.maximum.accumulate(ts)
    return under_watermark(ts, clock - np.maximum.accumulate(clock - ts))


def quantile(ts: Ints, q: float, window: int = 2000) -> Outcome:
    """K is the ``q``-quantile of the last ``window`` delays, its own included.

    As in NumPy the quantile lies between two delays where the share does; it is rounded up.
    """
    clock = np.maximum.accumulate(ts)
    return under_watermark(ts, clock - _sliding_quantile(clock - ts, q, window))


@njit(cache=True)
def _sliding_quantile(values: Ints, q: float, window: int) -> Ints:  # pragma: no cover (compiled)
    """Quantile of the last ``window`` values at each position: a sorted array with insertion and removal."""
    result = np.empty(len(values), np.int64)
    ordered = np.empty(window, np.int64)
    size = 0
    for i in range(len(values)):
        if size == window:
            gone = np.searchsorted(ordered, values[i - window])
            ordered[gone : size - 1] = ordered[gone + 1 : size].copy()
            size -= 1
        at = np.searchsorted(ordered[:size], values[i])
        ordered[at + 1 : size + 1] = ordered[at:size].copy()
        ordered[at] = values[i]
        size += 1
        place = q * (size - 1)
        below = int(place)
        above = min(below + 1, size - 1)
        between = (place - below) * (ordered[above] - ordered[below])
        result[i] = ordered[below] + int(np.ceil(between - 1e-9))
    return result
