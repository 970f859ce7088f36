"""The ball itself: which one is in play, when it turned, where it is.

**The active ball** [Thesis, A.3]. Several are tracked, one is played with.

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

**Turns.** A ball that was hit, bounced or was blocked shows a peak of its filtered acceleration [Thesis, A.2].

The amount of the acceleration goes through a mean filter. From where it rises above the threshold until it has
fallen to half of its peak is one contact, however long it lasts (a kick takes some 10 ms); it is published then,
because only then is it known how the velocity was changed (if hardly, it was noise). The event carries the time and the
place of the *onset*: where the mean crossed the threshold, back-dated by the filter's delay. On the recorded match that
is where the ball's path bends; the peak itself comes some 8 ms later, since the positions' own filter smears it.

A change that the ground explains is marked as a ``bounce``: a low ball that fell, now rises, and lost along its way no
more than friction takes. So a detector of hits need not guess when a ball bounces beside a player.

**Areas**: the field, the penalty areas, the goals. The ball is out of the field when all of it has crossed the line, so
when its centre is a radius beyond; it is in again when its centre is (well inside, where positions are noisy). Between
the two nothing changes, so noise at the line makes no events. A goal is entered only from the field, between the posts
and under the bar; a ball that rolls in from behind scores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import LONG_AGO, NONE, Floats, columns, numbered, sources
from slackline_soccer.model.events import ACTIVE_BALL, BALL_ENTERED, BALL_LEFT, BALL_TURNED
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import BALL_RADIUS, Thresholds
from slackline_soccer.tracking import SECOND

#: In mm and µm/s: how far out is out, and how fast is moved.
MARGIN = 300.0
MOVED = 1.0e6
IDLE = 3 * SECOND


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


AREAS = ("field", "penalty_0", "penalty_1", "goal_0", "goal_1")
FIELD, PENALTY, GOAL = 0, 1, 3

#: How deep a goal is (mm), with room for the net.
DEPTH = 3_000.0


def areas_of(match: Match) -> Floats:
    """Each area as lowest and highest *along*, *across* and z."""
    field = match.field
    above = np.inf
    rows = [(*field.ends, *field.sides, -above, above)]
    rows += [(*field.penalty_area(end), -above, above) for end in (0, 1)]
    for end, goal in enumerate(field.goals):
        line = field.ends[end]
        reach = (line - DEPTH, line) if end == 0 else (line, line + DEPTH)
        rows.append((*reach, goal.left, goal.right, -above, goal.height))
    return np.array(rows)


@njit(cache=True)
def beyond(area, along, across, z):  # type: ignore[no-untyped-def]
    """How far outside an area a place is; negative inside."""
    flat = max(area[0] - along, along - area[1], area[2] - across, across - area[3])
    return max(flat, area[4] - z, z - area[5])


@njit(cache=True)
def next_crossing(start, source, along, across, z, ball, areas, noise, inside, changed):  # type: ignore[no-untyped-def]
    """The first row from ``start`` on where the ball crosses into or out of areas, marked in ``changed``."""
    for row in range(start, len(source)):
        if source[row] != ball:
            continue
        crossed = False
        was_in_field = inside[FIELD]
        for area in range(len(areas)):
            outside = beyond(areas[area], along[row], across[row], z[row])
            if area < GOAL or inside[area]:
                within = outside <= (BALL_RADIUS if inside[area] else -noise)
            else:  # entered at the moment at which the field is left, and only then
                within = was_in_field and not inside[FIELD] and outside < 0.0
            changed[area] = within != inside[area]
            inside[area] = within
            crossed |= changed[area]
        if crossed:
            return row
    return len(source)


class BallAreas(Detector):
    """Publishes ``ball_entered`` and ``ball_left`` for each area of the field."""

    listens = ("position", "active_ball")
    publishes = (BALL_ENTERED, BALL_LEFT)
    fixed = ("match", "areas", "noise")

    def __init__(self, match: Match) -> None:
        self.match = match
        self.areas = areas_of(match)
        self.noise = Thresholds.of(match).line
        self.ball = NONE
        self.inside = np.zeros(len(AREAS), dtype=np.bool_)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "active_ball":
            self.ball = int(batch["ball"][-1])
            return
        x, y, z = columns(batch, "x", "y", "z")
        field = self.match.field
        given = (
            sources(batch),
            field.along(x, y),
            field.across(x, y),
            z,
            self.ball,
            self.areas,
            self.noise,
            self.inside,
        )
        changed = np.empty(len(AREAS), dtype=np.bool_)
        row = next_crossing(0, *given, changed)
        while row < len(x):
            for area in np.flatnonzero(changed).tolist():
                kind = BALL_ENTERED if self.inside[area] else BALL_LEFT
                where = {"x": float(x[row]), "y": float(y[row]), "z": float(z[row])}
                place: dict[str, Any] = {"ball": self.ball, "area": AREAS[area], **where}
                yield row, Event.of(kind.name, int(batch.ts[row]), None, None, place)
            row = next_crossing(row + 1, *given, changed)
