"""Checkpoints of partitions: the engines after all messages before an offset.

A checkpoint is no log of changes: the input is. The owner of a partition loads its newest checkpoint and reads the
input from there up to the offset that was committed. So a commit costs no more than a commit, and checkpoints may be
rare.

In a compacted topic the bytes of a checkpoint are cut into parts that fit a message, and a last message says how many
they are. Two places are used in turn, so that the older checkpoint is complete until the newer one is. The parts of a
partition's checkpoints are in the partition of the same number. Beside them is the log of timeouts: one message, which
is replaced by the next.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition

from slackline.connectors.kafka.brokers import Brokers
from slackline.connectors.kafka.messages import Outgoing
from slackline.connectors.kafka.partition import AppliedTimeouts, Resume
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.runtime.checkpoint import Checkpoint, FolderCheckpointStore

#: Bytes of a part; less if the topic's messages must be smaller.
PART_BYTES = 512 * 1024
#: A message is so much larger than its value, about: key, headers, batch.
OVERHEAD = 1024
#: Messages that are read first, from the end; then four times as many, until there is a complete checkpoint.
TAIL = 64

KIND, TIMEOUTS_KIND = "kafka partition", "kafka timeouts"

logger = logging.getLogger("slackline.kafka")


class Owner(NamedTuple):
    """The application that checkpoints belong to; part of their headers."""

    group: str
    topic: str
    detectors: tuple[str, ...]

    def first(self, offset: int, schema: Mapping[str, Any]) -> Checkpoint:
        """The checkpoint of engines that have seen nothing, so that it is known where they began."""
        header = {"offset": offset, "schema": schema, "timeouts": 0, "incarnation": 0, "engines": None}
        return self.checkpoint(header, [])

    def checkpoint(self, header: Mapping[str, Any], pieces: Iterable[bytes]) -> Checkpoint:
        """A checkpoint of this application."""
        return Checkpoint(KIND, {**self._asdict(), **header}, pieces)

    def check(self, header: Mapping[str, Any], where: str) -> None:
        """Refuse a checkpoint of another application."""
        theirs = Owner(header["group"], header["topic"], tuple(header["detectors"]))
        if theirs[:2] == self[:2] and theirs != self:
            raise StateError(
                f"{where} holds the state of {self.group!r} with the detectors {list(theirs.detectors)}; the hierarchy "
                f"has {list(self.detectors)}. Run the hierarchy that wrote it, or start with another group."
            )
        if theirs != self:
            raise StateError(
                f"{where} holds the state of the application {theirs.group!r} on the topic {theirs.topic!r}; this is "
                f"{self.group!r} on {self.topic!r}. Nothing was changed. Give this application a state of its own."
            )


class CheckpointStore(Protocol):
    """Keeps the checkpoints of all partitions, and their logs of timeouts."""

    owner: Owner

    def load(self, partition: int, up_to: int | None) -> Resume | None:
        """The newest checkpoint of a partition whose offset is not behind ``up_to``, and the log of timeouts."""

    def messages(self, partition: int, checkpoint: Checkpoint) -> Iterator[Outgoing]:
        """What to write, in this order, not before the checkpoint's offset is committed; the last makes it valid."""

    def save(self, partition: int, checkpoint: Checkpoint) -> None:
        """Store a checkpoint whose offset is committed, where :meth:`messages` did not."""

    def log(self, partition: int, timeouts: Sequence[AppliedTimeouts]) -> list[Outgoing] | None:
        """The log of timeouts: what to write for it. None: it is too large, a checkpoint is needed instead."""


def _log_of(timeouts: Sequence[AppliedTimeouts]) -> Checkpoint:
    return Checkpoint(TIMEOUTS_KIND, {"applied": [tuple(one) for one in timeouts]})


def _timeouts_in(log: Checkpoint | None) -> list[AppliedTimeouts]:
    return [] if log is None else [AppliedTimeouts(*one) for one in log.header["applied"]]


