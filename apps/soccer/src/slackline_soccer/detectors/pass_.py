"""A pass: the ball goes from one player to another, or out.

It is played with a hit and ends with the next player's hit, or where the ball leaves the field. It is successful if
the next player is of the same team. Not a pass: the ball that the same player hits again (a dribble), that another
takes from his feet (a tackle: it did not go far), that is shot at the goal, or that another ball takes the place of.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackline import ANY, Event, StateMachine, Transition
from slackline_soccer.model.events import PASS
from slackline_soccer.model.match import Match

#: A ball that went less far (m) was taken, not passed.
SHORTEST = 2.0


class Pass(StateMachine):
    """Publishes ``pass`` when the ball got to the next player, or out."""

    listens = ("hit", "shot", "ball_left", "active_ball")
    publishes = (PASS,)

    states = ("nobody", "hit", "shot")
    transitions = (
        Transition("nobody", on="hit", to="hit", then="begin"),
        Transition("hit", on="shot", to="shot", when="is_that_hit"),
        Transition("hit", on="hit", when="is_same_player", then="begin"),
        Transition("hit", on="hit", when="is_far", then="arrive"),
        Transition("hit", on="hit", then="begin"),
        Transition("hit", on="ball_left", to="nobody", when="is_out_far", then="go_out"),
        Transition("hit", on="ball_left", to="nobody", when="is_out"),
        Transition("shot", on="hit", to="hit", then="begin"),
        Transition("shot", on="ball_left", to="nobody", when="is_out"),
        Transition(ANY, on="active_ball", to="nobody"),
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
