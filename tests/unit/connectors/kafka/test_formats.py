"""Messages of all formats become the same records; a message that is no record has the reason."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.kafka.app import hierarchy

from slackline import Event
from slackline.connectors.kafka.formats import Message, MessageReader, arrow_record
from slackline.core.errors import ConfigError
from slackline.runtime.output import BadRecord
from slackline.runtime.schema import Arrivals, Decoder, RecordSchema

AVRO = {
    "type": "record", "name": "Reading",
    "fields": [
        {"name": "ts", "type": "long"}, {"name": "type", "type": "string"}, {"name": "van", "type": "string"},
        {"name": "source", "type": "string"}, {"name": "seq", "type": "long"}, {"name": "value", "type": "double"},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {"ts": 7, "type": "reading", "van": "a", "source": "s", "seq": 3, "value": 1.5}
EVENT = Event("reading", ts=7, source="s", seq=3, value=1.5)
GOOD = b'{"ts": 1, "type": "a"}'


def decode(schema: RecordSchema, *values: bytes | None, key: bytes | None = None) -> list[Arrivals]:
    messages = [Message(nr, key, value) for nr, value in enumerate(values)]
    decoder = Decoder(schema, hierarchy)
    return [
        decoder.decode(batch.records, first=0, bad_record=batch.bad)
        for batch in MessageReader.of(schema).read(messages, "in/0")
    ]


def avro(row: dict[str, Any], schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


@pytest.fixture
def avro_schema(tmp_path: Path) -> str:
    file = tmp_path / "reading.avsc"
    file.write_text(json.dumps(AVRO))
    return str(file)


def test_json_and_avro_give_the_same_events(avro_schema: str) -> None:
    [one] = decode(RecordSchema(key="van"), json.dumps(ROW).encode())
    assert one == ([EVENT], ["a"], [])
    [other] = decode(RecordSchema(format="avro", avro_schema=avro_schema, key="van"), avro(ROW))
    assert other == one


def test_arrow_batches_of_one_schema_become_one_table() -> None:
    table = pa.Table.from_pylist([ROW, ROW])
    wider = table.append_column("more", pa.array([1, 2]))
    values = [arrow_record(each) for each in (table, table, wider)]
    found = decode(RecordSchema(format="arrow", key="van"), *values)
    assert [(len(one.rows), "van" in one.rows.column_names, one.bad) for one in found] == [
        (4, False, []),
        (2, False, []),
    ]
    assert found[0].keys.to_pylist() == ["a"] * 4


def test_fields_may_have_other_names() -> None:
    schema = RecordSchema(ts="at", type="kind", source="device", seq="nr")
    row = {"at": 7, "kind": "reading", "device": "s", "nr": 3, "value": 1.5}
    [one] = decode(schema, json.dumps(row).encode())
    assert one.rows == [EVENT]
    schema = RecordSchema(format="arrow", ts="at", type="kind", source="device", seq="nr")
    [table] = decode(schema, arrow_record(pa.Table.from_pylist([row])))
    assert table.rows.to_pylist() == [{"ts": 7, "type": "reading", "source": "s", "seq": 3, "value": 1.5}]


def test_the_key_may_be_the_source() -> None:
    row = {"ts": 7, "type": "reading", "source": "s", "seq": 3, "value": 1.5}
    [one] = decode(RecordSchema(key="source", source="source"), json.dumps(row).encode())
    assert (one.rows, one.keys) == ([EVENT], ["s"])
    schema = RecordSchema(format="arrow", key="source", source="source")
    [one] = decode(schema, arrow_record(pa.Table.from_pylist([row])))
    assert (one.rows.to_pylist(), one.keys.to_pylist()) == ([row], ["s"])


def test_the_message_s_own_key_is_used_if_records_have_no_field_for_it() -> None:
    schema = RecordSchema(key="key")
    assert decode(schema, GOOD, key=b"x")[0].keys == ["x"]
    assert decode(schema, b'{"ts": 1, "type": "a", "key": "y"}', key=b"x")[0].keys == ["y"]
    table = pa.table({"ts": [1, 2], "type": ["a", "a"]})
    arrow = RecordSchema(format="arrow", key="key")
    assert decode(arrow, arrow_record(table), key=b"x")[0].keys.to_pylist() == ["x", "x"]
    keyed = table.append_column("key", pa.array(["y", "z"]))
    assert decode(arrow, arrow_record(keyed), key=b"x")[0].keys.to_pylist() == ["y", "z"]
    [bad] = decode(schema, GOOD, key=b"\xff")[0].bad
    assert "is not UTF-8" in bad.reason


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no value"),
        (b"{", "not JSON"),
        (b"[1]", "a JSON object is expected"),
        (b'{"type": "a"}', "'ts', the event time, is missing"),
        (b'{"ts": "soon", "type": "a"}', "neither an integer nor a time"),
        (b'{"ts": 1, "type": [3]}', "event type"),
        (b'{"ts": 1, "type": "a", "source": {}}', "holds no source"),
        (b'{"ts": 1, "type": "a", "seq": -1}', "sequence number"),
    ],
)
def test_json_that_is_no_event_has_the_reason_and_does_not_harm_its_neighbours(value: bytes | None, why: str) -> None:
    [one] = decode(RecordSchema(source="source", seq="seq"), GOOD, value, GOOD)
    assert len(one.rows) == 2
    [bad] = one.bad
    assert bad.place == "in/0/1" and why in bad.reason and bad.record == (value or b"").decode()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no value"),
        (b"no arrow", "no Arrow batch of events"),
        (arrow_record(pa.table({"ts": [1], "type": ["a"]}))[:80], "no Arrow batch of events"),
        (arrow_record(pa.table({"type": ["a"], "van": ["a"]})), "no column 'ts'"),
        (arrow_record(pa.table({"ts": [1], "type": ["a"]})), "no column 'van'"),
        (arrow_record(pa.table({"ts": [1], "type": ["a"], "van": [1.5]})), "keys are text or whole numbers"),
    ],
)
def test_bytes_that_are_no_batch_of_events_have_the_reason(value: bytes | None, why: str) -> None:
    good = arrow_record(pa.table({"ts": [1], "type": ["a"], "van": ["a"]}))
    found = decode(RecordSchema(format="arrow", key="van"), good, value, good)
    assert sum(len(one.rows) for one in found) == 2
    [bad] = [bad for one in found for bad in one.bad]
    assert bad.place == "in/0/1" and why in bad.reason


def test_a_row_of_a_table_that_is_no_event_has_its_place() -> None:
    values = [arrow_record(pa.table({"ts": each, "type": ["a"] * len(each)})) for each in ([1, 2], [3, None, 5])]
    [found] = decode(RecordSchema(format="arrow"), *values)
    assert [event.ts for event in found.rows] == [1, 2, 3, 5]
    assert found.bad == [BadRecord("in/0/1/1", "field 'ts', the event time, is missing", '{"type":"a"}')]


def test_avro_of_a_schema_that_has_changed_is_no_event(avro_schema: str) -> None:
    more = {**AVRO, "fields": [*AVRO["fields"], {"name": "more", "type": "long"}]}
    less = {**AVRO, "fields": AVRO["fields"][:-1]}
    for value in (avro(ROW | {"more": 2**40}, more), avro(ROW, less), b"", None):
        [bad] = decode(RecordSchema(format="avro", avro_schema=avro_schema), value)[0].bad
        assert "no record of the Avro schema" in bad.reason or "no value" in bad.reason


def test_an_avro_schema_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    for text in ("{", '{"type": "record"}', '"long"'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="Avro"):
            MessageReader.of(RecordSchema(format="avro", avro_schema=str(file)))
    with pytest.raises(ConfigError, match="Avro"):
        MessageReader.of(RecordSchema(format="avro", avro_schema=str(tmp_path / "none")))
