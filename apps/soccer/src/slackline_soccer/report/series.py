"""A detector over stream time: an engine's ``stats()`` after each push, or rows of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A detector at one moment of stream time: its K, the mean wait since the point before, and counts."""

    clk: int
    slack: float
    wait: float | None
    buffered: int
    late: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """A detector over time."""

    detector: str
    points: Sequence[Point]
