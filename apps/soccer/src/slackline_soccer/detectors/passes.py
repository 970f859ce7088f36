"""Passes and double passes.

A pass: the ball goes from one player to another, or out.

It is played with a hit and ends with the next player's hit, or where the ball leaves the field. It is successful if
the next player is of the same team. Not a pass: the ball that the same player hits again (a dribble), that another
takes from his feet (a tackle: it did not go far), that is shot at the goal, or that another ball takes the place of.

A double pass (one-two): the ball goes to a team-mate and comes straight back.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackline import ANY, Event, StateMachine, Transition
from slackline_soccer.model.events import DOUBLE_PASS, PASS
from slackline_soccer.model.match import Match
from slackline_soccer.tracking.positions import SECOND

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
