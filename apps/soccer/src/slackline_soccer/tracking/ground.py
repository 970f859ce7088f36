"""The ground: the rectangle that is played on, in millimetres, wherever the origin is and whichever way it lies.

*Along* is the axis from one end to the other, *across* the other one. The end at the low coordinates is end 0, the one
at the high coordinates end 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slackline import ConfigError


@dataclass(frozen=True, slots=True)
class Ground:
    """The rectangle in the coordinates of the recording.

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
