"""Law 8: form is irrelevant. The same rows as events and as Arrow of any layout give the same outcomes."""

from __future__ import annotations

import datetime
import math
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.worlds import settings

import slackline as sl
from slackline.core.time import PER_SECOND

#: A type that declares all kinds of fields, one that also makes demands, and one that is just a name.
DECLARED = sl.EventType("declared", n=int, small="int8", u="uint16", x=float, f="float32", flag=bool, word=str)
DEMANDING = sl.EventType("demanding", source="who", sources=("s", 7), finite=True, x=float, n="int16")
NAMES = ("declared", "demanding", "plain")


class Copy(sl.Detector):
    """Publishes all that it sees."""

    listens, publishes = (DECLARED, DEMANDING, "plain"), ("copy",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive(
            "copy",
            kind=event.type,
            sent_by=event.source,
            nr=event.seq,
            **{f"p_{k}": v for k, v in event.payload.items()},
        )


class InBatches(Copy):
    on_event = sl.Detector.on_event

    def on_batch(self, batch: sl.Batch) -> Any:
        for row, event in enumerate(batch):
            for copy in Copy.on_event(self, event):
                yield row, copy


small = st.integers(0, 100)
NS = 1_700_000_000_123_456_789
#: Values of each column. What is wrong is wrong for one reason or another, and now and then more than one.
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from([*NAMES, *NAMES, "nobody", "copy"]) | st.none(),
    "ts": small | small | st.sampled_from([-1, 2**62, 2**62 + 1, 2**63 - 1]) | st.none(),
    "seq": st.integers(0, 6) | st.none() | st.sampled_from([-1, 2**62 + 1, 2**63 - 1]),
    "source": st.sampled_from(["s", "t"]) | st.none(),
    "who": st.sampled_from(["s", "s", "nobody"]) | st.none(),
    "n": st.integers(-5, 5) | st.just(2**31) | st.just(40_000) | st.none(),
    "small": st.sampled_from([1, 100, 300, -129]) | st.none(),
    "u": st.sampled_from([1, 65_535, 65_536, -1]) | st.none(),
    "x": st.floats(-9, 9) | st.just(math.nan) | st.just(math.inf) | st.none(),
    "f": st.sampled_from([0.1, 1e300, math.nan]) | st.none(),
    "flag": st.booleans() | st.none(),
    "word": st.sampled_from(["p", "q", ""]) | st.none(),
    "raw": st.sampled_from([b"", b"x"]) | st.none(),
    "price": st.sampled_from([Decimal("1.50"), Decimal("-2.25")]) | st.none(),
    "at": st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2030, 1, 1), allow_imaginary=False).map(
        lambda at: at.replace(fold=0)
    )
    | st.none(),
    "exact": st.sampled_from([np.datetime64(NS, "ns"), np.datetime64(NS + 1, "ns")]) | st.none(),
    "took": st.sampled_from([datetime.timedelta(seconds=3), datetime.timedelta(0)]) | st.none(),
    "many": st.lists(st.integers(0, 3), max_size=2) | st.none(),
    "nested": st.builds(lambda a, b: {"a": a, "b": [b]}, st.integers(0, 3), st.sampled_from(["k", "l"])) | st.none(),
}
PAYLOAD = [name for name in COLUMNS if name not in ("type", "ts", "seq", "source", "who")]
INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TEXT = [pa.string(), pa.large_string(), pa.string_view()]
ARROW: dict[str, list[pa.DataType]] = {
    **{name: INTEGERS for name in ("ts", "seq", "n", "small", "u")},
    **{name: TEXT for name in ("type", "source", "who", "word")},
    "x": [pa.float64()],
    "f": [pa.float64()],
    "flag": [pa.bool_()],
    "raw": [pa.binary(), pa.large_binary(), pa.binary_view()],
    "price": [pa.decimal128(10, 2), pa.decimal256(40, 2), pa.decimal64(12, 2)],
    "at": [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")],
    "exact": [pa.timestamp("ns"), pa.timestamp("ns", "Asia/Tokyo")],
    "took": [pa.duration("us"), pa.duration("ms"), pa.duration("s")],
    "many": [pa.list_(pa.int64()), pa.large_list(pa.int8()), pa.list_view(pa.int32())],
    "nested": [pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])],
}


def array(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """The values as an array of a type, None if it cannot hold them."""
    if pa.types.is_timestamp(kind):
        numbers = [None if v is None else int(np.datetime64(v, kind.unit).astype(np.int64)) for v in values]
        return pa.array(numbers, pa.int64()).cast(kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, pa.ArrowTypeError):
        return None


@st.composite
def layouts(draw: st.DrawFn, name: str, values: list[Any]) -> pa.ChunkedArray:
    """A column in some layout: a type wide enough, maybe a dictionary or runs, cut into chunks, a slice of more."""
    padded = [values[0], *values] if values and draw(st.booleans()) else values
    kinds = [kind for kind in ARROW[name] if array(padded, kind) is not None]
    if name in ("ts", "seq") and all(v is None or abs(v) < 2**50 for v in padded):
        kinds += [pa.float64(), pa.decimal128(22, 0)]
    found = array(padded, draw(st.sampled_from(kinds)))
    assert found is not None
    layout = draw(st.sampled_from(["plain", "plain", "dictionary", "runs"]))
    with suppress(pa.ArrowNotImplementedError):  # not every type has every layout
        if layout == "dictionary":
            found = found.dictionary_encode()
        elif layout == "runs":
            found = pc.run_end_encode(found)
    found = found.slice(len(padded) - len(values))
    cut = draw(st.integers(0, len(values)))
    return pa.chunked_array([found.slice(0, cut), found.slice(cut)], found.type)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[dict[str, Any]], pa.Table, set[str]]:
    """Rows, and the same rows as a table: with some columns of payload, in any order."""
    declared = {*DECLARED.fields, *DEMANDING.fields}
    extra = draw(st.sets(st.sampled_from(sorted(set(PAYLOAD) - declared)), max_size=4))
    names = draw(st.permutations(["type", "ts", "source", "who", "seq", *sorted(declared), *sorted(extra)]))
    n = draw(st.integers(0, 30))
    columns = {name: draw(st.lists(COLUMNS[name], min_size=n, max_size=n)) for name in names}
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    table = pa.table({name: draw(layouts(name, columns[name])) for name in names})
    return rows, table, set(names)


