"""Records become events by one rule, whether they come as mappings or as columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline import Detector, Event, Hierarchy
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.forms import events_of
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import Arrivals, Decoder, RecordSchema


class One(Detector):
    listens: tuple[str, ...] = ("at",)

    def on_event(self, event: Event) -> None:
        pass


class Two(One):
    listens = ("at", "near")


def decoder(kinds: type[Detector] = One, **schema: Any) -> Decoder:
    return Decoder(RecordSchema(**schema), Hierarchy([kinds()], clock="at"))


def events(arrivals: Arrivals) -> list[Event]:
    return events_of(arrivals.rows) if isinstance(arrivals.rows, pa.Table) else arrivals.rows


def only(record: dict[str, Any], kinds: type[Detector] = One, source: str | None = None, **schema: Any) -> Event:
    (event,) = events(decoder(kinds, **schema).decode([record], source))
    return event


def test_fields_have_the_roles_that_the_schema_gives_them() -> None:
    record = {"when": 5, "what": "near", "who": "p7", "nr": 3, "van": "a", "x": 1.5, "none": None}
    found = decoder(Two, ts="when", type="what", source="who", seq="nr", key="van").decode([record])
    assert events(found) == [Event("near", ts=5, source="p7", seq=3, x=1.5)]
    assert found.keys == ["a"]


def test_fields_called_type_source_and_seq_are_adopted_and_shown() -> None:
    read = decoder(Two)
    record = {"ts": 5, "type": "near", "source": "p7", "seq": 3, "x": 1}
    assert events(read.decode([record])) == [Event("near", ts=5, source="p7", seq=3, x=1)]
    assert read.roles()["seq"] == "'seq', by its name"
    assert read.roles()["key"] == "none: one engine for all events"


@pytest.mark.parametrize("as_table", [False, True])
def test_a_sequence_number_without_a_source_is_payload_until_it_is_asked_for(as_table: bool) -> None:
    """Of many devices in one file, each counts by itself: equal numbers are no duplicates."""
    rows = [{"ts": 5, "device": "a", "seq": 0}, {"ts": 6, "device": "b", "seq": 0}]
    given = pa.Table.from_pylist(rows) if as_table else rows
    read = decoder()
    assert [event.seq for event in events(read.decode(given))] == [None, None]
    assert [event["seq"] for event in events(decoder().decode(given))] == [0, 0]
    assert "--seq seq" in read.roles()["seq"]
    for schema in ({"seq": "seq"}, {"key": "device"}, {"source": "device"}):
        assert [event.seq for event in events(decoder(**schema).decode(given))] == [0, 0]
    assert [event.seq for event in events(decoder().decode(given, "one.csv"))] == [0, 0]


def test_the_key_may_be_the_source() -> None:
    found = decoder(key="van", source="van").decode([{"ts": 1, "van": 7}])
    assert (events(found), found.keys) == ([Event("at", ts=1, source=7)], [7])


def test_an_event_without_a_source_has_that_of_its_source_if_there_are_several() -> None:
    assert only({"ts": 1}).source is None
    assert only({"ts": 1}, source="a.csv").source == "a.csv"
    assert only({"ts": 1, "source": "s"}, source="a.csv").source == "s"


@pytest.mark.parametrize(
    ("record", "schema", "reason"),
    [
        ({"x": 1}, {}, "field 'ts', the event time, is missing"),
        ({"ts": None, "x": 1}, {}, "field 'ts', the event time, is missing"),
        ({"ts": "noon"}, {}, "neither an integer nor a time in ISO 8601"),
        ({"ts": -1}, {}, "the event time -1 is not a whole number"),
        ({"ts": 2.0**60}, {}, "has lost digits"),
        ({"ts": 1}, {"type": "kind"}, "field 'kind' holds no event type, but None"),
        ({"ts": 1, "type": 7.5}, {}, "holds no event type, but 7.5"),
        ({"ts": 1, "nr": "x"}, {"seq": "nr"}, "the sequence number 'x' is not"),
        ({"ts": 1, "who": [1]}, {"source": "who"}, "field 'who' holds no source, but [1]"),
    ],
)
def test_what_cannot_be_an_event_says_why_and_where(
    record: dict[str, Any], schema: dict[str, str], reason: str
) -> None:
    arrivals = decoder(**schema).decode([{"ts": 1, "type": "at", "kind": "at"}, record], first=7)
    assert len(arrivals) == 1
    (bad,) = arrivals.bad
    assert bad.place == "record 8" and reason in bad.reason
    assert json.loads(bad.record) == {name: value for name, value in record.items() if value is not None}


def test_records_that_could_not_be_read_keep_their_place() -> None:
    given = [{"ts": 1}, BadRecord("line 2", "not JSON", "{")]
    assert decoder().decode(given).bad == [given[1]]


@pytest.mark.parametrize(
    ("value", "unit", "ts"),
    [
        ("1970-01-01T00:00:01.5", "ms", 1_500),
        ("1970-01-01T01:00:01+01:00", "s", 1),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "us", 2_000_000),
        (12.0, "us", 12),
        (" 12 ", "us", 12),
    ],
)
def test_dates_become_numbers_of_the_unit_and_numbers_stay(value: Any, unit: str, ts: int) -> None:
    assert only({"ts": value}, unit=unit).ts == ts


def test_the_unit_is_recognised_once_and_shown() -> None:
    read = decoder()
    read.decode([{"ts": 1_415_624_021_690}])
    assert (read.schema.unit, read.schema.ts_per_second) == ("ms", 1_000)
    assert read.choice is not None and "2014-11-10" in read.choice.notes[0]
    read.decode([{"ts": 5}])
    assert read.schema.unit == "ms"
    questioned = decoder(unit="s")
    questioned.decode([{"ts": 1_415_624_021_690}])
    assert questioned.schema.unit == "s"
    assert questioned.choice is not None and "is ms meant?" in questioned.choice.warnings[0]


def test_columns_of_timestamps_are_converted() -> None:
    table = pa.table({"ts": pa.array([1_500_000_000], pa.timestamp("ns")), "x": [1]})
    assert events(decoder(unit="ms").decode(table)) == [Event("at", ts=1_500, x=1)]
    with_null = pa.table({"ts": pa.array([1_500_000_000, None], pa.timestamp("ns"))})
    arrivals = decoder(unit="ms").decode(with_null)
    assert [event.ts for event in events(arrivals)] == [1_500] and len(arrivals.bad) == 1


VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text("ab0", max_size=3)
ROW = st.fixed_dictionaries(
    {"ts": st.integers(-1, 9) | st.sampled_from(["5", "1970-01-01T00:00:01", "x", None])},
    optional={
        "type": st.sampled_from(["at", "near", "", None]) | st.integers(1, 2),
        "source": st.sampled_from(["a", "b", 7, None]),
        "seq": st.sampled_from([0, 1, 2, "3", -1, None]),
        "van": st.sampled_from(["a", "b", None]),
        "x": VALUES,
    },
)


@given(
    st.lists(ROW, min_size=1, max_size=6),
    st.sampled_from([{}, {"key": "van"}, {"seq": "seq"}, {"source": "van"}, {"type": "type"}]),
    st.sampled_from([None, "file"]),
)
def test_columns_give_what_their_rows_give(
    rows: list[dict[str, Any]], schema: dict[str, str], source: str | None
) -> None:
    try:
        names = dict.fromkeys(name for row in rows for name in row)
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return  # values of several types in one column
    by_row = decoder(Two, unit="us", **schema).decode(table.to_pylist(), source)
    by_column = decoder(Two, unit="us", **schema).decode(table, source)
    assert events(by_column) == events(by_row)
    assert [event.seq for event in events(by_column)] == [event.seq for event in events(by_row)]
    assert [bad.place for bad in by_column.bad] == [bad.place for bad in by_row.bad]
    keys = by_column.keys
    assert (keys.to_pylist() if isinstance(keys, pa.ChunkedArray) else keys) == by_row.keys


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"unit": "hours"}, "unit='hours'"),
        ({"format": "xml"}, "format='xml'"),
        ({"format": "avro"}, "Avro alone has a schema"),
        ({"ts": ""}, "ts='' is not valid"),
        ({"type": "ts"}, "one field cannot have two roles"),
        ({"key": "ts"}, "one field cannot have two roles"),
    ],
)
def test_a_schema_that_means_nothing_is_refused(schema: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RecordSchema(**schema)


def test_a_checkpoint_of_another_schema_is_refused_and_the_unit_of_this_one_used() -> None:
    saved = RecordSchema(key="van", unit="ms").plain()
    assert RecordSchema(key="van").resumed(saved, "the checkpoint").unit == "ms"
    for other in (RecordSchema(key="site"), RecordSchema(key="van", unit="us"), RecordSchema()):
        with pytest.raises(StateError, match="another record schema"):
            other.resumed(saved, "the checkpoint")


def test_numbers_of_any_kind_are_event_times() -> None:
    assert only({"ts": np.int64(7)}).ts == 7
