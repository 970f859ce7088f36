"""Hits: the player at the ball when it turned, the hit, and whether it sent the ball on its way.

**The closest player.** Who was at the ball when it turned.

Several players may be near, but one of them hit it. It is whose foot was closest; and as a ball is pushed away from
the foot that hits it, a foot that the ball was pushed towards counts as up to twice as far away. In a duel, with a foot
on either side of the ball, this decides: a player closer than a ball's radius is at it.

**The hit.** A player hits the ball: the ball in play turns while a player is near it [Thesis, 6.2.2, figure 6.5].

The detector there names all who are near. One hit has one player, though: the one who was closest when the ball
turned. A bounce off the ground is no hit, even beside a player, and neither is the turn of another ball.

**The kick.** A hit sends the ball on its way: once it is a metre from where it was hit, its path shows
where it is headed.

This is the waiting that query 4 of DEBS 2013 asks for, done once for all who want to know what became of a hit. A touch
that leaves the ball at the foot, or that is followed by the next hit within the metre, is no kick.

The velocity counts once the ball has left the foot, over the last two thirds of the metre: the mean of what was
measured there and of the way covered. One measured velocity alone is too noisy to decide, from 25 m, on which side of a
post the ball will pass. Tracking data has a frame or two there, and velocities that come from many frames: then the
last of them has to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from slackline import ANY, Batch, Detector, Event, StateMachine, Transition
from slackline_soccer.detectors.columns import columns, keep_latest, no_feet, sources
from slackline_soccer.model.events import CLOSEST, HIT, KICK
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import BALL_RADIUS, Thresholds


class ClosestPlayer(Detector):
    """Publishes ``closest`` for each turn of a ball, if a foot was within reach."""

    listens = ("position", "ball_turned")
    publishes = (CLOSEST,)
    fixed = ("match", "sids", "reach", "stale")

    def __init__(self, match: Match) -> None:
        limits = Thresholds.of(match)
        self.match = match
        self.sids = np.array([sid for player in match.players for sid in player.feet], dtype=np.int64)
        self.reach = limits.release
        self.stale = limits.stale
        self.place, self.seen = no_feet(match)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "position":
            x, y = columns(batch, "x", "y")
            keep_latest(sources(batch), batch.ts, x, y, self.match.foot_of, self.place, self.seen)
            return
        for row, turn in enumerate(batch):
            yield from ((row, event) for event in self._closest(turn))

    def _closest(self, turn: Event) -> Iterator[Event]:
        away = np.array([turn["x"], turn["y"]]) - self.place[self.sids]  # from each foot to the ball
        push = np.array([turn["push_x"], turn["push_y"]])
        distance = np.hypot(away[:, 0], away[:, 1])
        cosine = away @ push / np.maximum(distance * np.hypot(*push), 1e-9)
        within = (distance < self.reach) & (turn.ts - self.seen[self.sids] <= self.stale)
        if not within.any():
            return
        apart = np.maximum(distance, BALL_RADIUS) * (1.5 - 0.5 * cosine)
        foot = int(np.argmin(np.where(within, apart, np.inf)))
        player = self.match.players[self.match.foot_of[self.sids[foot]]]
        yield turn.derive(
            CLOSEST.name,
            ball=turn["ball"],
            player=player.name,
            team=player.team,
            distance=float(distance[foot]) / 1000.0,
        )


class PlayerHitsBall(StateMachine):
    """Publishes ``hit`` at the turn of the ball, for the player who was closest to it."""

    listens = ("active_ball", "near", "not_near", "ball_turned", "closest")
    publishes = (HIT,)
    fixed = ("match",)

    states = ("none_near", "near", "turned")
    transitions = (
        Transition("none_near", on="near", to="near", then="come"),
        Transition(ANY, on="near", then="come"),
        Transition(ANY, on="not_near", to="none_near", when="is_last", then="go"),
        Transition(ANY, on="not_near", then="go"),
        Transition("near", on="ball_turned", to="turned", when="is_hit", then="remember"),
        Transition("turned", on="ball_turned", when="is_hit", then="remember"),
        Transition("turned", on="closest", to="near", when="is_of_this_turn", then="hit"),
        Transition(ANY, on="active_ball", then="play"),
    )

    def __init__(self, match: Match) -> None:
        self.match = match
        self.ball: int | None = None
        self.close: set[str] = set()
        self.turn: Event | None = None

    def play(self, event: Event) -> None:
        self.ball = event["ball"]

    def come(self, event: Event) -> None:
        self.close.add(event["player"])

    def go(self, event: Event) -> None:
        self.close.discard(event["player"])

    def is_last(self, event: Event) -> bool:
        return self.close <= {event["player"]}

    def is_hit(self, turn: Event) -> bool:
        return turn["ball"] == self.ball and not turn["bounce"] and self.match.period(turn.ts) is not None

    def remember(self, turn: Event) -> None:
        self.turn = turn

    def is_of_this_turn(self, closest: Event) -> bool:
        """`closest` has the time stamp of its turn, and comes right after it in the order of types."""
        turn = self.turn
        return turn is not None and (closest["ball"], closest.ts) == (turn["ball"], turn.ts)

    def hit(self, closest: Event) -> Iterator[Event]:
        turn = self.turn
        assert turn is not None
        yield closest.derive(
            HIT.name,
            ball=self.ball,
            player=closest["player"],
            team=closest["team"],
            acceleration=turn["acceleration"],
            x=turn["x"],
            y=turn["y"],
            z=turn["z"],
        )


#: Which share of the metre it takes to leave the foot.
FOOT = 1 / 3
#: So many positions it takes to do better than the last of them.
FEW = 5
#: What is kept of the way since: positions, when (ps) and where (mm) it began, the sum of velocities (m/s).
COUNT, SINCE, PLACE, SUM = 0, 1, slice(2, 5), slice(5, 8)


@njit(cache=True)
def row_on_its_way(source, ts, x, y, z, v, vx, vy, vz, ball, place, hit_at, way, kept):  # type: ignore[no-untyped-def]
    """The first row at which the ball is so far from where it was hit; the number of rows if none."""
    for row in range(len(source)):
        if source[row] != ball:
            continue
        dx, dy, dz = x[row] - place[0], y[row] - place[1], z[row] - place[2]
        distance = np.sqrt(dx * dx + dy * dy + dz * dz)
        if distance < FOOT * way:
            continue
        if kept[COUNT] == 0.0:
            kept[SINCE] = ts[row] - hit_at
            kept[2], kept[3], kept[4] = x[row], y[row], z[row]
        scale = v[row] * 1e-10  # µm/s and a direction scaled to 10,000, to m/s
        kept[COUNT] += 1.0
        kept[5] += vx[row] * scale
        kept[6] += vy[row] * scale
        kept[7] += vz[row] * scale
        if distance >= way:
            return row
    return len(source)


class Kick(Detector):
    """Publishes ``kick`` when the ball has gone a metre since it was hit."""

    listens = ("position", "hit")
    publishes = (KICK,)
    fixed = ("way", "timeout")

    def __init__(self, match: Match) -> None:
        limits = Thresholds.of(match)
        self.way = limits.way
        self.timeout = limits.on_its_way
        #: The hit that is waited for, if any, and the way of the ball since it left the foot.
        self.hit: Event | None = None
        self.kept = np.zeros(8)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "hit":
            self.hit = batch.event(len(batch) - 1)
            self.kept[:] = 0.0
            return
        hit = self.hit
        if hit is None:
            return
        rows = batch.slice(0, int(np.searchsorted(batch.ts, hit.ts + self.timeout, side="right")))
        given: list[Any] = [sources(rows), rows.ts, *columns(rows, "x", "y", "z", "v", "vx", "vy", "vz")]
        given += [hit["ball"], (hit["x"], hit["y"], hit["z"]), hit.ts, self.way, self.kept]
        row = row_on_its_way(*given)
        if row < len(rows):
            yield row, self._kick(hit, rows.event(row))
        if row < len(rows) or len(rows) < len(batch):
            self.hit = None

    def _kick(self, hit: Event, position: Event) -> Event:
        place = np.array([position["x"], position["y"], position["z"]])
        if self.kept[COUNT] >= FEW:
            took = (position.ts - hit.ts - self.kept[SINCE]) * 1e-9  # ps, and places are in mm
            velocity = (self.kept[SUM] / self.kept[COUNT] + (place - self.kept[PLACE]) / took) / 2
        else:
            velocity = np.array([position["vx"], position["vy"], position["vz"]]) * position["v"] * 1e-10
        vx, vy, vz = velocity.tolist()
        return position.derive(
            KICK.name,
            ball=hit["ball"],
            player=hit["player"],
            team=hit["team"],
            hit_at=hit.ts,
            vx=vx,
            vy=vy,
            vz=vz,
            x=position["x"],
            y=position["y"],
            z=position["z"],
        )
