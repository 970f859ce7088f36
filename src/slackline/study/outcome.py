"""When a policy released each event of a recorded stream, and how long that took.

All policies are measured alike (docs/concepts/ordering.md): the **watermark** after each arrival never moves back; an
event is **late** if it arrives below the watermark of the arrival before it; any other event is released at the first
position, its own or a later one, whose watermark covers it. Its **wait** is the time of that release minus its own
arrival. Late events have no wait. What only the end of the stream releases waits until the last arrival.

There are two rules for an event that arrives exactly **at** the watermark, where others of its event time have been
released. In most stream processors it is on time, and released at once. A reorder buffer promises a total order, also
among equal event times, so there such an event is late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackline.core.batch import Ints, Mask

#: After so many arrivals a policy is past its start; its figures from there on are its steady ones.
STEADY = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Per event the arrival position that released it, its own or a later one (n: the end of the stream; -1: late),
    and whether it was late.

    ``at`` is the time of the release where that is not the arrival at its position: it may lie between two arrivals.
    ``K`` is the slack after each arrival, where the policy has one.
    """

    release: Ints
    late: Mask
    at: Ints | None = None
    K: Ints | None = None


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
