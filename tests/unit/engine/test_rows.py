"""Rows as people have them: any form of row, frame and event time gives the same, and comes back in its own form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import slackline as sl
from slackline.core.time import duration, seconds_in


class Copy(sl.Detector):
    listens, publishes = ("in",), ("out",)

    def on_event(self, event: sl.Event) -> Any:
        assert type(event.ts) is int
        yield event.derive("out", x=event["x"], sent_by=event.source)


@dataclass
class Reading:
    ts: Any
    source: str
    x: int
    note: str | None = None


class Tuple(NamedTuple):
    ts: Any
    source: str
    x: int


class Capsule:
    """Any frame of another library, by the Arrow PyCapsule interface alone."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrayCapsule:
    def __init__(self, table: pa.Table) -> None:
        self._batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


ORDER = [5, 1, 3, 2, 4, 9, 7, 8, 6, 30, 40, 35]
DICTS = [{"ts": ts, "source": "s", "x": ts * 10} for ts in ORDER]
TABLE = pa.Table.from_pylist(DICTS)
EVENTS = [sl.Event("in", **row) for row in DICTS]

FORMS = {
    "dicts": DICTS,
    "a generator of dicts": lambda: (row for row in DICTS),
    "dataclasses": [Reading(**row) for row in DICTS],
    "named tuples": [Tuple(**row) for row in DICTS],
    "mixed": [EVENTS[0], *DICTS[1:]],
    "pandas": pd.DataFrame(DICTS),
    "pandas with an index": pd.DataFrame(DICTS, index=list("abcdefghijkl")),
    "a stream capsule": Capsule(TABLE),
    "an array capsule": ArrayCapsule(TABLE),
    "a record batch": TABLE.to_batches()[0],
}


def results(rows: Any, **options: Any) -> list[Any]:
    engine = sl.Engine(sl.Hierarchy([Copy()]), **options)
    found = engine.push(rows() if callable(rows) else rows) + engine.close()
    return [(o.event.ts, o.event["x"], o.event["sent_by"], o.detected_at) for o in found]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows_gives_what_events_give(form: str) -> None:
    assert results(FORMS[form]) == results(EVENTS)


ZONE = ZoneInfo("Europe/Berlin")


def dated(made: Any) -> list[Any]:
    return [{**row, "ts": made(row["ts"])} for row in DICTS]


START = datetime(2026, 3, 29, 0, 59, 55)  # the clocks of Berlin change here

DATES = {
    "datetimes without a zone": lambda s: START + timedelta(seconds=s),
    "datetimes in UTC": lambda s: (START + timedelta(seconds=s)).replace(tzinfo=UTC),
    "datetimes in a zone": lambda s: (START + timedelta(seconds=s)).replace(tzinfo=UTC).astimezone(ZONE),
    "datetimes with an offset": lambda s: (START + timedelta(seconds=s)).replace(tzinfo=timezone(timedelta(hours=2))),
    "ISO text": lambda s: (START + timedelta(seconds=s)).isoformat(),
    "ISO text in UTC": lambda s: (START + timedelta(seconds=s)).replace(tzinfo=UTC).isoformat(),
    "NumPy": lambda s: np.datetime64(START) + np.timedelta64(s, "s"),
    "NumPy in nanoseconds": lambda s: np.datetime64(START, "ns") + np.timedelta64(s, "s"),
}


