"""A small hierarchy of two sensor types, spread over engines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import slackline as sl

A = sl.EventType("a", x="float32", n=int, word=str)


class Low(sl.Detector):
    listens, publishes = (A,), ("low",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive(self.publishes[0], n=self.n)


class High(Low):
    """Sets back what it finds, and says so."""

    listens, publishes = ("low", "b"), ("high",)
    max_backdate = 5

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("high", ts=max(0, event.ts - 5), n=self.n, of=event.type)


class Top(Low):
    listens, publishes = ("high",), ("top",)


class Sees(Low):
    """Publishes nothing of what it sees."""

    listens, publishes = (A, "b"), ("sight",)

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def on_event(self, event: sl.Event) -> Any:
        self.seen.append((event.type, event.ts))
        return ()


class SeesToo(Sees):
    publishes = ("another",)


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High(), Top(), Sees(), SeesToo()], clock="a")


def engine(sensors: Any, detectors: Any = (), **options: Any) -> sl.Engine:
    return sl.Engine(hierarchy(), sensors=sensors, detectors=detectors, **{"policy": sl.Auto(warmup=0), **options})


def a(ts: int, source: str = "s") -> sl.Event:
    return sl.Event("a", ts, source=source, x=0.5, n=ts, word=f"w{ts}")


def b(ts: int) -> sl.Event:
    return sl.Event("b", ts, source="t", y=ts)


def table(events: list[sl.Event]) -> pa.Table:
    names = sorted({name for event in events for name in event.payload})
    columns = {name: [event.payload.get(name) for event in events] for name in names}
    own = {name: [getattr(event, name) for event in events] for name in ("type", "ts", "source")}
    return pa.table({**own, **columns})


def of(kind: str, updates: list[sl.ProgressUpdate]) -> sl.ProgressUpdate:
    (item,) = (item for item in updates if item.type == kind)
    return item
