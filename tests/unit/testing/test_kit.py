"""The testing kit: streams in words, runs, and checks that find what is wrong with a detector."""

from __future__ import annotations

import datetime as dates
import random
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slackline as sl
from slackline.testing import CheckError, StreamError, check, run, show, simulate, stream

# Streams.


def test_a_stream_in_words_has_types_sources_numbers_times_and_fields() -> None:
    words = 'near/p7#3@12(player=7, by="the home team", ok=true, at=[1, 2], no=null) kick@5 A/9@0'
    events = stream(words, zone="z")
    assert events[0] == sl.Event(
        "near", 12, "p7", 3, zone="z", player=7, by="the home team", ok=True, at=[1, 2], no=None
    )
    assert events[2] == sl.Event("A", 0, 9, zone="z")
    assert stream(show(events)) == events
    assert stream("a/²@1") == [sl.Event("a", 1, "²")]  # a digit, but no number


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("A@3 B5", 6, "'@' and the event time"),
        ("A@3 @5", 4, "an event type"),
        ("A@x", 2, "an event time"),
        ("A@3B@5", 3, "a space before the next event"),
        ("A@3(x=1", 7, "',' or ')'"),
        ("A@3(x)", 5, "'=' and the value"),
        ("A@3(=1)", 4, "the name of a field"),
        ("A@3(x=)", 6, "a value"),
        ('A@3(x="open)', 6, "a value as in JSON"),
        ("A#x@3", 2, "a sequence number"),
        ("A/@3", 2, "the name of a source"),
        ("A@-3", 2, "an event time"),
    ],
)
def test_a_typo_is_shown_with_its_position(words: str, position: int, expected: str) -> None:
    with pytest.raises(StreamError) as error:
        stream(words)
    assert error.value.position == position and expected in str(error.value)
    assert str(error.value).splitlines()[2].index("^") == position + 2


# Runs.


class Rising(sl.Detector):
    listens, publishes = ("r",), ("up",)

    def __init__(self) -> None:
        self.last: dict[Any, int] = {}

    def on_event(self, event: sl.Event) -> Any:
        if event["x"] > self.last.get(event.source, event["x"]):
            yield event.derive("up", x=event["x"])
        self.last[event.source] = event["x"]

    def on_batch(self, batch: sl.Batch) -> Any:
        for row, event in enumerate(batch):
            for found in self.on_event(event):
                yield row, found


