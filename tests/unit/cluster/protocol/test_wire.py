"""Events go over the wire and come back the same, types included; anything else is a ProtocolError."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.states import Player, Position, Side, same, values

from slackline.cluster.protocol.messages import ProtocolError
from slackline.cluster.protocol.wire import packed, unpacked, unpacked_events
from slackline.core import codec
from slackline.core.batch import Batch, Column, object_column
from slackline.core.errors import UnsupportedStateError
from slackline.core.event import Event
from slackline.core.time import MAX_TS

sources = st.none() | st.integers() | st.text(max_size=4)
seqs = st.none() | st.integers(0, MAX_TS)
names = st.sampled_from(["x", "ts", "seq", "slot", "source", "type", "0", "", "\ud800"]) | st.text(max_size=3)
stamps = st.integers(0, MAX_TS)
payloads = st.dictionaries(names, values, max_size=3)
any_events = st.lists(st.builds(Event.of, st.just("e"), stamps, sources, seqs, payloads), min_size=1, max_size=6)


NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">f8", ">i4"]


@st.composite
def column_of(draw: st.DrawFn, rows: int) -> Column:
    def many(inner: st.SearchStrategy[Any]) -> list[Any]:
        return [draw(inner) for _ in range(rows)]

    match draw(st.integers(0, 3)):
        case 0:
            return np.array(many(st.integers(0, 100)), dtype=draw(st.sampled_from(NUMBERS)))
        case 1:
            return np.array(many(st.floats()))
        case 2:
            return object_column(many(st.none() | st.text(max_size=5)))
    return object_column(many(values))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch as engines have them: whole columns of more senders and rows than are meant."""
    rows = draw(st.integers(1, 12))
    senders = draw(st.lists(sources, min_size=1, max_size=60, unique=True))
    columns = {field: draw(column_of(rows)) for field in draw(st.lists(names, max_size=4, unique=True))}
    batch = Batch(
        "e",
        np.array(draw(st.lists(stamps, min_size=rows, max_size=rows)), dtype=np.int64),
        np.array(draw(st.lists(st.integers(0, len(senders) - 1), min_size=rows, max_size=rows)), dtype=np.int64),
        np.array(draw(st.lists(st.integers(-1, MAX_TS), min_size=rows, max_size=rows)), dtype=np.int64),
        columns,
        senders,
    )
    start = draw(st.integers(0, rows))
    return batch.slice(start, draw(st.integers(start, rows)))


@given(any_events)
def test_events_come_back_as_they_were(events: list[Event]) -> None:
    data = packed(events)
    assert same(unpacked_events("e", data, len(events)), tuple(events))
    rows = list(unpacked("e", data, len(events)))
    for event, row in zip(events, rows, strict=True):
        assert same((row.type, row.ts, row.source, row.seq), ("e", event.ts, event.source, event.seq))
        held = {field: value for field, value in event.payload.items() if value is not None}
        assert row.payload.keys() == held.keys()
        assert all(same(row[field], value) for field, value in held.items())


@given(batches())
def test_batches_come_back_as_they_were(batch: Batch) -> None:
    data = packed(batch)
    back = unpacked("e", data, len(batch))
    assert same(list(back), list(batch))
    assert same(unpacked_events("e", data, len(batch)), tuple(batch))
    if len(batch):
        assert back.fields == batch.fields
        assert [back[field].dtype for field in back.fields] == [
            batch[field].dtype.newbyteorder("=") for field in batch.fields
        ]
    assert packed(back) == data


@given(batches())
def test_what_comes_may_be_written_to_and_holds_no_more_than_it_needs(batch: Batch) -> None:
    back = unpacked("e", packed(batch), len(batch))
    slots, senders = back.sources
    assert {slots.dtype, back.ts.dtype, back.seq.dtype} == {np.dtype(np.int64)}
    assert set(slots.tolist()) == set(range(len(senders)))
    for column in (back.ts, back.seq, slots, *(back[field] for field in back.fields)):
        assert column.flags.writeable


def test_nothing_is_no_bytes() -> None:
    assert packed([]) == b""
    empty = unpacked("e", b"", 0)
    assert (len(empty), empty.type, list(empty)) == (0, "e", [])
    assert unpacked_events("e", b"", 0) == ()


def test_numbers_travel_as_arrays_and_other_values_as_code() -> None:
    events = [Event("e", ts=1, x=1.5, n=3, ok=True, who="a"), Event("e", ts=2, x=2.5, n=4, ok=False, who="b")]
    *_, fields, columns = codec.decode(packed(events))
    assert fields == ["x", "n", "ok", "who"]
    assert [column.dtype for column in columns[:3]] == [np.float64, np.int64, np.bool_]
    assert codec.decode(columns[3]) == ["a", "b"]


def test_an_odd_nan_keeps_its_bits() -> None:
    column = np.array([0x7FF8000000000001, 0xFFF0000000000001], dtype=np.uint64).view(np.float64)
    batch = Batch("e", np.array([1, 2]), np.array([0, 0]), np.array([-1, -1]), {"x": column}, ["s"])
    back = unpacked("e", packed(batch), 2)["x"]
    assert math.isnan(back[0])
    assert back.tobytes() == column.tobytes()


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(UnsupportedStateError, match="event 'e', field 'x'"):
        packed([Event("e", ts=1, x=object())])


def test_classes_are_those_that_the_caller_finds() -> None:
    data = packed([Event("e", ts=1, who=Player(7), side=Side.HOME, at=Position(1, 2))])
    with pytest.raises(ProtocolError, match="which is not defined here"):
        unpacked("e", data, 1, lambda module, qualname: None)
    found = {kind.__qualname__: kind for kind in (Player, Side, Position)}
    back = unpacked("e", data, 1, lambda module, qualname: found[qualname]).event(0)
    assert back["who"] == Player(7)


