"""A sensor type that enters several engines in parts: detectors see one type, in order; wrong use is refused."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import slackline as sl
from slackline.core.errors import ClosedError, ConfigError, HierarchyError
from slackline.ordering.sources import total_order

A = sl.EventType("a", x=float, word=str)


class Rows(sl.Detector):
    """Sees all, as batches where they come as such."""

    listens, publishes = (A, "b"), ("seen",)

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.batches = 0

    def on_event(self, event: sl.Event) -> Any:
        self.seen.append(total_order(event))
        yield event.derive("seen", n=len(self.seen))

    def on_batch(self, batch: sl.Batch) -> Any:
        assert batch.type in ("a", "b")
        self.batches += 1
        for row, event in enumerate(batch):
            self.seen.append(total_order(event))
            yield row, event.derive("seen", n=len(self.seen))


class Events(Rows):
    listens, publishes, name = (A,), ("one",), "Events"
    on_batch = sl.Detector.on_batch

    def on_event(self, event: sl.Event) -> Any:
        self.seen.append(total_order(event))
        yield event.derive("one", n=len(self.seen))


def hierarchy(parts: int = 2) -> sl.Hierarchy:
    return sl.Hierarchy([Rows(), Events()], clock=A).in_parts({"a": parts})


def table(events: list[sl.Event]) -> pa.Table:
    own = {name: [getattr(event, name) for event in events] for name in ("type", "ts", "source", "seq")}
    payload = {name: [event.payload.get(name) for event in events] for name in ("x", "word")}
    return pa.table({**own, **payload})


def part_of(event: sl.Event, parts: int = 2) -> int:
    return zlib.crc32(str(event.source).encode()) % parts


def stream(n: int, seed: int = 1) -> list[sl.Event]:
    """Many of the same time, from several sources, out of order."""
    rng = random.Random(seed)
    events = []
    for i in range(n):
        kind = "b" if i % 7 == 0 else "a"
        payload = {"x": float(i), "word": str(i)} if kind == "a" else {}
        events.append(sl.Event(kind, ts=i // 3 * 10, source=f"s{i % 5}", seq=i, **payload))
    return sorted(events, key=lambda event: event.ts + rng.uniform(0, 60))


class Cluster:
    """Two ingress engines, a part of ``a`` at each, and a third engine; detectors where they are placed."""

    def __init__(self, rows_at: int, events_at: int, **options: Any) -> None:
        sensors: list[list[str]] = [["a/0", "b"], ["a/1"], []]
        self.engines = [
            sl.Engine(
                hierarchy(),
                sensors=each,
                detectors=["Rows"] * (at == rows_at) + ["Events"] * (at == events_at),
                **options,
            )
            for at, each in enumerate(sensors)
        ]
        self.outputs: list[sl.Output] = []

    def push(self, events: list[sl.Event], form: Callable[[Any], Any]) -> None:
        for at in (0, 1):
            mine = [e for e in events if (0 if e.type == "b" else part_of(e)) == at]
            if mine:
                self.outputs += self.engines[at].push(form(mine))
        self.exchange()

    def exchange(self) -> None:
        for at, engine in enumerate(self.engines):
            updates = engine.host.progress_updates()
            for other, receiver in enumerate(self.engines):
                if other != at:
                    self.outputs += receiver.host.receive(updates)
                    receiver.check_invariants()

    def end(self) -> None:
        self.engines[0].host.end(["a/0", "b"])
        self.engines[1].host.end(["a/1"])
        for _ in range(3):
            self.exchange()

    @property
    def seen(self) -> dict[str, list[Any]]:
        return {name: d.seen for engine in self.engines for name, d in engine.detectors.items()}  # type: ignore[attr-defined]


def plain(events: list[sl.Event]) -> dict[str, list[Any]]:
    engine = sl.Engine(sl.Hierarchy([Rows(), Events()], clock=A), policy="ordered")
    engine.push(sorted(events, key=total_order))
    engine.close()
    return {name: detector.seen for name, detector in engine.detectors.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", [list, table])
@pytest.mark.parametrize("size", [1, 5, 200])
@pytest.mark.parametrize("rows_at", [0, 1, 2])
def test_detectors_see_the_whole_type_in_order_wherever_they_run(form: Any, size: int, rows_at: int) -> None:
    events, cluster = stream(600), Cluster(rows_at, 2 - rows_at)
    for start in range(0, len(events), size):
        cluster.push(events[start : start + size], form)
    cluster.end()
    late = [late.event for engine in cluster.engines for late in engine.late]
    assert all(each.detector is None for engine in cluster.engines for each in engine.late)
    assert cluster.seen == plain([event for event in events if event not in late])
    assert len(late) < 60


def test_rows_of_several_parts_are_one_batch() -> None:
    """As from one engine: cut only where rows of other types come between."""
    events = [sl.Event("a", ts=i // 4, source=f"s{i % 6}", seq=i, x=float(i), word="w") for i in range(400)]
    cluster = Cluster(2, 2, policy="ordered")
    cluster.push(events, table)
    cluster.end()
    rows = cluster.engines[2].detectors["Rows"]
    assert rows.seen == sorted(map(total_order, events)) and rows.batches <= 3  # type: ignore[attr-defined]


def test_the_watermark_of_a_detector_is_the_least_of_the_parts() -> None:
    cluster = Cluster(2, 2, policy="ordered")
    here, there, third = cluster.engines
    of = {
        part: next(f"s{i}" for i in range(9) if part_of(sl.Event("a", ts=0, source=f"s{i}")) == part) for part in (0, 1)
    }
    here.push([sl.Event("a", ts=ts, source=of[0], x=1.0, word="") for ts in (10, 50)])
    cluster.exchange()
    assert cluster.seen["Events"] == []
    there.push([sl.Event("a", ts=30, source=of[1], x=1.0, word="")])
    cluster.exchange()
    assert [entry[0] for entry in cluster.seen["Events"]] == [10]  # up to 29
    there.host.end("a/1")
    cluster.exchange()
    assert [entry[0] for entry in cluster.seen["Events"]] == [10, 30]  # up to 49
    with pytest.raises(ClosedError, match="'a'"):
        there.push(sl.Event("a", ts=60, source=of[1], x=1.0, word=""))
    assert third.stats()["types"]["a/0"]["events"] == 2


@pytest.mark.parametrize("form", [list, table])
def test_a_detector_migrates_and_engines_restart(form: Any) -> None:
    events, cluster = stream(600, seed=4), Cluster(2, 0)
    for nth, start in enumerate(range(0, len(events), 25)):
        cluster.push(events[start : start + 25], form)
        source, target = cluster.engines[(nth + 2) % 3], cluster.engines[nth % 3]
        cluster.outputs += target.host.attach(source.host.detach("Rows"))
        cluster.engines = [sl.Engine.load(engine.save(), hierarchy()) for engine in cluster.engines]
    cluster.end()
    late = [late.event for engine in cluster.engines for late in engine.late]
    assert cluster.seen == plain([event for event in events if event not in late])


def test_events_that_were_missed_during_a_migration_are_processed() -> None:
    cluster = Cluster(2, 2, policy="ordered")
    third = cluster.engines[2]
    events = [sl.Event("a", ts=ts, source="s0", x=1.0, word="") for ts in (1, 2, 3)]
    entry = cluster.engines[part_of(events[0])]
    other = cluster.engines[1 - part_of(events[0])]
    entry.push(events[0])
    cluster.exchange()
    state = third.host.detach("Events")
    entry.push(events[1:])
    updates = entry.host.progress_updates()
    for engine in (other, third):
        engine.host.receive(updates)
    other.host.attach(state, missed=[item for item in updates if item.type != "b"])
    cluster.end()
    assert [key[0] for key in cluster.seen["Events"]] == [1, 2, 3]


def test_late_and_refused_events_and_duplicates_are_those_of_the_type() -> None:
    engine = sl.Engine(hierarchy(), sensors=["a/1"], detectors=[], policy="ordered", duplicates="keep")
    rows = [
        {"ts": ts, "seq": seq, "x": 1.0, "word": "", "type": "a"} for ts, seq in ((10, 0), (30, 1), (20, 2), (30, 1))
    ]
    engine.push(rows)
    engine.push([{"ts": -1, "type": "a", "x": 1.0, "word": ""}, {"ts": 40, "type": "b"}, {"ts": 40, "type": "a/1"}])
    drained = engine.drain()
    assert [late.event.type for late in drained.late] == ["a"]
    assert [each.event.type for each in drained.duplicates] == ["a"]
    reasons = [(each.event.type, each.reason) for each in drained.quarantined]
    assert reasons == [("a", "bad time stamp"), ("b", "unknown type"), ("a/1", "unknown type")]
    assert "does not enter this engine" in drained.quarantined[1].detail


def test_a_calibration_of_the_type_is_one_of_its_parts() -> None:
    whole = sl.Hierarchy([Rows(), Events()], clock=A)
    from slackline.core.calibration import Calibration, TypeDelay

    known = {"a": TypeDelay(33), "b": TypeDelay(7), "seen": TypeDelay(0), "one": TypeDelay(0)}
    engine = sl.Engine(hierarchy(), sensors=["a/1"], calibration=Calibration.made(whole, known))
    types = engine.stats()["types"]
    assert [types[name]["K"] for name in ("a/0", "a/1", "b")] == [33, 33, 7]


def test_wrong_parts_are_refused() -> None:
    whole = sl.Hierarchy([Rows(), Events()], clock=A)
    for parts, text in (
        ({"seen": 2}, "'seen' cannot enter in parts: it is not a sensor type"),
        ({"a": 1}, "'a' cannot enter in 1 parts"),
        ({"a": 2.0}, "cannot enter in 2.0 parts"),
    ):
        with pytest.raises(HierarchyError, match=text):
            whole.in_parts(parts)  # type: ignore[arg-type]
    with pytest.raises(HierarchyError, match="it is not a sensor type"):
        hierarchy().in_parts({"a": 2})
    with pytest.raises(ConfigError, match=r"several parts of \['a'\] enter this engine"):
        sl.Engine(hierarchy(), sensors=["a/0", "a/1"])
    with pytest.raises(ConfigError, match="several parts"):
        sl.Engine(hierarchy())
    with pytest.raises(ConfigError, match="received progress of type 'a/0', but it enters this engine"):
        sl.Engine(hierarchy(), sensors=["a/0"]).host.receive([sl.ProgressUpdate("a/0", (), (), 5, 0, 5)])
    with pytest.raises(ConfigError, match="invalid events"):
        sl.Engine(hierarchy(), sensors=[]).host.receive([sl.ProgressUpdate("a/0", (sl.Event("b", ts=1),), (), 5, 0, 5)])


def test_a_detector_that_is_added_listens_to_all_parts() -> None:
    class Later(sl.Detector):
        listens, publishes = ("a",), ()

        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_event(self, event: sl.Event) -> None:
            self.seen.append(event.ts)

    extended = hierarchy().extended(Later())
    assert extended.listens["Later"] == ("a/0", "a/1") and extended.clock == ("a/0", "a/1")

    class Publishes(Later):
        listens, publishes = ("b",), ("a",)

    with pytest.raises(HierarchyError, match="published by detector 'Publishes'"):
        hierarchy().extended(Publishes())
