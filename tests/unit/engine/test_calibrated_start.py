"""Engines that start from known delays."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from slackline.calibration import Calibration, TypeDelay


class Low(sl.Detector):
    listens, publishes = ("a", "b"), ("low",)

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_event(self, event: sl.Event):
        self.seen.append(f"{event.type}{event.ts}")
        if event.type == "b":
            yield event.derive("low", ts=max(0, event.ts - 20))


class High(Low):
    listens, publishes = ("a", "low"), ()


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High()], clock="a")


KNOWN = Calibration.made(
    hierarchy(), {"a": TypeDelay(0), "b": TypeDelay(30), "low": TypeDelay(60, processing=10, back=20)}
)


def stream(start: int, stop: int) -> list[sl.Event]:
    """Of each time a, and of every fifth b, which is 25 late."""
    found = []
    for t in range(start, stop):
        found.append(sl.Event("a", ts=10 * t, source="a"))
        if t % 5 == 3:
            found.append(sl.Event("b", ts=10 * t - 25, source="b"))
    return found


def engine(**options: Any) -> sl.Engine:
    return sl.Engine(hierarchy(), **{"policy": sl.Slack(margin=0), "calibration": KNOWN, **options})


def K(target: sl.Engine) -> dict[str, int]:
    return {name: found["K"] for name, found in target.stats()["detectors"].items()}


def test_K_starts_at_the_calibrated_delay_before_anything_has_come() -> None:
    assert K(engine()) == {"Low": 30, "High": 60}
    assert K(engine(policy="auto")) == {"Low": 30, "High": 0}  # there progress is the evidence for derived types
    assert engine().stats()["types"]["low"]["back"] == 20


def test_nothing_is_late_at_the_start_and_the_first_event_is_released_when_its_delay_has_passed() -> None:
    for policy in (sl.Slack(margin=0), sl.Auto(margin=0), sl.Ready(margin=0)):
        started = engine(policy=policy, late="divert")
        started.push(stream(0, 60))
        assert not started.late, policy
        assert started.detectors["Low"].seen[:4] == ["a0", "b5", "a10", "a20"]
        assert "low0" in started.detectors["High"].seen[:2]
    without = engine(calibration=None)
    without.push(stream(0, 60))
    assert (without.late[0].event.type, without.late[0].event.ts) == ("b", 5)


@pytest.mark.parametrize("policy", [sl.Slack(margin=0, warmup=500), sl.Auto(margin=0, warmup=500)])
def test_a_calibrated_type_does_not_wait_for_the_warm_up(policy: sl.Slack | sl.Auto) -> None:
    arrivals = stream(0, 8)
    started, cold = engine(policy=policy), engine(policy=policy, calibration=None)
    for target in (started, cold):
        target.push(arrivals)
    assert started.detectors["Low"].seen[:3] == ["a0", "b5", "a10"]
    assert cold.detectors["Low"].seen == []


def test_K_grows_from_there_at_once_and_a_pseudo_event_announces_it_upwards() -> None:
    started = engine()
    started.push([*stream(0, 10), sl.Event("b", ts=10, source="b"), sl.Event("a", ts=100, source="a")])
    assert K(started)["Low"] == 90
    started.push(sl.Event("a", ts=110, source="a"))
    assert K(started)["High"] == 120  # 110 - (100 - 90 - 20)


def test_K_shrinks_when_the_window_has_moved_on() -> None:
    started = engine(policy=sl.Slack(margin=0, window=32))
    in_order = [sl.Event(kind, ts=10 * t, source=kind) for t in range(400) for kind in "ba"]
    started.push(in_order)
    assert K(started)["Low"] == 0  # b is measured by the a of its own time


def test_a_saved_engine_keeps_what_it_learnt_and_needs_no_calibration() -> None:
    straight, stopped = (engine(policy=sl.Auto(margin=0, warmup=50)) for _ in range(2))
    outputs = straight.push(stream(0, 4)) + straight.push(stream(4, 60))
    found = stopped.push(stream(0, 4))
    loaded = sl.Engine.load(stopped.save(), hierarchy())
    assert "calibration" not in loaded.stats()["options"] and not loaded.stats()["changed"]
    assert found + loaded.push(stream(4, 60)) == outputs
    assert loaded.stats() == straight.stats()


def test_a_calibration_given_at_load_changes_nothing() -> None:
    """As Spark does at a restart of the query: it only matters at the start."""
    running = engine()
    running.push(stream(0, 60))
    other = Calibration.made(hierarchy(), {kind: TypeDelay(10_000) for kind in KNOWN.types})
    loaded = sl.Engine.load(running.save(), hierarchy(), calibration=other)
    assert loaded.stats() == running.stats()


def test_a_detector_that_moves_takes_its_calibrated_start_along() -> None:
    here = sl.Engine(hierarchy(), policy=sl.Slack(margin=0), detectors=["Low", "High"], calibration=KNOWN)
    there = sl.Engine(hierarchy(), policy=sl.Slack(margin=0), detectors=[])
    here.push(stream(0, 4))
    there.push(stream(0, 4))
    there.host.attach(here.host.detach("Low"))
    assert there.stats()["detectors"]["Low"]["K"] == 30


def test_the_content_of_the_file_will_do() -> None:
    assert K(engine(calibration=KNOWN.plain())) == K(engine())


def test_no_more_is_waited_than_was_calibrated_when_the_largest_delay_ever_is_known() -> None:
    huge = Calibration.made(hierarchy(), {kind: TypeDelay(2**62) for kind in KNOWN.types})
    started = engine(calibration=huge, max_jump=None)
    started.push(stream(0, 30))
    started.push(sl.Event("a", ts=2**62, source="a"))
    started.check_invariants()
    assert not started.late and len(started.buffered()["Low"]) > 30
    started.close()
    assert not started.buffered()["Low"]
