"""Speculation of one engine: its outputs, its errors, and its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import slackline as sl


class Sum(sl.Detector):
    """Publishes the running sum with every event: any change in its input changes all that follows."""

    listens, publishes = ("a",), ("sum",)

    def __init__(self) -> None:
        self.total = 0

    def on_event(self, event: sl.Event):
        self.total += event["value"]
        yield event.derive("sum", total=self.total)


class Big(sl.Detector):
    """Publishes what is large, and remembers nothing."""

    name = "Big"
    listens, publishes = ("a",), ("big",)

    def on_batch(self, batch: sl.Batch):
        for row in np.flatnonzero(batch["value"] > 90).tolist():
            yield row, batch.event(row).derive("big")


def stream(n: int = 400, seed: int = 1) -> pa.Table:
    """Two sources, the one with long and jittery delays."""
    rng = np.random.default_rng(seed)
    ts = np.arange(n) * 10
    arrival = ts + np.where(np.arange(n) % 2, rng.integers(0, 200, n), rng.integers(0, 5, n))
    order = np.argsort(arrival, kind="stable")
    return pa.table(
        {
            "ts": ts[order],
            "type": ["a"] * n,
            "source": [f"s{i % 2}" for i in order],
            "value": rng.integers(0, 100, n)[order],
        }
    )


def pushed(engine: sl.Engine, table: pa.Table, size: int = 10) -> list[sl.Output]:
    outputs = []
    for start in range(0, len(table), size):
        outputs += engine.push(table.slice(start, size))
        engine.check_invariants()
    return outputs + engine.close()


def deferred(outputs: list[sl.Output]) -> dict[str, sl.Event]:
    book: dict[str, sl.Event] = {}
    for output in outputs:
        if output.op == "retract":
            assert book.pop(output.id) == output.event
        else:
            book[output.id] = output.event
    return book


def engine_of(*detectors: sl.Detector, **options: Any) -> sl.Engine:
    return sl.Engine(sl.Hierarchy(detectors, clock="a"), **options)


@pytest.mark.parametrize("policy", ["slack", "auto"])
def test_answers_come_earlier_and_net_out(policy: str) -> None:
    table = stream()
    plain = pushed(engine_of(Big(), policy=policy), table)
    ahead = pushed(engine_of(Big(), policy=policy, speculation=sl.Speculation(alpha=0)), table)
    assert deferred(ahead) == deferred(plain)
    first = {}
    for output in ahead:
        if output.op == "insert":
            first[output.id] = output.detected_at
    waits = {output.id: output.detected_at for output in plain}
    assert sum(first.values()) < sum(waits.values())
    assert all(first[id] <= at for id, at in waits.items())


def test_every_event_is_final_once_and_inserted_final_only_if_it_was_not_emitted_before() -> None:
    ahead = pushed(engine_of(Big(), speculation=sl.Speculation(alpha=0.5)), stream())
    early: set[str] = set()
    done: set[str] = set()
    for output in ahead:
        assert output.final == (output.id in done or output.op == "final" or (output.op == "insert" and output.final))
        if output.op == "insert":
            assert output.id not in early | done
        if output.op == "final":
            assert output.id in early
        (done if output.final else early).add(output.id)
        if output.op == "retract" or output.final:
            early.discard(output.id)
    assert not early


class Touchy(Sum):
    """Cannot bear a source to go backwards, which only disorder brings about."""

    def __init__(self) -> None:
        super().__init__()
        self.last = -1

    def on_event(self, event: sl.Event):
        if event.ts != self.last + 10 and self.last >= 0:
            raise ValueError(f"{self.last} is followed by {event.ts}")
        self.last = event.ts
        yield from super().on_event(event)


def test_a_detector_that_only_disorder_breaks_is_tried_again_in_order() -> None:
    table = stream()
    plain = pushed(engine_of(Touchy(), policy=sl.Slack(warmup=64, margin=2)), table)
    engine = engine_of(Touchy(), policy=sl.Slack(warmup=64, margin=2), speculation=sl.Speculation(alpha=0))
    assert deferred(pushed(engine, table)) == deferred(plain)
    figures = engine.stats()["detectors"]["Touchy"]
    assert figures["speculative_failures"] > 0
    assert figures["failed"] == 0


def test_after_stumbling_a_detector_speculates_less() -> None:
    def stumbles(detector: sl.Detector) -> int:
        engine = engine_of(detector, policy=sl.Slack(warmup=64, margin=2), speculation=sl.Speculation(alpha=0))
        pushed(engine, stream(2000), size=1)
        return int(engine.stats()["detectors"][type(detector).__name__]["speculative_failures"])

    assert 0 < stumbles(Touchy()) < 200  # of 2000 looks ahead


def test_an_error_on_final_input_is_an_error() -> None:
    class Broken(Sum):
        def on_event(self, event: sl.Event):
            raise ValueError("never")

    engine = engine_of(Broken(), speculation=sl.Speculation(alpha=0))
    with pytest.raises(sl.SlacklineError, match="never"):
        pushed(engine, stream())


def test_snapshots_are_bounded_and_their_spacing_grows() -> None:
    options = sl.Speculation(alpha=0, snapshot_every=1, max_snapshots=8)
    engine = engine_of(Sum(), speculation=options, policy=sl.Auto(timeout=3000))
    told_so_far = engine.push(stream(600))
    runner = engine._topology.operators[0].runner
    assert len(runner.log.snapshots) <= options.max_snapshots
    assert runner.spacing > 1
    plain = engine_of(Sum(), policy=sl.Auto(timeout=3000))
    expected = plain.push(stream(600)) + plain.close()
    assert deferred(told_so_far + engine.close()) == deferred(expected)


def test_a_state_that_does_not_change_is_stored_once() -> None:
    engine = engine_of(Big(), speculation=sl.Speculation(alpha=0, snapshot_every=1))
    engine.push(stream(300))
    states = [step.before.state for step in engine._topology.operators[0].runner.log.snapshots]
    assert len(states) > 3
    assert len({id(state) for state in states}) == 1


def test_only_the_detectors_that_are_named_look_ahead() -> None:
    engine = engine_of(Big(), Sum(), speculation={"Big": sl.Speculation(alpha=0)})
    outputs = pushed(engine, stream())
    assert {output.detector for output in outputs if not output.final} == {"Big"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 2}, "alpha=2"),
        ({"alpha": "often"}, "alpha='often'"),
        ({"alpha": True}, "alpha=True"),
        ({"retraction": "never"}, "retraction='never'"),
        ({"snapshot_every": 0}, "snapshot_every=0"),
        ({"max_snapshots": 1.5}, "max_snapshots=1.5"),
    ],
)
def test_an_impossible_option_names_itself(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sl.SlacklineError, match=message):
        sl.Speculation(**options)


@pytest.mark.parametrize(
    ("given", "message"), [({"Nobody": sl.Speculation()}, "Nobody"), ("yes", "'yes'"), ({"Sum": 0.5}, "Sum")]
)
def test_speculation_of_an_engine_is_checked(given: Any, message: str) -> None:
    with pytest.raises(sl.SlacklineError, match=message):
        engine_of(Sum(), speculation=given)


class Hands:
    """A wall clock that a test sets: so many seconds pass at each reading."""

    def __init__(self, *steps: float) -> None:
        self.now = 0.0
        self.steps = steps
        self.read = 0

    def __call__(self) -> float:
        self.now += self.steps[self.read % len(self.steps)]
        self.read += 1
        return self.now


@pytest.mark.parametrize(("idle", "busy", "expected"), [(0.9, 0.1, 0.0), (0.01, 0.99, 1.0)])
def test_alpha_follows_the_load(idle: float, busy: float, expected: float) -> None:
    now = Hands(idle, busy)  # idle before a push, busy in it
    engine = engine_of(Big(), speculation=sl.Speculation(alpha="auto"), now=now)
    pushed(engine, stream())
    assert engine.stats()["detectors"]["Big"]["alpha"] == expected


def test_alpha_is_resumed_after_a_restart() -> None:
    now = Hands(0.9, 0.1)
    table = stream()
    engine = engine_of(Big(), speculation=sl.Speculation(alpha="auto"), now=now)
    for start in range(0, 30, 10):
        engine.push(table.slice(start, 10))
    alpha = engine.stats()["detectors"]["Big"]["alpha"]
    assert 0 < alpha < 1
    again = sl.Engine.load(engine.save(), sl.Hierarchy([Big()], clock="a"), now=now)
    assert again.stats()["detectors"]["Big"]["alpha"] == alpha
    for start in range(30, 60, 10):
        again.push(table.slice(start, 10))
    assert again.stats()["detectors"]["Big"]["alpha"] < alpha


def test_retraction_on_demand_bothers_the_levels_above_less() -> None:
    class Above(sl.Detector):
        listens, publishes = ("big",), ("count",)

        def __init__(self) -> None:
            self.n = 0

        def on_event(self, event: sl.Event):
            self.n += 1
            yield event.derive("count", n=self.n)

    touched = {}
    for retraction in ("full", "on_demand"):
        engine = engine_of(Big(), Above(), speculation=sl.Speculation(alpha=0, retraction=retraction))
        pushed(engine, stream(2000), size=3)
        touched[retraction] = sum(d["touched"] for d in engine.stats()["detectors"].values())
    assert touched["on_demand"] < touched["full"] / 2


@pytest.mark.parametrize(("kind", "expected"), [(Big, "on_demand"), (Sum, "full")])
def test_auto_chooses_what_costs_less(kind: type[sl.Detector], expected: str) -> None:
    engine = engine_of(kind(), speculation=sl.Speculation(alpha=0, snapshot_every=1))
    pushed(engine, stream(1000), size=5)
    assert engine.stats()["detectors"][kind.__name__]["retraction"] == expected


def test_alpha_is_the_part_of_the_wait_that_is_waited() -> None:
    """K = 7 and α = 1/3: an event is seen 3 after it happened instead of 7 [Speculation, 4.1]."""
    engine = engine_of(Sum(), policy=sl.Slack(margin=0), max_jump=None, speculation=sl.Speculation(alpha=1 / 3))
    early = engine.push([sl.Event("a", ts=ts, source="s", value=1) for ts in (0, 10, 4, 20, 22)])  # 4 came 6 late
    assert engine.stats()["detectors"]["Sum"]["K"] == 6 + 1
    assert [output.event.ts for output in early if not output.final] == []
    early = engine.push([sl.Event("a", ts=25, source="s", value=1)])
    assert [(output.event.ts, output.final) for output in early] == [(20, False), (22, False)]


def test_adaptive_alpha_without_a_wall_clock_is_an_error_that_names_one() -> None:
    with pytest.raises(sl.SlacklineError, match=r"now=time\.monotonic"):
        engine_of(Big(), speculation=sl.Speculation())
    with pytest.raises(sl.SlacklineError, match="now=7 is not valid"):
        engine_of(Big(), now=7)
    data = engine_of(Big(), speculation=sl.Speculation(), now="host").save()
    with pytest.raises(sl.SlacklineError, match=r"now=time\.monotonic"):
        sl.Engine.load(data, sl.Hierarchy([Big()], clock="a"))


def test_saving_changes_nothing() -> None:
    """The tail stays where it is: what was processed ahead is not processed again."""
    options = sl.Speculation(alpha=0, snapshot_every=7)
    table = stream()
    for size in (1, 3, 10):
        plain, saved = (engine_of(Sum(), speculation=options) for _ in range(2))
        for start in range(0, len(table), size):
            assert plain.push(table.slice(start, size)) == saved.push(table.slice(start, size))
            data = saved.save()
            assert data == saved.save() == sl.Engine.load(data, sl.Hierarchy([Sum()], clock="a")).save()
            assert plain.stats() == saved.stats()
        assert plain.close() == saved.close()


def test_early_answers_are_settled_when_speculation_is_switched_off_at_a_restart() -> None:
    table = stream()
    engine = engine_of(Sum(), speculation=sl.Speculation(alpha=0))
    outputs = engine.push(table.slice(0, 200))
    assert any(not output.final for output in outputs)
    again = sl.Engine.load(engine.save(), sl.Hierarchy([Sum()], clock="a"), speculation=None)
    outputs += again.push(table.slice(200)) + again.close()
    plain = engine_of(Sum())
    assert deferred(outputs) == deferred(plain.push(table) + plain.close())
    assert again.stats()["changed"]["speculation"][1] is None
