"""Shots on goal, and what becomes of them: blocked shots and goals.

A shot on goal: a kick headed to cross the opponents' goal within 1.5 s of the hit (query 4 of DEBS 2013).

Known only a metre after the hit, the shot carries the time stamp of the hit. The path is a straight line seen from
above; seen from the side, gravity bends it. A ball that would touch the ground on its way continues along it.

A blocked shot: another player than the shooter hits the ball before it has crossed a line.

A goal: the ball crosses the line between the posts and under the bar while the game is on.

It is the goal of the shooter, even if another player deflected the ball after; without a shot, of the last player
who hit it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackline import ANY, Detector, Event, StateMachine, Transition
from slackline_soccer.model.events import BLOCKED_SHOT, GOAL, SHOT
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds
from slackline_soccer.tracking import SECOND

#: A shot reaches the goal within this time (s) of the hit.
IN_TIME = 1.5
#: mm/s²
GRAVITY = 9_810.0


class ShotOnGoal(Detector):
    """Publishes ``shot``, back-dated to the hit."""

    listens = ("kick",)
    publishes = (SHOT,)
    fixed = ("match",)

    def __init__(self, match: Match) -> None:
        self.match = match
        self.max_backdate = Thresholds.of(match).on_its_way

    def on_event(self, kick: Event) -> Iterator[Event]:
        number = self.match.attacks(kick["team"], kick["hit_at"])
        if number is None or not self._is_headed_for(number, kick):
            return
        yield kick.derive(
            SHOT.name,
            ts=kick["hit_at"],
            player=kick["player"],
            team=kick["team"],
            goal=number,
            speed=float(np.sqrt(kick["vx"] ** 2 + kick["vy"] ** 2 + kick["vz"] ** 2)),
            x=kick["x"],
            y=kick["y"],
            z=kick["z"],
        )

    def _is_headed_for(self, number: int, kick: Event) -> bool:
        field = self.match.field
        goal = field.goals[number]
        along, across = field.along(kick["x"], kick["y"]), field.across(kick["x"], kick["y"])
        speed_along = 1000.0 * field.along(kick["vx"], kick["vy"])
        speed_across = 1000.0 * field.across(kick["vx"], kick["vy"])
        way = goal.line - along
        if way * speed_along <= 0.0:
            return False
        needs = way / speed_along
        if needs > IN_TIME - (kick.ts - kick["hit_at"]) / SECOND:
            return False
        height = kick["z"] + 1000.0 * kick["vz"] * needs - GRAVITY * needs**2 / 2
        return bool(goal.left < across + speed_across * needs < goal.right and height < goal.height)


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
        Transition("played", on="ball_entered", to="not_played", when="is_goal", then="publish"),
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

    def publish(self, event: Event) -> Iterator[Event]:
        number = int(str(event["area"]).removeprefix("goal_"))
        team = next(team for team in self.match.teams if self.match.attacks(team, event.ts) == number)
        scorer = self.hit
        if self.shot is not None and self.shot["team"] == team and event.ts - self.shot.ts <= OVER:
            scorer = self.shot
        assert scorer is not None
        yield event.derive(GOAL.name, player=scorer["player"], team=team, goal=number, shot_at=scorer.ts)
