"""The application of ``executors``: a detector for each of two nodes. Nodes load it, so it imports nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import slackline as sl


class First(sl.Detector):
    """Passes on every event, with the time."""

    listens, publishes, reliable = ("a",), ("first",), ("a",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.n += 1
        yield event.derive("first", n=self.n, at=time.time())


class Second(sl.Detector):
    listens, publishes, reliable = ("first",), ("second",), ("first",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.n += 1
        yield event.derive("second", n=self.n, first=event["n"], ms=1000 * (time.time() - event["at"]))


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([First(), Second()])
