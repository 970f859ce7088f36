"""A blocked shot: another player than the shooter hits the ball before it has crossed a line."""

from __future__ import annotations

from collections.abc import Iterator

from slackline import ANY, Event, StateMachine, Transition
from slackline_soccer.model.events import BLOCKED_SHOT
from slackline_soccer.model.match import Match
from slackline_soccer.tracking.time import SECOND

#: A shot that was headed to reach the goal within 1.5 s and was not hit for so long after is over.
OVER = 3 * SECOND


class BlockedShot(StateMachine):
    """Publishes ``blocked_shot`` at the blocker's hit."""

    listens = ("shot", "hit", "ball_left")
    publishes = (BLOCKED_SHOT,)

    states = ("no_shot", "shot")
    transitions = (
        Transition(ANY, on="shot", to="shot", then="remember"),
        Transition("shot", on="hit", to="no_shot", when="is_block", then="block"),
        Transition("shot", on="hit", to="no_shot"),
        Transition("shot", on="ball_left", to="no_shot", when="is_out"),
    )

    def __init__(self, match: Match) -> None:
        self.shot: Event | None = None

    def remember(self, shot: Event) -> None:
        self.shot = shot

    def is_block(self, hit: Event) -> bool:
        assert self.shot is not None
        return hit["player"] != self.shot["player"] and hit.ts - self.shot.ts <= OVER

    def is_out(self, event: Event) -> bool:
        return bool(event["area"] == "field")

    def block(self, hit: Event) -> Iterator[Event]:
        assert self.shot is not None
        yield hit.derive(
            BLOCKED_SHOT.name,
            player=self.shot["player"],
            team=self.shot["team"],
            blocker=hit["player"],
            blocker_team=hit["team"],
            shot_at=self.shot.ts,
        )
