"""Query 4 of DEBS 2013: how the ball of a shot on goal moves, until it is one no more.

A ``shot`` is back-dated to its hit, so the ball is followed from there on. It is a shot no more when the ball

- leaves the field (which a goal is, too),
- is hit again, by whomever,
- turns away: for `TURNED` it has not been on a course that, straight on, crosses the goal line within `BESIDE` of the
  posts (a single odd velocity among 2000 a second ends nothing);
- or after `LONGEST`: to be one it had to promise a goal within 1.5 s, and no ball is that much slower than it promised.

Of the ball's up to 2000 positions a second, ``rate`` are published, as they are: the first of the shot, and then always
the first that comes 1/rate s after the one published before, or later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slackline import Batch, ConfigError, Detector, Event
from slackline_soccer.model.events import BALL_LEFT, HIT, SHOT
from slackline_soccer.model.match import Match
from slackline_soccer.queries.events import SHOT_MOTION
from slackline_soccer.tracking.positions import MILLISECOND, SECOND

LONGEST = 3 * SECOND
TURNED = 25 * MILLISECOND
BESIDE = 5_000.0  # mm

#: Speeds come in µm/s, with directions scaled to 10,000.
_DIRECTION = 1e-10
_MICRO = 1e-6


@dataclass(slots=True)
class FollowedShot:
    """A shot whose ball is being followed."""

    player: str
    team: str
    goal: int
    ball: int
    shot_at: int
    until: int
    #: When the ball was last on its way to the goal, and from when on the next position is published.
    headed: int
    due: int


class ShotMotion(Detector):
    """Publishes ``shot_motion`` at most ``rate`` times a second while a shot is under way."""

    listens = (HIT, BALL_LEFT, SHOT, "position")
    publishes = (SHOT_MOTION,)
    fixed = ("match", "gap", "timeout")

    def __init__(self, match: Match, rate: float = 100.0) -> None:
        if not rate > 0:
            raise ConfigError(f"rate is the number of positions of a shot's ball per second; got {rate!r}.")
        self.match = match
        self.gap = round(SECOND / rate)
        self.timeout = max(TURNED, round(2.5 * SECOND / match.ball_rate))
        self.hit_ball: int | None = None
        self.shot: FollowedShot | None = None

    def on_event(self, event: Event) -> Iterator[Event]:
        if event.type == "position":
            yield from (found for _, found in self.on_batch(Batch.of_events("position", [event])))
        elif event.type == HIT.name:
            self.hit_ball = event["ball"]
            self.shot = None
        elif event.type == SHOT.name:
            self._begin(event)
        elif event["area"] == "field" and self.shot is not None and event["ball"] == self.shot.ball:
            self.shot = None

    def _begin(self, event: Event) -> None:
        """The ball of a shot is the one that was hit last: hits come before shots of the same time."""
        period = self.match.period(event.ts)
        if period is None or self.hit_ball is None:
            return
        until = min(event.ts + LONGEST, period.stop)
        who, team, goal = event["player"], event["team"], event["goal"]
        self.shot = FollowedShot(who, team, goal, self.hit_ball, event.ts, until, headed=event.ts, due=event.ts)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if self.shot is None:
            return
        rows = np.flatnonzero(batch.source == self.shot.ball)
        for row, position in zip(rows.tolist(), batch.take(rows), strict=True):
            if not self._is_on(self.shot, position):
                self.shot = None
                return
            if position.ts >= self.shot.due:
                self.shot.due = position.ts + self.gap
                yield row, _motion(self.shot, position)

    def _is_on(self, shot: FollowedShot, position: Event) -> bool:
        if position.ts >= shot.until:
            return False
        if self._headed(shot, position):
            shot.headed = position.ts
        return position.ts - shot.headed <= self.timeout

    def _headed(self, shot: FollowedShot, position: Event) -> bool:
        """Whether the ball, straight on, would cross the goal's line between the posts or not far from them."""
        field = self.match.field
        goal = field.goals[shot.goal]
        along, across = (pick(position["x"], position["y"]) for pick in (field.along, field.across))
        to_along, to_across = (pick(position["vx"], position["vy"]) for pick in (field.along, field.across))
        way = goal.line - along
        if way * to_along <= 0:
            return False
        crossing = across + to_across * way / to_along
        return goal.left - BESIDE <= crossing <= goal.right + BESIDE


def _motion(shot: FollowedShot, position: Event) -> Event:
    scale = position["v"] * _DIRECTION
    return Event.of(
        SHOT_MOTION.name,
        position.ts,
        None,
        None,
        {
            "player": shot.player,
            "team": shot.team,
            "goal": shot.goal,
            "ball": shot.ball,
            "shot_at": shot.shot_at,
            "x": position["x"],
            "y": position["y"],
            "z": position["z"],
            "vx": position["vx"] * scale,
            "vy": position["vy"] * scale,
            "vz": position["vz"] * scale,
            "speed": position["v"] * _MICRO,
            "acceleration": position["a"] * _MICRO,
        },
    )