@pytest.mark.parametrize("form", DATES)
@pytest.mark.parametrize("unit", [None, "ms", "s", "ns"])
def test_event_times_come_back_as_they_went_in(form: str, unit: str | None) -> None:
    rows = dated(DATES[form])
    found = results(rows, unit=unit)
    assert [ts for ts, *_ in found] == sorted(row["ts"] for row in rows)
    assert {type(ts) for ts, *_ in found} == {type(rows[0]["ts"])}
    assert [x for _, x, *_ in found] == [x for _, x, *_ in results(EVENTS)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_columns_of_timestamps_give_what_dates_give(unit: str, zone: str | None) -> None:
    column = pa.array([1_774_745_995 + ts for ts in ORDER], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    table = TABLE.set_column(0, "ts", column)
    found = results(table)
    assert [x for _, x, *_ in found] == [x for _, x, *_ in results(EVENTS)]
    expected = sorted(column.to_numpy(zero_copy_only=False).tolist() if unit == "ns" else column.to_pylist())
    assert [ts.astype(np.int64) if unit == "ns" else ts for ts, *_ in found] == expected


def test_a_pandas_frame_with_times_and_gaps_is_read_as_it_is() -> None:
    frame = pd.DataFrame(dated(DATES["datetimes in a zone"]))
    frame.loc[3, "ts"] = pd.NaT
    engine = sl.Engine(sl.Hierarchy([Copy()]))
    found = engine.push(frame) + engine.close()
    assert len(found) == len(frame) - 1 and found[0].event.ts.tzinfo is not None
    assert [each.reason for each in engine.quarantined] == ["bad time stamp"]


@pytest.mark.parametrize("made", [str, lambda date: date, pd.Timestamp])
def test_nanoseconds_are_not_lost(made: Any) -> None:
    times = [np.datetime64("2026-01-01T00:00:00.000000007"), np.datetime64("2026-01-01T00:00:00.000000003")]
    found = results([{"ts": made(at), "x": 1} for at in times], unit="ns")
    assert [np.datetime64(ts) for ts, *_ in found] == times[::-1]


def test_an_empty_frame_says_nothing_about_the_form() -> None:
    engine = sl.Engine(sl.Hierarchy([Copy()]))
    for kind in (pa.timestamp("s"), pa.string(), pa.int64()):
        assert engine.push(pa.table({"ts": pa.array([], kind), "x": pa.array([], pa.int64())})) == []
    assert type((engine.push(dated(DATES["ISO text"])) + engine.close())[0].event.ts) is str


def test_late_events_have_their_own_form_of_time_and_length() -> None:
    engine = sl.Engine(sl.Hierarchy([Copy()]), policy="ordered")
    engine.push(dated(DATES["datetimes in UTC"]))
    late = engine.late[0]
    assert late.event.ts == DATES["datetimes in UTC"](1) and late.lateness == timedelta(seconds=4, microseconds=-1)
    assert engine.drain().late[0] == late


def test_the_form_survives_a_checkpoint() -> None:
    hierarchy = sl.Hierarchy([Copy()])
    engine = sl.Engine(hierarchy)
    engine.push(dated(DATES["ISO text in UTC"])[:4])
    again = sl.Engine.load(engine.save(), sl.Hierarchy([Copy()]))
    assert {type(output.event.ts) for output in again.close()} == {str}


def test_a_table_without_one_valid_date_in_a_stream_of_dates_is_quarantined_row_by_row() -> None:
    engine = sl.Engine(sl.Hierarchy([Copy()]))
    engine.push(pa.table({"ts": ["2026-01-01T00:00:00"], "x": [1]}))
    engine.push(pa.table({"ts": pa.array(["yesterday", None], pa.string()), "x": [2, 3]}))
    assert [(each.event["x"], each.reason) for each in engine.quarantined] == [
        (2, "bad time stamp"),
        (3, "bad time stamp"),
    ]


def test_times_beyond_all_dates_come_back_as_far_as_they_can() -> None:
    engine = sl.Engine(sl.Hierarchy([Copy()]), unit="ms", policy="ordered", max_jump=None)
    engine.push([{"ts": datetime(2026, 1, 1), "x": 1}, {"ts": 10**400, "x": 2}, {"ts": 2**62, "x": 3}])
    engine.push([{"ts": datetime(2026, 1, 2), "x": 4}])
    late, quarantined, _ = engine.drain()
    assert [each.event.ts for each in quarantined] == [10**400]
    assert [each.lateness for each in late] == [np.timedelta64(2**62 - 1 - 1_767_312_000_000, "ms")]


def test_a_date_that_is_finer_than_the_unit_is_refused_and_named() -> None:
    engine = sl.Engine(sl.Hierarchy([Copy()]), unit="s")
    engine.push([{"ts": datetime(2026, 1, 1, 0, 0, 0, 5), "x": 1}])
    assert [each.reason for each in engine.quarantined] == ["bad time stamp"]
    table = pa.table({"ts": pa.array([1, 2_000_000], pa.timestamp("us")), "x": [1, 2]})
    with pytest.raises(sl.SchemaError, match=r"finer than the unit 's': row 0 .*Pass unit='us'"):
        engine.push(table)


def test_arrival_times_may_be_dates() -> None:
    engine = sl.Engine(sl.Hierarchy([Copy()]))
    rows = dated(DATES["datetimes in UTC"])
    engine.push(rows, now=rows[-1]["ts"])
    assert engine.stats()["arrival_time"]["now"] == 1_774_746_030_000_000


@pytest.mark.parametrize(
    ("given", "unit", "expected"),
    [
        (7, None, 7),
        ("10 s", "ms", 10_000),
        (timedelta(minutes=1), "s", 60),
        (np.timedelta64(5, "ms"), "us", 5_000),
        (np.timedelta64(200_000, "D"), "s", 17_280_000_000),
        (np.timedelta64(3, "25s"), "s", 75),
    ],
)
def test_a_length_of_time_has_the_unit_of_event_times(given: Any, unit: str | None, expected: int) -> None:
    assert duration("timeout", given, unit) == expected
    engine = sl.Engine(sl.Hierarchy([Copy()]), policy=sl.Ready(timeout=given), max_jump=given, unit=unit)
    assert engine.stats()["options"]["timeout"] == engine.stats()["options"]["max_jump"] == expected


@pytest.mark.parametrize("given", ["10", "10 parsecs", "s", "", -1, 1.5, None, float("nan")])
def test_what_is_no_length_of_time_is_refused(given: Any) -> None:
    assert seconds_in(given) is None
    with pytest.raises(sl.ConfigError, match="max_jump="):
        sl.Engine(sl.Hierarchy([Copy()]), max_jump=given if given is not None else "x", unit="s")


def test_a_length_of_time_with_a_unit_needs_that_of_event_times() -> None:
    with pytest.raises(sl.ConfigError, match="needs the unit of event times: pass unit="):
        sl.Engine(sl.Hierarchy([Copy()]), policy=sl.Auto(timeout="10 s"))
    with pytest.raises(sl.ConfigError, match="not a whole number of s"):
        sl.Engine(sl.Hierarchy([Copy()]), policy=sl.Auto(timeout="10 ms"), unit="s")


@pytest.mark.parametrize(("first", "then"), [(None, "UTC"), ("Europe/Berlin", None)])
def test_a_frame_whose_time_zone_is_missing_is_refused_where_the_stream_had_one(first, then) -> None:
    frames = [
        pa.table({"ts": pa.array([second * 10**6], pa.timestamp("us", zone))})
        for second, zone in ((1, first), (2, then))
    ]
    engine = sl.Engine(sl.Hierarchy([Copy()]))
    engine.push(frames[0])
    with pytest.raises(sl.SchemaError, match=r"column 'ts' has .*time zone.*tz_localize"):
        engine.push(frames[1])
    assert engine.waiting == 1
