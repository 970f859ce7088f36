"""Late targets by detector, and wall time that passes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl


class One(sl.Detector):
    listens, publishes = ("a",), ("x",)

    def on_event(self, event: sl.Event):
        yield event.derive("x")


class Other(sl.Detector):
    listens, publishes = ("b",), ("y",)

    def on_event(self, event: sl.Event):
        yield event.derive("y")


class Both(sl.Detector):
    listens = ("x", "y")

    def on_event(self, event: sl.Event) -> None:
        pass


def stream(n: int = 6_000) -> list[sl.Event]:
    rng = np.random.default_rng(2)
    ts = np.arange(n) * 10
    order = np.argsort(ts + rng.exponential(200, n), kind="stable")
    return [sl.Event("ab"[i % 2], int(ts[i])) for i in order.tolist()]


def late(engine: sl.Engine) -> dict[str, int]:
    engine.push(stream())
    return {name: stats["late"] for name, stats in engine.stats()["detectors"].items()}


def test_each_detector_has_its_own_target() -> None:
    hierarchy = sl.Hierarchy([One(), Other()], clock=("a", "b"))
    engine = sl.Engine(hierarchy, late_target={"One": 0.02, "Other": 0.002})
    found = late(engine)
    assert 0.01 * 3_000 < found["One"] <= 0.03 * 3_000 and found["Other"] <= 0.003 * 3_000
    K = {name: figures["K"] for name, figures in engine.stats()["types"].items()}
    assert K["a"] < K["b"]


def test_detectors_reached_through_others_count_too() -> None:
    engine = sl.Engine(sl.Hierarchy([One(), Other(), Both()], clock=("a", "b")), late_target={"Both": 0, "One": 0.02})
    engine.push(stream())
    assert all(input.evidence.late_target == 0 for input in engine._topology.sensors.values())


def test_a_target_for_a_detector_that_is_not_there_is_refused() -> None:
    with pytest.raises(sl.ConfigError, match=r"late_target refers to unknown detectors \['Nobody'\]"):
        sl.Engine(sl.Hierarchy([One()], clock="a"), late_target={"Nobody": 0.1})


def test_targets_survive_a_restart() -> None:
    hierarchy = sl.Hierarchy([One(), Other()], clock=("a", "b"))
    engine = sl.Engine(hierarchy, late_target={"One": 0.02})
    engine.push(stream(500))
    again = sl.Engine.load(engine.save(), sl.Hierarchy([One(), Other()], clock=("a", "b")))
    assert again.stats()["types"] == engine.stats()["types"]


@pytest.mark.parametrize("as_table", [False, True])
def test_what_waits_in_a_sparse_stream_comes_out_when_time_has_passed(as_table: bool) -> None:
    """Events some ten minutes apart, some of them behind a later one: none waits for the next arrival."""
    engine = sl.Engine(sl.Hierarchy([One()], clock="a"))
    rng = np.random.default_rng(4)
    ts = np.cumsum(rng.integers(200, 1_000, 300)) * 1_000
    arrival = ts + 500
    arrival[::7] = ts[::7] + 620_000
    order = np.argsort(arrival, kind="stable")
    ts, arrival = ts[order], arrival[order]
    if as_table:
        engine.push(pa.table({"ts": ts}), now=arrival)
    else:
        for stamp, now in zip(ts.tolist(), arrival.tolist(), strict=True):
            engine.push(sl.Event("a", stamp), now=now)
    assert engine.buffered()["One"]
    assert engine.push([], now=int(arrival[-1]) + 1) == []
    found = engine.push([], now=int(arrival[-1]) + 3_600_000)
    assert len(found) > 0 and not engine.buffered()["One"]


def test_an_aid_that_moves_the_clock_is_measured_alike_as_events_and_as_a_table() -> None:
    class Any3(sl.Detector):
        listens, publishes = ("ball", "door", "lamp"), ("found",)

        def on_event(self, event: sl.Event):
            yield event.derive("found")

    ts = [11, 12, 20, 22, 28, 31, 32, 39, 41, 42, 50, 50, 53, 59, 60, 62, 70, 80]
    kinds = {"b": "ball", "d": "door", "l": "lamp"}
    stream = [sl.Event(kinds[kind], at, source="s") for kind, at in zip("lblbdlbdblbdlbdldd", ts, strict=True)]
    rows = pa.table({name: [getattr(event, name) for event in stream] for name in ("type", "ts", "source")})
    known = []
    for arrivals in (stream, rows):
        engine = sl.Engine(sl.Hierarchy([Any3()], clock="ball", clock_aids="door"))
        engine.push(arrivals)
        known.append({name: figures["K"] for name, figures in engine.stats()["types"].items()})
    assert known[0] == known[1] and known[0]["door"] == 10
