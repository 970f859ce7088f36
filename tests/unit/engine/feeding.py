"""A detector that copies, and ways to feed it, for the tests of bad input."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import slackline as sl


class Copy(sl.Detector):
    """Publishes what it sees."""

    listens: Any = ("in",)
    publishes: Any = ("out",)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_event(self, event: sl.Event):
        self.seen.append(event.ts)
        yield event.derive("out", **event.payload)


def engine(*detectors: sl.Detector, clock: Any = "in", **options: Any) -> sl.Engine:
    return sl.Engine(sl.Hierarchy(detectors or [Copy()], clock=clock), **options)


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


FORMS = pytest.mark.parametrize("form", ["events", "table"])


def push(target: sl.Engine, form: str, ts: list[Any], kind: str = "in") -> list[sl.Output]:
    if form == "events":
        return target.push([sl.Event(kind, ts=t) for t in ts])
    return target.push(table(ts=ts, type=[kind] * len(ts)))


def ticks(n: int) -> list[sl.Event]:
    return [sl.Event("in", ts=10 * i, source=f"s{i % 2}") for i in range(n)]


class TwoTypes(Copy):
    listens = ("in", "tick")
