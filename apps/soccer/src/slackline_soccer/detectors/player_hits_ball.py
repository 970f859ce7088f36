"""A player hits the ball: the ball in play turns while a player is near it [Thesis, 6.2.2, figure 6.5].

The detector there names all who are near. One hit has one player, though: the one who was closest when the ball
turned. A bounce off the ground is no hit, even beside a player, and neither is the turn of another ball.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline import ANY, Event, StateMachine, Transition
from slackline_soccer.model.events import HIT
from slackline_soccer.model.match import Match


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
