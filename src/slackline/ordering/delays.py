"""Measured delays of one event type, and the slack K that follows from them [Order, II-E.2; Thesis, 3.3.2].

The delay of an event is stream time (``clk``) at the first clock update after its arrival, minus its time stamp. An
event of a clock type is its own update: it moves stream time and has no delay, or it arrives after a newer one and is
measured against stream time. K is the largest delay in a window of recent measurements plus the margin λ·σ, where σ is
the standard deviation of the delays in the window. K grows at once and shrinks as the window moves.

The window has ``BLOCKS`` closed blocks and an open one. A block closes when it has ``block`` measurements *and* spans
half the largest delay in stream time: so the window has enough measurements for a meaningful maximum and covers at
least 16 times the largest delay, whatever the rate of the stream.

Between two clock updates only count, minimum and sums of the arrivals are stored, so every step is O(1).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from slackline.core.batch import Floats, Ints
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked

BLOCKS = 32

# Integer state: pending arrivals and the open block; then of each closed block the largest delay and the number.
(
    WAITING, WAITING_MIN, WAITING_BASE, K, CLOSED_MAX, OPEN_MAX, OPEN_N, OPEN_START, HEAD, MEASURED, CLOSED_N,
    MARGIN, MARGIN_DUE, CALIBRATED,
) = range(14)  # fmt: skip
INTS = 14
# Float state: sums and sums of squares; then those of each closed block.
WAITING_SUM, WAITING_SQ, OPEN_SUM, OPEN_SQ, CLOSED_SUM, CLOSED_SQ = range(6)
FLOATS = 6

UNMEASURED: Ints = np.zeros(INTS, dtype=np.int64)
UNMEASURED[[CLOSED_MAX, OPEN_MAX, OPEN_START]] = NEVER

#: Bounds of each integer, to validate saved state.
LEAST: Ints = np.zeros(INTS, dtype=np.int64)
MOST: Ints = np.full(INTS, 2**62, dtype=np.int64)
LEAST[[WAITING_MIN, WAITING_BASE, CLOSED_MAX, OPEN_MAX, OPEN_START]] = NEVER
MOST[[CLOSED_MAX, OPEN_MAX]] = 2**62 - NEVER  # of a pseudo event
MOST[[K, MARGIN]] = FOREVER
MOST[[HEAD, CALIBRATED]] = BLOCKS - 1, 1
_NO_BLOCK, _BLOCK_MOST = np.array([NEVER, 0]), np.array([2**62 - NEVER, 2**62])


def empty_window() -> tuple[Ints, Floats]:
    """The state of a type without measurements."""
    return UNMEASURED.copy(), np.zeros(FLOATS)


def with_room(ints: Ints, floats: Floats, arrivals: int, block: int) -> tuple[Ints, Floats, int]:
    """The state with room for the blocks that so many arrivals may close, and how many arrivals it has room for."""
    blocks = (len(ints) - INTS) // 2
    if blocks == BLOCKS:
        return ints, floats, FOREVER
    closed, started = int(ints[HEAD]), int(ints[OPEN_N]) + int(ints[WAITING])
    needed = closed + (started + arrivals) // block
    if needed > blocks:
        blocks, more = min(max(needed, 2 * blocks), BLOCKS), blocks
        ints = np.concatenate((ints, np.tile(_NO_BLOCK, blocks - more)))
        floats = np.concatenate((floats, np.zeros(2 * (blocks - more))))
    return ints, floats, FOREVER if blocks == BLOCKS else (blocks - closed + 1) * block - started - 1


@lru_cache(maxsize=BLOCKS + 1)
def _bounds(blocks: int) -> tuple[Ints, Ints]:
    return np.append(LEAST, np.tile(_NO_BLOCK, blocks)), np.append(MOST, np.tile(_BLOCK_MOST, blocks))


def restored(state: Any, what: str) -> tuple[Ints, Floats]:
    """The state from a checkpoint, validated."""
    blocks = min(max(0, (np.size(checked.entry(state, what, "ints")) - INTS) // 2), BLOCKS)
    least, most = _bounds(blocks)
    ints = checked.ints(state, what, "ints", least.shape, least, most)
    if ints[HEAD] > blocks:
        raise checked.wrong(f"{what}.ints", "has too few blocks")
    return ints, checked.floats(state, what, "floats", FLOATS + 2 * blocks)


def start_from(ints: Ints, delay: int) -> None:
    """Start with a known delay: the largest of the window until the window has moved."""
    ints[OPEN_MAX] = ints[K] = delay
    ints[CALIBRATED] = 1


def assume(ints: Ints, delay: int) -> bool:
    """Use a delay until the first is measured [Migration, algorithm 1]; no effect, and False, if one was."""
    if ints[MEASURED]:
        return False
    ints[K] = delay
    ints[CALIBRATED] = 1
    return True


@njit(cache=True, inline="always")
def note(ints, floats, ts, clk):  # type: ignore[no-untyped-def]
    """An event (or a pseudo event) arrived; its delay is measured at the next clock update."""
    ts = max(ts, NEVER)
    if ints[WAITING] == 0:
        ints[WAITING_BASE] = ts if clk == NEVER else clk
        ints[WAITING_MIN] = ts
        floats[WAITING_SUM] = 0.0
        floats[WAITING_SQ] = 0.0
    elif ts < ints[WAITING_MIN]:
        ints[WAITING_MIN] = ts
    ints[WAITING] += 1
    lag = float(ts - ints[WAITING_BASE])
    floats[WAITING_SUM] += lag
    floats[WAITING_SQ] += lag * lag


@njit(cache=True, inline="always")
def measure(ints, floats, clk, margin, block):  # type: ignore[no-untyped-def]
    """Stream time moved: measure the pending delays and set K."""
    n = ints[WAITING]
    if n == 0:
        return
    ints[WAITING] = 0
    ahead = float(clk - ints[WAITING_BASE])
    floats[OPEN_SUM] += n * ahead - floats[WAITING_SUM]
    floats[OPEN_SQ] += n * ahead * ahead - 2.0 * ahead * floats[WAITING_SUM] + floats[WAITING_SQ]
    _set_slack(ints, floats, n, clk - ints[WAITING_MIN], clk, margin, block)


@njit(cache=True, inline="always")
def measure_itself(ints, floats, delay, clk, margin, block):  # type: ignore[no-untyped-def]
    """An event of a clock type arrived with this delay: set K."""
    lag = float(delay)
    floats[OPEN_SUM] += lag
    floats[OPEN_SQ] += lag * lag
    _set_slack(ints, floats, 1, delay, clk, margin, block)


@njit(cache=True, inline="always")
def _set_slack(ints, floats, n, longest, clk, margin, block):  # type: ignore[no-untyped-def]
    """K after ``n`` more measurements, of which the longest is given."""
    ints[MEASURED] += n
    ints[OPEN_N] += n
    ints[OPEN_MAX] = max(ints[OPEN_MAX], longest)
    if ints[OPEN_START] == NEVER:
        ints[OPEN_START] = clk
    largest = max(ints[OPEN_MAX], ints[CLOSED_MAX], 0)
    if ints[MEASURED] >= ints[MARGIN_DUE]:
        _set_margin(ints, floats, margin)
    ints[K] = min(largest, FOREVER - ints[MARGIN]) + ints[MARGIN]
    spanned = clk - ints[OPEN_START]
    if ints[OPEN_N] >= block and spanned >= largest - spanned:
        _close_block(ints, floats, clk)


@njit(cache=True)
def _set_margin(ints, floats, margin):  # type: ignore[no-untyped-def]
    """Recompute λ·σ; it changes slowly, so after the first measurements every 16th suffices."""
    total = ints[OPEN_N] + ints[CLOSED_N]
    mean = (floats[OPEN_SUM] + floats[CLOSED_SUM]) / total
    variance = max(0.0, (floats[OPEN_SQ] + floats[CLOSED_SQ]) / total - mean * mean)
    wanted = margin * math.sqrt(variance)
    ints[MARGIN] = math.ceil(wanted) if wanted < FOREVER else FOREVER
    ints[MARGIN_DUE] = ints[MEASURED] + (1 if ints[MEASURED] < 256 else 16)


@njit(cache=True)
def _close_block(ints, floats, clk):  # type: ignore[no-untyped-def]
    """The caller has made room for the block (:func:`with_room`)."""
    head = ints[HEAD]
    ints[INTS + 2 * head] = ints[OPEN_MAX]
    ints[INTS + 2 * head + 1] = ints[OPEN_N]
    floats[FLOATS + 2 * head] = floats[OPEN_SUM]
    floats[FLOATS + 2 * head + 1] = floats[OPEN_SQ]
    ints[HEAD] = (head + 1) % BLOCKS
    ints[OPEN_MAX] = NEVER
    ints[OPEN_N] = 0
    ints[OPEN_START] = clk
    floats[OPEN_SUM] = 0.0
    floats[OPEN_SQ] = 0.0
    # Summed again rather than updated, so that rounding errors of old values do not accumulate.
    ints[CLOSED_MAX] = NEVER
    ints[CLOSED_N] = 0
    floats[CLOSED_SUM] = 0.0
    floats[CLOSED_SQ] = 0.0
    for b in range((len(ints) - INTS) // 2):
        ints[CLOSED_MAX] = max(ints[CLOSED_MAX], ints[INTS + 2 * b])
        ints[CLOSED_N] += ints[INTS + 2 * b + 1]
        floats[CLOSED_SUM] += floats[FLOATS + 2 * b]
        floats[CLOSED_SQ] += floats[FLOATS + 2 * b + 1]
