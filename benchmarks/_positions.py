"""The application that the benchmarks on Kafka run: positions of vans, and how fast they go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import slackline as sl

VANS = 50


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
    """Vans that are further from where they were than they can drive; whole batches at a time. Vans are numbers."""

    listens, publishes = (sl.EventType("position", x=float, y=float),), ("jump",)
    #: Metres, between two positions.
    far = 25.0

    def __init__(self) -> None:
        self.x = np.full(VANS, np.nan)
        self.y = np.full(VANS, np.nan)

    def on_batch(self, batch: Any) -> Iterator[tuple[int, sl.Event]]:
        van = batch.source.astype(np.int64)
        order = np.argsort(van, kind="stable")
        van, x, y = van[order], batch["x"][order], batch["y"][order]
        first = np.flatnonzero(np.diff(van, prepend=-1))
        was_x, was_y = np.roll(x, 1), np.roll(y, 1)
        was_x[first], was_y[first] = self.x[van[first]], self.y[van[first]]
        last = np.append(first[1:], len(van)) - 1
        self.x[van[last]], self.y[van[last]] = x[last], y[last]
        far = np.flatnonzero(np.hypot(x - was_x, y - was_y) > self.far)
        for row in np.sort(order[far]).tolist():
            yield row, batch.event(row).derive("jump", van=batch.event(row).source)


hierarchy = sl.Hierarchy([Speeds()], clock="position")
jumps = sl.Hierarchy([Jumps()], clock="position")