def event_of(row: dict[str, Any], table: pa.Table) -> sl.Event:
    """A row as the event that a user would make of it."""
    demands = row["type"] == "demanding"
    source = row["who" if demands else "source"]
    fields = {}
    for name in table.column_names:
        value = row[name]
        if name in ("type", "ts", "seq", "who" if demands else "source") or value is None:
            continue
        kind = table[name].type
        while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        if name == "at" and kind.tz:
            value = value.replace(tzinfo=datetime.UTC)
        fields[name] = value
    return sl.Event.of(row["type"], row["ts"], source, row["seq"], fields)


def everything(detector: sl.Detector, options: dict[str, Any], pushes: list[Any]) -> dict[str, Any]:
    engine = sl.Engine(sl.Hierarchy([detector], clock=(DECLARED, DEMANDING, "plain")), **options)
    outputs = [output for pushed in pushes for output in engine.push(pushed)] + engine.close()
    return {
        "outputs": sorted(map(comparable, outputs)),
        "late": [(item.event.ts, shown(item.event), item.lateness, item.position) for item in engine.late],
        "quarantined": [
            (item.event.ts, shown(item.event), item.reason, item.detail, item.position) for item in engine.quarantined
        ],
        "duplicates": [(item.event.ts, shown(item.event), item.position) for item in engine.drain().duplicates],
        "types": engine.stats()["types"],
        "reasons": engine.stats()["quarantined"],
    }


def comparable(output: sl.Output) -> tuple[Any, ...]:
    return output.id, output.event.ts, shown(output.event), output.detected_at


def shown(event: sl.Event) -> str:
    payload = sorted((name, repr(plain(value))) for name, value in event.payload.items())
    return f"{event.type!r} {event.source!r} {event.seq!r} {payload}"


def plain(value: Any) -> Any:
    """The same instant is the same value, whatever its zone."""
    return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) and value.tzinfo else value


@pytest.mark.parametrize("kind", [Copy, InBatches])
@given(world=tables(), options=settings(), data=st.data())
def test_law_8_a_table_means_what_its_rows_mean_as_events(
    kind: type[sl.Detector], world: Any, options: dict[str, Any], data: Any
) -> None:
    rows, table, _ = world
    events = [event_of(row, table) for row in rows]
    expected = everything(kind(), options, [events])
    cut = data.draw(st.integers(0, len(rows)))
    same(everything(kind(), options, [table]), expected)
    same(everything(kind(), options, [table.slice(0, cut), table.slice(cut)]), expected)
    same(everything(kind(), options, [events[:cut], table.slice(cut)]), expected)
    same(everything(kind(), options, [table.slice(0, cut), events[cut:]]), expected)
    mappings = [{**row, **event.payload} for row, event in zip(rows, events, strict=True)]
    same(everything(kind(), options, [mappings]), expected)
    same(everything(kind(), options, [table.slice(0, cut), mappings[cut:]]), expected)


@pytest.mark.parametrize("kind", [Copy, InBatches])
@given(world=tables(), options=settings(), unit=st.sampled_from(["s", "ms", "us", "ns"]))
def test_law_8_dates_mean_what_their_numbers_mean(
    kind: type[sl.Detector], world: Any, options: dict[str, Any], unit: str
) -> None:
    rows, table, _ = world
    valid = [ts if ts is not None and 0 <= ts <= 100 else None for ts in (row["ts"] for row in rows)]
    column = pa.array(valid, pa.int64()).cast(pa.timestamp(unit, "UTC"))
    at = table.column_names.index("ts")
    expected = everything(kind(), options, [table.set_column(at, "ts", pa.array(valid, pa.int64()))])
    events = [event_of({**row, "ts": ts}, table) for row, ts in zip(rows, column.to_pylist(), strict=True)]
    same(numbered(everything(kind(), options, [table.set_column(at, "ts", column)]), unit), expected)
    same(numbered(everything(kind(), {**options, "unit": unit}, [events]), unit), expected)


def numbered(found: dict[str, Any], unit: str) -> dict[str, Any]:
    """Results with dates as numbers again."""

    def number(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return round(value.timestamp() * PER_SECOND[unit])
        if isinstance(value, datetime.timedelta):
            return round(value.total_seconds() * PER_SECOND[unit])
        return int(value.astype(np.int64)) if isinstance(value, np.datetime64 | np.timedelta64) else value

    return {
        name: [tuple(map(number, each)) for each in items] if isinstance(items, list) else items
        for name, items in found.items()
    }


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """One by one, so that a failure shows what differs."""
    for name, values in expected.items():
        pairs = zip(found[name], values, strict=False) if isinstance(values, list) else [(found[name], values)]
        for one, other in pairs:
            assert one == other, name
        assert len(found[name]) == len(values), name
