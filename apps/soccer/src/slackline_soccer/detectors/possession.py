"""Who has the ball (query 2 of DEBS 2013): he who hit it last, until another player does or the game stops.

It stops when the ball leaves the field; and it must have stopped when another ball is brought.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline import Event, StateMachine, Transition
from slackline_soccer.model.events import POSSESSION
from slackline_soccer.model.match import Match


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
