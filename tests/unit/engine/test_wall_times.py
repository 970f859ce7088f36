"""Wall times with arrivals: what is taken, what is refused, and that a push takes all or nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engine.feeding import FORMS, engine, table, ticks

import slackline as sl
from slackline.core import codec
from slackline.core.errors import ClosedError, ConfigError, SchemaError, StateError
from slackline.engine.engine import STATE_KIND, STATE_VERSION


def arrivals(form: str, ts: list[int]) -> Any:
    return [sl.Event("in", t, source="s") for t in ts] if form == "events" else table(ts=ts, source=["s"] * len(ts))


def history(target: sl.Engine) -> Any:
    history = target._intake.arrival_history
    return None if history is None else {name: array.tolist() for name, array in history.state().items()}


@FORMS
def test_one_wall_time_is_that_of_all_rows(form: str) -> None:
    target = engine()
    target.push(arrivals(form, [1, 2, 3]), now=70)
    assert target.stats()["arrival_time"] == {"now": 70, "backwards": 0}
    assert target._intake.arrival_history.first_arrival_time(1) == 70 and target._intake.arrival_history.clk_at(70) == 3


@FORMS
@pytest.mark.parametrize(
    "now",
    [
        [70, None, 65, 80], (70, None, 65, 80), pa.array([70, None, 65, 80]), pa.chunked_array([[70, None], [65, 80]]),
        pa.array([70.0, None, 65.0, 80.0]), pa.array([70, None, 65, 80], pa.uint8()), np.array([70, 70, 65, 80]),
        np.array([70, None, 65, 80], dtype=object), pa.array([70, None, 65, 80]).dictionary_encode(),
        [Decimal(70), None, Decimal(65), Decimal(80)],
    ],
)  # fmt: skip
def test_one_wall_time_per_row_in_any_form(form: str, now: Any) -> None:
    target = engine()
    target.push(arrivals(form, [1, 2, 3, 4]), now=now)
    assert target.stats()["arrival_time"] == {"now": 80, "backwards": 1}
    assert [target._intake.arrival_history.first_arrival_time(ts) for ts in (1, 2, 3, 4)] == [70, 70, 70, 80]


def test_time_passes_without_arrivals() -> None:
    for nothing in ([], table(ts=pa.array([], pa.int64()))):
        target = engine()
        target.push(arrivals("events", [1]), now=10)
        assert target.push(nothing, now=500) == []
        assert target.stats()["arrival_time"] == {"now": 500, "backwards": 0}
        target.push(nothing, now=[])
        target.push(nothing, now=400)
        assert target.stats()["arrival_time"] == {"now": 500, "backwards": 1}
        assert target.stats()["arrivals"] == 1


@FORMS
def test_a_push_without_wall_times_keeps_the_last(form: str) -> None:
    target = engine()
    target.push(arrivals(form, [1]))
    assert target.stats()["arrival_time"] is None
    target.push(arrivals(form, [2]), now=[None])
    assert target.stats()["arrival_time"] == {"now": None, "backwards": 0}
    target.push(arrivals(form, [3]), now=50)
    target.push(arrivals(form, [4]))
    assert target.stats()["arrival_time"] == {"now": 50, "backwards": 0}
    partly_timed = engine()
    partly_timed.push(arrivals(form, [1, 2, 3, 4]), now=[None, None, 50, None])
    assert history(partly_timed) == history(target)


BAD = [
    True, -1, 2**62 + 1, 1.5, float("nan"), float("inf"), "70", b"70", {"now": 70}, {70}, ...,
    [1, 2], [1, 2, 3, 4], [1, True, 2], [1, -2, 3], [1, 2.5, 3], [1.0, float("nan"), 3.0], [1, "2", 3], [1, 2**63, 3],
    [1, 2**80, 3], ["a"] * 3, [[1], [2], [3]], np.zeros((3, 1), dtype=np.int64), np.array([1, 2, 3], dtype="M8[ms]"),
    np.array([1, 2, 2**63], dtype=np.uint64), pa.array([True, False, True]), pa.array([1, 2**62 + 1, 3]), pa.array([1]),
    pa.table({"now": [1, 2, 3]}),
]  # fmt: skip


@FORMS
@pytest.mark.parametrize("now", BAD, ids=lambda now: f"{now!r:.30}")
def test_what_cannot_be_a_wall_time_is_refused_and_nothing_has_changed(form: str, now: Any) -> None:
    target = engine()
    target.push(arrivals(form, [1, 2]), now=[5, 6])
    before = target.save()
    with pytest.raises(ConfigError, match="now"):
        target.push(arrivals(form, [3, 4, 5]), now=now)
    assert target.save() == before


def test_messages_say_what_was_given_and_what_to_do() -> None:
    target = engine()
    with pytest.raises(ConfigError, match=r"now\[1\] is -2; an arrival time is a whole number .* unit is that of ts"):
        target.push(ticks(2), now=[1, -2])
    with pytest.raises(ConfigError, match=r"now has 1 arrival times for 2 rows; give one for each row"):
        target.push(ticks(2), now=[1])


def test_a_table_that_is_refused_leaves_wall_time_alone() -> None:
    target = engine()
    target.push(ticks(3), now=10)
    with pytest.raises(SchemaError):
        target.push(table(ts=["x"]), now=20)
    assert target.stats()["arrival_time"] == {"now": 10, "backwards": 0}
    target.close()
    with pytest.raises(ClosedError):
        target.push([], now=20)


@FORMS
def test_rows_that_are_not_taken_have_a_wall_time_all_the_same(form: str) -> None:
    target = engine()
    if form == "events":
        target.push([sl.Event("in", 1), sl.Event("in", -4), sl.Event("what", 3)], now=[10, 20, 30])
    else:
        target.push(table(ts=[1, -4, 3], type=["in", "in", "what"]), now=[10, 20, 30])
    assert target.stats()["arrival_time"]["now"] == 30 and len(target.quarantined) == 2


def test_cutting_form_and_saving_make_no_difference() -> None:
    rng = np.random.default_rng(3)
    ts = (10 * np.arange(600) - rng.integers(0, 200, 600)).clip(0).tolist()
    now: list[int | None] = (10 * np.arange(600) + rng.integers(0, 30, 600)).tolist()
    now[::7] = [None] * len(now[::7])
    reference = engine()
    reference.push(arrivals("table", ts), now=now)
    for size, form in ((1, "events"), (7, "table"), (250, "events")):
        target = engine()
        for start in range(0, 600, size):
            target.push(arrivals(form, ts[start : start + size]), now=now[start : start + size])
            if start % 50 == 0:
                target = sl.Engine.load(target.save(), target.hierarchy)
        assert history(target) == history(reference)
        assert target.stats() == reference.stats()


def test_a_state_with_wall_times_ahead_of_the_clock_is_refused() -> None:
    target = engine()
    target.push(ticks(5), now=10)
    state = codec.load(STATE_KIND, STATE_VERSION, target.save())
    state["intake"]["arrival_time"]["marks"][-1, 2] = 10**6
    with pytest.raises(StateError, match="ahead of the clock"):
        sl.Engine.load(codec.dump(STATE_KIND, STATE_VERSION, state), target.hierarchy)
