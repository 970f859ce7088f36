"""When a partition's outputs, offset and snapshots are committed."""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.kafka.app import hierarchy
from tests.unit.hosts.kafka.test_partition import machine, messages

from slackline.hosts.kafka import BrokerError, KafkaHost
from slackline.hosts.kafka.brokers import Brokers
from slackline.hosts.kafka.partition import InputPartition
from slackline.hosts.kafka.records import Record
from slackline.hosts.kafka.snapshots import PartitionSnapshot
from slackline.hosts.kafka.work import ExactWork
from slackline.hosts.kafka.writing import Plain

#: What stands for a snapshot in a transaction.
KEPT = Record("state", b"", None, [])


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

    def commit(self, records: list[Record], offset: Any, _: Any) -> None:
        self.each.append((records, offset.offset))

    def records(self, partition: int, snapshot: PartitionSnapshot) -> list[Record]:
        return [KEPT]

    def keep(self, partition: int, snapshot: PartitionSnapshot) -> None:
        pass


class Slow(InputPartition):
    """One whose snapshots take four seconds."""

    def snapshot(self) -> PartitionSnapshot:
        time.sleep(4)
        return super().snapshot()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which goes on when somebody sleeps."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def work(of: InputPartition, committed: Any, **settings: Any) -> ExactWork:
    at = "kafka://127.0.0.1:1/"
    host = KafkaHost(hierarchy, f"{at}in", f"{at}out", group="app", key="van", **settings)
    what = (of, PartitionSnapshot(0, None), committed, host.settings)
    return ExactWork(*what, transactions=committed, metadata=lambda anew: None, threads=AtOnce())


def test_what_is_flushed_is_committed_with_a_snapshot_that_knows_of_it(clock: list[float]) -> None:
    committed, one = Committed(), machine()
    works = work(one, committed)
    one.take(messages(60))
    works.step(clock[0])
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
        works.step(clock[0])
    assert sum(KEPT in records for records, _ in committed.each) == expected


def test_a_broker_with_a_full_disk_is_told_as_such() -> None:
    brokers = Brokers("127.0.0.1:1", lambda: False)
    plain = Plain({"bootstrap.servers": "127.0.0.1:1"}, "kafka://127.0.0.1:1/out", brokers)
    plain._delivered(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), None)
    with pytest.raises(BrokerError, match=r"out: Broker: Disk error .* Is the disk of a broker full\?"):
        plain.settle()
    plain.close()
