"""Saved engines: what can be saved, and errors for what cannot."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import slackline as sl
from slackline.core.errors import StateError, UnsupportedStateError


@dataclass
class Run:
    player: int
    speeds: list[float] = field(default_factory=list)


class Hoarder(sl.Detector):
    """Keeps state of every usual kind."""

    listens, publishes = ("in",), ("out",)

    def __init__(self) -> None:
        self.number, self.big, self.text, self.nothing = 1.5, 2**80, "é", None
        self.plain = [1, 2.5, "x", None, True]
        self.by_anything: dict[Any, Any] = {(1, "a"): {1, 2}, 7: frozenset("ab"), None: b"\x00"}
        self.recent: deque[int] = deque([1, 2], maxlen=3)
        self.counts = Counter(a=2)
        self.groups: defaultdict[str, list[int]] = defaultdict(list, {"g": [1]})
        self.runs = {9: Run(9, [1.0])}
        self.grid = np.arange(6, dtype=np.float32).reshape(2, 3)
        self.last: sl.Event | None = None

    def on_event(self, event: sl.Event):
        self.last = event
        self.recent.append(event.ts)
        self.runs[9].speeds.append(float(event.ts))
        self.grid[0, 0] += 1
        yield event.derive("out", total=float(self.grid.sum()), recent=list(self.recent))


def hierarchy(*detectors: sl.Detector) -> sl.Hierarchy:
    return sl.Hierarchy(detectors or [Hoarder()], clock="in")


def test_every_usual_kind_of_state_survives() -> None:
    first = sl.Engine(hierarchy(), policy="slack")
    first.push([sl.Event("in", ts) for ts in (1, 2, 3)])
    second = sl.Engine.load(first.save(), hierarchy())
    before, after = vars(first.detectors["Hoarder"]), vars(second.detectors["Hoarder"])
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert type(after[name]) is type(value), name
        assert np.array_equal(after[name], value) if name == "grid" else after[name] == value, name
    assert after["recent"].maxlen == 3
    assert first.push([sl.Event("in", 4)]) == second.push([sl.Event("in", 4)])


def test_saving_twice_gives_the_same_bytes() -> None:
    engine = sl.Engine(hierarchy())
    engine.push([sl.Event("in", ts) for ts in range(50)])
    assert engine.save() == engine.save() == sl.Engine.load(engine.save(), hierarchy()).save()


def test_an_attribute_that_cannot_be_saved_is_named() -> None:
    class Stubborn(Hoarder):
        def __init__(self) -> None:
            super().__init__()
            self.tools = {"print": [print]}

    engine = sl.Engine(hierarchy(Stubborn()))
    with pytest.raises(UnsupportedStateError, match=r"Stubborn.*tools.*print.*0.*builtin_function_or_method.*snapshot"):
        engine.save()


def test_snapshot_and_restore_may_be_written_by_the_user() -> None:
    class Own(sl.Detector):
        listens, publishes = ("in",), ("out",)

        def __init__(self) -> None:
            self.stream = iter(range(10**6))  # cannot be saved
            self.at = 0

        def snapshot(self) -> int:
            return self.at

        def restore(self, state: int) -> None:
            self.at = state
            self.stream = iter(range(state, 10**6))

        def on_event(self, event: sl.Event):
            self.at += 1
            yield event.derive("out", number=next(self.stream))

    engine = sl.Engine(hierarchy(Own()), policy="slack")
    engine.push([sl.Event("in", 1), sl.Event("in", 2)])
    again = sl.Engine.load(engine.save(), hierarchy(Own()))
    assert [output.event["number"] for output in again.push([sl.Event("in", 3)])] == [2]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b[:40] + b"!" + b[41:], lambda b: b"", lambda b: b"pickle" * 9]
)
def test_damaged_bytes_are_refused(damage: Any) -> None:
    with pytest.raises(StateError):
        sl.Engine.load(damage(sl.Engine(hierarchy()).save()), hierarchy())


def test_the_first_engine_runs_the_given_detectors_and_others_run_copies() -> None:
    detector = Hoarder()
    shared = hierarchy(detector)
    first, second = sl.Engine(shared, policy="slack"), sl.Engine(shared, policy="slack")
    first.push([sl.Event("in", 5)])
    assert detector.last == sl.Event("in", 5)
    assert second.detectors["Hoarder"].last is None


def test_an_attribute_that_is_new_since_the_checkpoint_has_its_default() -> None:
    class Grown(Hoarder):
        name = "Hoarder"

        def __init__(self) -> None:
            super().__init__()
            self.added = [7]

        def on_event(self, event: sl.Event):
            self.added.append(event.ts)
            yield event.derive("out", added=list(self.added))

    engine = sl.Engine(hierarchy(), policy="slack")
    engine.push([sl.Event("in", 1), sl.Event("in", 2)])
    again = sl.Engine.load(engine.save(), hierarchy(Grown()))
    assert [output.event["added"] for output in again.push([sl.Event("in", 3)])] == [[7, 3]]
    assert again.detectors["Hoarder"].number == 1.5 and list(again.detectors["Hoarder"].recent) == [2, 1, 2]


def test_an_attribute_that_was_deleted_stays_deleted() -> None:
    class Once(sl.Detector):
        listens, publishes = ("in",), ("out",)

        def __init__(self) -> None:
            self.pending = True

        def on_event(self, event: sl.Event):
            if hasattr(self, "pending"):
                del self.pending
                yield event.derive("out")

    engine = sl.Engine(hierarchy(Once()), policy="slack")
    assert len(engine.push([sl.Event("in", 1)])) == 1
    again = sl.Engine.load(engine.save(), hierarchy(Once()))
    assert again.push([sl.Event("in", 2)]) == []


def test_options_that_are_given_take_effect_after_a_restart_and_are_logged() -> None:
    engine = sl.Engine(hierarchy(), policy=sl.Slack(margin=0), late="divert")
    engine.push([sl.Event("in", ts, source="s") for ts in (10, 20, 15, 30)])
    again = sl.Engine.load(engine.save(), hierarchy(), policy=sl.Slack(margin=9.0), late="deliver")
    assert again.stats()["changed"] == {"margin": [0, 9.0], "late": ["divert", "deliver"]}
    assert again.stats()["options"]["margin"] == 9.0
    again.push([sl.Event("in", ts, source="s") for ts in (40, 33, 50)])
    engine.push([sl.Event("in", ts, source="s") for ts in (40, 33, 50)])
    assert again.stats()["types"]["in"]["K"] > engine.stats()["types"]["in"]["K"]
    assert sl.Engine.load(again.save(), hierarchy()).stats()["changed"] == {}


def test_a_policy_cannot_change_at_a_restart_and_an_unknown_option_is_named() -> None:
    data = sl.Engine(hierarchy(), policy="slack").save()
    with pytest.raises(StateError, match="policy='slack', and policy='auto' is given"):
        sl.Engine.load(data, hierarchy(), policy="auto")
    with pytest.raises(sl.SlacklineError, match=r"no options \['marign'\]"):
        sl.Engine.load(data, hierarchy(), marign=1)
