"""When the outputs, the offset and the checkpoints of a partition are committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.unit.connectors.kafka.test_partition import AT, OWNER, READ, START, machine, messages

from slackline.connectors.kafka import BrokerError, KafkaSettings
from slackline.connectors.kafka.brokers import Brokers
from slackline.connectors.kafka.checkpoint import AppliedTimeouts
from slackline.connectors.kafka.partition import InputPartition, PartitionTask
from slackline.connectors.kafka.sink import IdempotentProducer, OutputMessage
from slackline.runtime.checkpoint import Checkpoint

#: Stands for the end of a checkpoint.
KEPT = OutputMessage("state", b"", None, [])


def part_of(offset: int) -> OutputMessage:
    """Stands for the bytes of a checkpoint."""
    return OutputMessage("state", b"part", str(offset).encode(), [])


class AtOnce(Executor):
    """Does what it is asked to do, before it returns."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def log_of(timeouts: Any) -> OutputMessage:
    """Stands for the log of timeouts."""
    return OutputMessage("state", b"timers", ",".join(str(one.number) for one in timeouts).encode(), [])


class Committed:
    """Takes transactions and checkpoints, and notes the messages and the offset of each."""

    owner = OWNER

    def __init__(self, room: int = 100) -> None:
        self.each: list[tuple[list[OutputMessage], int]] = []
        self.kept: list[int] = []
        self.room = room  # timeouts that fit the log

    def commit(self, groups: list[list[OutputMessage]], offset: int, wait: bool = False) -> None:
        self.each.append(([message for group in groups for message in group], offset))

    def close(self) -> None:
        pass

    def messages(self, partition: int, checkpoint: Checkpoint) -> Iterator[OutputMessage]:
        yield part_of(checkpoint.header["offset"])
        yield KEPT

    def save(self, partition: int, checkpoint: Checkpoint) -> None:
        self.kept.append(checkpoint.header["offset"])

    def log(self, partition: int, timeouts: list[AppliedTimeouts]) -> list[OutputMessage] | None:
        return [log_of(timeouts)] if len(timeouts) <= self.room else None

    def parts(self) -> list[tuple[OutputMessage, int]]:
        """What was written of checkpoints and of the log, and with which offset."""
        return [(one, offset) for messages, offset in self.each for one in messages if one.topic == "state"]


class Slow(InputPartition):
    """One that takes a second to save each engine."""

    def snapshot(self) -> tuple[Any, Iterator[bytes]]:
        header, pieces = super().snapshot()
        return header, (time.sleep(1) or piece for piece in pieces)  # type: ignore[func-returns-value]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes by time.sleep()."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def task(of: InputPartition, committed: Any, **settings: Any) -> PartitionTask:
    """A task whose checkpoint store and producer is ``committed``."""
    given = KafkaSettings(f"{AT}in", f"{AT}out", group="app", schema=READ, **settings)
    return PartitionTask(of, START, committed, given, committed, AtOnce())


def idle(**more: Any) -> InputPartition:
    """A partition that has read 60 messages, of which some are buffered."""
    one = machine(idle_timeout=1.0, **more)
    one.process(messages(60), 0)
    return one


def test_a_flush_at_a_stop_is_committed_with_a_checkpoint(clock: list[float]) -> None:
    committed, one = Committed(), idle()
    works = task(one, committed)
    works.step(clock[0], 0.002)
    assert committed.each == []  # all is buffered, and it is not time for the offset
    works.finish(flush=True)
    [(records, offset)] = committed.each
    assert offset == 60 and records[-1] == KEPT and len(records) > 60
    assert one.engines.metrics().buffered == 0 and committed.kept == [60]


def test_timeouts_are_logged_in_the_transaction_of_their_output_until_a_checkpoint_has_them(
    clock: list[float],
) -> None:
    committed, one = Committed(), idle()
    works = task(one, committed, checkpoint_every=10)
    one.expire(2_000)
    for _ in range(2):
        works.step(clock[0], 0.002)
        clock[0] += 0.02
    [(records, offset)] = committed.each
    assert offset == 60 and len(records) > 60 and records[0] == log_of(one.timeouts) and not committed.kept
    one.process(messages(120)[60:], 3_000)
    one.expire(5_000)
    clock[0] += 10
    for _ in range(20):
        works.step(clock[0], 1)
        clock[0] += 0.02
    assert committed.kept == [120] and one.timeouts == []
    # Before the message that makes the checkpoint valid is the log of all timeouts since the checkpoint before.
    names = [message.value for message, _ in committed.parts()]
    assert names == [b"0", b"0,1", b"120", b"0,1", None]


def test_a_log_of_timeouts_that_is_too_large_becomes_a_checkpoint_in_the_same_transaction(clock: list[float]) -> None:
    committed, one = Committed(room=0), idle()
    works = task(one, committed, checkpoint_every=600)
    one.expire(2_000)
    for _ in range(2):
        works.step(clock[0], 0.002)
        clock[0] += 0.02
    [(records, offset)] = committed.each
    assert offset == 60 and records[-2:] == [part_of(60), KEPT] and one.timeouts == []