class TopicCheckpoints:
    """Checkpoints in a compacted topic. ``largest`` is the size of its largest message."""

    def __init__(self, topic: str, owner: Owner, client: Mapping[str, Any], brokers: Brokers, largest: int) -> None:
        self.owner = owner
        self._topic = topic
        self._client = dict(client)
        self._brokers = brokers
        self._size = max(1, min(PART_BYTES, largest - OVERHEAD))
        self._place: dict[int, int] = {}  # of the last checkpoint that is complete

    def messages(self, partition: int, checkpoint: Checkpoint) -> Iterator[Outgoing]:
        place = 1 - self._place.get(partition, 0)
        count = size = crc = 0
        for part in _parts(checkpoint.frames(), self._size):
            size, crc = size + len(part), zlib.crc32(part, crc)
            yield self._message(partition, f"{place}/{count}", part)
            count += 1
        yield self._message(partition, f"{place}/all", json.dumps({"parts": count, "bytes": size, "crc": crc}).encode())
        self._place[partition] = place  # not before: an incomplete one is overwritten, not the complete one

    def save(self, partition: int, checkpoint: Checkpoint) -> None:
        """It is in the topic already."""

    def log(self, partition: int, timeouts: Sequence[AppliedTimeouts]) -> list[Outgoing] | None:
        value = b"".join(_log_of(timeouts).frames())
        return [self._message(partition, "timers", value)] if len(value) <= self._size else None

    def _message(self, partition: int, name: str, value: bytes) -> Outgoing:
        return Outgoing(self._topic, f"{partition}/{name}".encode(), value, [], partition)

    def load(self, partition: int, up_to: int | None) -> Resume | None:
        consumer = Consumer(self._brokers.config(self._client))
        try:
            place = TopicPartition(self._topic, partition)
            low, high = self._brokers.retry(
                "asking for checkpoints", lambda wait: consumer.get_watermark_offsets(place, timeout=wait)
            )
            tail = TAIL
            while True:
                start = max(low, high - tail)
                found = self.newest(self._read(consumer, partition, start, high), up_to)
                if found is not None or start == low:
                    return found
                tail *= 4
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, partition: int, start: int, stop: int) -> list[tuple[str, bytes]]:
        """The messages from an offset on, in order."""
        found: list[tuple[str, bytes]] = []
        consumer.assign([TopicPartition(self._topic, partition, start)])
        ended = start >= stop
        while not ended:
            for message in self._brokers.retry("reading checkpoints", lambda wait: consumer.consume(1000, 0.05)):
                error = message.error()
                if error is None:
                    found.append(((message.key() or b"").decode("utf-8", "replace"), message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF or self._brokers.stopped():
                    ended = True
        consumer.unassign()
        return found

    def newest(self, messages: Sequence[tuple[str, bytes]], up_to: int | None) -> Resume | None:
        """The newest checkpoint of which all parts are among these messages, and the log of timeouts."""
        where = f"the topic {self._topic!r}"
        parts: dict[str, bytes] = {}
        complete: list[tuple[int, int, bytes]] = []
        log: Checkpoint | None = None
        for key, value in messages:
            partition, _, name = key.partition("/")
            place, _, part = name.partition("/")
            if name == "timers":
                log = Checkpoint.of(TIMEOUTS_KIND, value, f"the log of timeouts in {where}")
            elif part != "all":
                parts[name] = value
            else:
                count, size, crc = self._manifest(value)
                data = b"".join(parts.get(f"{place}/{number}", b"") for number in range(count))
                if len(data) == size and zlib.crc32(data) == crc:
                    complete.append((int(partition), int(place), data))
        for number, at, data in reversed(complete):
            checkpoint = Checkpoint.of(KIND, data, f"a checkpoint in {where}")
            self.owner.check(checkpoint.header, where)
            if up_to is None or checkpoint.header["offset"] <= up_to:
                self._place[number] = at
                return Resume(checkpoint, _timeouts_in(log))
        return None

    def _manifest(self, value: bytes) -> tuple[int, int, int]:
        try:
            match json.loads(value):
                case {"parts": int(count), "bytes": int(size), "crc": int(crc)}:
                    return count, size, crc
        except ValueError:
            pass
        raise StateError(
            f"the topic {self._topic!r} holds something other than the checkpoints of an application. Give another "
            f"topic for the state."
        )


class FolderCheckpoints:
    """Two files per partition, written in turn: the older one is complete until the newer one is. The folder is shared
    by all processes of an application.

    A file is written after its offset was committed. If that fails, for example because the disk is full, the host
    continues with the checkpoint before: a restart reads more input again, and nothing is lost.
    """

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.owner = owner
        self._folder = folder
        #: Checkpoints that could not be written.
        self.failures = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder {str(folder)!r} for checkpoints cannot be created: {error}.") from error

    def messages(self, partition: int, checkpoint: Checkpoint) -> Iterator[Outgoing]:
        """None: files are no part of a transaction."""
        return iter(())

    def save(self, partition: int, checkpoint: Checkpoint) -> None:
        numbers = {place: found.header["number"] for place, found in self._files(partition).items()}
        newest = max(numbers.values(), default=0)
        store = self._store(partition, min((0, 1), key=lambda place: numbers.get(place, 0)))
        try:
            store.save(checkpoint.with_header(number=newest + 1))
        except SlacklineError as error:
            self.failures += 1
            logger.error(
                "partition %d: %s Continuing with the checkpoint before; free some space, or a restart reads the input "
                "again from there",
                partition, error,
            )  # fmt: skip

    def log(self, partition: int, timeouts: Sequence[AppliedTimeouts]) -> list[Outgoing] | None:
        try:
            self._store(partition, "timers", TIMEOUTS_KIND).save(_log_of(timeouts))
        except SlacklineError as error:
            logger.error("partition %d: %s", partition, error)
            return None
        return []

    def load(self, partition: int, up_to: int | None) -> Resume | None:
        found = [one for one in self._files(partition).values() if up_to is None or one.header["offset"] <= up_to]
        if not found:
            return None
        log = self._store(partition, "timers", TIMEOUTS_KIND).load()
        return Resume(max(found, key=lambda one: int(one.header["number"])), _timeouts_in(log))

    def _store(self, partition: int, name: object, kind: str = KIND) -> FolderCheckpointStore:
        return FolderCheckpointStore(self._folder, kind, f"{partition}-{name}.checkpoint")

    def _files(self, partition: int) -> dict[int, Checkpoint]:
        """The checkpoints by place, without damaged ones."""
        found: dict[int, Checkpoint] = {}
        for place in (0, 1):
            try:
                checkpoint = self._store(partition, place).load()
            except StateError as error:
                logger.warning("partition %d: %s Continuing without it", partition, error)
                continue
            if checkpoint is not None:
                self.owner.check(checkpoint.header, f"the folder {str(self._folder)!r}")
                found[place] = checkpoint
        return found


def _parts(data: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes, so many at a time."""
    held = bytearray()
    for piece in data:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
