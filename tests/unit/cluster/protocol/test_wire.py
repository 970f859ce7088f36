"""Events go over the wire and come back the same, types included; anything else is a ProtocolError."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
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


def test_numbers_and_texts_travel_as_such() -> None:
    events = [Event("e", ts=1, x=1.5, n=3, ok=True, who="a"), Event("e", ts=2, x=2.5, n=4, ok=False, who="b")]
    schema = pa.ipc.open_stream(packed(events)).schema
    assert schema.types[3:] == [pa.float64(), pa.int64(), pa.bool_(), pa.string()]


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

RECORDS: dict[str, Any] = {"ts": [3, 4], "slot": [0, 1], "seq": [-1, 0], "0": [1.5, 2.5]}
TYPES = {"ts": pa.int64(), "slot": pa.int32(), "seq": pa.int64(), "0": pa.float64()}
HEADER: list[Any] = [["a", "b"], ["x"]]


def stream(
    header: Any = HEADER, *, times: int = 1, compression: str | None = None, metadata: dict[bytes, bytes] | None = None,
    **columns: Any,
) -> bytes:  # fmt: skip
    """The stream of two rows, with something changed: columns as lists or Arrow arrays."""
    arrays = []
    for name, column in (RECORDS | columns).items():
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column, TYPES.get(name)))
    if metadata is None:
        metadata = {b"slackline": codec.encode(header)}
    fields = [pa.field(name, array.type) for name, array in zip(RECORDS | columns, arrays, strict=True)]
    schema = pa.schema(fields, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(times):
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def coded(value: Any, *rest: bytes | None) -> pa.Array:
    return pa.array([codec.encode(value), *rest], pa.binary())


def texts_at(*offsets: int) -> bytes:
    """Texts whose offsets say something else than they did."""
    data = stream(**{"0": pa.array(["ab", "cd"])})
    written = np.array([0, 2, 4], dtype=np.int32).tobytes()
    assert data.count(written) == 1
    return data.replace(written, np.array(offsets, dtype=np.int32).tobytes())


def not_unicode() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 1, 2], dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xfe")])


def test_the_stream_made_by_hand_is_well_formed() -> None:
    assert list(unpacked("e", stream(), 2)) == [
        Event("e", ts=3, source="a", x=1.5),
        Event("e", ts=4, source="b", seq=0, x=2.5),
    ]
    assert unpacked("e", stream(**{"0": coded([{1}, date(2026, 1, 1)], None)}), 2).event(0)["x"] == {1}
    whole = stream([["a", "b"], None], **{"0": coded([{"x": None}, {}], None)})
    assert unpacked_events("e", whole, 2)[0] == Event("e", ts=3, source="a", x=None)


MALFORMED: dict[str, Callable[[], bytes]] = {
    "no bytes": lambda: b"",
    "other bytes": lambda: b"GET / HTTP/1.1\r\n\r\n",
    "no record batch": lambda: stream(times=0),
    "two record batches": lambda: stream(times=2),
    "bytes behind the end": lambda: stream() + b"\0",
    "no end": lambda: stream()[:-8],
    "compressed": lambda: stream(compression="lz4"),
    "compressed otherwise": lambda: stream(compression="zstd"),
    "no metadata": lambda: stream(metadata={}),
    "metadata that is no code": lambda: stream(metadata={b"slackline": b"\xc1"}),
    "metadata of another shape": lambda: stream({"a": 1}),
    "a sender twice": lambda: stream([["a", "a"], ["x"]]),
    "senders that are no list": lambda: stream([{"a": 1, "b": 2}, ["x"]]),
    "a sender that is no name": lambda: stream([["a", 1.5], ["x"]]),
    "a truth value as sender": lambda: stream([["a", True], ["x"]]),
    "a list as sender": lambda: stream([["a", []], ["x"]]),
    "more senders than rows": lambda: stream([["a", "b", "c"], ["x"]]),
    "no senders": lambda: stream([[], ["x"]]),
    "a class in the header": lambda: stream([["a", Side.HOME], ["x"]]),
    "a field twice": lambda: stream([["a", "b"], ["x", "x"]], more=[1, 2]),
    "a field without a column": lambda: stream([["a", "b"], ["x", "y"]]),
    "a column without a field": lambda: stream([["a", "b"], []]),
    "a field that is no name": lambda: stream([["a", "b"], [1]]),
    "fields that are one text": lambda: stream([["a", "b"], "x"]),
    "a negative time stamp": lambda: stream(ts=[-1, 4]),
    "a time stamp that is too large": lambda: stream(ts=[3, MAX_TS + 1]),
    "a missing time stamp": lambda: stream(ts=[3, None]),
    "time stamps of another type": lambda: stream(ts=pa.array([3, 4], pa.uint64())),
    "a sender that is not there": lambda: stream(slot=[0, 2]),
    "a negative sender": lambda: stream(slot=[0, -1]),
    "a missing sender": lambda: stream(slot=[0, None]),
    "a sequence number below -1": lambda: stream(seq=[-2, 0]),
    "a sequence number that is too large": lambda: stream(seq=[0, MAX_TS + 1]),
    "a missing number": lambda: stream(**{"0": pa.array([1.5, None])}),
    "a dictionary": lambda: stream(**{"0": pa.array(["a", "b"]).dictionary_encode()}),
    "a list column": lambda: stream(**{"0": pa.array([[1], [2]])}),
    "a column of nulls": lambda: stream(**{"0": pa.nulls(2)}),
    "a date column": lambda: stream(**{"0": pa.array([1, 2], pa.date32())}),
    "a large text column": lambda: stream(**{"0": pa.array(["a", "b"], pa.large_string())}),
    "texts that end beyond": lambda: texts_at(0, 2, 2**30),
    "texts that begin beyond": lambda: texts_at(2**30, 2**30, 2**30),
    "texts that point beyond": lambda: texts_at(0, 2**30, 4),
    "texts that go back": lambda: texts_at(4, 2, 0),
    "texts before the first": lambda: texts_at(-8, 2, 4),
    "texts that are no Unicode": lambda: stream(**{"0": not_unicode()}),
    "code that is none": lambda: stream(**{"0": pa.array([b"\xc1", None])}),
    "no code": lambda: stream(**{"0": pa.array([None, codec.encode([1, 2])], pa.binary())}),
    "code of too few values": lambda: stream(**{"0": coded([1], None)}),
    "code of too many values": lambda: stream(**{"0": coded([1, 2, 3], None)}),
    "code of no list": lambda: stream(**{"0": coded({"a": 1, "b": 2}, None)}),
    "payloads that are no dicts": lambda: stream([["a", "b"], None], **{"0": coded([{}, 1], None)}),
    "payloads with a number as field": lambda: stream([["a", "b"], None], **{"0": coded([{}, {1: 1}], None)}),
    "payloads as numbers": lambda: stream([["a", "b"], None]),
    "payloads and a column": lambda: stream([["a", "b"], None], **{"0": coded([{}, {}], None), "more": [1, 2]}),
}


@pytest.mark.parametrize("make", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("reading", [unpacked, unpacked_events])
def test_what_is_malformed_is_a_protocol_error(make: Callable[[], bytes], reading: Callable[..., Any]) -> None:
    with pytest.raises(ProtocolError, match="are not 2 events of type 'e'"):
        reading("e", make(), 2)


def test_another_message_is_not_read_as_a_schema() -> None:
    without = stream()[len(stream(times=0)) - 8 :]
    assert pa.ipc.read_message(without).type == "record batch"
    with pytest.raises(ProtocolError, match="they do not begin with a schema"):
        unpacked("e", without, 2)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**70])
def test_another_count_than_there_is_is_a_protocol_error(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"are not {count} events of type 'e'"):
        unpacked("e", stream(), count)


def test_a_stream_that_is_cut_anywhere_is_a_protocol_error() -> None:
    data = packed([Event("e", ts=1, source=None, x=1.5, who="a", more=(1, 2))])
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            unpacked("e", data[:length], 1)
