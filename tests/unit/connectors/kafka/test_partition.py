"""A partition's machine: where it resumes, and how its messages are cut, changes nothing."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kafka.app import Peaks, Sums, hierarchy
from tests.kafka.world import SCHEMA, readings

from slackline import EventType, Hierarchy, Slack, Speculation
from slackline.connectors.kafka.checkpoint import Owner, Resume
from slackline.connectors.kafka.formats import Message, MessageReader, arrow_record
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.settings import KafkaSettings
from slackline.connectors.kafka.sink import OutputMessage
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.schema import RecordSchema


class Declared(Sums):
    listens = (EventType("reading", value=int),)


OWNER = Owner("app", "in", ("Sums", "Peaks"))
READ = RecordSchema(**SCHEMA)
START = Resume(OWNER.first(0, READ.plain()))
AT = "kafka://127.0.0.1:1/"


def machine(
    resume: Resume = START, committed: int = 0, schema: RecordSchema = READ, options: dict[str, Any] | None = None,
    of: Hierarchy = hierarchy, exact: bool = True, **keyed: Any,
) -> InputPartition:  # fmt: skip
    engines = KeyedEngines(of, options, **{"keyed": schema.key is not None, **keyed})
    settings = KafkaSettings(
        f"{AT}in", f"{AT}out", group="app", schema=schema, engine_options=options or {}, duplicates="write",
        delivery="exactly-once" if exact else "at-least-once",
    )  # fmt: skip
    return InputPartition(0, settings, engines, MessageReader.of(schema), resume, committed)


def messages(count: int = 600) -> list[Message]:
    return [Message(nr, None, json.dumps(row).encode()) for nr, row in enumerate(readings(count))]


def checkpoint(one: InputPartition) -> Checkpoint:
    header, pieces = one.snapshot()
    return OWNER.checkpoint(header, list(pieces))


def by_key(records: list[OutputMessage]) -> dict[tuple[str, bytes], list[OutputMessage]]:
    """Messages that have an order among each other."""
    found: dict[tuple[str, bytes], list[OutputMessage]] = {}
    for record in records:
        found.setdefault((record.topic, record.key), []).append(record)
    return found


def values(records: list[OutputMessage], topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in records if record.topic == topic]


@pytest.mark.parametrize("options", [None, {"speculation": Speculation(alpha=0.2)}], ids=["plain", "ahead"])
@pytest.mark.parametrize("shards", [None, 3], ids=["keys", "shards"])
@pytest.mark.parametrize(("saved", "committed"), [(0, 0), (0, 250), (130, 130), (130, 251), (600, 600)])
def test_a_partition_that_is_taken_over_continues_as_if_it_had_never_moved(
    options: dict[str, Any] | None, shards: int | None, saved: int, committed: int
) -> None:
    records = messages()
    whole = machine(options=options, shards=shards)
    whole.process(records, 0)
    expected = whole.take_pending()

    first = machine(options=options, shards=shards)
    first.process(records[:saved], 0)
    resume = Resume(checkpoint(first)) if saved else START
    first.process(records[saved:committed], 0)
    written = first.take_pending()
    second = machine(resume, committed, options=options, shards=shards)
    assert second.offset == saved and second.is_replaying == (saved < committed)
    for at in range(saved, len(records), 37):
        second.process(records[at : at + 37], 1)
    assert not second.is_replaying
    assert second.metrics().events == whole.metrics().events == 600
    written += second.take_pending()
    assert by_key(written) == by_key(expected)
    ids = [dict(record.headers)["id"] for record in written]
    assert len(set(ids)) == len(ids)


@settings(max_examples=40)
@given(
    steps=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), min_size=2, max_size=12),
    saved=st.integers(0, 11),
    killed=st.integers(0, 11),
    chunk=st.integers(1, 60),
    ttl=st.sampled_from([None, 0.5]),
    shards=st.sampled_from([None, 2]),
    exact=st.booleans(),
)
def test_timeouts_since_the_checkpoint_are_applied_again_at_the_same_offsets(
    steps: list[tuple[int, int]],
    saved: int,
    killed: int,
    chunk: int,
    ttl: float | None,
    shards: int | None,
    exact: bool,
) -> None:
    """``steps`` are messages to process, and milliseconds that pass before timeouts are applied."""
    timeouts: dict[str, Any] = {"idle_timeout": 0.2, "state_ttl": ttl, "shards": shards}
    records = messages(480)
    saved, killed = min(saved, killed), min(max(saved, killed), len(steps) - 1)
    one = machine(**timeouts)
    resume, committed, offset, at = START, 0, 0, 0
    log: list[Any] = []
    for nr, (count, passed) in enumerate(steps):
        one.process(records[offset : offset + count], at)
        offset, at = one.offset, at + passed
        one.expire(at)
        log += [each for each in one.timeouts if each.number >= len(log)]
        if nr == saved:
            resume = Resume(checkpoint(one))
        if nr == killed:
            written, committed = one.take_pending(), one.offset
            killed_log = list(log)
    rest = one.take_pending()

    two = machine(resume._replace(timeouts=killed_log), committed, exact=exact, **timeouts)
    while two.is_replaying:
        two.process(records[two.offset : min(two.offset + chunk, committed)], 10**9)
    repeated = two.take_pending()
    assert two.offset == committed and two.timeouts == [one for one in killed_log if one.number >= _applied(resume)]
    assert repeated == [] if exact else all(message in written for message in repeated)
    for each in log[len(killed_log) :]:
        two.process(records[two.offset : each.offset], 10**9)
        two._emit(two._apply(each))
    two.process(records[two.offset : offset], 10**9)
    assert by_key(two.take_pending()) == by_key(rest)


def _applied(resume: Resume) -> int:
    return int(resume.checkpoint.header["timeouts"])


def test_a_key_whose_state_was_dropped_has_other_ids_when_it_returns() -> None:
    one = machine(state_ttl=1.0)
    row = {"type": "reading", "van": "a", "ts": 1, "value": 1}
    ids = []
    for offset in range(3):
        one.process([Message(offset, None, json.dumps(row | {"ts": offset}).encode())], 10_000 * offset)
        one.expire(10_000 * offset + 1_000)
        ids += [dict(message.headers)["id"] for message in one.take_pending()]
    assert ids == [b"a/sum:Sums:0/0", b"a/peak:Peaks:0/1", b"a/sum:Sums:0/1/0", b"a/peak:Peaks:0/1/1",
                   b"a/sum:Sums:0/2/0", b"a/peak:Peaks:0/2/1"]  # fmt: skip


def test_the_unit_of_event_times_does_not_depend_on_how_many_messages_are_read_at_once() -> None:
    times = [5, 1_700_000_000_000, 1_700_000_000_001]  # the first is no date in any unit
    rows = [Message(nr, None, json.dumps({"type": "reading", "van": "a", "ts": ts, "value": 1}).encode())
            for nr, ts in enumerate(times)]  # fmt: skip
    schema = RecordSchema(key="van")
    units = []
    for cut in (1, 3):
        one = machine(Resume(OWNER.first(0, schema.plain())), schema=schema)
        for at in range(0, 3, cut):
            one.process(rows[at : at + cut], 0)
        units.append(checkpoint(one).header["schema"]["unit"])
    assert units == ["us", "us"]
    one = machine(Resume(OWNER.first(0, schema.plain())), schema=schema)
    one.process([Message(0, None, b"{"), *rows[1:]], 0)  # a bad record shows no unit
    saved = Resume(checkpoint(one))
    assert saved.checkpoint.header["schema"]["unit"] == "ms"
    assert machine(saved, schema=schema).metrics().ts_per_second == 1_000


def test_messages_that_cannot_be_decoded_go_to_the_quarantine_with_place_and_reason() -> None:
    one = machine()
    one.process([Message(7, b"k", b"{"), Message(8, None, json.dumps(readings(6)[0]).encode())], 0)
    [bad] = one.take_pending()
    value = json.loads(bad.value or b"")
    assert bad.topic == "out-quarantine" and dict(bad.headers) == {"id": b"0/quarantine/in/in/0/7"}
    assert (value["kind"], value["reason"], value["source"]) == ("quarantine", "not an event", "in")
    assert "not JSON" in value["detail"] and value["payload"] == {"place": "in/0/7", "record": "{"}
    assert one.offset == 9 and one.metrics().quarantined == {"not an event": 1}


def test_late_events_events_without_a_key_and_duplicates_have_their_topics() -> None:
    one = machine(options={"policy": Slack(margin=0), "duplicates": "keep"})
    rows = [{"type": "reading", "van": "a", "ts": ts, "seq": ts, "value": 1} for ts in (*range(0, 1000, 10), 3, 990)]
    rows.append({"type": "reading", "ts": 1, "value": 1})
    rows.append({"type": "unheard", "van": "a", "ts": 1})
    one.process([Message(nr, None, json.dumps(row).encode()) for nr, row in enumerate(rows)], 0)
    found = one.take_pending()
    assert [value["ts"] for value in values(found, "out-late")] == [3]
    assert sorted(value["reason"] for value in values(found, "out-quarantine")) == ["no key", "unknown type"]
    assert [value["seq"] for value in values(found, "out-duplicates")] == [990]
    assert len({dict(message.headers)["id"] for message in found}) == len(found)


def test_messages_have_the_key_of_their_records_and_an_id() -> None:
    one = machine()
    one.process(messages(120), 0)
    for message in one.take_pending():
        value = json.loads(message.value or b"")
        assert message.key == value["key"].encode()
        assert dict(message.headers)["id"] == f"{value['key']}/{value['id']}/{value['change']}".encode()
    one = machine(schema=RecordSchema(unit="us"), resume=Resume(OWNER.first(0, RecordSchema(unit="us").plain())))
    one.process(messages(200), 0)
    found = [message for message in one.take_pending() if message.topic == "out"]
    assert found
    for message in found:
        value = json.loads(message.value or b"")
        assert message.key == dict(message.headers)["id"] == f"{value['id']}/{value['change']}".encode()


def test_rows_whose_columns_do_not_fit_go_to_the_quarantine_and_their_neighbours_are_processed() -> None:
    typed = Hierarchy([Declared(), Peaks()], clock="reading")
    rows = [{name: row[name] for name in ("type", "van", "ts", "value")} for row in readings(60)]
    good = arrow_record(pa.Table.from_pylist(rows))
    wrong = [
        arrow_record(pa.table({"type": ["reading"], "van": ["a"], "ts": ["soon"], "value": [1]})),
        arrow_record(pa.table({"type": ["reading"], "van": ["a"], "ts": [1], "value": ["much"]})),
        arrow_record(pa.table({"type": ["reading"], "van": ["a"], "ts": [1]})),
    ]
    schema = RecordSchema(format="arrow", key="van", unit="us")
    resume = Resume(OWNER.first(0, schema.plain()))
    one = machine(resume, schema=schema, of=typed)
    one.process([Message(nr, None, value) for nr, value in enumerate([good, *wrong, good, wrong[0], wrong[0]])], 0)
    pending = one.take_pending()
    aside = values(pending, "out-quarantine")
    assert [value["payload"].get("place") for value in aside if value["reason"] == "not an event"] == [
        "in/0/1/0", "in/0/5/0", "in/0/6/0",
    ]  # fmt: skip
    assert [value["payload"] for value in aside if value["reason"] != "not an event"] == [{"value": "much"}, {}]
    other = machine(resume, schema=schema, of=typed)
    other.process([Message(0, None, good), Message(4, None, good)], 0)
    assert [r for r in pending if r.topic == "out"] == [r for r in other.take_pending() if r.topic == "out"]


def test_buffered_events_are_emitted_by_a_flush() -> None:
    one = machine()
    one.process(messages(60), 0)
    before = len(one.take_pending())
    one.flush("stop")
    found = values(one.take_pending(), "out")
    assert before + sum(record["type"] == "sum" for record in found) > before
    assert max(record["payload"].get("count", 0) for record in found) == 10
