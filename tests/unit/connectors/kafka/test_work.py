"""When a partition's outputs, offset and snapshots are committed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.kafka.app import hierarchy
from tests.unit.connectors.kafka.test_partition import machine, messages

from slackline.connectors.kafka import BrokerError, KafkaHost
from slackline.connectors.kafka.brokers import Brokers
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.records import Record
from slackline.connectors.kafka.snapshots import PartitionSnapshot
from slackline.connectors.kafka.work import ExactWork, PlainWork
from slackline.connectors.kafka.writing import Plain

#: What stands for a snapshot's end.
KEPT = Record("state", b"", None, [])


def part_of(offset: int) -> Record:
    """What stands for a snapshot's bytes."""
    return Record("state", b"part", str(offset).encode(), [])


class AtOnce(Executor):
    """Does what it is asked to do, before it returns."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Committed:
    """Takes transactions and snapshots, and notes the records and the offset of each."""

    def __init__(self) -> None:
        self.each: list[tuple[list[Record], int]] = []
        self.kept: list[int] = []

    def commit(self, records: list[Record], offset: Any, _: Any) -> None:
        self.each.append((records, offset.offset))

    def records(self, partition: int, snapshot: PartitionSnapshot) -> Iterator[Record]:
        yield part_of(snapshot.offset)
        yield KEPT

    def keep(self, partition: int, snapshot: PartitionSnapshot) -> None:
        self.kept.append(snapshot.offset)

    def parts(self) -> list[tuple[Record, int]]:
        """What was written of snapshots, and with which offset."""
        return [(one, offset) for records, offset in self.each for one in records if one.topic == "state"]


class Slow(InputPartition):
    """One that takes a second to save each engine."""

    def cut(self) -> Iterator[bytes]:
        for piece in super().cut():
            time.sleep(1)
            yield piece


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which goes on when somebody sleeps."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def what(of: InputPartition, snapshots: Any, **settings: Any) -> tuple[Any, ...]:
    at = "kafka://127.0.0.1:1/"
    host = KafkaHost(hierarchy, f"{at}in", f"{at}out", group="app", key="van", **settings)
    return of, PartitionSnapshot(0, None), snapshots, host.settings


def work(of: InputPartition, committed: Any, **settings: Any) -> ExactWork:
    told = what(of, committed, **settings)
    return ExactWork(*told, transactions=committed, metadata=lambda anew: None, threads=AtOnce())


def test_what_is_flushed_is_committed_with_a_snapshot_that_knows_of_it(clock: list[float]) -> None:
    committed, one = Committed(), machine()
    works = work(one, committed)
    one.take(messages(60))
    works.step(clock[0], 0.002)
    assert committed.each == []  # all wait, and it is not time for the offset
    works.flush("idle")
    [(records, offset)] = committed.each
    assert offset == 60 and records[-1] == KEPT and len(records) > 60
    assert not one.waits


@pytest.mark.parametrize(("slow", "expected"), [(False, 9), (True, 2)])
def test_snapshots_that_take_long_are_made_seldom(clock: list[float], slow: bool, expected: int) -> None:
    committed, one = Committed(), machine()
    if slow:
        one.__class__ = Slow
    works = work(one, committed, snapshot=10)
    for nr, message in enumerate(messages(96)):  # one a second
        one.take([message])
        clock[0] = max(clock[0], 101.0 + nr)
        works.step(clock[0], 0.002)
    assert len(committed.kept) == expected


def after(steps: int, clock: list[float]) -> tuple[Committed, ExactWork]:
    """A partition whose snapshot was begun at record 40, so many steps ago; after each came a record."""
    committed, one = Committed(), machine()
    one.__class__ = Slow
    works = work(one, committed, snapshot=10)
    records = messages(60)
    one.take(records[:40])
    clock[0] = 110.0
    for message in records[40 : 40 + steps]:
        works.step(clock[0], 0.5)  # one engine
        one.take([message])
        clock[0] += 0.02
    return committed, works


def test_a_snapshot_is_made_between_records_and_written_after_what_is_committed(clock: list[float]) -> None:
    committed, _ = after(20, clock)
    # Six engines take a step each, what is of none two, and to see that none is left one more; then it is written.
    assert committed.kept == [40]
    parts, offsets = zip(*committed.parts(), strict=True)
    assert parts == (part_of(40), KEPT)
    assert 48 <= offsets[0] < offsets[1]


@pytest.mark.parametrize("steps", [1, 4, 9])
def test_where_a_snapshot_is_needed_at_once_one_that_is_half_made_is_dropped(clock: list[float], steps: int) -> None:
    committed, works = after(steps, clock)
    assert works.is_saving == (steps < 9) and works.is_writing == (steps >= 9)
    works.flush("idle")
    assert committed.kept == [40 + steps]
    assert committed.parts()[-2:] == [(part_of(40 + steps), 40 + steps), (KEPT, 40 + steps)]
    assert not works.is_saving and not works.is_writing


class Journal(Committed):
    """Notes in which order records are written, known to be there, and committed."""

    is_settled = False

    def __init__(self) -> None:
        super().__init__()
        self.did: list[Any] = []

    def write(self, records: list[Record]) -> None:
        self.did += [one if one.topic == "state" else "output" for one in records]

    def settle(self) -> None:
        self.did.append("settled")

    def commit(self, *, offsets: Any, asynchronous: bool) -> None:  # type: ignore[override]
        self.did.append(offsets[0].offset)


def test_without_transactions_a_snapshot_is_valid_once_all_outputs_before_it_are_there(clock: list[float]) -> None:
    journal, one = Journal(), machine()
    works = PlainWork(*what(one, journal, delivery="at-least-once", snapshot=0.5), plain=journal, consumer=journal)
    records = messages(120)
    one.take(records[:100])
    clock[0] += 0.6
    for message in records[100:]:
        works.step(clock[0], 0)  # one engine
        if journal.kept:
            break
        one.take([message])
        clock[0] += 0.01
    assert journal.kept == [100] and one.offset > 108
    assert part_of(100) in journal.did and "output" in journal.did
    assert journal.did[-4:] == ["settled", KEPT, "settled", one.offset]
    one.take(records[one.offset :])
    works.finish(flush=False)
    assert journal.kept == [100, 120]
    assert journal.did[-5:] == ["settled", part_of(120), KEPT, "settled", 120]


def test_a_broker_with_a_full_disk_is_told_as_such() -> None:
    brokers = Brokers("127.0.0.1:1", lambda: False)
    plain = Plain({"bootstrap.servers": "127.0.0.1:1"}, "kafka://127.0.0.1:1/out", brokers)
    plain._delivered(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), None)
    with pytest.raises(BrokerError, match=r"out: Broker: Disk error .* Is the disk of a broker full\?"):
        plain.settle()
    plain.close()
