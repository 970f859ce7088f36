"""Applications for the tests of real processes: a match of which nothing may get lost, and another version of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from slackline import Detector, Event, Hierarchy
from slackline_soccer import detectors, open_recording


def secure_match(path: Path | str) -> tuple[Hierarchy, Callable[[], Iterable[pa.Table]]]:
    """All detectors, and every input of theirs reliable."""
    recording = open_recording(path)
    chosen = detectors(recording.match)
    for detector in chosen:
        detector.reliable = detector.listens  # type: ignore[misc]
    return Hierarchy(chosen, clock=(recording.match.position,)), recording.tables


class Low(Detector):
    """Passes on every second event."""

    listens, publishes, reliable = ("a",), ("low",), ("a",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: Event) -> Iterable[Event]:
        self.n += 1
        if self.n % 2 == 0:
            yield event.derive("low", n=self.n)


class High(Detector):
    """Counts them."""

    listens, publishes, reliable = ("low",), ("high",), ("low",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: Event) -> Iterable[Event]:
        self.n += 1
        yield event.derive("high", n=self.n, low=event["n"])


class ChangedLow(Low):
    """Another version: every third."""

    name = "Low"

    def on_event(self, event: Event) -> Iterable[Event]:
        self.n += 1
        if self.n % 3 == 0:
            yield event.derive("low", n=self.n)


def small() -> Hierarchy:
    return Hierarchy([Low(), High()], clock="a")


def changed() -> Hierarchy:
    return Hierarchy([ChangedLow(), High()], clock="a")
