"""A partition's machine: where it is begun again, and how its records are cut, changes nothing."""

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.kafka.app import Peaks, Sums, hierarchy
from tests.kafka.world import readings

from slackline import EventType, Hierarchy, Speculation
from slackline.connectors.kafka.decoding import Decoder
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.reading import Message, Reading
from slackline.connectors.kafka.records import Record, Recorder
from slackline.connectors.kafka.snapshots import PartitionSnapshot
from slackline.connectors.kafka.tables import arrow_record
from slackline.runtime.sites import Sites


class Declared(Sums):
    listens = (EventType("reading", value=int),)


EMPTY = PartitionSnapshot(0, None)


def machine(
    snapshot: PartitionSnapshot = EMPTY, committed: int = 0, reading: Reading | None = None,
    options: dict[str, Any] | None = None, of: Hierarchy = hierarchy, awake: int | None = None,
) -> InputPartition:  # fmt: skip
    ahead = bool(options and "speculation" in options)
    decoder = Decoder(reading or Reading(key="van"))
    recorder = Recorder("out", "bad", "in", 0, ahead)
    sites = Sites(of, options, keyed=True, awake=awake)
    return InputPartition(sites, decoder, recorder, snapshot, committed, cut=ahead)


def messages(count: int = 600) -> list[Message]:
    return [Message(nr, None, json.dumps(row).encode()) for nr, row in enumerate(readings(count))]


def took(one: InputPartition) -> list[Record]:
    taken, one.pending = one.pending, []
    return taken


def by_key(records: list[Record]) -> dict[tuple[str, bytes], list[Record]]:
    """Records that have an order among each other."""
    found: dict[tuple[str, bytes], list[Record]] = {}
    for record in records:
        found.setdefault((record.topic, record.key), []).append(record)
    return found


@pytest.mark.parametrize("options", [None, {"speculation": Speculation(alpha=0.2)}], ids=["plain", "ahead"])
@pytest.mark.parametrize(("saved", "committed"), [(0, 0), (0, 250), (130, 130), (130, 251), (600, 600)])
def test_a_partition_that_is_taken_over_goes_on_as_if_it_had_never_moved(
    options: dict[str, Any] | None, saved: int, committed: int
) -> None:
    records = messages()
    whole = machine(options=options)
    whole.take(records)
    expected = took(whole)

    first = machine(options=options)
    first.take(records[:saved])
    snapshot = PartitionSnapshot(first.offset, list(first.cut())) if saved else EMPTY
    first.take(records[saved:committed])
    written = took(first)
    second = machine(snapshot, committed, options=options)
    assert second.offset == saved and second.is_catching_up == (saved < committed)
    for at in range(saved, len(records), 37):
        second.take(records[at : at + 37])
    assert not second.is_catching_up and second.taken == len(records) - committed
    written += took(second)
    assert by_key(written) == by_key(expected)
    ids = [dict(record.headers)["id"] for record in written]
    assert len(set(ids)) == len(ids)


def test_records_that_cannot_be_decoded_are_set_aside_as_they_were_with_the_reason() -> None:
    one = machine()
    one.take([Message(7, b"k", b"{"), Message(8, None, json.dumps(readings(6)[0]).encode())])
    [bad] = took(one)
    headers = dict(bad.headers)
    assert (bad.topic, bad.key, bad.value) == ("bad", b"k", b"{")
    assert (headers["reason"], headers["topic"], headers["partition"], headers["offset"]) == (
        b"undecodable", b"in", b"0", b"7",
    )  # fmt: skip
    assert b"not JSON" in headers["detail"]  # type: ignore[operator]
    assert (one.offset, one.taken, one.rejected) == (9, 2, 1)


def test_events_without_a_key_and_late_ones_are_set_aside_with_the_reason() -> None:
    one = machine(options={"policy": "slack", "margin": 0})
    rows = [{"type": "reading", "van": "a", "ts": ts, "value": 1} for ts in (*range(0, 1000, 10), 3)]
    rows.append({"type": "reading", "ts": 1, "value": 1})
    rows.append({"type": "unheard", "van": "a", "ts": 1})
    one.take([Message(nr, None, json.dumps(row).encode()) for nr, row in enumerate(rows)])
    aside = [dict(record.headers)["reason"] for record in took(one) if record.topic == "bad"]
    assert sorted(aside) == [b"late", b"no key", b"unknown type"]


def test_a_table_whose_columns_do_not_fit_is_set_aside_and_its_neighbours_are_taken() -> None:
    typed = Hierarchy([Declared(), Peaks()], clock="reading")
    rows = [{name: row[name] for name in ("type", "van", "ts", "value")} for row in readings(60)]
    good = arrow_record(pa.Table.from_pylist(rows))
    wrong = [
        arrow_record(pa.table({"type": ["reading"], "van": ["a"], "ts": ["soon"], "value": [1]})),
        arrow_record(pa.table({"type": ["reading"], "van": ["a"], "ts": [1], "value": ["much"]})),
        arrow_record(pa.table({"type": ["reading"], "van": ["a"], "ts": [1]})),
    ]
    one = machine(reading=Reading("arrow", key="van"), of=typed)
    one.take([Message(nr, None, value) for nr, value in enumerate([good, *wrong, good, wrong[0], wrong[0]])])
    pending = took(one)
    aside = [dict(record.headers) for record in pending if record.topic == "bad"]
    wrongly = [headers["offset"] for headers in aside if headers["reason"] == b"wrong schema"]
    assert wrongly == [b"1", b"2", b"3", b"5", b"6"]
    other = machine(reading=Reading("arrow", key="van"), of=typed)
    other.take([Message(0, None, good), Message(4, None, good)])
    assert [r for r in pending if r.topic == "out"] == [r for r in took(other) if r.topic == "out"]


def test_what_waits_goes_on_when_it_is_flushed() -> None:
    one = machine()
    one.take(messages(60))
    before = len(took(one))
    one.flush("stop")
    found = [json.loads(record.value or b"") for record in took(one)]
    assert before + sum(record["type"] == "sum" for record in found) > before
    assert max(record["payload"].get("count", 0) for record in found) == 10
