"""Bad input: each gets a clear error or a quarantine with a reason, and the engine continues."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.engine.feeding import FORMS, Copy, TwoTypes, engine, push, table, ticks

import slackline as sl
from slackline.core.errors import (
    BufferLimitError,
    ClosedError,
    ConfigError,
    SchemaError,
)
from slackline.ordering.policy import with_policy


@FORMS
@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -1, -5.0, 1.5, 2**63])
def test_a_bad_time_stamp_is_quarantined_with_its_reason_and_the_rest_is_processed(form: str, bad: Any) -> None:
    if form == "table" and bad == 2**63:
        bad = 2.0**63
    target = engine()
    found = push(target, form, [1, bad, 3]) + target.close()
    assert [output.event.ts for output in found] == [1, 3]
    [set_aside] = target.quarantined
    assert set_aside.reason == "bad time stamp" and set_aside.position == 1
    assert target.stats()["quarantined"] == {"bad time stamp": 1}


def test_a_date_among_numbers_is_quarantined_with_a_warning_that_says_what_to_do() -> None:
    target = engine()
    target.push([sl.Event("in", ts=1)])
    days = [sl.Event("in", ts=datetime(2026, 1, day, tzinfo=UTC)) for day in range(1, 31)]  # type: ignore[arg-type]
    with pytest.warns(
        UserWarning, match="whose ts is a date are quarantined; convert dates to whole numbers"
    ) as warned:
        for some in (days[:1], days):  # event by event, and as a chunk
            target.push(some)
    assert [warning.filename for warning in warned] == [__file__]  # one per engine, and the line of the user
    assert {each.reason for each in target.quarantined} == {"bad time stamp"}
    assert all("int(ts.timestamp() * 1000)" in each.detail for each in target.quarantined)


@FORMS
def test_an_unknown_event_type_is_quarantined_with_a_hint(form: str) -> None:
    target = engine()
    push(target, form, [1])
    push(target, form, [2], kind="inn")
    [set_aside] = target.quarantined
    assert "unknown type 'inn'" in set_aside.detail and "did you mean 'in'?" in set_aside.detail


@FORMS
def test_a_derived_type_cannot_be_pushed(form: str) -> None:
    target = engine()
    push(target, form, [1], kind="out")
    assert "published by detector 'Copy'" in target.quarantined[0].detail


@pytest.mark.parametrize(
    "wrong",
    ["kick", [sl.Event("in", 1), "kick"], [("in", 1)], [1], 7],
)
def test_what_is_no_event_is_wrong_use_and_nothing_is_taken(wrong: Any) -> None:
    target = engine()
    with pytest.raises(ConfigError, match="an event, a mapping or a dataclass"):
        target.push(wrong)
    assert target.stats()["arrivals"] == 0 and target.quarantined == []


def test_a_source_of_another_kind_is_quarantined() -> None:
    target = engine()
    target.push([sl.Event("in", 1, source=[1]), sl.Event("in", 2, source=1.5)])  # type: ignore[arg-type]
    assert [item.reason == "bad source" for item in target.quarantined] == [True, True]


def test_a_table_without_time_stamps_is_an_error_that_lists_its_columns() -> None:
    with pytest.raises(SchemaError, match=r"no column 'ts'.*\['time', 'x'\]"):
        engine().push(table(time=[1], x=[2]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ts": ["1"]}, "'ts' is of type string"),
        ({"ts": pa.array([1], pa.date32())}, "'ts' is of type date32"),
        ({"ts": [1], "source": [1.5]}, "'source' is of type double"),
        ({"ts": [1], "seq": ["a"]}, "'seq' is of type string"),
    ],
)
def test_a_column_of_the_wrong_type_is_an_error_that_names_it(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        engine().push(table(**columns))


def test_several_sensor_types_need_a_type_column() -> None:
    class Two(Copy):
        listens = ("in", "other")

    with pytest.raises(SchemaError, match="no column 'type'"):
        engine(Two()).push(table(ts=[1]))


def test_one_sensor_type_needs_no_type_column() -> None:
    target = engine()
    assert [o.event.ts for o in target.push(table(ts=[2, 1])) + target.close()] == [1, 2]


def test_a_null_type_is_quarantined() -> None:
    target = engine()
    target.push(table(ts=[1, 2], type=pa.array(["in", None])))
    [item] = target.quarantined
    assert item.reason == "unknown type" and "unknown type None" in item.detail


def test_a_declared_field_that_is_missing_or_mistyped_is_an_error() -> None:
    class Typed(Copy):
        listens = (sl.EventType("in", x=float),)

    with pytest.raises(SchemaError, match=r"no column 'x' \(a field of event type 'in'\)"):
        engine(Typed()).push(table(ts=[1]))
    with pytest.raises(SchemaError, match="'x' is of type string, but event type 'in' declares it as float64"):
        engine(Typed()).push(table(ts=[1], x=["a"]))


def test_a_declared_integer_without_value_is_quarantined_and_a_float_is_nan() -> None:
    class Typed(Copy):
        listens = (sl.EventType("in", n=int, x=float),)

    target = engine(Typed())
    target.push(table(ts=[1, 2, 3], n=pa.array([1, None, 3]), x=pa.array([None, 1.0, 2.0])))
    found = target.close()
    assert [(o.event["n"], o.event["x"]) for o in found[1:]] == [(3, 2.0)] and math.isnan(found[0].event["x"])
    assert len(target.quarantined) == 1


@FORMS
def test_an_empty_push_and_a_stream_of_one_event(form: str) -> None:
    target = engine()
    assert push(target, form, []) == []
    assert push(target, form, [7]) == []
    assert [output.event.ts for output in target.close()] == [7]
    assert target.close() == []


def test_an_empty_stream() -> None:
    target = engine()
    assert target.close() == []
    with pytest.raises(ClosedError, match="Create a new engine"):
        target.push([sl.Event("in", 1)])


@FORMS
@pytest.mark.parametrize("duplicates", ["drop", "keep"])
def test_duplicates_are_dropped_and_counted_and_kept_where_asked_for(form: str, duplicates: str) -> None:
    target = engine(duplicates=duplicates)
    rows = [(1, 0), (2, 1), (1, 0), (3, 2), (7, 1)]
    if form == "events":
        target.push([sl.Event("in", ts=t, source="s", seq=q) for t, q in rows])
    else:
        target.push(table(ts=[t for t, _ in rows], source=["s"] * 5, seq=[q for _, q in rows]))
    assert [output.event.ts for output in target.close()] == [1, 2, 3]
    assert target.stats()["types"]["in"]["duplicates"] == target.stats()["duplicates"] == target.duplicates == 2
    kept = [sl.Duplicate(sl.Event("in", ts=1, source="s", seq=0), 2), sl.Duplicate(sl.Event("in", 7, "s", 1), 4)]
    again = sl.Engine.load(target.save(), target.hierarchy)
    for one in (target, again):
        assert one.drain() == ([], [], kept if duplicates == "keep" else [])
        assert one.drain() == ([], [], []) and one.duplicates == 2, "the count stays"


@FORMS
def test_duplicates_of_several_types_are_in_order_of_arrival(form: str) -> None:
    class Two(Copy):
        listens = ("in", "other")

    target = engine(Two(), duplicates="keep")
    kinds = ["other", "in", "in", "other", "in", "other"]
    if form == "events":
        target.push([sl.Event(kind, ts=1, source="s", seq=0) for kind in kinds])
    else:
        target.push(table(ts=[1] * 6, type=kinds, source=["s"] * 6, seq=[0] * 6))
    assert [(item.event.type, item.position) for item in target.drain().duplicates] == [
        ("in", 2), ("other", 3), ("in", 4), ("other", 5)
    ]  # fmt: skip


def test_the_same_number_from_another_source_is_no_duplicate() -> None:
    target = engine()
    target.push([sl.Event("in", 1, source="a", seq=0), sl.Event("in", 2, source="b", seq=0)])
    assert len(target.close()) == 2


# Found in review; each failed once.


def test_a_refused_table_leaves_no_trace() -> None:
    class Two(Copy):
        listens = ("in", sl.EventType("other", x=float))

    target = engine(Two())
    columns = {"ts": [1, -1, 2], "type": ["in", "in", "other"], "source": ["s"] * 3, "seq": [0, 1, 0]}
    with pytest.raises(SchemaError, match="no column 'x'"):
        target.push(table(**columns))
    assert target.quarantined == [] and target.stats()["arrivals"] == 0
    target.push(table(**columns, x=[0.0, 0.0, 1.0]))
    assert [output.event.ts for output in target.close()] == [1, 2]
    assert len(target.quarantined) == 1 and target.stats()["types"]["in"]["duplicates"] == 0


def test_the_only_source_left_after_a_pause_gets_the_clock_going() -> None:
    target = engine()
    target.push(ticks(100))
    target.push([sl.Event("in", 10**15 + i, source="s0") for i in range(40)])
    assert target.stats()["stream_time"] == 10**15 + 39
    assert len(target.quarantined) == 31


def test_dates_times_and_decimals_in_the_payload_survive_a_restart() -> None:
    import datetime
    import decimal

    noon = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
    target = engine(policy="slack", clock="tick")
    payload = {"at": pa.array([noon]), "day": [noon.date()], "price": [decimal.Decimal("1.50")]}
    target.push(table(ts=[1], type=["in"], **payload))
    again = sl.Engine.load(target.save(), target.hierarchy)
    [output] = again.close()
    assert output.event["at"] == noon
    assert (output.event["day"], output.event["price"]) == (noon.date(), decimal.Decimal("1.50"))


def test_the_declared_source_column_is_used_and_its_absence_is_an_error() -> None:
    class Typed(Copy):
        listens = (sl.EventType("in", source="sid"),)

    target = engine(Typed())
    target.push(table(ts=[1, 2], sid=["a", "b"]))
    assert target.stats()["types"]["in"]["sources"] == 2
    with pytest.raises(SchemaError, match="no column 'sid'"):
        target.push(table(ts=[3]))


@pytest.mark.parametrize("seq", [-5, 2**70, True, "7", 1.5])
def test_a_bad_sequence_number_is_quarantined(seq: Any) -> None:
    target = engine()
    target.push([sl.Event("in", 1, source="s", seq=seq)])
    assert target.quarantined[0].reason == "bad sequence number"


def test_an_unhashable_type_is_quarantined() -> None:
    target = engine()
    target.push([sl.Event(["in"], 1)])  # type: ignore[arg-type]
    assert "unknown type" in target.quarantined[0].detail


@FORMS
def test_an_unsorted_input_delays_no_other(form: str) -> None:
    class Loose(Copy):
        listens, unsorted = ("in", "slow"), ("slow",)

    target = engine(Loose(), clock="in", policy=sl.Slack(margin=0))
    push(target, form, [100], kind="in")
    assert [o.event.ts for o in push(target, form, [1], kind="slow")] == [1]  # at once, though old
    assert [o.event.ts for o in push(target, form, [200, 300], kind="in")] == [200, 300]


def test_a_restart_beyond_the_limit_refuses_as_before() -> None:
    target = engine(TwoTypes(), clock="tick", policy="slack", max_buffered=2)
    with pytest.raises(BufferLimitError):
        push(target, "events", [1, 2, 3])
    again = sl.Engine.load(target.save(), target.hierarchy)
    with pytest.raises(BufferLimitError):
        push(again, "events", [4])
    assert again.stats()["arrivals"] == 3
    again.push(sl.Event("tick", ts) for ts in (1000, 5000))  # any iterable may move the clock


def test_a_float_column_does_not_pass_for_declared_integers() -> None:
    class Typed(Copy):
        listens = (sl.EventType("in", n=int),)

    with pytest.raises(SchemaError, match="'n' is of type double, but event type 'in' declares it as int64"):
        engine(Typed()).push(table(ts=[1], n=[1.7]))


def test_two_columns_of_one_name_are_an_error() -> None:
    with pytest.raises(SchemaError, match=r"several columns named \['x'\]"):
        engine().push(pa.Table.from_arrays([pa.array([1])] * 3, names=["ts", "x", "x"]))


def test_a_timeout_under_slack_is_refused_as_it_would_do_nothing() -> None:
    with pytest.raises(
        ConfigError, match=r"timeout=5 is not an option of policy='slack'.*choose one of \['auto', 'ready'\]"
    ):
        with_policy({"policy": "slack", "timeout": 5})
    with pytest.raises(TypeError, match="timeout"):
        sl.Slack(timeout=5)  # type: ignore[call-arg]


def test_single_events_go_to_on_event_and_columns_to_on_batch() -> None:
    class Both(Copy):
        def on_batch(self, batch: sl.Batch):
            yield 0, sl.Event("out", ts=int(batch.ts[0]), by="batch")

        def on_event(self, event: sl.Event):
            yield event.derive("out", by="event")

    target = engine(Both(), policy="slack")
    assert [o.event["by"] for o in push(target, "events", [1]) + push(target, "table", [2])] == ["event", "batch"]


def test_a_detector_may_keep_its_event_types_in_the_instance() -> None:
    class Own(Copy):
        def __init__(self) -> None:
            super().__init__()
            self.listens = (sl.EventType("in", x=float),)

    target = engine(Own())
    target.push(table(ts=[1], x=[1.0]))
    assert [o.event.ts for o in sl.Engine.load(target.save(), target.hierarchy).close()] == [1]


def test_a_value_that_stands_twice_in_a_dictionary_loses_no_row() -> None:
    types = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["in", "in", "tick"]))
    target = engine(TwoTypes())
    target.push(table(ts=[1, 2, 3, 4], type=types))
    assert [output.event.ts for output in target.close()] == [1, 2, 3, 4]


def test_a_column_of_nulls_for_sequence_numbers_is_a_stream_without_them() -> None:
    target = engine()
    target.push(table(ts=[1, 2], seq=pa.nulls(2)))
    assert [output.event.seq for output in target.close()] == [0, 1] and target.quarantined == []


@FORMS
def test_lists_of_equal_length_in_the_payload_stay_lists(form: str) -> None:
    class Batches(Copy):
        on_event = sl.Detector.on_event

        def on_batch(self, batch: sl.Batch):
            for row, event in enumerate(batch):
                yield row, event.derive("out", v=event["v"])

    target = engine(Batches(), policy="slack")
    rows = table(ts=[10, 11], v=[[1, 2], [3, 4]])
    events = [sl.Event("in", 10, v=[1, 2]), sl.Event("in", 11, v=[3, 4])]
    found = target.push(rows if form == "table" else events) + target.close()
    assert [output.event["v"] for output in found] == [[1, 2], [3, 4]]
    waiting = engine(policy="slack", clock="tick")
    waiting.push(table(ts=[10, 11], type=["in", "in"], v=[[1, 2], [3, 4]]))
    again = sl.Engine.load(waiting.save(), waiting.hierarchy)
    assert [output.event["v"] for output in again.close()] == [[1, 2], [3, 4]]


def test_beyond_the_limit_an_unhashable_type_is_no_clock_event() -> None:
    target = engine(TwoTypes(), clock="tick", policy="slack", max_buffered=1)
    with pytest.raises(BufferLimitError):
        push(target, "events", [1, 2])
    with pytest.raises(BufferLimitError):
        target.push([sl.Event(["tick"], 1)])  # type: ignore[arg-type]
