"""A double pass (one-two): the ball goes to a team-mate and comes straight back."""

from __future__ import annotations

from collections.abc import Iterator

from slackline import Event, StateMachine, Transition
from slackline_soccer.model.events import DOUBLE_PASS
from slackline_soccer.model.match import Match
from slackline_soccer.tracking.time import SECOND

#: From the first kick until the ball is back.
AT_ONCE = 4 * SECOND


class DoublePass(StateMachine):
    """Publishes ``double_pass`` when the ball is back with the player who played it first."""

    listens = ("pass",)
    publishes = (DOUBLE_PASS,)

    states = ("nothing", "there")
    transitions = (
        Transition("there", on="pass", when="is_back", then="tell"),
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

    def tell(self, event: Event) -> Iterator[Event]:
        assert self.first is not None
        yield event.derive(
            DOUBLE_PASS.name,
            player=event["to"],
            partner=event["player"],
            team=event["team"],
            started_at=self.first["kicked_at"],
        )
        self.remember(event)
