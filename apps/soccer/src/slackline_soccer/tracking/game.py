"""A game: who takes part, what they wear, when the game is on, and the ground."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slackline import ConfigError


class Role(StrEnum):
    """The role of a person or an object in a game; a goalkeeper is a player of a sport that has one."""

    BALL = "ball"
    PLAYER = "player"
    GOALKEEPER = "goalkeeper"
    REFEREE = "referee"
    SUBSTITUTE = "substitute"


#: The roles of those who play.
PLAYS = (Role.PLAYER, Role.GOALKEEPER)


class Limb(StrEnum):
    LEFT_LEG = "left_leg"
    RIGHT_LEG = "right_leg"
    LEFT_ARM = "left_arm"
    RIGHT_ARM = "right_arm"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Sensor:
    """One transmitter: its id, and who or what wears it. ``wearer`` is unique per ball, player and referee."""

    sid: int
    role: Role
    wearer: str
    team: str | None = None
    limb: Limb | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """From ``start`` up to ``stop`` (ps) the game is on and team ``low`` defends the low end of the ground."""

    start: int
    stop: int
    low: str


@dataclass(frozen=True, slots=True)
class Ground:
    """The rectangle that is played on, in mm, in the coordinates of the recording.

    *Along* is the axis from one end to the other, *across* the other one. End 0 is at the low coordinates, end 1 at the
    high ones.

    >>> court = Ground(x=(0.0, 15_000.0), y=(0.0, 28_000.0), lengthwise="y")
    >>> court.length, court.width, court.along(x=3.0, y=4.0)
    (28000.0, 15000.0, 4.0)
    """

    x: tuple[float, float]
    y: tuple[float, float]
    lengthwise: str = field(default="x", kw_only=True)

    def __post_init__(self) -> None:
        if self.lengthwise not in ("x", "y"):
            raise ConfigError(f"a field lies along 'x' or 'y'; got {self.lengthwise!r}.")
        if not (self.x[0] < self.x[1] and self.y[0] < self.y[1]):
            raise ConfigError(f"a field needs x and y ranges (low, high) in mm; got x={self.x}, y={self.y}.")

    @property
    def ends(self) -> tuple[float, float]:
        """Where the ground begins and ends *along*."""
        return self.x if self.lengthwise == "x" else self.y

    @property
    def sides(self) -> tuple[float, float]:
        """Where the ground begins and ends *across*."""
        return self.y if self.lengthwise == "x" else self.x

    @property
    def length(self) -> float:
        return self.ends[1] - self.ends[0]

    @property
    def width(self) -> float:
        return self.sides[1] - self.sides[0]

    def along(self, x: Any, y: Any) -> Any:
        """The coordinate (or column) from end to end."""
        return x if self.lengthwise == "x" else y

    def across(self, x: Any, y: Any) -> Any:
        """The other one."""
        return y if self.lengthwise == "x" else x
