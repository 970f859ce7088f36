"""The field: lines, goals and penalty areas, in millimetres, wherever the origin is and whichever way it lies.

*Along* is the axis from goal to goal, *across* the other one. The goal at the low end of *along* is goal 0, the one
at the high end goal 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ConfigError

#: The laws of the game: a penalty area reaches 16.5 m into the field and 16.5 m beyond each post.
PENALTY_DEPTH = 16_500.0
GOAL_WIDTH = 7_320.0
GOAL_HEIGHT = 2_440.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: where its line is (*along*), where its posts are (*across*), how high its bar is."""

    line: float
    left: float
    right: float
    height: float = GOAL_HEIGHT


@dataclass(frozen=True, slots=True)
class Field:
    """The rectangle of the field in the coordinates of the recording, with its two goals.

    >>> FULL_SIZE.length, FULL_SIZE.width, FULL_SIZE.goals[1].line
    (105000.0, 68000.0, 52500.0)
    >>> DEBS_2013.along(x=26_000.0, y=-33_000.0)
    -33000.0
    """

    x: tuple[float, float]
    y: tuple[float, float]
    goals: tuple[Goal, Goal]
    lengthwise: str = "x"

    def __post_init__(self) -> None:
        if self.lengthwise not in ("x", "y"):
            raise ConfigError(f"a field lies along 'x' or 'y'; got {self.lengthwise!r}.")
        if not (self.x[0] < self.x[1] and self.y[0] < self.y[1]):
            raise ConfigError(f"a field needs x and y ranges (low, high) in mm; got x={self.x}, y={self.y}.")
        if not self.goals[0].line < self.goals[1].line:
            raise ConfigError(f"goal 0 is the one at the low end of {self.lengthwise}; got lines {self.goals}.")

    @property
    def ends(self) -> tuple[float, float]:
        """Where the field begins and ends *along*."""
        return self.x if self.lengthwise == "x" else self.y

    @property
    def sides(self) -> tuple[float, float]:
        """Where the field begins and ends *across*."""
        return self.y if self.lengthwise == "x" else self.x

    @property
    def length(self) -> float:
        return self.ends[1] - self.ends[0]

    @property
    def width(self) -> float:
        return self.sides[1] - self.sides[0]

    def along(self, x: Any, y: Any) -> Any:
        """The coordinate (or column) from goal to goal."""
        return x if self.lengthwise == "x" else y

    def across(self, x: Any, y: Any) -> Any:
        """The other one."""
        return y if self.lengthwise == "x" else x

    def penalty_area(self, end: int) -> tuple[float, float, float, float]:
        """``(along_low, along_high, across_low, across_high)`` of the penalty area in front of goal 0 or 1."""
        goal, line = self.goals[end], self.ends[end]
        depth = (line, line + PENALTY_DEPTH) if end == 0 else (line - PENALTY_DEPTH, line)
        low, high = self.sides
        return (*depth, max(goal.left - PENALTY_DEPTH, low), min(goal.right + PENALTY_DEPTH, high))


#: 105 m by 68 m around the centre spot.
FULL_SIZE = Field(
    x=(-52_500.0, 52_500.0),
    y=(-34_000.0, 34_000.0),
    goals=(
        Goal(-52_500.0, -GOAL_WIDTH / 2, GOAL_WIDTH / 2),
        Goal(52_500.0, -GOAL_WIDTH / 2, GOAL_WIDTH / 2),
    ),
)

#: The half-size field of the DEBS 2013 Grand Challenge.
DEBS_2013 = Field(
    x=(0.0, 52_483.0),
    y=(-33_960.0, 33_965.0),
    goals=(Goal(-33_968.0, 22_560.0, 29_880.0), Goal(33_941.0, 22_578.5, 29_898.5)),
    lengthwise="y",
)
