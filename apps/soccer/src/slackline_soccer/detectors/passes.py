"""Possession, passes, double passes, offside.

**Possession** (query 2 of DEBS 2013): a player has the ball from a hit on, until another player hits it or the game
stops. It stops when the ball leaves the field; and it must have stopped when another ball is brought.

**Passes.** A pass: the ball goes from one player to another, or out.

It is played with a hit and ends with the next player's hit, or where the ball leaves the field. It is successful if
the next player is of the same team. Not a pass: the ball that the same player hits again (a dribble), that another
takes from his feet (a tackle: it did not go far), that is shot at the goal, or that another ball takes the place of.

A double pass (one-two): the ball goes to a team-mate and comes straight back.

**Offside.** Who got the pass stood offside when it was played (Law 11).

That is: in the opponents' half, nearer to their goal line than both the ball and the last opponent but one. So the
places of all players are kept at each hit, and looked at when a pass turns out to have begun with that hit. A ball that
is put into play from the line (throw-in, corner, goal kick) has no offside; it is known by where it was played.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slackline import ANY, Batch, Detector, Event, StateMachine, Transition
from slackline_soccer.detectors.columns import NONE, Floats, columns, feet_of, keep_latest, no_feet, sources
from slackline_soccer.model.events import DOUBLE_PASS, OFFSIDE, PASS, POSSESSION
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds
from slackline_soccer.tracking import SECOND


class Possession(StateMachine):
    """Publishes ``possession`` whenever the ball is with another player, or with none."""

    listens = ("hit", "ball_left", "active_ball")
    publishes = (POSSESSION,)

    states = ("free", "held")
    transitions = (
        Transition("free", on="hit", to="held", then="change"),
        Transition("held", on="hit", when="is_another", then="change"),
        Transition("held", on="ball_left", to="free", when="is_out", then="change"),
        Transition("held", on="active_ball", to="free", then="change"),
    )

    def __init__(self, match: Match) -> None:
        self.player: str | None = None
        self.team: str | None = None

    def is_another(self, hit: Event) -> bool:
        return bool(hit["player"] != self.player)

    def is_out(self, event: Event) -> bool:
        return bool(event["area"] == "field")

    def change(self, event: Event) -> Iterator[Event]:
        was_player, was_team = self.player, self.team
        self.player, self.team = event.get("player"), event.get("team")
        yield event.derive(
            POSSESSION.name, player=self.player, team=self.team, was_player=was_player, was_team=was_team
        )


#: A ball that went less far (m) was taken, not passed.
SHORTEST = 2.0


class Pass(StateMachine):
    """Publishes ``pass`` when the ball got to the next player, or out."""

    listens = ("hit", "shot", "ball_left", "active_ball")
    publishes = (PASS,)

    states = ("free", "hit", "shot")
    transitions = (
        Transition("free", on="hit", to="hit", then="begin"),
        Transition("hit", on="shot", to="shot", when="is_that_hit"),
        Transition("hit", on="hit", when="is_same_player", then="begin"),
        Transition("hit", on="hit", when="is_far", then="arrive"),
        Transition("hit", on="hit", then="begin"),
        Transition("hit", on="ball_left", to="free", when="is_out_far", then="go_out"),
        Transition("hit", on="ball_left", to="free", when="is_out"),
        Transition("shot", on="hit", to="hit", then="begin"),
        Transition("shot", on="ball_left", to="free", when="is_out"),
        Transition(ANY, on="active_ball", to="free"),
    )

    def __init__(self, match: Match) -> None:
        self.hit: Event | None = None

    def begin(self, hit: Event) -> None:
        self.hit = hit

    def is_that_hit(self, shot: Event) -> bool:
        return self.hit is not None and shot.ts == self.hit.ts

    def is_same_player(self, hit: Event) -> bool:
        return self.hit is not None and hit["player"] == self.hit["player"]

    def length(self, event: Event) -> float:
        """How far it is, in m, from the hit to here."""
        assert self.hit is not None
        return float(np.hypot(event["x"] - self.hit["x"], event["y"] - self.hit["y"]) / 1000.0)

    def is_far(self, event: Event) -> bool:
        return self.length(event) >= SHORTEST

    def is_out(self, event: Event) -> bool:
        return bool(event["area"] == "field")

    def is_out_far(self, event: Event) -> bool:
        return self.is_out(event) and self.is_far(event)

    def arrive(self, hit: Event) -> Iterator[Event]:
        yield self._pass(hit, hit["player"], hit["team"])
        self.begin(hit)

    def go_out(self, event: Event) -> Iterator[Event]:
        yield self._pass(event, None, None)

    def _pass(self, end: Event, to: str | None, to_team: str | None) -> Event:
        assert self.hit is not None
        return end.derive(
            PASS.name,
            player=self.hit["player"],
            team=self.hit["team"],
            to=to,
            to_team=to_team,
            successful=to_team == self.hit["team"],
            kicked_at=self.hit.ts,
            length=self.length(end),
            x=end["x"],
            y=end["y"],
            z=end["z"],
        )


#: From the first kick until the ball is back.
AT_ONCE = 4 * SECOND


class DoublePass(StateMachine):
    """Publishes ``double_pass`` when the ball is back with the player who played it first."""

    listens = ("pass",)
    publishes = (DOUBLE_PASS,)

    states = ("nothing", "there")
    transitions = (
        Transition("there", on="pass", when="is_back", then="publish"),
        Transition("nothing", on="pass", to="there", when="is_successful", then="remember"),
        Transition("there", on="pass", when="is_successful", then="remember"),
        Transition("there", on="pass", to="nothing"),
    )

    def __init__(self, match: Match) -> None:
        self.first: Event | None = None

    def is_successful(self, event: Event) -> bool:
        return bool(event["successful"])

    def remember(self, event: Event) -> None:
        self.first = event

    def is_back(self, event: Event) -> bool:
        """From the one who got the last pass to the one who played it, and soon."""
        first = self.first
        assert first is not None
        between = (event["player"], event["to"]) == (first["to"], first["player"])
        return between and event["successful"] and event.ts - first["kicked_at"] <= AT_ONCE

    def publish(self, event: Event) -> Iterator[Event]:
        assert self.first is not None
        yield event.derive(
            DOUBLE_PASS.name,
            player=event["to"],
            partner=event["player"],
            team=event["team"],
            started_at=self.first["kicked_at"],
        )
        self.remember(event)


#: Hits that are kept: a pass begins with the hit before its last.
KEPT = 4
#: A ball played from nearer to a line (mm) was put into play from there.
AT_THE_LINE = 500.0


@dataclass(frozen=True, slots=True)
class HitScene:
    """A hit: when, where *along* the ball was, whether from the line, and where *along* each player was."""

    ts: int
    ball: float
    from_line: bool
    players: Floats


class Offside(Detector):
    """Publishes ``offside`` for the receiver of a successful pass."""

    listens = ("position", "hit", "pass")
    publishes = (OFFSIDE,)
    fixed = ("match", "stale", "number", "feet")

    def __init__(self, match: Match) -> None:
        self.match = match
        self.stale = Thresholds.of(match).stale
        self.number = {player.name: number for number, player in enumerate(match.players)}
        self.feet = feet_of(match)
        self.place, self.seen = no_feet(match)
        self.moments: list[HitScene] = []

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "position":
            x, y = columns(batch, "x", "y")
            keep_latest(sources(batch), batch.ts, x, y, self.match.foot_of, self.place, self.seen)
            return
        for row, event in enumerate(batch):
            if event.type == "hit":
                self.moments = [*self.moments[1 - KEPT :], self._moment(event)]
            elif (by := self._offside_by(event)) > 0.0:
                yield (
                    row,
                    event.derive(
                        OFFSIDE.name,
                        player=event["to"],
                        team=event["team"],
                        passer=event["player"],
                        kicked_at=event["kicked_at"],
                        by=by / 1000.0,
                    ),
                )

    def _moment(self, hit: Event) -> HitScene:
        field = self.match.field
        ball = field.along(hit["x"], hit["y"])
        across = field.across(hit["x"], hit["y"])
        inward = min(ball - field.ends[0], field.ends[1] - ball, across - field.sides[0], field.sides[1] - across)
        fresh = (self.feet != NONE) & (hit.ts - self.seen[self.feet] <= self.stale)
        along = np.where(fresh, self.place[self.feet, 0 if field.lengthwise == "x" else 1], 0.0).sum(axis=1)
        players = np.where(fresh.any(axis=1), along / np.maximum(fresh.sum(axis=1), 1), np.nan)
        return HitScene(hit.ts, float(ball), bool(inward < AT_THE_LINE), players)

    def _offside_by(self, event: Event) -> float:
        """How far (mm) the receiver was beyond the offside line; 0 if he was not, or if it is not known."""
        moment = next((moment for moment in self.moments if moment.ts == event["kicked_at"]), None)
        goal = self.match.attacks(event["team"], event["kicked_at"])
        if moment is None or moment.from_line or goal is None or not event["successful"]:
            return 0.0
        forward = 1.0 if goal == 1 else -1.0
        receiver = forward * moment.players[self.number[event["to"]]]
        opponents = [
            forward * moment.players[number]
            for number, player in enumerate(self.match.players)
            if player.team != event["team"] and not np.isnan(moment.players[number])
        ]
        if np.isnan(receiver) or len(opponents) < 2:
            return 0.0
        half_way = forward * sum(self.match.field.ends) / 2
        return max(0.0, float(receiver - max(half_way, forward * moment.ball, sorted(opponents)[-2])))
