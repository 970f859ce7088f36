"""When a ball was hit, bounced or blocked: a peak of its filtered acceleration [Thesis, A.2].

The amount of the acceleration goes through a mean filter. From where it rises above the threshold until it has
fallen to half of its peak is one contact, however long it lasts (a kick takes some 10 ms); it is published then,
because only then is it known how the velocity was changed (if hardly, it was noise). The event carries the time and the
place of the *onset*: where the mean crossed the threshold, back-dated by the filter's delay. On the recorded match that
is where the ball's path bends; the peak itself comes some 8 ms later, since the positions' own filter smears it.

A change that the ground explains is marked as a ``bounce``: a low ball that fell, now rises, and lost along its way no
more than friction takes. So a detector of hits need not guess when a ball bounces beside a player.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import LONG_AGO, columns, numbered, sources
from slackline_soccer.model.events import BALL_TURNED
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds

#: What is kept of a position, in mm, m/s and m/s².
X, Y, Z, VX, VY, VZ, A = range(7)
#: Kept per ball: positions so far, last time stamp, the phase, since when.
COUNT, SEEN, PHASE, SINCE = range(4)
CALM, CONTACT, OVER = range(3)

#: While the filter still remembers a contact, the next one shows by the mean rising again to this multiple.
AGAIN = 2.0

#: The centre of a ball on the ground is lower than this (mm), as noisy as heights are.
LOW = 400.0
#: Friction takes at most this share of the push upwards; so much (m/s) is noise.
FRICTION, NOISE = 0.6, 0.7


@njit(cache=True)
def is_bounce(z, before, after):  # type: ignore[no-untyped-def]
    """Whether the ground alone explains the change of velocity: up, and at most a little slower."""
    up = after[2] - before[2]
    if z > LOW or before[2] > -0.3 or up < 0.3:
        return False
    px, py = after[0] - before[0], after[1] - before[1]
    faster = np.hypot(after[0], after[1]) > np.hypot(before[0], before[1]) + NOISE
    return not faster and np.hypot(px, py) <= FRICTION * up + NOISE


@njit(cache=True)
def next_contact(  # type: ignore[no-untyped-def]
    start, source, ts, x, y, z, v, a, vx, vy, vz, number, limits, times, ints, sums, ring_ts, ring, found
):
    """The first row from ``start`` on that completes a contact, described in ``found``; else the number of rows."""
    threshold, calm, push = limits
    window, contact, gap = times
    size = ring.shape[1]
    for row in range(start, len(ts)):
        sid = source[row]
        if not 0 <= sid < len(number) or number[sid] < 0:
            continue
        ball, now = number[sid], ts[row]
        own, kept, total = ints[ball], ring[ball], sums[ball]
        if now - own[SEEN] > gap:
            own[COUNT], own[PHASE], total[0] = 0, CALM, 0.0
        own[SEEN] = now
        count = own[COUNT]
        if count >= window:
            total[0] -= kept[(count - window) % size, A]
        slot = count % size
        position = kept[slot]
        scale = v[row] * 1e-10  # µm/s and a direction scaled to 10,000, to m/s
        position[X], position[Y], position[Z] = x[row], y[row], z[row]
        position[VX], position[VY], position[VZ] = vx[row] * scale, vy[row] * scale, vz[row] * scale
        position[A] = a[row] * 1e-6
        ring_ts[ball, slot] = now
        total[0] += position[A]
        own[COUNT] = count + 1
        if count + 1 < size:
            continue
        mean = total[0] / window
        if own[PHASE] == OVER:
            total[8] = min(total[8], mean)
        if own[PHASE] == CONTACT:
            total[1] = max(total[1], mean)
            if mean < total[1] / 2 or now - own[SINCE] >= contact:
                own[PHASE], total[8] = OVER, mean
                found[0], found[1:5] = ball, total[1:5]
                found[5:8] = position[VX : VZ + 1] - total[5:8]
                found[8] = is_bounce(total[4], total[5:8], position[VX : VZ + 1])
                if found[5] ** 2 + found[6] ** 2 + found[7] ** 2 >= push**2:
                    return row
        elif mean >= threshold and (own[PHASE] == CALM or mean >= AGAIN * total[8]):
            onset = (count - window // 2) % size
            # The least later than the onset: detectors above have then seen the positions of that moment.
            own[PHASE], own[SINCE] = CONTACT, ring_ts[ball, onset] + 1
            total[1] = mean
            total[2:5] = kept[onset, X : Z + 1]
            total[5:8] = kept[(count + 1) % size, VX : VZ + 1]
        elif mean < calm:
            own[PHASE] = CALM
    return len(ts)


class BallTurned(Detector):
    """Publishes ``ball_turned`` once per contact of any ball, back-dated to its onset."""

    listens = ("position",)
    publishes = (BALL_TURNED,)
    fixed = ("match", "number", "limits", "times")

    def __init__(self, match: Match) -> None:
        thresholds = Thresholds.of(match)
        balls, size = len(match.balls), thresholds.window + 2
        self.match = match
        self.number = numbered(match.balls, len(match.is_ball))
        self.limits = (thresholds.acceleration, thresholds.calm, thresholds.push)
        self.times = (thresholds.window, thresholds.contact, thresholds.gap)
        self.max_backdate = thresholds.turn_back
        self.ints = np.zeros((balls, 4), dtype=np.int64)
        self.ints[:, SEEN] = LONG_AGO
        #: Of each ball: the filter's sum; of its last contact the peak, place, velocity before, lowest mean since.
        self.sums = np.zeros((balls, 9))
        self.ring_ts = np.zeros((balls, size), dtype=np.int64)
        self.ring = np.zeros((balls, size, 7))

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        ts, found = batch.ts, np.empty(9)
        given: list[Any] = [sources(batch), ts, *columns(batch, "x", "y", "z", "v", "a", "vx", "vy", "vz")]
        given += (self.number, self.limits, self.times, self.ints, self.sums, self.ring_ts, self.ring, found)
        row = next_contact(0, *given)
        while row < len(ts):
            yield row, self._event(int(found[0]), found)
            row = next_contact(row + 1, *given)

    def _event(self, ball: int, found: np.ndarray) -> Event:
        peak, x, y, z, push_x, push_y, push_z, bounce = found[1:].tolist()
        return Event(
            BALL_TURNED.name,
            ts=int(self.ints[ball, SINCE]),
            ball=self.match.balls[ball],
            acceleration=peak,
            bounce=bool(bounce),
            push_x=push_x,
            push_y=push_y,
            push_z=push_z,
            x=x,
            y=y,
            z=z,
        )
