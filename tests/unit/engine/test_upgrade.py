"""A hierarchy that changes over a saved state: what matches is kept, new is empty, gone is dropped, all reported."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import slackline as sl
from slackline.core.errors import StateError
from slackline.runtime.keyed import KeyedEngines


class Count(sl.Detector):
    listens, publishes = ("x",), ("a",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("a", n=self.n)


class Other(Count):
    publishes = ("b",)

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("b", n=self.n)


class Top(Count):
    listens, publishes = ("a",), ("t",)

    def on_event(self, event: sl.Event) -> Any:
        self.n += 1
        yield event.derive("t", n=self.n)


class MoreTypes(Count):
    name, publishes = "Count", ("a", "c")


class TwoInputs(Count):
    name, listens = "Count", ("x", "y")


class Renamed(Count):
    name = "Renamed"


def events(first: int = 0, last: int = 100, kinds: str = "x") -> list[sl.Event]:
    """Out of order within six."""
    order = sorted(range(first, last), key=lambda i: i + (i * 7) % 6)
    return [sl.Event(kind, ts=10 * i, source="s", seq=i) for i in order for kind in kinds]


def saved(*detectors: sl.Detector, kinds: str = "x", **options: Any) -> tuple[bytes, list[sl.Output], int]:
    engine = sl.Engine(sl.Hierarchy(list(detectors), clock="x"), **options)
    found = engine.push(events(0, 60, kinds))
    return engine.save(), found, engine.waiting


def resumed(state: bytes, *detectors: sl.Detector, kinds: str = "x") -> tuple[list[sl.Output], dict[str, Any]]:
    engine = sl.Engine.load(state, sl.Hierarchy(list(detectors), clock="x"))
    found = engine.push(events(60, 100, kinds)) + engine.close()
    engine.check_invariants()
    return found, engine.stats()


def numbers(found: list[sl.Output], kind: str) -> list[int]:
    return [output.event["n"] for output in found if output.event.type == kind]


def test_an_added_detector_starts_empty_and_the_others_continue(caplog: pytest.LogCaptureFixture) -> None:
    state, before, waiting = saved(Count())
    assert waiting
    with caplog.at_level(logging.WARNING, "slackline"):
        found, stats = resumed(state, Count(), Other(), Top())
    assert numbers(before + found, "a") == list(range(1, 101))
    assert numbers(found, "b") == list(range(1, 41))  # what arrived after it was added
    assert numbers(found, "t") == list(range(1, len(numbers(found, "a")) + 1))
    assert stats["upgrade"]["kept"] == ["Count"] and set(stats["upgrade"]["new"]) == {"Other", "Top"}
    assert stats["upgrade"]["new_types"] == ["b", "t"] and stats["upgrade"]["dropped_events"] == 0
    assert "state upgraded: detectors kept Count; new" in caplog.text


def test_a_removed_detector_is_dropped_and_counted() -> None:
    state, before, _ = saved(Count(), Other())
    found, stats = resumed(state, Count())
    assert numbers(before + found, "a") == list(range(1, 101)) and not numbers(found, "b")
    assert stats["upgrade"]["dropped"] == ["Other"] and stats["upgrade"]["dropped_types"] == ["b"]


def test_a_renamed_detector_is_a_new_one_and_what_was_buffered_is_counted_as_dropped() -> None:
    state, _, waiting = saved(Count())
    found, stats = resumed(state, Renamed())
    assert numbers(found, "a") == list(range(1, 41))
    assert stats["upgrade"]["dropped"] == ["Count"] and stats["upgrade"]["dropped_events"] == waiting


@pytest.mark.parametrize("changed", [MoreTypes, TwoInputs])
def test_a_detector_with_more_types_continues(changed: type[sl.Detector]) -> None:
    state, before, _ = saved(Count())
    found, stats = resumed(state, changed())
    assert numbers(before + found, "a") == list(range(1, 101)) and stats["upgrade"]["kept"] == ["Count"]


def test_a_detector_that_no_longer_listens_to_a_type_drops_its_buffered_events_and_counts_them() -> None:
    state, _, waiting = saved(TwoInputs(), kinds="xy")
    found, stats = resumed(state, Count())
    assert 0 < stats["upgrade"]["dropped_events"] < waiting and stats["upgrade"]["dropped_types"] == ["y"]
    assert numbers(found, "a")


@pytest.mark.parametrize("options", [{"speculation": sl.Speculation(alpha=0.0)}, {"skew": "report"}])
def test_upgrades_work_with_options_that_have_state_of_their_own(options: dict[str, Any]) -> None:
    state, _, _ = saved(Count(), Other(), **options)
    found, stats = resumed(state, Count(), Top(), TwoOthers())
    assert set(stats["upgrade"]["dropped"]) == {"Other"} and numbers(found, "t")


class TwoOthers(sl.Detector):
    listens, publishes = ("x", "z"), ("tt",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("tt")


def test_nothing_is_reported_where_nothing_changed() -> None:
    state, _, _ = saved(Count())
    assert "upgrade" not in resumed(state, Count())[1]


class Second(Count):
    """The next version: a sum in place of a number, and one attribute more."""

    name, version = "Count", 2

    def __init__(self) -> None:
        self.total, self.last = 0, None

    def upgrade(self, state: Any, version: int) -> Any:
        assert version == 1
        return {"total": state["n"] * 100, "last": None}

    def on_event(self, event: sl.Event) -> Any:
        self.total += 100
        yield event.derive("a", n=self.total)


def test_a_detector_converts_the_state_of_its_older_version() -> None:
    state, before, _ = saved(Count())
    found, _ = resumed(state, Second())
    assert numbers(found, "a")[0] == (len(numbers(before, "a")) + 1) * 100
    engine = sl.Engine.load(state, sl.Hierarchy([Second()], clock="x"))
    assert vars(engine.detectors["Count"]).keys() == {"total", "last"}


def test_older_code_and_an_upgrade_that_raises_are_errors_that_say_so() -> None:
    newer, _, _ = saved(Second())
    with pytest.raises(StateError, match="the code is older than the state"):
        resumed(newer, Count())

    class Wrong(Second):
        def upgrade(self, state: Any, version: int) -> Any:
            return state["missing"]

    with pytest.raises(StateError, match=r"cannot upgrade its state from version 1 to 2 \(KeyError"):
        resumed(saved(Count())[0], Wrong())


def test_keyed_engines_are_upgraded_key_by_key() -> None:
    def hierarchy(*detectors: sl.Detector) -> sl.Hierarchy:
        return sl.Hierarchy(list(detectors), clock="x")

    keys = ["k", "l"] * 30
    engines = KeyedEngines(hierarchy(Count()))
    engines.push(events(0, 60), keys)
    header, pieces = engines.save()
    again = KeyedEngines(hierarchy(Count(), Other()))
    again.load(header, pieces)
    found = again.push(events(60, 100), ["k", "l"] * 20) + again.close()
    assert {(record.key, record.type) for record in found} == {(key, kind) for key in "kl" for kind in "ab"}
    assert set(again.metrics().detectors) == {"Count", "Other"}
