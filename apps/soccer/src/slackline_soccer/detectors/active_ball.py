"""Which ball is in play [Thesis, A.3]: several are tracked, one is played with.

The first ball in the field while no other is there is the one in play, and it stays so, also out of the field, until
another one comes in. What real streams add to that:

- Noise at the line. A ball is in the field once its centre is, and out once it is `MARGIN` beyond.
- Several balls in the field. They change nothing as long as the ball in play is there too. When it goes out, one that
  merely lies around does not take over; one that is moved does.
- A ball that comes to rest on the line. In or out is the referee's call; we see it when another ball is brought. So one
  that has not moved for `IDLE` gives way as if it were out.
- A ball that vanishes. Silent for a second, it counts as gone; the ball that came into the field last takes over.
  With no other ball in the field it stays in play, and is when it returns.

Positions of one time stamp are looked at together, in whatever order they are listed: the change holds from the next
time stamp on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import LONG_AGO, columns, numbered, sources
from slackline_soccer.model.events import ACTIVE_BALL
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds
from slackline_soccer.tracking.positions import SECOND

#: In mm and µm/s: how far out is out, and how fast is moved.
MARGIN = 300.0
MOVED = 1.0e6
IDLE = 3 * SECOND

NONE = -1


@njit(cache=True)
def taker_of(now, lost, active, inside, seen, came, moved, entered, speed):  # type: ignore[no-untyped-def]
    """Which ball takes over with the positions of ``now``, NONE if none does."""
    holder = active[0]
    is_lost = holder != NONE and now - seen[holder] > lost
    if holder != NONE and inside[holder] and not is_lost and now - moved[holder] <= IDLE:
        return NONE
    any_other, taker = False, NONE
    for ball in range(len(inside)):
        if ball == holder or not inside[ball] or now - seen[ball] > lost:
            continue
        was_there = seen[ball] == now
        any_other |= was_there
        takes = was_there and (holder == NONE or entered[ball] or speed[ball] > MOVED)
        if not (takes or (is_lost and inside[holder])):
            continue
        # Whichever came last; of two that came together the faster.
        if taker == NONE or (came[ball], speed[ball]) > (came[taker], speed[taker]):
            taker = ball
    return taker if any_other else NONE


@njit(cache=True)
def next_change(  # type: ignore[no-untyped-def]
    start, source, ts, x, y, v, number, field, lost, picture, active, inside, seen, came, moved, entered, speed
):
    """The first row from ``start`` on from which another ball is the one in play; the number of rows if none.

    The balls of one time stamp are looked at together, once it is over.
    """
    low_x, high_x, low_y, high_y = field
    for row in range(start, len(ts)):
        now = ts[row]
        if now > picture[0]:
            if picture[1]:
                picture[1] = 0
                taker = taker_of(picture[0], lost, active, inside, seen, came, moved, entered, speed)
                if taker != NONE:
                    active[0] = taker
                    return row
            picture[0] = now
        sid = source[row]
        if not 0 <= sid < len(number) or number[sid] < 0:
            continue
        ball = number[sid]
        was_inside = inside[ball] and now - seen[ball] <= lost
        seen[ball], speed[ball], picture[1] = now, v[row], 1
        margin = MARGIN if was_inside else 0.0
        outside = max(low_x - x[row], x[row] - high_x, low_y - y[row], y[row] - high_y)
        inside[ball] = outside <= margin
        entered[ball] = inside[ball] and not was_inside
        if entered[ball]:
            came[ball] = now
        if entered[ball] or v[row] > MOVED:
            moved[ball] = now
    return len(ts)


class ActiveBall(Detector):
    """Publishes ``active_ball`` when another ball is the one in play from here on."""

    listens = ("position",)
    publishes = (ACTIVE_BALL,)
    fixed = ("match", "number", "field", "lost")

    def __init__(self, match: Match) -> None:
        balls = len(match.balls)
        self.match = match
        self.number = numbered(match.balls, len(match.is_ball))
        self.field = (*match.field.x, *match.field.y)
        self.lost = Thresholds.of(match).lost
        self.active = np.full(1, NONE, dtype=np.int64)
        self.inside = np.zeros(balls, dtype=np.bool_)
        self.seen = np.full(balls, LONG_AGO, dtype=np.int64)
        self.came = np.full(balls, LONG_AGO, dtype=np.int64)
        self.moved = np.full(balls, LONG_AGO, dtype=np.int64)
        #: As of the latest position: whether it was the one with which the ball came in, and how fast it was.
        self.entered = np.zeros(balls, dtype=np.bool_)
        self.speed = np.zeros(balls)
        #: The time stamp that is being looked at, and whether a ball was seen then.
        self.picture = np.array([LONG_AGO, 0], dtype=np.int64)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        source, ts = sources(batch), batch.ts
        x, y, v = columns(batch, "x", "y", "v")
        state = (self.picture, self.active, self.inside, self.seen, self.came, self.moved, self.entered, self.speed)
        row = next_change(0, source, ts, x, y, v, self.number, self.field, self.lost, *state)
        while row < len(ts):
            yield row, Event(ACTIVE_BALL.name, ts=int(ts[row]), ball=self.match.balls[self.active[0]])
            row = next_change(row, source, ts, x, y, v, self.number, self.field, self.lost, *state)
