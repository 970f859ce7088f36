"""What the policies do with the same stream, level by level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl
from slackline.ordering.policy import with_policy


class Relay(sl.Detector):
    """Passes on what it sees, ``back`` earlier."""

    def __init__(self, level: int, back: int = 0) -> None:
        self.name = f"level{level}"
        self.listens = ("position",) if level == 1 else ("position", f"found{level - 1}")
        self.publishes = (f"found{level}",)
        self.back = back

    def on_event(self, event: sl.Event):
        if event.type != "position" or self.name == "level1":
            yield event.derive(self.publishes[0], ts=max(0, event.ts - self.back))


def stream(seed: int, n: int = 4_000, sources: int = 4) -> list[sl.Event]:
    """Regular sources, each in order, up to 60 late."""
    rng = np.random.default_rng(seed)
    arrivals = []
    for source in range(sources):
        ts = np.arange(n // sources) * 10 + source * 3
        arrival = np.maximum.accumulate(ts + rng.uniform(0, 60, len(ts)))
        arrivals += [
            (a, sl.Event("position", int(t), source, q)) for q, (t, a) in enumerate(zip(ts, arrival, strict=True))
        ]
    return [event for _, event in sorted(arrivals, key=lambda item: item[0])]


def waits(policy: str, levels: int = 5, back: int = 0) -> tuple[dict[int, float], sl.Engine]:
    """Mean of detection minus occurrence per level, after warm-up."""
    engine = sl.Engine(sl.Hierarchy([Relay(n, back) for n in range(1, levels + 1)], clock="position"), policy=policy)
    outputs = [output for output in engine.push(stream(1)) if output.event.ts > 2_000]
    found: dict[int, list[int]] = {level: [] for level in range(1, levels + 1)}
    for output in outputs:
        found[int(output.event.type[-1])].append(output.detected_at - output.event.ts)
    return {level: float(np.mean(values)) for level, values in found.items()}, engine


def test_under_auto_waiting_does_not_add_up_over_the_levels() -> None:
    by_level, engine = waits("auto")
    assert by_level[5] == by_level[1]
    assert 0 < len(engine.late) <= 5 * 0.001 * 4_000  # as many as may be, at each level


def test_under_slack_it_does() -> None:
    by_level, _ = waits("slack")
    assert by_level[5] > 1.3 * by_level[1]


def test_auto_waits_less_than_slack() -> None:
    assert waits("auto")[0][1] < 0.8 * waits("slack")[0][1]


def test_back_setting_adds_just_itself() -> None:
    by_level, _ = waits("auto", back=7)
    assert by_level[3] == pytest.approx(by_level[1] + 2 * 7, abs=0.1)


@pytest.mark.parametrize("policy", [kind(margin=0.5, warmup=1_000) for kind in (sl.Slack, sl.Ready, sl.Auto)])
def test_all_policies_see_the_same_when_nothing_is_late(policy: Any) -> None:
    class Sees(sl.Detector):
        listens = ("position",)

        def __init__(self) -> None:
            self.seen: list[tuple[int, int]] = []

        def on_event(self, event: sl.Event) -> None:
            self.seen.append((event.ts, event.source))  # type: ignore[arg-type]

    engine = sl.Engine(sl.Hierarchy([Sees()], clock="position"), policy=policy)
    engine.push(stream(2))
    engine.close()
    assert engine.late == []
    assert engine.detectors["Sees"].seen == sorted((e.ts, e.source) for e in stream(2))


def test_a_source_that_fails_is_skipped_and_used_again_when_it_returns() -> None:
    engine = sl.Engine(sl.Hierarchy([Relay(1)], clock="position"), policy="auto")
    events = stream(3, n=8_000)
    silent = [e for e in events if not (e.source == 0 and 5_000 < e.ts < 12_000)]
    middle = next(i for i, e in enumerate(silent) if e.ts > 11_000)
    found = engine.push(silent[:middle])
    assert engine.stats()["types"]["position"]["disabled"] == 1
    assert found[-1].event.ts > 10_800  # it is not waited for any more
    found = engine.push(silent[middle:])
    position = engine.stats()["types"]["position"]
    assert (position["disabled"], position["times_disabled"]) == (0, 1)
    assert position["times_skipped"] >= 1
    assert engine.stats()["detectors"]["level1"]["late"] <= 5


def test_a_timeout_bounds_the_wait_for_streams_that_owe() -> None:
    def longest(timeout: int | None) -> int:
        engine = sl.Engine(sl.Hierarchy([Relay(1)], clock="position"), policy=sl.Auto(timeout=timeout, warmup=0))
        engine.push([e for e in stream(4) if not (e.source == 0 and 5_000 < e.ts < 5_400)])
        return engine.stats()["detectors"]["level1"]["wait_max"]

    assert longest(20) <= 45 < longest(None)


@pytest.mark.parametrize("max_backdate", [0, 5])
def test_a_detector_that_says_how_far_it_sets_back_is_waited_for_from_the_start(max_backdate: int) -> None:
    class Back(sl.Detector):
        listens, publishes = ("a",), ("b",)

        def on_event(self, event: sl.Event):
            if event.ts == 50:
                yield event.derive("b", ts=45)

    class Top(sl.Detector):
        listens, publishes = ("a", "b"), ("c",)

        def on_event(self, event: sl.Event):
            if event.type == "b":
                yield event.derive("c")

    back = Back()
    back.max_backdate = max_backdate
    engine = sl.Engine(sl.Hierarchy([back, Top()], clock="a"))
    found = engine.push([sl.Event("a", ts=ts, source="s") for ts in range(100)]) + engine.close()
    assert [output.event.ts for output in found if output.event.type == "c"] == ([45] if max_backdate else [])
    assert len(engine.late) == (0 if max_backdate else 1)


@pytest.mark.parametrize("form", ["events", "table"])
def test_under_slack_the_levels_above_do_not_start_before_those_below(form: str) -> None:
    """What a warm-up holds back comes out long after it happened; that is no reason to call it late above."""

    class First(sl.Detector):
        listens, publishes = ("a",), ("b",)

        def on_event(self, event: sl.Event):
            if event.ts == 0:
                yield event.derive("b")

    class Top(sl.Detector):
        listens, publishes = ("b",), ("c",)

        def on_event(self, event: sl.Event):
            yield event.derive("c")

    engine = sl.Engine(sl.Hierarchy([First(), Top()], clock="a"), policy=sl.Slack(warmup=50))
    events = [sl.Event("a", ts=ts, source="s") for ts in range(100)]
    found = engine.push(events if form == "events" else pa.table({"ts": range(100), "source": ["s"] * 100}))
    assert [output.event.type for output in found + engine.close()] == ["b", "c"]
    assert not engine.late


class Names(sl.Detector):
    listens, publishes = ("a", "b"), ("name",)

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        yield event.derive("name", of=f"{event.type}{event.source}")


class Again(sl.Detector):
    listens, publishes = ("name",), ("again",)

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        yield event.derive("again", of=event["of"])


def test_ordered_input_waits_for_nothing_but_the_rest_of_its_tick() -> None:
    engine = sl.Engine(sl.Hierarchy([Names(), Again()], clock=("a", "b")), policy="ordered")
    seen = []
    for event in [sl.Event("b", 1, "x"), sl.Event("a", 1, "y"), sl.Event("a", 2, "x"), sl.Event("b", 2, "x")]:
        seen.append([(o.event.type, o.event["of"]) for o in engine.push([event])])
    assert seen == [[], [], [("name", "ay"), ("name", "bx"), ("again", "ay"), ("again", "bx")], []]
    assert [o.event["of"] for o in engine.close() if o.event.type == "again"] == ["ax", "bx"]
    assert engine.late == []


def test_what_is_not_in_order_under_ordered_is_late() -> None:
    engine = sl.Engine(sl.Hierarchy([Names()], clock=("a", "b")), policy="ordered")
    engine.push([sl.Event("a", 5, "x"), sl.Event("a", 4, "y")])
    assert [(late.event.ts, late.event.source, late.lateness) for late in engine.late] == [(4, "y", 0)]


@pytest.mark.parametrize("option", [{"timeout": 5}, {"warmup": 3}])
def test_ordered_refuses_options_that_mean_nothing_to_it(option: dict[str, int]) -> None:
    with pytest.raises(sl.SlacklineError, match=f"{next(iter(option))}=. is not an option of policy='ordered'"):
        with_policy({"policy": "ordered", **option})


def test_a_pause_is_no_clock_jump_where_the_input_is_in_order() -> None:
    engine = sl.Engine(sl.Hierarchy([Names()], clock="a"), policy="ordered")
    outputs = engine.push([sl.Event("a", ts, "x") for ts in (*range(20), 10**6, 10**6 + 1)]) + engine.close()
    assert len(outputs) == 22 and engine.quarantined == []


@pytest.mark.parametrize(
    ("given", "in_force"),
    [
        ({}, {"late_target": 0.001, "margin": None, "window": None, "timeout": None, "warmup": None}),
        (
            {"late_target": 0.02, "policy": sl.Auto(warmup=5)},
            {"late_target": 0.02, "margin": None, "window": None, "warmup": 5},
        ),
        ({"late_target": {"level1": 0.02}}, {"late_target": {"level1": 0.02, "level2": 0.001}}),
        (
            {"policy": sl.Auto(timeout=7)},
            {"late_target": None, "margin": 0.5, "window": 2048, "timeout": 7, "warmup": 32},
        ),
        ({"policy": "slack"}, {"late_target": None, "margin": 0.5, "window": 2048, "timeout": None, "warmup": 0}),
        ({"policy": sl.Ready(margin=2)}, {"late_target": None, "margin": 2, "window": 2048, "warmup": 32}),
        ({"policy": "ordered"}, {"late_target": None, "margin": None, "window": None, "timeout": None, "warmup": 0}),
    ],
)
def test_statistics_show_the_options_in_force(given: dict[str, Any], in_force: dict[str, Any]) -> None:
    hierarchy = sl.Hierarchy([Relay(1), Relay(2)], clock="position")
    engine = sl.Engine(hierarchy, **given)
    again = sl.Engine.load(engine.save(), hierarchy)
    for one in (engine, again):
        options = one.stats()["options"]
        assert {name: options[name] for name in in_force} == in_force
    assert not again.stats()["changed"]