# What is malformed, made by hand.

CONTENT: dict[str, Any] = {
    "names": ["a", "b"],
    "ts": np.array([3, 4]),
    "slot": np.array([0, 1], np.int32),
    "seq": np.array([-1, 0]),
    "fields": ["x"],
    "columns": [np.array([1.5, 2.5])],
}


def stream(**changed: Any) -> bytes:
    """The bytes of two events, with something changed."""
    return codec.encode(list((CONTENT | changed).values()))


def coded(value: Any) -> list[bytes]:
    return [codec.encode(value)]


def test_the_bytes_made_by_hand_are_well_formed() -> None:
    assert list(unpacked("e", stream(), 2)) == [
        Event("e", ts=3, source="a", x=1.5),
        Event("e", ts=4, source="b", seq=0, x=2.5),
    ]
    assert unpacked("e", stream(columns=coded([{1}, date(2026, 1, 1)])), 2).event(0)["x"] == {1}
    whole = stream(fields=None, columns=codec.encode([{"x": None}, {}]))
    assert unpacked_events("e", whole, 2)[0] == Event("e", ts=3, source="a", x=None)


MALFORMED: dict[str, Callable[[], bytes]] = {
    "no bytes": lambda: b"",
    "other bytes": lambda: b"GET / HTTP/1.1\r\n\r\n",
    "no list": lambda: codec.encode({"a": 1}),
    "too few parts": lambda: codec.encode(list(CONTENT.values())[:-1]),
    "too many parts": lambda: stream(more=1),
    "bytes behind the end": lambda: stream() + b"\0",
    "no end": lambda: stream()[:-8],
    "a sender twice": lambda: stream(names=["a", "a"]),
    "senders that are no list": lambda: stream(names={"a": 1, "b": 2}),
    "a sender that is no name": lambda: stream(names=["a", 1.5]),
    "a truth value as sender": lambda: stream(names=["a", True]),
    "a list as sender": lambda: stream(names=["a", []]),
    "more senders than rows": lambda: stream(names=["a", "b", "c"]),
    "no senders": lambda: stream(names=[]),
    "a class as sender": lambda: stream(names=["a", Side.HOME]),
    "a field twice": lambda: stream(fields=["x", "x"], columns=[np.array([1, 2])] * 2),
    "a field without a column": lambda: stream(fields=["x", "y"]),
    "a column without a field": lambda: stream(fields=[]),
    "a field that is no name": lambda: stream(fields=[1]),
    "fields that are one text": lambda: stream(fields="x"),
    "a negative time stamp": lambda: stream(ts=np.array([-1, 4])),
    "a time stamp that is too large": lambda: stream(ts=np.array([3, MAX_TS + 1])),
    "a missing time stamp": lambda: stream(ts=[3, None]),
    "time stamps of another type": lambda: stream(ts=np.array([3, 4], np.uint64)),
    "time stamps of another byte order": lambda: stream(ts=np.array([3, 4], ">i8")),
    "too few time stamps": lambda: stream(ts=np.array([3])),
    "time stamps in two dimensions": lambda: stream(ts=np.array([[3, 4]])),
    "a sender that is not there": lambda: stream(slot=np.array([0, 2], np.int32)),
    "a negative sender": lambda: stream(slot=np.array([0, -1], np.int32)),
    "a missing sender": lambda: stream(slot=[0, None]),
    "a sequence number below -1": lambda: stream(seq=np.array([-2, 0])),
    "a sequence number that is too large": lambda: stream(seq=np.array([0, MAX_TS + 1])),
    "a column that is a list": lambda: stream(columns=[[1.5, 2.5]]),
    "a column of nothing": lambda: stream(columns=[None]),
    "a column that is too short": lambda: stream(columns=[np.array([1.5])]),
    "a column of dates": lambda: stream(columns=[np.array([1, 2], "M8[s]")]),
    "a column of texts of one length": lambda: stream(columns=[np.array(["a", "b"])]),
    "a column of complex numbers": lambda: stream(columns=[np.array([1j, 2j])]),
    "code that is none": lambda: stream(columns=[b"\xc1"]),
    "code of too few values": lambda: stream(columns=coded([1])),
    "code of too many values": lambda: stream(columns=coded([1, 2, 3])),
    "code of no list": lambda: stream(columns=coded({"a": 1, "b": 2})),
    "payloads that are no dicts": lambda: stream(fields=None, columns=codec.encode([{}, 1])),
    "payloads with a number as field": lambda: stream(fields=None, columns=codec.encode([{}, {1: 1}])),
    "payloads as numbers": lambda: stream(fields=None),
    "payloads in a list": lambda: stream(fields=None, columns=coded([{}, {}])),
}


@pytest.mark.parametrize("make", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("reading", [unpacked, unpacked_events])
def test_what_is_malformed_is_a_protocol_error(make: Callable[[], bytes], reading: Callable[..., Any]) -> None:
    with pytest.raises(ProtocolError, match="are not 2 events of type 'e'"):
        reading("e", make(), 2)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**70])
def test_another_count_than_there_is_is_a_protocol_error(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"are not {count} events of type 'e'"):
        unpacked("e", stream(), count)


def test_a_stream_that_is_cut_anywhere_is_a_protocol_error() -> None:
    data = packed([Event("e", ts=1, source=None, x=1.5, who="a", more=(1, 2))])
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            unpacked("e", data[:length], 1)
