"""Speed, acceleration and direction from positions alone, object by object.

Where this happens was a choice (docs/decisions/0006): in the reader, not in a detector. A detector would get its
input in order for nothing, but what it publishes carries the detector's name as its source, and everything above
reads the transmitter there. So the reader looks ahead in the file instead. The motion of a row rests on the rows
of the same object within ``reach`` of it in time, among those that arrived up to ``ahead`` rows before or after. That
is a property of the stream: where it is cut into tables, and in which order rows came, changes nothing as long as
no row is further than ``ahead`` from its place. Rows leave in the order in which they came.

Straight lines are fitted to the positions before and after a row. Acceleration is the change from the one to the
other, in the plane (heights are measured worst, and a flying ball always falls), less what the noise of the positions
alone would make of it. For a ball that is not enough: a kick lasts less than a frame, but the lines see it from
``reach`` before to ``reach`` after. So where the change is largest, what it rises above its surroundings is taken for a
kick of CONTACT, about what a transmitter's own filter makes of one; elsewhere the acceleration is what the surroundings
have. The thresholds for transmitters then hold for tracking data of any rate.

Speed and direction are those of one line through the positions on both sides, as far as there was no kick in between.

Positions without x or y (not seen) take no part and pass through as they are; a missing height is that of the nearest
position that has one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline_soccer.tracking import SECOND

Column = npt.NDArray[Any]

#: How far to either side positions count: a ball turns sharply, a player does not.
BALL_REACH = 240 * SECOND // 1000
PLAYER_REACH = 400 * SECOND // 1000
#: Positions further apart than this do not belong to one motion.
MAX_GAP = SECOND // 2
#: At slow rates, at least so many positions to either side, within MAX_GAP of each other.
LEAST = 2
MOST = 64

#: A change of velocity counts less so many times the variance that noise alone gives it.
DOUBTED = 2.0
#: How long a kick is taken to last (s): a sudden change by 1.5 m/s has an acceleration of 55 m/s².
CONTACT = 0.027
#: A change (mm/s) from which on it is one: lines end there.
KICKED = 1_200.0


class Placed(NamedTuple):
    """Positions as they came: number of the object, ps, mm (NaN: not seen, or height unknown)."""

    slot: Column
    ts: Column
    x: Column
    y: Column
    z: Column


class Moving(NamedTuple):
    """Positions with their motion: mm, µm/s, µm/s², direction scaled to 10,000."""

    slot: Column
    ts: Column
    x: Column
    y: Column
    z: Column
    v: Column
    a: Column
    vx: Column
    vy: Column
    vz: Column


class Motion:
    """Takes positions in the order of arrival and gives them back in that order, later, with their motion.

    ``is_ball`` says of each object whether it is one; ``ahead`` is how many rows it looks ahead.

    >>> motion = Motion(np.array([True]), ahead=3)
    >>> frames = np.arange(10)
    >>> rows = Placed(frames * 0, frames * SECOND // 25, frames * 400.0, frames * 0.0, frames * 0.0)
    >>> first, rest = motion.push(rows), motion.close()
    >>> len(first.ts), len(rest.ts), rest.v.round()[:3], rest.vx[0]
    (1, 9, array([10000000., 10000000., 10000000.]), np.float64(10000.0))
    """

    def __init__(self, is_ball: Column, ahead: int) -> None:
        self.is_ball = is_ball
        self.reach = np.where(is_ball, BALL_REACH, PLAYER_REACH).astype(np.int64)
        self.ahead = ahead
        self.kept = Placed(*(np.empty(0, dtype=dtype) for dtype in "qqddd"))
        self.settled = 0  # how many of the kept rows went out already

    def push(self, rows: Placed) -> Moving:
        """The next arrivals; what comes back are the earlier ones that no later arrival can change."""
        self.kept = Placed(*(np.concatenate(pair) for pair in zip(self.kept, rows, strict=True)))
        # A row's speed depends on its neighbours' kicks, those on their neighbours' lines, and those on theirs.
        return self._settle(max(len(self.kept.ts) - 3 * self.ahead, self.settled))

    def close(self) -> Moving:
        """The stream has ended: the rest."""
        return self._settle(len(self.kept.ts))

    def _settle(self, stop: int) -> Moving:
        start, kept, ahead = self.settled, self.kept, self.ahead
        n = len(kept.ts)
        rows = slice(start, stop)
        motion, lines, kicked = np.zeros((5, n)), np.full((2, n), np.nan), np.zeros(n, dtype=np.bool_)
        z = kept.z.copy()
        if stop > start:
            order = np.lexsort((kept.ts, kept.slot))  # stable: equal time stamps stay in the order of arrival
            given = (kept.slot, kept.ts, kept.x, kept.y, z, order, self.reach, ahead, kicked)
            _fill_heights(*given[:6], ahead)
            _fit_lines(*given, max(start - 2 * ahead, 0), min(stop + 2 * ahead, n), lines)
            _find_kicks(
                *given[:2], *given[5:], max(start - ahead, 0), min(stop + ahead, n), self.is_ball, lines, motion[1]
            )
            _fit_speeds(*given, start, stop, motion)
        done = Moving(kept.slot[rows], kept.ts[rows], kept.x[rows], kept.y[rows], z[rows], *motion[:, rows])
        gone = max(stop - 3 * ahead, 0)
        self.kept = Placed(*(column[gone:] for column in kept))
        self.settled = stop - gone
        return done


@njit(cache=True)
def _fill_heights(slot, ts, x, y, z, order, ahead):  # type: ignore[no-untyped-def]
    """Missing heights become those of the nearest rows that have one, 0 if none near has."""
    given = z.copy()
    for place in range(len(order)):
        row = order[place]
        if not math.isnan(z[row]) or math.isnan(x[row]) or math.isnan(y[row]):
            continue
        best, height = MAX_GAP + 1, 0.0
        for step in (-1, 1):
            other = place + step
            while 0 <= other < len(order) and slot[order[other]] == slot[row]:
                near = order[other]
                other += step
                away = abs(ts[near] - ts[row])
                if away >= best:
                    break
                if abs(near - row) <= ahead and not math.isnan(given[near]):
                    best, height = away, given[near]
                    break
        z[row] = height


@njit(cache=True)
def _gather(slot, ts, x, y, z, order, reach, ahead, kicked, place, step, t, p):  # type: ignore[no-untyped-def]
    """Write the neighbours on one side of a row, up to the next kick, into ``t`` (s) and ``p`` (mm): how many."""
    row = order[place]
    found, last = 0, ts[row]
    other = place + step
    while 0 <= other < len(order) and slot[order[other]] == slot[row] and found < MOST:
        near = order[other]
        other += step
        away = abs(ts[near] - ts[row])
        if (away > reach[slot[row]] and found >= LEAST) or abs(ts[near] - last) > MAX_GAP:
            break
        if ts[near] == last or abs(near - row) > ahead or math.isnan(x[near]) or math.isnan(y[near]):
            continue
        found += 1
        last = ts[near]
        at = MOST + step * found
        t[at] = (ts[near] - ts[row]) / SECOND
        p[0, at], p[1, at], p[2, at] = x[near], y[near], z[near]
        if kicked[near]:
            break
    return found


@njit(cache=True)
def _line(t, p, start, stop, slope):  # type: ignore[no-untyped-def]
    """Least squares through the points from ``start`` up to ``stop``.

    Returns their middle in time, the sum of squares around it, and how far off the line they are in the plane.
    """
    n = stop - start
    middle = 0.0
    for i in range(start, stop):
        middle += t[i]
    middle /= n
    spread = 0.0
    for i in range(start, stop):
        spread += (t[i] - middle) ** 2
    off = 0.0
    for axis in range(3):
        mean, product, square = 0.0, 0.0, 0.0
        for i in range(start, stop):
            mean += p[axis, i]
        mean /= n
        for i in range(start, stop):
            product += (t[i] - middle) * (p[axis, i] - mean)
            square += (p[axis, i] - mean) ** 2
        slope[axis] = product / spread
        if axis < 2:
            off += max(square - product * slope[axis], 0.0)
    return middle, spread, off


@njit(cache=True)
def _fit_lines(slot, ts, x, y, z, order, reach, ahead, kicked, start, stop, lines):  # type: ignore[no-untyped-def]
    """The change of velocity (mm/s) from the line before a row to the line after it, and the time between (s)."""
    t, p = np.empty(2 * MOST + 1), np.empty((3, 2 * MOST + 1))
    vb, va = np.empty(3), np.empty(3)
    for place in range(len(order)):
        row = order[place]
        if row < start or row >= stop or math.isnan(x[row]) or math.isnan(y[row]):
            continue
        # The row itself in the middle, those before it downwards, those after it upwards.
        t[MOST], p[0, MOST], p[1, MOST], p[2, MOST] = 0.0, x[row], y[row], z[row]
        before = _gather(slot, ts, x, y, z, order, reach, ahead, kicked, place, -1, t, p)
        after = _gather(slot, ts, x, y, z, order, reach, ahead, kicked, place, 1, t, p)
        lines[0, row], lines[1, row] = 0.0, 1.0
        if before > 0 and after > 0:
            tb, spread_b, off_b = _line(t, p, MOST - before, MOST + 1, vb)
            ta, spread_a, off_a = _line(t, p, MOST, MOST + after + 1, va)
            # What noise makes of the difference of two slopes that share a point.
            variance = (off_b + off_a) / max(before + after - 2, 1)
            shared = -2.0 * tb * ta / (spread_b * spread_a)
            doubt = DOUBTED * variance * (1.0 / spread_b + 1.0 / spread_a + shared)
            change = (va[0] - vb[0]) ** 2 + (va[1] - vb[1]) ** 2
            lines[0, row], lines[1, row] = math.sqrt(max(change - doubt, 0.0)), ta - tb


@njit(cache=True)
def _find_kicks(slot, ts, order, reach, ahead, kicked, start, stop, is_ball, lines, acceleration):  # type: ignore[no-untyped-def]
    """Which rows are kicks, and the acceleration of each."""
    low = np.empty(2)
    for place in range(len(order)):
        row = order[place]
        if row < start or row >= stop or math.isnan(lines[0, row]):
            continue
        change = lines[0, row]
        if not is_ball[slot[row]]:
            acceleration[row] = 1e3 * change / lines[1, row]
            continue
        largest = True
        low[:] = change
        for side in range(2):
            step = 2 * side - 1
            other, found = place + step, 0
            while 0 <= other < len(order) and slot[order[other]] == slot[row]:
                near = order[other]
                other += step
                away = abs(ts[near] - ts[row])
                if (away > reach[slot[row]] and found >= LEAST) or away > MAX_GAP:
                    break
                if abs(near - row) > ahead or math.isnan(lines[0, near]):
                    continue
                found += 1
                low[side] = min(low[side], lines[0, near])
                if 2 * away <= reach[slot[row]] or found == 1:
                    # Of two that are equal the first is the largest.
                    largest &= lines[0, near] < change or (side == 1 and lines[0, near] == change)
        rise = change - max(low[0], low[1]) if largest else 0.0
        kicked[row] = rise >= KICKED
        acceleration[row] = 1e3 * max(min(low[0], low[1]) / lines[1, row], rise / CONTACT)


@njit(cache=True)
def _fit_speeds(slot, ts, x, y, z, order, reach, ahead, kicked, start, stop, motion):  # type: ignore[no-untyped-def]
    """Speed and direction, from one line between the kicks on either side; a kick's own is that after it."""
    t, p, v = np.empty(2 * MOST + 1), np.empty((3, 2 * MOST + 1)), np.empty(3)
    for place in range(len(order)):
        row = order[place]
        if row < start or row >= stop or math.isnan(x[row]) or math.isnan(y[row]):
            continue
        t[MOST], p[0, MOST], p[1, MOST], p[2, MOST] = 0.0, x[row], y[row], z[row]
        before = _gather(slot, ts, x, y, z, order, reach, ahead, kicked, place, -1, t, p)
        after = _gather(slot, ts, x, y, z, order, reach, ahead, kicked, place, 1, t, p)
        if kicked[row] and after >= LEAST:
            before = 0
        if before + after == 0:
            continue
        _line(t, p, MOST - before, MOST + after + 1, v)
        speed = math.sqrt((v**2).sum())
        motion[0, row] = 1e3 * speed
        if speed > 0.0:
            for axis in range(3):
                motion[2 + axis, row] = 1e4 * v[axis] / speed
