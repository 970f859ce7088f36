"""Records become events by one rule, or are rejected with a reason."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import slackline as sl
from slackline.core.errors import ConfigError
from slackline.core.time import MAX_TS
from slackline.runtime.lines import MAX_LINE, Lines
from slackline.runtime.record import KEPT, BadRecordError, Fields, Rejects, object_of, time_of, value_of


@pytest.mark.parametrize(
    ("value", "ts"),
    [
        (0, 0),
        (MAX_TS, MAX_TS),
        (12.0, 12),
        ("12", 12),
        (" 12 ", 12),
        ("12.0", 12),
        ("1.2e1", 12),
        ("9007199254740993", 2**53 + 1),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 02:00:01.000005+02:00", 1_000_005),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
    ],
)
def test_a_time_stamp_is_read(value: Any, ts: int) -> None:
    assert time_of(value) == ts


@pytest.mark.parametrize(("unit", "ts"), [("s", 1), ("ms", 1_234), ("us", 1_234_567), ("ns", 1_234_567_000)])
def test_a_time_of_day_is_turned_into_the_unit(unit: str, ts: int) -> None:
    assert time_of("1970-01-01T00:00:01.234567", unit) == ts
    assert time_of(5, unit) == 5


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "missing"),
        ("", "missing"),
        (-1, "-1 is not a whole number from 0 to"),
        ("-1", "-1 is not a whole number"),
        ("1969-12-31", "-86400000000 is not a whole number"),
        (MAX_TS + 1, "is not a whole number"),
        (math.nan, "nan is not a whole number"),
        (math.inf, "inf is not a whole number"),
        (1.5, "1.5 is not a whole number"),
        (1e300, "lost digits"),
        (float(2**54), "lost digits"),
        (True, "True is not a whole number"),
        ([1], "is not a whole number"),
        ("noon", "neither an integer nor"),
        ("1_000", "neither an integer nor"),
        ("nan", "neither an integer nor"),
        ("9" * 5000, "not a time stamp"),
        ("2024-13-01", "neither an integer nor"),
    ],
)
def test_what_is_no_time_stamp_is_rejected_with_a_reason(value: Any, reason: str) -> None:
    with pytest.raises(BadRecordError, match=reason):
        time_of(value)


def test_the_rest_of_a_record_is_payload() -> None:
    fields = Fields(ts="at", type="door", seq="nr")
    record = {"at": 3, "nr": 8, "ts": "x", "type": "y", "source": None}
    assert fields.event(record, "hall") == sl.Event.of("door", 3, "hall", 8, {"ts": "x", "type": "y", "source": None})
    assert record["at"] == 3  # the record is left as it was


def test_the_type_may_be_in_the_record() -> None:
    fields = Fields(ts="ts", type="unused", type_field="kind")
    assert fields.event({"ts": 1, "kind": "open"}, "a").type == "open"
    for bad in ({"ts": 1}, {"ts": 1, "kind": None}, {"ts": 1, "kind": ""}, {"ts": 1, "kind": 3}):
        with pytest.raises(BadRecordError, match="holds no type"):
            fields.event(bad, "a")


@pytest.mark.parametrize(("value", "seq"), [(None, None), ("", None), (0, 0), ("12", 12), (3.0, 3)])
def test_a_sequence_number_is_read(value: Any, seq: int | None) -> None:
    assert Fields(ts="ts", type="t", seq="n").event({"ts": 1, "n": value}, "a").seq == seq


@pytest.mark.parametrize("value", [-1, "x", 1.5, True, "9" * 30])
def test_what_is_no_sequence_number_is_rejected(value: Any) -> None:
    with pytest.raises(BadRecordError, match=r"the sequence number .* is not a whole number"):
        Fields(ts="ts", type="t", seq="n").event({"ts": 1, "n": value}, "a")


def test_a_record_without_the_field_is_rejected() -> None:
    with pytest.raises(BadRecordError, match="no field 'at'"):
        Fields(ts="at", type="t").event({"ts": 1}, "a")


@pytest.mark.parametrize(
    "options", [{"ts": ""}, {"ts": "t", "unit": "h"}, {"ts": "t", "seq": "t"}, {"ts": "t", "type_field": ""}]
)
def test_fields_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Fields(**{"type": "x", **options})


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b"3", b'{"a": NaN}', b"\xff{}", b'{"a": 1} {"b": 2}', b"[" * 100_000]
)
def test_what_is_no_json_object_is_rejected(line: bytes) -> None:
    with pytest.raises(BadRecordError):
        object_of(line)


def test_values_of_csv_keep_what_they_are() -> None:
    texts = ["5", "-5", "+5", "05", "5.0", ".5", "1e400", "-", "5 ", "x", "", "99999999999999999999999", "00.5"]
    values = [5, -5, "+5", "05", 5.0, 0.5, "1e400", "-", "5 ", "x", None, "99999999999999999999999", "00.5"]
    assert [value_of(text) for text in texts] == values


def test_rejected_records_are_all_counted_and_some_kept() -> None:
    rejects = Rejects()
    for number in range(KEPT + 50):
        rejects.add(f"line {number}", "bad", b"\xff" * 1000)
    assert rejects.count == KEPT + 50
    assert len(rejects.kept) == KEPT
    assert rejects.kept[0].place == "line 0"
    assert len(rejects.kept[0].record) == 200


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_do_not_depend_on_how_the_bytes_are_cut(size: int) -> None:
    data = b"one\r\n\ntwo\nthree"
    lines = Lines()
    found = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
    assert found == [(1, b"one"), (2, b""), (3, b"two")]
    assert lines.rest() == (4, b"three")
    assert lines.rest() is None


@pytest.mark.parametrize("size", [1 << 16, 1 << 22])
def test_a_line_without_end_is_given_up_and_the_next_is_read(size: int) -> None:
    data = b"a\n" + b"x" * (MAX_LINE + 1) + b"\nb\n" + b"y" * (2 * MAX_LINE)
    lines = Lines()
    found = []
    for start in range(0, len(data), size):
        found += lines.feed(data[start : start + size])
        assert len(lines._open) <= MAX_LINE  # what is kept has a bound
    assert found == [(1, b"a"), (2, None), (3, b"b"), (4, None)]
    assert lines.rest() is None
