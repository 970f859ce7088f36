"""Adaptive watermarks that others have published, as baselines. None of them uses the source of an event.

Each is written after its description; what a description leaves open is listed under "assumed" and in
docs/guides/study-a-stream.md. All see one stream, event by event, and give the watermark after each
(:func:`slackline.study.policies.under_watermark`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline.core.batch import Floats, Ints
from slackline.core.time import NEVER, converted
from slackline.study.policies import Outcome, under_watermark

# Percentile of a histogram.

#: Delays in the histogram, events before the first watermark, and the least and largest wait in ms.
HISTOGRAM, FIRST, LEAST_MS, LARGEST_MS = 5_000, 250, 50, 7 * 24 * 3_600_000


def percentile(ts: Ints, q: float, unit: str = "us", window: int = HISTOGRAM, first: int = FIRST) -> Outcome:
    """The watermark trails stream time by a delay that covers a share ``q`` of a histogram of recent delays.

    Flink's histogram-based watermark emitter (FLINK-3429) samples delays for a while and then keeps the least wait that
    covers a given share of them. Confluent's default watermark strategy (``SOURCE_WATERMARK()``) keeps a moving
    histogram of the delays behind the largest event time, per partition, needs 250 events, and covers up to 7 days.

    Assumed: the histogram holds 5,000 delays in buckets of 50 ms, and the wait is the upper edge of a bucket, so 50 ms
    at least; the stream is one partition; Confluent's share is 0.95.

    >>> ts = np.concatenate([np.arange(300) * 100, [29_790]])
    >>> outcome = percentile(ts, 0.95, "ms")
    >>> outcome.release[0], outcome.release[260], outcome.late[-1]
    (np.int64(249), np.int64(261), np.True_)
    """
    width = max(1, converted(LEAST_MS, "ms", unit))
    clock = np.maximum.accumulate(ts)
    edges, bucket = np.unique((clock - ts) // width, return_inverse=True)
    covering = edges[_covering_bucket(bucket.astype(np.int64), len(edges), q, window)]
    wait = np.minimum((covering + 1) * width, max(width, converted(LARGEST_MS, "ms", unit)))
    watermark = clock - wait
    watermark[: first - 1] = NEVER
    return under_watermark(ts, watermark)


@njit(cache=True)
def _covering_bucket(bucket: Ints, buckets: int, q: float, window: int) -> Ints:  # pragma: no cover (compiled)
    """The first bucket up to which a share ``q`` of the last ``window`` values lies, at each position.

    Counts are in a Fenwick tree.
    """
    result = np.empty(len(bucket), np.int64)
    tree = np.zeros(buckets + 1, np.int64)
    highest = 1
    while 2 * highest <= buckets:
        highest *= 2
    for i in range(len(bucket)):
        _count(tree, bucket[i], 1)
        if i >= window:
            _count(tree, bucket[i - window], -1)
        left = int(np.ceil(q * min(i + 1, window) - 1e-9))
        at, step = 0, highest
        while step > 0:
            if at + step <= buckets and tree[at + step] < left:
                at += step
                left -= tree[at]
            step //= 2
        result[i] = at
    return result


@njit(cache=True)
def _count(tree: Ints, bucket: int, change: int) -> None:  # pragma: no cover (compiled)
    at = bucket + 1
    while at < len(tree):
        tree[at] += change
        at += at & -at


# Change detection.

#: Events that only measure the largest lag; the confidence of the change detector; how often it looks, in events.
LEARNING, CONFIDENCE, EVERY = 1_000, 1.0, 32
#: Buckets of one size, the largest sizes, and the least part of the window that is compared with the rest.
ALIKE, SIZES, LEAST_PART = 5, 48, 5


def adwin(ts: Ints, arrival: Ints, threshold: float) -> Outcome:
    """A watermark is emitted when the lag of events, arrival time minus event time, changes.

    Adaptive Watermarks (Awad, Traub, Sakr; EDBT 2019): an adaptive window (ADWIN; Bifet, Gavaldà; SDM 2007) over the
    lags, as a share of the largest lag of the first 1,000 events, detects changes. At a change the watermark becomes
    the largest event time since the change before minus that largest lag, unless the share of late events since the
    last watermark has reached ``threshold``, or the events since the change before reach back to the old watermark.

    Assumed, after the code that the authors published: a confidence of 1 that is never adapted, looked at every 32
    events, lags without their sign.
    """
    return under_watermark(ts, _at_changes(ts, np.abs(arrival - ts), threshold))


@njit(cache=True)
def _at_changes(ts: Ints, lag: Ints, threshold: float) -> Ints:  # pragma: no cover (compiled)
    """The watermark after each position."""
    watermarks = np.full(len(ts), NEVER, np.int64)
    longest = max(1, lag[:LEARNING].max()) if len(lag) else 1
    window = np.zeros((SIZES, ALIKE + 1, 2))
    counts = np.zeros(SIZES, np.int64)
    sums = np.zeros(3)
    watermark, late, seen = NEVER, 0, 0
    newest, oldest, fresh = NEVER, NEVER, True
    for i in range(LEARNING, len(ts)):
        seen += 1
        late += ts[i] < watermark
        newest, oldest = (ts[i], ts[i]) if fresh else (max(newest, ts[i]), min(oldest, ts[i]))
        fresh = False
        _append(window, counts, sums, lag[i] / longest)
        if (i + 1 - LEARNING) % EVERY == 0 and _cut(window, counts, sums):
            back = oldest - (newest - oldest)
            if watermark == NEVER or (late < threshold * seen and watermark < back):
                watermark = max(watermark, newest - longest)
                late, seen = 0, 0
            fresh = True
        watermarks[i] = watermark
    return watermarks


@njit(cache=True)
def _append(window: Floats, counts: Ints, sums: Floats, value: float) -> None:  # pragma: no cover (compiled)
    """Append a value to an exponential histogram: sum and sum of squares of 1, 2, 4 ... values per bucket."""
    sums += np.array([1.0, value, value * value])
    total, square = value, value * value
    for size in range(SIZES):
        at = counts[size]
        window[size, at, 0], window[size, at, 1] = total, square
        counts[size] += 1
        if counts[size] <= ALIKE:
            return
        total = window[size, 0, 0] + window[size, 1, 0]
        square = window[size, 0, 1] + window[size, 1, 1]
        window[size, : ALIKE - 1] = window[size, 2:].copy()
        counts[size] -= 2


@njit(cache=True)
def _cut(window: Floats, counts: Ints, sums: Floats) -> bool:  # pragma: no cover (compiled)
    """Drop the oldest buckets while the mean of an older part of the window differs from that of the rest."""
    cut = False
    while sums[0] > 2 * LEAST_PART and _differs(window, counts, sums):
        size = SIZES - 1
        while counts[size] == 0:
            size -= 1
        sums -= np.array([2.0**size, window[size, 0, 0], window[size, 0, 1]])
        window[size, :ALIKE] = window[size, 1:].copy()
        counts[size] -= 1
        cut = True
    return cut


@njit(cache=True)
def _differs(window: Floats, counts: Ints, sums: Floats) -> bool:  # pragma: no cover (compiled)
    n, total = sums[0], sums[1]
    variance = max(0.0, sums[2] / n - (total / n) ** 2)
    doubt = np.log(2 * np.log(n) / CONFIDENCE)
    older, part = 0.0, 0.0
    for size in range(SIZES - 1, -1, -1):
        for at in range(counts[size]):
            older += 2.0**size
            part += window[size, at, 0]
            if older < LEAST_PART or n - older < LEAST_PART:
                continue
            m = 1 / older + 1 / (n - older)
            bound = np.sqrt(2 * m * variance * doubt) + 2 / 3 * doubt * m
            if abs(part / older - (total - part) / (n - older)) > bound:
                return True
    return False


# Feedback control.

#: Events between adaptations, events whose coverage is measured, gains of the controller.
STEP, SPAN, PROPORTIONAL, DERIVATIVE = 10, 1_000, 0.5, 0.8


def aqkslack(ts: Ints, coverage: float) -> Outcome:
    """K is a part α of the largest delay ever; a controller keeps the share of events on time at ``coverage``.

    AQ-K-slack (Ji, Zhou, Jerzak, Nica, Hackenbroich, Fetzer; DEBS 2015): a proportional-derivative controller compares
    the coverage that the result of a window aggregate needs with the coverage of the last window, and adapts α.

    Assumed: the coverage is given, since an ordering has no aggregate of which its error could be derived; a window
    has 1,000 events and slides by 10; gains of 0.5 and 0.8, as in Siddhi's implementation; α begins at 1.
    """
    return under_watermark(ts, _controlled(ts, coverage))


@njit(cache=True)
def _controlled(ts: Ints, coverage: float) -> Ints:  # pragma: no cover (compiled)
    """The watermark after each position."""
    watermarks = np.empty(len(ts), np.int64)
    late = np.zeros(len(ts), np.bool_)
    alpha, before, longest, in_window = 1.0, 0.0, 0, 0
    clock, watermark = NEVER, NEVER
    for i in range(len(ts)):
        late[i] = ts[i] < watermark
        in_window += late[i]
        if i >= SPAN:
            in_window -= late[i - SPAN]
        clock = max(clock, ts[i])
        longest = max(longest, clock - ts[i])
        if i + 1 >= SPAN and (i + 1) % STEP == 0:
            error = coverage - (1 - in_window / SPAN)
            alpha = min(1.0, max(0.0, alpha + PROPORTIONAL * error + DERIVATIVE * (error - before)))
            before = error
        watermark = max(watermark, clock - int(np.ceil(alpha * longest)))
        watermarks[i] = watermark
    return watermarks
