"""Law 10: a keyed detector gives for each key what it gives for that key's events alone, timers included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import slackline as sl

TYPES = ("beat", "door")


class Watch(sl.Detector):
    """Mixes what it sees of its key into a number; its timers are chains of ever new tags."""

    listens, publishes, key = TYPES, ("found",), "device"

    def __init__(self, ttl: int | None) -> None:
        self.ttl = ttl
        self.mixed = 0
        self.calls = 0

    def _mix(self, ts: int, value: int) -> None:
        self.mixed = (self.mixed * 31 + 7 * ts + value) % 1_000_003
        self.calls += 1

    def _take(self, kind: str, ts: int, device: int, value: int) -> Any:
        self._mix(ts, value + len(kind))
        yield sl.Event("found", ts=ts, device=device, mixed=self.mixed, calls=self.calls)
        if self.mixed % 5 == 1:
            yield sl.Timer.cancel("a")
        elif self.mixed % 3:
            yield sl.Timer(ts + self.mixed % 60 - 10, "ab"[self.mixed % 2])

    def on_timer(self, timer: sl.Timer) -> Any:
        self._mix(timer.at, len(timer.tag))
        yield timer.derive("found", ts=max(0, timer.at), device=timer.key, mixed=self.mixed, calls=self.calls)
        if self.mixed % 3 == 0 and len(timer.tag) < 4:
            yield sl.Timer(timer.at + self.mixed % 40, timer.tag + "c")


class EventWatch(Watch):
    def on_event(self, event: sl.Event) -> Any:
        yield from self._take(event.type, event.ts, event["device"], event["value"])


class BatchWatch(Watch):
    def on_batch(self, batch: sl.Batch) -> Any:
        columns = (batch.types, batch.ts, batch["device"], batch["value"])
        for row, values in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            for each in self._take(*values):
                yield row, each


class MergedWatch(BatchWatch):
    merged = True


def made(style: type[Watch], ttl: int | None) -> Watch:
    detector = style(ttl)
    detector.name = "Watch"
    return detector


def table(events: list[sl.Event]) -> pa.Table:
    columns: dict[str, Any] = {name: [getattr(e, name) for e in events] for name in ("ts", "type", "source", "seq")}
    return pa.table({**columns, **{name: [e[name] for e in events] for name in ("device", "value")}})


def found(outputs: list[sl.Output], device: int) -> list[sl.Event]:
    events = [output.event for output in outputs if output.final and output.event["device"] == device]
    return [sl.Event(event.type, event.ts, **event.payload) for event in events]


@pytest.mark.parametrize("style", [EventWatch, BatchWatch, MergedWatch])
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 80),
    devices=st.integers(1, 5),
    delay=st.sampled_from([0, 30]),
    ttl=st.sampled_from([None, 5, 40]),
    size=st.sampled_from([1, 7, 30, 1000]),
    form=st.sampled_from(["events", "table"]),
    speculation=st.sampled_from([None, sl.Speculation(alpha=0), sl.Speculation(alpha=0.5, snapshot_every=3)]),
)
def test_law_10_keys_are_independent(
    style: type[Watch], seed: int, n: int, devices: int, delay: int, ttl: int | None, size: int, form: str,
    speculation: sl.Speculation | None,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, 300, n))
    events = [
        sl.Event(TYPES[int(rng.integers(2))], ts=t, source="s", seq=i, device=int(rng.integers(devices)), value=i)
        for i, t in enumerate(ts.tolist())
    ]
    arrivals = [events[i] for i in np.argsort(ts + rng.uniform(0, 1 + delay, n), kind="stable")]
    engine = sl.Engine(sl.Hierarchy([made(style, ttl)], clock="beat"), speculation=speculation)
    outputs: list[sl.Output] = []
    for start in range(0, n, size):
        piece = arrivals[start : start + size]
        outputs += engine.push(table(piece) if form == "table" else piece)
    outputs += engine.close()
    assume(not engine.late and not engine.quarantined)
    for device in range(devices):
        alone = sl.Engine(sl.Hierarchy([made(EventWatch, ttl)], clock="beat"), policy=sl.Auto(warmup=10**6))
        expected = alone.push([event for event in events if event["device"] == device]) + alone.close()
        assert found(outputs, device) == found(expected, device)
