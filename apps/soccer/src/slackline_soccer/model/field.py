"""The field: lines, goals and penalty areas, in millimetres.

The goal at the low end of *along* (see :mod:`slackline_soccer.tracking.game`) is goal 0, the other one goal 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackline import ConfigError
from slackline_soccer.tracking.game import Ground

#: The laws of the game: a penalty area reaches 16.5 m into the field and 16.5 m beyond each post.
PENALTY_DEPTH = 16_500.0
GOAL_WIDTH = 7_320.0
GOAL_HEIGHT = 2_440.0


@dataclass(frozen=True, slots=True)
class GoalFrame:
    """A goal: where its line is (*along*), where its posts are (*across*), how high its bar is."""

    line: float
    left: float
    right: float
    height: float = GOAL_HEIGHT


@dataclass(frozen=True, slots=True)
class Field(Ground):
    """The ground with its two goals.

    >>> FULL_SIZE.length, FULL_SIZE.width, FULL_SIZE.goals[1].line
    (105000.0, 68000.0, 52500.0)
    >>> DEBS_2013.along(x=26_000.0, y=-33_000.0)
    -33000.0
    """

    goals: tuple[GoalFrame, GoalFrame]

    def __post_init__(self) -> None:
        Ground.__post_init__(self)
        if not self.goals[0].line < self.goals[1].line:
            raise ConfigError(f"goal 0 is the one at the low end of {self.lengthwise}; got lines {self.goals}.")

    @classmethod
    def on(cls, ground: Ground) -> Field:
        """The ground with goals of the usual size in the middle of its ends."""
        middle = sum(ground.sides) / 2
        left, right = middle - GOAL_WIDTH / 2, middle + GOAL_WIDTH / 2
        low, high = ground.ends
        return cls(
            ground.x,
            ground.y,
            (GoalFrame(low, left, right), GoalFrame(high, left, right)),
            lengthwise=ground.lengthwise,
        )

    def penalty_area(self, end: int) -> tuple[float, float, float, float]:
        """``(along_low, along_high, across_low, across_high)`` of the penalty area in front of goal 0 or 1."""
        goal, line = self.goals[end], self.ends[end]
        depth = (line, line + PENALTY_DEPTH) if end == 0 else (line - PENALTY_DEPTH, line)
        low, high = self.sides
        return (*depth, max(goal.left - PENALTY_DEPTH, low), min(goal.right + PENALTY_DEPTH, high))


#: 105 m by 68 m around the centre spot.
FULL_SIZE = Field.on(Ground(x=(-52_500.0, 52_500.0), y=(-34_000.0, 34_000.0)))

#: The half-size field of the DEBS 2013 Grand Challenge.
DEBS_2013 = Field(
    x=(0.0, 52_483.0),
    y=(-33_960.0, 33_965.0),
    goals=(GoalFrame(-33_968.0, 22_560.0, 29_880.0), GoalFrame(33_941.0, 22_578.5, 29_898.5)),
    lengthwise="y",
)
