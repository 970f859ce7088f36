"""Arrow messages are read as Arrow reads them, though a schema that was seen before is not read again."""

from __future__ import annotations

import struct

import pyarrow as pa

from slackline.connectors.kafka.formats import ArrowReader, Message, arrow_record
from slackline.runtime.schema import RecordSchema

TABLE = pa.table({"ts": [1, 2, 3], "type": ["a", "b", None], "x": [0.5, float("nan"), 2.0], "on": [True, None, False]})


def reader() -> ArrowReader:
    return ArrowReader(RecordSchema(format="arrow"))


def rows(made: ArrowReader, *values: bytes) -> pa.Table | None:
    """All rows of records, which are of one schema; None if one of them cannot be read."""
    found = [batch.records for batch in made.read([Message(nr, None, value) for nr, value in enumerate(values)], "in")]
    return pa.concat_tables(found) if all(isinstance(each, pa.Table) for each in found) else None


def by_arrow(value: bytes) -> pa.Table | None:
    try:
        return pa.ipc.open_stream(value).read_all()
    except (pa.ArrowException, OSError):
        return None


def same(one: pa.Table | None, other: pa.Table | None) -> bool:
    """By the bytes, as NaN is not equal to itself."""
    return (one and arrow_record(one)) == (other and arrow_record(other))


def test_a_record_that_is_cut_or_damaged_behind_its_schema_is_read_or_refused_as_by_arrow() -> None:
    made, value = reader(), arrow_record(TABLE)
    assert same(rows(made, value), TABLE)  # the schema is known from now on
    start = 8 + struct.unpack_from("<i", value, 4)[0]
    for length in range(len(value)):
        assert same(rows(made, value[:length]), by_arrow(value[:length])), length
    for at in range(start, len(value)):
        wrong = value[:at] + bytes([value[at] ^ 0xFF]) + value[at + 1 :]
        assert (rows(made, wrong) is None) == (by_arrow(wrong) is None), at


def test_records_of_several_batches_of_none_and_without_an_end_mark_are_read() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=1)
    several, none = sink.getvalue().to_pybytes(), arrow_record(TABLE.slice(0, 0))
    made = reader()
    assert rows(made, none, arrow_record(TABLE), several, several[:-8], none).num_rows == 9
    assert same(rows(made, several).combine_chunks(), TABLE)


def test_dictionaries_that_differ_from_record_to_record_are_kept_apart() -> None:
    words = [["a", "b"], ["b", "c", "c"], ["d"]]
    values = [
        arrow_record(pa.table({"ts": range(len(each)), "type": pa.array(each).dictionary_encode()})) for each in words
    ]
    assert rows(reader(), *values)["type"].to_pylist() == [word for each in words for word in each]


def test_a_machine_that_writes_numbers_the_other_way_round_is_understood() -> None:
    value = arrow_record(pa.table({"ts": [1, 2, 258], "type": ["a", "b", "c"]}))
    turned = _other_endian(value)
    expected = by_arrow(turned)
    assert expected is not None and expected["ts"].to_pylist() == [1 << 56, 2 << 56, 0x0201 << 48]
    made = reader()
    for each in (turned, value, turned):
        assert rows(made, each)["ts"].to_pylist() == by_arrow(each)["ts"].to_pylist()


def _other_endian(value: bytes) -> bytes:
    """The same stream, with a schema that claims the other endianness.

    That is a field of 16 bits in a table of flatbuffers, left out where it is the usual 0. There is no room for it, but
    the table begins with a number that says how far before it lies the list of its fields: a list 65,536 bytes away
    makes the upper half of that number a 1, which the list can then call the endianness.
    """
    away = 1 << 16
    meta = bytearray(value[8 : 8 + struct.unpack_from("<i", value, 4)[0]])
    meta[4:4] = bytes(away)
    (root,) = struct.unpack_from("<I", meta)
    struct.pack_into("<I", meta, 0, root + away)
    message = root + away
    fields = message - struct.unpack_from("<i", meta, message)[0]
    header = message + struct.unpack_from("<H", meta, fields + 4 + 2 * 2)[0]
    schema = header + struct.unpack_from("<I", meta, header)[0]
    (before,) = struct.unpack_from("<i", meta, schema)
    listed = schema - before
    (size,) = struct.unpack_from("<H", meta, listed)
    moved = schema - away
    meta[moved : moved + size] = meta[listed : listed + size]
    struct.pack_into("<i", meta, schema, away)
    struct.pack_into("<H", meta, moved + 4, 2)
    return value[:4] + struct.pack("<i", len(meta)) + bytes(meta) + value[8 + len(meta) - away :]
