"""Which ball is in play (dissertation A.3): several are tracked, one is played with.

The first ball in the field while no other is there is the one in play, and it stays so, also out of the field, until
another one comes in. What real streams add to that:

- Noise at the line. A ball is in the field once its centre is, and out once it is `MARGIN` beyond.
- Several balls in the field. They change nothing as long as the ball in play is there too. When it goes out, one that
  merely lies around does not take over; one that is moved does.
- A ball that comes to rest on the line. In or out is the referee's call; we see it when another ball is brought. So one
  that has not moved for `IDLE` gives way as if it were out.
- A ball that vanishes. Silent for a second, it counts as gone; the ball that came into the field last takes over.
  With no other ball in the field it stays in play, and is when it returns.
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
from slackline_soccer.tracking.time import SECOND

#: In mm and µm/s: how far out is out, and how fast is moved.
MARGIN = 300.0
MOVED = 1.0e6
IDLE = 3 * SECOND

NOBODY = -1


@njit(cache=True)
def next_change(start, source, ts, x, y, v, number, field, lost, active, inside, seen, came, moved):  # type: ignore[no-untyped-def]
    """The first row from ``start`` on at which another ball is the one in play; the number of rows if none."""
    low_x, high_x, low_y, high_y = field
    for row in range(start, len(ts)):
        sid = source[row]
        if not 0 <= sid < len(number) or number[sid] < 0:
            continue
        ball, now = number[sid], ts[row]
        was_inside = inside[ball] and now - seen[ball] <= lost
        seen[ball] = now
        margin = MARGIN if was_inside else 0.0
        outside = max(low_x - x[row], x[row] - high_x, low_y - y[row], y[row] - high_y)
        inside[ball] = outside <= margin
        enters = inside[ball] and not was_inside
        if enters:
            came[ball] = now
        if enters or v[row] > MOVED:
            moved[ball] = now
        holder = active[0]
        if ball == holder:
            continue
        is_lost = holder != NOBODY and now - seen[holder] > lost
        if holder != NOBODY and inside[holder] and not is_lost and now - moved[holder] <= IDLE:
            continue
        taker = NOBODY
        if is_lost and inside[holder]:
            for other in range(len(inside)):
                if inside[other] and now - seen[other] <= lost and (taker == NOBODY or came[other] > came[taker]):
                    taker = other
        elif inside[ball] and (holder == NOBODY or enters or v[row] > MOVED):
            taker = ball
        if taker != NOBODY:
            active[0] = taker
            return row
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
        self.active = np.full(1, NOBODY, dtype=np.int64)
        self.inside = np.zeros(balls, dtype=np.bool_)
        self.seen = np.full(balls, LONG_AGO, dtype=np.int64)
        self.came = np.full(balls, LONG_AGO, dtype=np.int64)
        self.moved = np.full(balls, LONG_AGO, dtype=np.int64)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        source, ts = sources(batch), batch.ts
        x, y, v = columns(batch, "x", "y", "v")
        state = (self.active, self.inside, self.seen, self.came, self.moved)
        row = next_change(0, source, ts, x, y, v, self.number, self.field, self.lost, *state)
        while row < len(ts):
            yield row, Event(ACTIVE_BALL.name, ts=int(ts[row]), ball=self.match.balls[self.active[0]])
            row = next_change(row + 1, source, ts, x, y, v, self.number, self.field, self.lost, *state)
