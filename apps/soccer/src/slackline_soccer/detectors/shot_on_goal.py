"""A shot on goal: a kick headed to cross the opponents' goal within 1.5 s of the hit (query 4 of DEBS 2013).

Known only a metre after the hit, the shot carries the time stamp of the hit. The path is a straight line seen from
above; seen from the side, gravity bends it. A ball that would touch the ground on its way goes on along it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackline import Detector, Event
from slackline_soccer.model.events import SHOT
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds
from slackline_soccer.tracking.time import SECOND

#: A shot reaches the goal within this time (s) of the hit.
IN_TIME = 1.5
#: mm/s²
GRAVITY = 9_810.0


class ShotOnGoal(Detector):
    """Publishes ``shot``, set back to the hit."""

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
