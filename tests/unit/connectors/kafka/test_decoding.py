"""Records of all formats become the same events, and what is none says why."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from slackline import Event
from slackline.connectors.kafka.decoding import Decoder
from slackline.connectors.kafka.reading import Message, Reading
from slackline.connectors.kafka.tables import arrow_record
from slackline.core.errors import ConfigError

SCHEMA = {
    "type": "record", "name": "Reading",
    "fields": [
        {"name": "ts", "type": "long"}, {"name": "type", "type": "string"}, {"name": "van", "type": "string"},
        {"name": "source", "type": "string"}, {"name": "seq", "type": "long"}, {"name": "value", "type": "double"},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {"ts": 7, "type": "reading", "van": "a", "source": "s", "seq": 3, "value": 1.5}
EVENT = Event("reading", ts=7, source="s", seq=3, value=1.5)


def decode(reading: Reading, *values: bytes | None, only: str | None = None, key: bytes | None = None) -> Any:
    return Decoder(reading, only).decode([Message(nr, key, value) for nr, value in enumerate(values)])


def avro(row: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "reading.avsc"
    file.write_text(json.dumps(SCHEMA))
    return str(file)


def test_json_and_avro_give_the_same_events(schema: str) -> None:
    [one], bad = decode(Reading(key="van"), json.dumps(ROW).encode())
    assert (one.rows, one.keys, bad) == ([EVENT], ["a"], [])
    [other], bad = decode(Reading("avro", schema, key="van"), avro(ROW))
    assert (other.rows, other.keys, bad) == ([EVENT], ["a"], [])


def test_arrow_batches_of_one_schema_become_one_table() -> None:
    table = pa.Table.from_pylist([ROW, ROW])
    wider = table.append_column("more", pa.array([1, 2]))
    values = [arrow_record(each) for each in (table, table, wider)]
    found, bad = decode(Reading("arrow", key="van"), *values)
    assert bad == []
    assert [(len(one.rows), "van" in one.rows.column_names, len(one.messages)) for one in found] == [
        (4, False, 2),
        (2, False, 1),
    ]
    assert found[0].keys.to_pylist() == ["a"] * 4


def test_fields_may_have_other_names() -> None:
    reading = Reading(ts="at", type="kind", source="who", seq="nr")
    row = {"at": 7, "kind": "reading", "who": "s", "nr": 3, "value": 1.5}
    [one], _ = decode(reading, json.dumps(row).encode())
    assert one.rows == [EVENT]
    reading = Reading("arrow", ts="at", type="kind", source="who", seq="nr")
    [table], _ = decode(reading, arrow_record(pa.Table.from_pylist([row])))
    assert table.rows.to_pylist() == [{"ts": 7, "type": "reading", "source": "s", "seq": 3, "value": 1.5}]


def test_the_key_may_be_the_source() -> None:
    row = {"ts": 7, "type": "reading", "source": "s", "seq": 3, "value": 1.5}
    [one], _ = decode(Reading(key="source"), json.dumps(row).encode())
    assert (one.rows, one.keys) == ([EVENT], ["s"])
    [one], _ = decode(Reading("arrow", key="source"), arrow_record(pa.Table.from_pylist([row])))
    assert (one.rows.to_pylist(), one.keys.to_pylist()) == ([row], ["s"])


def test_the_record_s_own_key_is_that_of_the_site_if_no_field_is() -> None:
    [one], _ = decode(Reading(key="key"), b'{"ts": 1, "type": "a"}', key=b"x")
    assert one.keys == ["x"]
    [one], _ = decode(Reading(key="key"), b'{"ts": 1, "type": "a", "key": "y"}', key=b"x")
    assert one.keys == ["y"]
    [one], _ = decode(Reading("arrow", key="key"), arrow_record(pa.table({"ts": [1, 2], "type": ["a", "a"]})), key=b"x")
    assert one.keys.to_pylist() == ["x", "x"]
    _, [bad] = decode(Reading(key="key"), b'{"ts": 1, "type": "a"}', key=b"\xff")
    assert "is no text" in bad.detail


def test_a_record_without_a_type_has_the_only_one_there_is() -> None:
    [one], _ = decode(Reading(), b'{"ts": 1}', only="ping")
    assert one.rows == [Event("ping", ts=1)]
    _, [bad] = decode(Reading(), b'{"ts": 1}')
    assert "holds no type" in bad.detail


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no value"),
        (b"{", "not JSON"),
        (b"[1]", "a JSON object is expected"),
        (b'{"type": "a"}', "no field 'ts'"),
        (b'{"ts": "soon", "type": "a"}', "neither an integer nor a time"),
        (b'{"ts": 1, "type": 3}', "holds no type"),
        (b'{"ts": 1, "type": "a", "source": {}}', "holds no source"),
        (b'{"ts": 1, "type": "a", "seq": -1}', "sequence number"),
    ],
)
def test_json_that_is_no_event_says_why_and_does_not_harm_its_neighbours(value: bytes | None, why: str) -> None:
    good = b'{"ts": 1, "type": "a"}'
    [one], [bad] = decode(Reading(), good, value, good)
    assert len(one.rows) == 2 and [message.offset for message in one.messages] == [0, 2]
    assert bad.message.offset == 1 and why in bad.detail


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "no value"),
        (b"no arrow", "no Arrow batch of events"),
        (arrow_record(pa.table({"ts": [1], "type": ["a"]}))[:80], "no Arrow batch of events"),
        (arrow_record(pa.table({"type": ["a"], "van": ["a"]})), "no column 'ts'"),
        (arrow_record(pa.table({"ts": [1], "van": ["a"]})), "no column 'type'"),
        (arrow_record(pa.table({"ts": [1], "type": ["a"]})), "no column 'van'"),
        (arrow_record(pa.table({"ts": [1], "type": ["a"], "van": [1.5]})), "keys are text or whole numbers"),
    ],
)
def test_bytes_that_are_no_batch_of_events_say_why(value: bytes | None, why: str) -> None:
    good = arrow_record(pa.table({"ts": [1], "type": ["a"], "van": ["a"]}))
    found, [bad] = decode(Reading("arrow", key="van"), good, value, good)
    assert sum(len(one.rows) for one in found) == 2
    assert bad.message.offset == 1 and why in bad.detail


def test_avro_of_a_schema_that_has_changed_is_no_event(schema: str) -> None:
    more = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "more", "type": "long"}]}
    less = {**SCHEMA, "fields": SCHEMA["fields"][:-1]}
    for value in (avro(ROW | {"more": 2**40}, more), avro(ROW, less), b"", None):
        _, [bad] = decode(Reading("avro", schema), value)
        assert "no record of the Avro schema" in bad.detail or "no value" in bad.detail


def test_a_schema_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    for text in ("{", '{"type": "record"}', '"long"'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="Avro"):
            Decoder(Reading("avro", str(file)))
    with pytest.raises(ConfigError, match="Avro"):
        Decoder(Reading("avro", str(tmp_path / "none")))