class Twice(sl.Detector):
    listens, publishes = ("up",), ("twice",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("twice", x=2 * event["x"])


STREAM = "r/a@1(x=1) r/a@3(x=5) r/a@2(x=3) r/b@4(x=9) r/b@6(x=10) r/a@5(x=4) r/a@9(x=8) r/b@8(x=2)"


def test_a_run_is_compared_with_a_stream_in_words() -> None:
    found = run([Rising(), Twice()], STREAM)
    assert str(run(Rising(), STREAM)) == "up@2(x=3) up@3(x=5) up@6(x=10) up@9(x=8)"
    assert [event["x"] for event in found.of("twice")] == [6, 10, 20, 16]
    with pytest.raises(AssertionError, match=r"expected  up@2\(x=4\)\n  published up@2\(x=3\)"):
        run(Rising(), "r@1(x=1) r@2(x=3)").expect("up@2(x=4)")


def test_a_run_begins_with_the_detector_as_it_was_given() -> None:
    detector = Rising()
    assert str(run(detector, STREAM)) == str(run(detector, STREAM)) and detector.last == {}


def test_with_speculation_the_events_are_those_that_stay() -> None:
    early = run(Rising(), STREAM, speculation=sl.Speculation(alpha=0.0))
    assert {output.op for output in early.outputs} >= {"insert"}
    assert sorted(map(str, early.events)) == sorted(map(str, run(Rising(), STREAM).events))


# Checks.


def test_a_good_detector_and_a_hierarchy_pass() -> None:
    check(Rising(), STREAM)
    check([Rising(), Twice()], STREAM)
    check(sl.Hierarchy([Rising(), Twice()]), stream(STREAM))


class HiddenState(Rising):
    seen: list[int] = []  # noqa: RUF012

    def on_event(self, event: sl.Event) -> Any:
        self.seen.append(event.ts)
        yield event.derive("up", n=len(self.seen))


class HiddenNumber(Rising):
    number = 0

    def on_event(self, event: sl.Event) -> Any:
        type(self).number += 1
        if self.number % 3 == 0:
            yield event.derive("up", n=self.number)


class OnlyOnce(Rising):
    done: list[int] = []  # noqa: RUF012

    def on_event(self, event: sl.Event) -> Any:
        if not self.done:
            self.done.append(event.ts)
            yield event.derive("up")


class WallClock(Rising):
    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("up", hour=int(time.time() // 3600))


class Today(Rising):
    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("up", year=datetime.now().year)


class TodayOfTheModule(Rising):
    def on_event(self, event: sl.Event) -> Any:
        assert isinstance(datetime(2026, 5, 1), dates.datetime) and not isinstance(1, dates.datetime)
        yield event.derive("up", year=dates.datetime.now(dates.UTC).year)


class Dice(Rising):
    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("up", n=random.randrange(10**9))


class NumpyDice(Rising):
    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("up", x=float(np.random.random()))


class EndOfBatch(Rising):
    def on_batch(self, batch: sl.Batch) -> Any:
        yield len(batch) - 1, sl.Event("up", ts=int(batch.ts[-1]))

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("up")


class Forgets(Rising):
    fixed = ("last",)


class SharedSnapshot(Rising):
    def snapshot(self) -> Any:
        return {"n": len(self.last)}

    def restore(self, state: Any) -> None:
        self.last = {}


class Raises(Rising):
    def on_event(self, event: sl.Event) -> Any:
        if event["x"] == 10:
            raise KeyError("ten")
        yield event.derive("up")


class ArrivalOrder(Rising):
    """Ties are in order of arrival, and it depends on them."""

    def on_event(self, event: sl.Event) -> Any:
        self.last["all"] = self.last.get("all", 0) * 2 + event["x"]
        yield event.derive("up", n=self.last["all"])


@pytest.mark.parametrize(
    ("kind", "law", "most"),
    [
        (HiddenState, "no hidden state", 1),
        (HiddenNumber, "no hidden state", 2),
        (OnlyOnce, "no hidden state", 1),
        (WallClock, "no wall clock", 1),
        (Today, "no wall clock", 1),
        (TodayOfTheModule, "no wall clock", 1),
        (Dice, "no wall clock", 1),
        (NumpyDice, "no wall clock", 1),
        (EndOfBatch, "batches and single events", 3),
        (Forgets, "save and load", 2),
        (SharedSnapshot, "save and load", 2),
        (Raises, "no errors", 1),
    ],
)
def test_what_is_wrong_is_found_with_the_smallest_stream(kind: type[sl.Detector], law: str, most: int) -> None:
    with pytest.raises(CheckError) as error:
        check(kind(), STREAM)
    assert error.value.law == law
    assert len(error.value.events) <= most, str(error.value)
    assert show(error.value.events) in str(error.value)


def test_hidden_state_in_the_class_is_named_and_shown_as_of_a_first_and_a_second_run() -> None:
    with pytest.raises(CheckError) as error:
        check(HiddenNumber(), STREAM)
    text = str(error.value)
    assert "in a second run, which finds HiddenNumber.number changed" in text
    assert "expected  nothing" in text and "(n=3)" in text
    assert HiddenNumber.number == 0  # as before


def test_ties_that_arrive_in_any_order_are_found() -> None:
    with pytest.raises(CheckError, match="shuffled arrivals"):
        check(ArrivalOrder(), "r@1(x=1) r@2(x=1) r@2(x=3) r@2(x=7) r@4(x=9)")
    check(ArrivalOrder(), "r#0@1(x=1) r#1@2(x=1) r#2@2(x=3) r#3@2(x=7) r#4@4(x=9)")


def test_a_check_without_events_is_wrong_use() -> None:
    with pytest.raises(sl.ConfigError, match="needs events"):
        check(Rising(), "")


# The simulated cluster and the plugin.


class Reliable(Rising):
    reliable = ("r",)


class ReliableTwice(Twice):
    reliable = ("up",)


@pytest.mark.parametrize("crash", [False, True])
def test_a_simulated_cluster_gives_what_one_engine_gives(crash: bool) -> None:
    events = [sl.Event("r", ts=10 * i, source=f"s{i % 3}", seq=i, x=i * i % 31) for i in range(200)]
    found = simulate([Reliable(), ReliableTwice()], events, nodes=3, crash=crash, seed=5)
    expected = run([Reliable(), ReliableTwice()], events, sensors=["r"])
    assert sorted(map(str, found.events)) == sorted(map(str, expected.events)) and found.events


PLUGIN_TEST = """
import slackline as sl

class Echo(sl.Detector):
    listens, publishes = ("a",), ("b",)
    def on_event(self, event):
        yield event.derive("b")

def test_echo(slackline_run, slackline_check, slackline_stream):
    slackline_run(Echo(), "a@2 a@1").expect("b@1 b@2")
    slackline_check(Echo(), slackline_stream("a@2 a@1"))

def test_wrong(slackline_run):
    slackline_run(Echo(), "a@2").expect("b@1")
"""


def test_the_plugin_gives_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_echo.py").write_text(PLUGIN_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "--slackline-seed=3", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout and "other events were published" in done.stdout, done.stdout
