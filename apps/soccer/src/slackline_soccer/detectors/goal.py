"""A goal: the ball crosses the line between the posts and under the bar while the game is on.

It is the goal of whoever shot, even if somebody deflected the ball after; without a shot, of whoever hit it last.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline import Event, StateMachine, Transition
from slackline_soccer.detectors.blocked_shot import OVER
from slackline_soccer.model.events import GOAL
from slackline_soccer.model.match import Match


class Goal(StateMachine):
    """Publishes ``goal`` for the team that attacks there."""

    listens = ("hit", "shot", "ball_entered")
    publishes = (GOAL,)
    fixed = ("match",)

    states = ("not_played", "played")
    transitions = (
        Transition("not_played", on="hit", to="played", then="remember"),
        Transition("played", on="hit", then="remember"),
        Transition("played", on="shot", then="note"),
        Transition("played", on="ball_entered", to="not_played", when="is_goal", then="tell"),
    )

    def __init__(self, match: Match) -> None:
        self.match = match
        self.hit: Event | None = None
        self.shot: Event | None = None

    def remember(self, hit: Event) -> None:
        self.hit = hit

    def note(self, shot: Event) -> None:
        self.shot = shot

    def is_goal(self, event: Event) -> bool:
        return str(event["area"]).startswith("goal_") and self.match.period(event.ts) is not None

    def tell(self, event: Event) -> Iterator[Event]:
        number = int(str(event["area"]).removeprefix("goal_"))
        team = next(team for team in self.match.teams if self.match.attacks(team, event.ts) == number)
        scorer = self.hit
        if self.shot is not None and self.shot["team"] == team and event.ts - self.shot.ts <= OVER:
            scorer = self.shot
        assert scorer is not None
        yield event.derive(GOAL.name, player=scorer["player"], team=team, goal=number, shot_at=scorer.ts)
