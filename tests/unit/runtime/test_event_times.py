"""What is an event time and a sequence number, and what is none: by the record schema, as values and as columns."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from slackline import Detector, Event, Hierarchy
from slackline.core.time import MAX_TS
from slackline.runtime.schema import Arrivals, BadRecordError, Decoder, RecordSchema, time_of


class Doors(Detector):
    listens, publishes = ("door",), ()

    def on_event(self, event: Event) -> None:
        pass


def decoded(records: Any, **schema: Any) -> Arrivals:
    return Decoder(RecordSchema(**schema), Hierarchy([Doors()], clock="door")).decode(records, "hall")


@pytest.mark.parametrize(
    ("value", "ts"),
    [
        (0, 0), (MAX_TS, MAX_TS), (12.0, 12), ("12", 12), (" 12 ", 12), ("12.0", 12), ("1.2e1", 12),
        ("9007199254740993", 2**53 + 1), ("1970-01-01", 0), ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000), ("1970-01-01 02:00:01.000005+02:00", 1_000_005),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
    ],
)  # fmt: skip
def test_an_event_time_is_read(value: Any, ts: int) -> None:
    assert time_of(value, "us") == ts


NOON = datetime(1970, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "moment", [NOON, NOON.replace(tzinfo=None), pd.Timestamp(NOON), np.datetime64("1970-01-01T12")]
)
def test_dates_of_any_kind_become_whole_numbers_of_the_unit_also_in_events(moment: Any) -> None:
    found = decoded([{"ts": moment}, Event("door", ts=moment, source="hall", n=1)], unit="ms")
    assert found.bad == []
    assert found.rows == [Event("door", 43_200_000, "hall"), Event("door", 43_200_000, "hall", n=1)]


@pytest.mark.parametrize(
    "value",
    [
        "", -1, "-1", "1969-12-31", MAX_TS + 1, math.nan, math.inf, 1.5, 1e300, float(2**54), True, [1], "noon",
        "1_000", "nan", "9" * 5000, "2024-13-01", np.datetime64("NaT"), pd.NaT,
    ],
)  # fmt: skip
def test_what_is_no_event_time_is_refused(value: Any) -> None:
    with pytest.raises(BadRecordError):
        time_of(value, "us")
    assert len(decoded([{"ts": value}], unit="us").bad) == 1


@pytest.mark.parametrize(("value", "seq"), [(None, None), ("", None), (0, 0), ("12", 12), (3.0, 3)])
def test_a_sequence_number_is_read(value: Any, seq: int | None) -> None:
    (event,) = decoded([{"ts": 1, "n": value}], unit="us", seq="n").rows
    assert event.seq == seq


@pytest.mark.parametrize("value", [-1, "x", 1.5, True, "9" * 30])
def test_what_is_no_sequence_number_is_refused(value: Any) -> None:
    (bad,) = decoded([{"ts": 1, "n": value}], unit="us", seq="n").bad
    assert "sequence number" in bad.reason


@pytest.mark.parametrize("resolution", ["s", "ms", "us"])
def test_timestamps_beyond_the_unit_are_refused(resolution: str) -> None:
    moments = [datetime(2000, 1, 1), datetime(2600, 1, 1), datetime(1969, 12, 31, 23, 59, 59)]
    table = pa.table({"ts": pa.array(moments, pa.timestamp(resolution))})
    found = decoded(table, unit="ns")
    assert [event.ts for event in found.rows] == [946_684_800 * 10**9]
    assert [bad.place for bad in found.bad] == ["record 2", "record 3"]
    assert "19880899200000000000 is not a whole number" in found.bad[0].reason
    assert len(decoded(table, unit="s")) == 2


def test_a_timestamp_just_before_1970_is_not_rounded_into_it() -> None:
    found = decoded(pa.table({"ts": pa.array([-1, 1_999], pa.timestamp("us"))}), unit="ms")
    assert [event.ts for event in found.rows] == [1]
    assert "-1 is not a whole number" in found.bad[0].reason
