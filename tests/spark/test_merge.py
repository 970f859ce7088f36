"""The merge, without Spark around it: cutting and saving change nothing, and nothing is lost."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.core.errors import BufferLimitError, StateError
from slackline.spark.packets import ARRIVAL
from slackline.spark.synchronise import Merge, MergePlan, side_by_side

STREAMS = ("door", "hall", "lift")

Rows = list[dict[str, Any]]


def rows_of(tables: Any) -> Rows:
    return [row for table in tables for row in table.to_pylist()]


def table(streams: list[str], times: Sequence[int | None], **more: Any) -> pa.Table:
    return pa.table({"stream": streams, "ts": pa.array(times, pa.int64()), "id": range(len(times)), **more})


def of_kind(rows: Rows, kind: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows if row["kind"] == kind]


@given(
    st.lists(st.tuples(st.sampled_from(STREAMS), st.integers(-1, 30)), min_size=1, max_size=60),
    st.sampled_from([None, 0, 5]),
    st.lists(st.integers(1, 25), min_size=1),
)
def test_cutting_and_saving_change_nothing(
    arrived: list[tuple[str, int]], max_delay: int | None, sizes: list[int]
) -> None:
    streams, times = map(list, zip(*arrived, strict=True))
    rows = table(streams, times, **{ARRIVAL: range(len(arrived))})
    plan = MergePlan(STREAMS, {"max_delay": max_delay, "max_failures": 2}, arrival=True)
    at_once = Merge("v", plan)
    expected = rows_of(at_once.push(rows))
    found: Rows = []
    saved = None
    start, size = 0, iter(sizes)
    while start < len(rows):
        cut = Merge("v", plan, saved)
        step = next(size, 7)
        found += rows_of(cut.push(rows.slice(start, step)))
        saved = cut.save()
        start += step
    for each in (expected, found):
        assert [p for (p,) in of_kind(each, "event", "position")] == list(
            range(1, len(of_kind(each, "event", "id")) + 1)
        )
    for kind in ("event", "late", "quarantine"):
        names = ("id", "stream", "ts", "position", "lateness", "reason")
        assert of_kind(found, kind, *names) == of_kind(expected, kind, *names)
    rest = rows_of(Merge("v", plan, saved).close())
    assert rest == rows_of(at_once.close())
    assert sorted(row["id"] for row in (*found, *rest)) == list(range(len(arrived)))


def test_streams_read_side_by_side_do_not_seem_silent() -> None:
    times = np.sort(np.random.default_rng(4).integers(0, 10_000, (3, 200)))
    rows = table(list(np.repeat(STREAMS, 200)), times.ravel().tolist())
    fed = Merge("v", MergePlan(STREAMS, {"max_delay": 500}))
    found = rows_of(fed.push(rows)) + rows_of(fed.close())
    assert {row["kind"] for row in found} == {"event"}
    assert [row["ts"] for row in found] == sorted(times.ravel().tolist())
    in_turn = Merge("v", MergePlan(STREAMS, {"max_delay": 500}, arrival=True))
    assert of_kind(rows_of(in_turn.push(rows.append_column(ARRIVAL, rows["id"]))), "late", "id")


def test_impossible_time_stamps_do_not_change_the_place_of_others() -> None:
    rows = table(["a"] * 4 + ["b"] * 2, [1, 2**63 - 1, None, 5, 3, 7])
    assert side_by_side(rows)["id"].to_pylist() == [0, 1, 2, 4, 3, 5]


def test_quarantined_rows_do_not_count_as_buffered() -> None:
    rows = table(["door", "hall", "lift", *["door"] * 20], [10, 10, 10, *[None, -1, 2, 3] * 5])
    fed = Merge("v", MergePlan(STREAMS, {"max_waiting": 1}))
    found = rows_of(fed.push(rows))
    assert of_kind(found, "late", "lateness") == [(8,), (7,)] * 5
    assert of_kind(found, "quarantine", "reason", "detail")[:2] == [
        ("bad time stamp", "ts=None is not a whole number from 0 to 2**62"),
        ("bad time stamp", "ts=-1 is not a whole number from 0 to 2**62"),
    ]
    assert len(of_kind(found, "event", "id")) == 3
    with pytest.raises(BufferLimitError, match="they wait for 'hall', 'lift'"):
        list(fed.push(table(["door"] * 3, [20, 21, 22])))


def test_rows_without_key_or_arrival_are_quarantined() -> None:
    rows = table(["door", "hall"], [1, 2], **{ARRIVAL: pa.array([None, 3], pa.int64())})
    assert of_kind(rows_of(Merge("v", MergePlan(STREAMS)).push(rows)), "quarantine", "id", "ts") == [(0, 1)]
    keyless = Merge(None, MergePlan(STREAMS))
    found = rows_of(keyless.push(rows))
    assert [row["reason"] for row in found] == ["no key"] * 2
    assert [row["detail"] for row in found] == ["the key is null: the event belongs to no keyed engine"] * 2
    assert list(keyless.close()) == []
    assert rows_of(Merge(None, MergePlan(STREAMS), keyless.save()).push(rows)) == found


def test_state_of_another_query_is_an_error_that_says_what_differs() -> None:
    fed = Merge("v", MergePlan(STREAMS))
    list(fed.push(table(["door"], [1], colour=["red"])))
    saved = fed.save()
    with pytest.raises(
        StateError, match=r"of the streams \['door', 'hall', 'lift'\], the query has \['door', 'roof'\]"
    ):
        Merge("v", MergePlan(("door", "roof")), saved)
    for other in ({}, {"colour": [[1]]}):
        with pytest.raises(StateError, match=r"buffered rows.*colour string.*start with a new checkpoint"):
            list(Merge("v", MergePlan(STREAMS), saved).push(table(["hall"], [1], **other)))


def test_waiting_rows_outlive_a_change_of_time_zone_and_of_the_order_of_columns() -> None:
    def at(zone: str, name: str, second: int) -> pa.Table:
        times = pa.array([second * 10**6], pa.timestamp("us", zone))
        return pa.table({"stream": [name], "ts": times, "x": [second]})

    plan = MergePlan(("door", "hall"))
    first = Merge("v", plan)
    assert rows_of(first.push(at("UTC", "door", 1))) == []
    second = Merge("v", plan, first.save())
    (out,) = second.push(at("Europe/Berlin", "hall", 2).select(["x", "ts", "stream"]))
    assert out.schema.field("ts").type == pa.timestamp("us", "Europe/Berlin")
    assert [(row["x"], row["ts"].timestamp()) for row in out.to_pylist()] == [(1, 1.0)]


def test_state_that_spark_cannot_hold_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Merge.__module__], "STATE_BYTES", 100)
    fed = Merge("v", MergePlan(STREAMS))
    list(fed.push(table(["door"], [1])))
    with pytest.raises(StateError, match=r"1 buffered rows take .* bytes.*max_delay"):
        fed.save()


def test_options_changed_since_the_checkpoint_take_effect() -> None:
    before = Merge("v", MergePlan(STREAMS))
    assert rows_of(before.push(table(["door", "door", "door"], [1, 5, 9]))) == []
    after = Merge("v", MergePlan(STREAMS, {"max_delay": 3}), before.save())
    assert of_kind(rows_of(after.push(table(["door"], [20]))), "event", "ts") == [(1,), (5,), (9,), (20,)]
