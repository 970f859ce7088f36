"""Detectors whose state holds instances of classes that no module has: ``state_types``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

import slackline as sl
from slackline.core.errors import StateError


def counting(declared: bool, name: str = "Counts") -> sl.Detector:
    """A detector whose classes only this function knows."""

    class Mood(Enum):
        GOOD = 1

    @dataclass
    class Seen:
        n: int
        mood: Mood

    class Counts(sl.Detector):
        listens, publishes = ("in",), ("out",)
        state_types = (Seen, Mood) if declared else ()

        def __init__(self) -> None:
            self.seen = Seen(0, Mood.GOOD)

        def on_event(self, event: sl.Event) -> Any:
            assert type(self.seen) is Seen and self.seen.mood is Mood.GOOD
            self.seen.n += 1
            yield event.derive("out", n=self.seen.n)

    return type(name, (Counts,), {})()


def stream(*stamps: int) -> list[sl.Event]:
    return [sl.Event("in", ts=ts, source="s") for ts in stamps]


def test_what_is_declared_is_restored_in_the_classes_of_the_detector_that_takes_it() -> None:
    engine = sl.Engine(sl.Hierarchy([counting(declared=True)], clock="in"), policy="ordered")
    engine.push(stream(1, 2))
    again = sl.Engine.load(engine.save(), sl.Hierarchy([counting(declared=True)], clock="in"))
    assert [output.event["n"] for output in again.push(stream(3, 4)) + again.close()] == [2, 3, 4]


def test_what_is_not_declared_is_refused_when_it_is_saved() -> None:
    engine = sl.Engine(sl.Hierarchy([counting(declared=False)], clock="in"))
    with pytest.raises(StateError, match=r"Counts\['seen'\] is a .*Seen, .*declare it in state_types of detector 'C"):
        engine.save()


def test_what_is_not_declared_where_it_is_restored_is_named() -> None:
    data = sl.Engine(sl.Hierarchy([counting(declared=True)], clock="in")).save()
    with pytest.raises(StateError, match=r"holds a .*Mood.*declare it in state_types of detector 'Counts'"):
        sl.Engine.load(data, sl.Hierarchy([counting(declared=False)], clock="in"))


def test_speculation_takes_back_what_is_declared() -> None:
    hierarchy = sl.Hierarchy([counting(declared=True)], clock="in")
    engine = sl.Engine(hierarchy, policy="slack", speculation=sl.Speculation(alpha=0, snapshot_every=1))
    arrivals = stream(*(ts + back for ts in range(100, 400, 20) for back in (0, -50)))
    outputs = [output for event in arrivals for output in engine.push(event)] + engine.close()
    assert any(output.op == "retract" for output in outputs)
    final = [output.event for output in outputs if output.final]
    assert [event["n"] for event in final] == list(range(1, len(final) + 1))


ELSEWHERE = """
import pickle, sys
import slackline as sl
for detector in pickle.load(sys.stdin.buffer):
    hierarchy = sl.Hierarchy([detector], clock="in")
    engine = sl.Engine(hierarchy, policy="ordered")
    engine.push([sl.Event("in", ts=1), sl.Event("in", ts=2)])
    try:
        again = sl.Engine.load(engine.save(), hierarchy)
        print([output.event["n"] for output in again.push([sl.Event("in", ts=3)]) + again.close()])
    except sl.SlacklineError as error:
        print("state_types" in str(error))
"""


def test_a_detector_that_was_sent_to_another_process_by_value_finds_what_it_declares() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="code is sent by value to Spark's workers")
    sent = cloudpickle.dumps([counting(declared=True), counting(declared=False, name="Careless")])
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], input=sent, capture_output=True, check=False)
    assert done.stdout.decode().split("\n") == ["[2, 3]", "True", ""], done.stderr.decode()
