"""The application that the benchmarks on Kafka run: positions of vans, and how fast they go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import slackline as sl


class Speeds(sl.Detector):
    """The speed of a van at each position but its first; ``at`` is when the position was sent."""

    listens, publishes = (sl.EventType("position", x=float, y=float, at=int),), ("speed",)

    def __init__(self) -> None:
        self.last: tuple[int, float, float] | None = None

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        x, y = event["x"], event["y"]
        if self.last is not None and event.ts > self.last[0]:
            ts, was_x, was_y = self.last
            passed = (event.ts - ts) / 1e6
            yield event.derive("speed", at=event["at"], n=event.seq, speed=math.hypot(x - was_x, y - was_y) / passed)
        self.last = event.ts, x, y


class Jumps(sl.Detector):
    """Positions that are further from the one before than a van can drive; whole batches at a time."""

    listens, publishes = (sl.EventType("position", x=float, y=float),), ("jump",)
    #: Metres, between two positions.
    far = 25.0

    def __init__(self) -> None:
        self.last: tuple[float, float] | None = None

    def on_batch(self, batch: Any) -> Iterator[tuple[int, sl.Event]]:
        x, y = batch["x"], batch["y"]
        before = (x[0], y[0]) if self.last is None else self.last
        far = np.hypot(np.diff(x, prepend=before[0]), np.diff(y, prepend=before[1])) > self.far
        self.last = float(x[-1]), float(y[-1])
        for row in np.flatnonzero(far).tolist():
            yield row, sl.Event("jump", ts=int(batch.ts[row]), x=float(x[row]), y=float(y[row]))

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        last, self.last = self.last, (event["x"], event["y"])
        if last is not None and math.hypot(event["x"] - last[0], event["y"] - last[1]) > self.far:
            yield event.derive("jump", x=event["x"], y=event["y"])


hierarchy = sl.Hierarchy([Speeds()], clock="position")
jumps = sl.Hierarchy([Jumps()], clock="position")
