"""Queries 2 and 4: the ball.

**Query 2 of DEBS 2013**: which player has the ball, for how long, and how often he hits it. A player gets the ball when
he hits it and keeps it until another one does, it leaves the field, or the game stops: ``possession`` events give all
but the last, which ends with the period. Once a second the times so far are published, per player for the whole game
and per team also over windows. A team's share is of the time that either team had the ball; there is none (None) while
no player had it. What happens at the very position that ends a second counts in it.

**Query 4**: how the ball of a shot on goal moves, until it is one no more.

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
from slackline_soccer.model.events import BALL_LEFT, HIT, POSSESSION, SHOT
from slackline_soccer.model.match import Match
from slackline_soccer.queries.clock import Totals
from slackline_soccer.queries.events import POSSESSION_PLAYER, POSSESSION_TEAM, SECOND_OVER, SHOT_MOTION
from slackline_soccer.tracking import MILLISECOND, SECOND

#: In seconds; the whole game comes on top.
WINDOWS = (60, 300, 600, 1200)


class PossessionAnalysis(Detector):
    """Publishes ``possession_player`` and ``possession_team`` at each ``second`` of the game."""

    listens = (HIT, POSSESSION, SECOND_OVER)
    publishes = (POSSESSION_PLAYER, POSSESSION_TEAM)
    fixed = ("match", "periods", "team_of")

    def __init__(self, match: Match) -> None:
        self.match = match
        self.periods = tuple((period.start, period.stop) for period in match.periods)
        self.team_of = {player.name: match.teams.index(player.team) for player in match.players}
        self.holder: str | None = None
        self.since = 0
        self.time = dict.fromkeys(self.team_of, 0)
        self.hits = dict.fromkeys(self.team_of, 0)
        #: Of each team, since the last second was published.
        self.second = [0, 0]
        self.totals = Totals.of((2,), "int64", WINDOWS)

    def on_event(self, event: Event) -> Iterator[Event]:
        if event.type == SECOND_OVER.name:
            self._hold_until(event["at"])
            yield from self._tell(event)
            return
        self._hold_until(event.ts)
        if event.type == POSSESSION.name:
            self.holder = event.get("player")
        elif self.match.period(event.ts) is not None:
            self.hits[event["player"]] += 1

    def _hold_until(self, ts: int) -> None:
        """Credit the holder with the time since the last event, as far as the game was on."""
        if ts <= self.since:
            return
        if self.holder is not None:
            held = sum(max(0, min(ts, stop) - max(self.since, start)) for start, stop in self.periods)
            self.time[self.holder] += held
            self.second[self.team_of[self.holder]] += held
            if any(self.since < stop <= ts for _, stop in self.periods):
                self.holder = None
        self.since = ts

    def _tell(self, second: Event) -> Iterator[Event]:
        at = second["at"]
        self.totals.add(np.array(self.second))
        self.second = [0, 0]
        for player in self.match.players:
            name = player.name
            time, hits = self.time[name] / SECOND, self.hits[name]
            yield second.derive(POSSESSION_PLAYER.name, at, player=name, team=player.team, time=time, hits=hits)
        for window, times in zip(self.totals.windows, self.totals.sums.tolist(), strict=True):
            both = sum(times)
            for team, time in zip(self.match.teams, times, strict=True):
                share = time / both if both else None
                yield second.derive(POSSESSION_TEAM.name, at, team=team, window=window, time=time / SECOND, share=share)


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