def test_the_time_of_timeouts_stands_still_until_the_end_of_the_partition_is_reached() -> None:
    one = idle()
    works, asked = task(one, Committed()), []

    def end() -> int | None:
        asked.append(one.offset)
        return 64 if len(asked) > 1 else None

    works.expire(60, end)  # no broker answers
    assert len(asked) == 1 and one.timeouts == []
    works.expire(60, end)  # a backlog of 4
    works.expire(63, end)
    assert len(asked) == 2 and one.timeouts == []
    works.expire(70, end)  # written since, but all from before is read
    assert len(asked) == 2 and len(one.timeouts) == 1
    works.expire(70, end)
    assert len(asked) == 2 and len(one.timeouts) == 1  # nothing is due
    one.process(messages(66)[60:], 0)
    works.expire(66, end)
    assert len(asked) == 3 and len(one.timeouts) == 2


@pytest.mark.parametrize(("slow", "expected"), [(False, 9), (True, 2)])
def test_checkpoints_that_take_long_are_made_rarely(clock: list[float], slow: bool, expected: int) -> None:
    committed, one = Committed(), machine()
    if slow:
        one.__class__ = Slow
    works = task(one, committed, checkpoint_every=10)
    for nr, message in enumerate(messages(96)):  # one a second
        one.process([message], 0)
        clock[0] = max(clock[0], 101.0 + nr)
        works.step(clock[0], 0.002)
    assert len(committed.kept) == expected


def after(steps: int, clock: list[float]) -> tuple[Committed, PartitionTask]:
    """A partition whose checkpoint was begun at message 40, so many steps ago; after each a message was processed."""
    committed, one = Committed(), machine()
    one.__class__ = Slow
    works = task(one, committed, checkpoint_every=10)
    records = messages(60)
    one.process(records[:40], 0)
    clock[0] = 110.0
    for message in records[40 : 40 + steps]:
        works.step(clock[0], 0.5)  # one engine
        one.process([message], 0)
        clock[0] += 0.02
    return committed, works


def test_a_checkpoint_is_made_between_messages_and_written_behind_its_offset(clock: list[float]) -> None:
    committed, _ = after(20, clock)
    # Six engines take a step each, and to see that none is left one more; then it is written.
    assert committed.kept == [40]
    parts, offsets = zip(*committed.parts(), strict=True)
    assert parts == (part_of(40), KEPT)
    assert 46 <= offsets[0] < offsets[1]


@pytest.mark.parametrize("steps", [1, 4, 7])
def test_where_a_checkpoint_is_needed_at_once_one_that_is_half_made_is_dropped(clock: list[float], steps: int) -> None:
    committed, works = after(steps, clock)
    assert works.is_saving == (steps < 7) and works.is_writing == (steps >= 7)
    works.finish(flush=True)
    assert committed.kept == [40 + steps]
    assert committed.parts()[-2:] == [(part_of(40 + steps), 40 + steps), (KEPT, 40 + steps)]
    assert not works.is_saving and not works.is_writing


class Journal(Committed, IdempotentProducer):  # type: ignore[misc]
    """Notes in which order messages are written, acknowledged, and committed."""

    commit = IdempotentProducer.commit  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.did: list[Any] = []

    def write(self, messages: Sequence[OutputMessage]) -> None:
        self.did += [one if one.topic == "state" else "output" for one in messages]

    def flush(self) -> None:
        self.did.append("settled")

    def _commit_offset(self, offset: int, wait: bool) -> None:  # type: ignore[override]
        self.did.append(offset)


def test_without_transactions_a_checkpoint_is_valid_once_all_before_it_is_acknowledged(
    clock: list[float],
) -> None:
    journal, one = Journal(), machine()
    works = task(one, journal, delivery="at-least-once", checkpoint_every=0.5)
    records = messages(240)
    one.process(records[:200], 0)
    clock[0] += 0.6
    for message in records[200:]:
        works.step(clock[0], 0)  # one engine
        if journal.kept:
            break
        one.process([message], 0)
        clock[0] += 0.01
    assert journal.kept == [200] and one.offset > 206
    assert part_of(200) in journal.did and "output" in journal.did
    assert journal.did[-4:] == ["settled", KEPT, "settled", one.offset]
    one.process(records[one.offset :], 0)
    works.finish(flush=False)
    assert journal.kept == [200, 240]
    assert journal.did[-5:] == [part_of(240), "settled", KEPT, "settled", 240]


def test_the_error_of_a_broker_with_a_full_disk_names_the_cause() -> None:
    brokers = Brokers("127.0.0.1:1", "app", None, lambda: False)
    producer = IdempotentProducer(brokers.producer(1000), brokers, "kafka://127.0.0.1:1/out")
    producer._delivered(KafkaError(KafkaError.KAFKA_STORAGE_ERROR), None)
    with pytest.raises(BrokerError, match=r"out: Broker: Disk error .* Is the disk of a broker full\?"):
        producer.flush()
    producer.close()


def test_without_transactions_timeouts_are_in_the_log_before_their_output_is_written(clock: list[float]) -> None:
    journal, one = Journal(), idle()
    works = task(one, journal, delivery="at-least-once")
    one.expire(2_000)
    works.step(clock[0], 0)
    assert journal.did[:3] == [log_of(one.timeouts), "settled", "output"] and not one.has_new_timeouts
