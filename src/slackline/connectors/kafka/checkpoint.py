"""Checkpoints of partitions: the engines after all messages before an offset.

The input topic is the changelog: the owner of a partition loads its newest checkpoint and replays the input from there
up to the committed offset. So a commit writes no state, and checkpoints can be rare.

The two newest checkpoints of a partition are stored, in two slots that are written in turn, so that one is complete at
any moment. Beside them is the log of timeouts, a single entry that is replaced as a whole.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slackline.connectors.kafka.brokers import Brokers
from slackline.connectors.kafka.sink import OutputMessage
from slackline.connectors.kafka.source import TopicConsumer
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.runtime.checkpoint import Checkpoint, FolderCheckpointStore

#: Bytes of a chunk; less if the topic's messages must be smaller.
CHUNK_BYTES = 512 * 1024
#: A message is so much larger than its value, about: key, headers, batch.
OVERHEAD = 1024
#: Messages that are read first, from the end; then four times as many, until there is a complete checkpoint.
TAIL = 64

KIND, TIMEOUTS_KIND = "kafka partition", "kafka timeouts"

logger = logging.getLogger("slackline.kafka")


class AppliedTimeouts(NamedTuple):
    """Timeouts that were applied together, at an offset; ``due`` is as :meth:`KeyedEngines.due` returns it.

    ``number`` counts the applications of a partition: a checkpoint has how many it contains.
    """

    number: int
    offset: int
    due: Sequence[tuple[str, Any]]


class Resume(NamedTuple):
    """Where a partition resumes: from a checkpoint, and timeouts that were applied since, or before."""

    checkpoint: Checkpoint
    timeouts: Sequence[AppliedTimeouts] = ()

    @property
    def offset(self) -> int:
        """The first offset that the checkpoint does not contain."""
        return int(self.checkpoint.header["offset"])


class Owner(NamedTuple):
    """The application that checkpoints belong to; part of their headers."""

    group: str
    topic: str
    detectors: tuple[str, ...]

    def first(self, offset: int, schema: Mapping[str, Any]) -> Checkpoint:
        """The initial checkpoint of a partition: no engines, and the offset at which reading starts."""
        header = {"offset": offset, "schema": schema, "timeouts": 0, "incarnation": 0, "engines": None}
        return self.checkpoint(header, [])

    def checkpoint(self, header: Mapping[str, Any], pieces: Iterable[bytes]) -> Checkpoint:
        """A checkpoint of this application."""
        return Checkpoint(KIND, {**self._asdict(), **header}, pieces)

    def check(self, header: Mapping[str, Any], where: str) -> None:
        """Raise StateError if a checkpoint is of another application."""
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


class CheckpointStore(ABC):
    """Stores the checkpoints of all partitions of an application, and their logs of timeouts."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    @abstractmethod
    def load(self, partition: int, up_to: int | None) -> Resume | None:
        """The newest checkpoint of a partition whose offset is at most ``up_to``, and the log of timeouts."""

    def messages(self, partition: int, checkpoint: Checkpoint) -> Iterator[OutputMessage]:
        """The messages to write, in this order and not before the checkpoint's offset is committed; the last one makes
        the checkpoint valid.
        """
        return iter(())

    def save(self, partition: int, checkpoint: Checkpoint) -> None:  # noqa: B027 - messages have stored it
        """Store a checkpoint whose offset is committed, where :meth:`messages` did not."""

    @abstractmethod
    def log(self, partition: int, timeouts: Sequence[AppliedTimeouts]) -> list[OutputMessage] | None:
        """The messages that replace the log of timeouts. None: it is too large, a checkpoint is needed instead."""


def _log_of(timeouts: Sequence[AppliedTimeouts]) -> Checkpoint:
    return Checkpoint(TIMEOUTS_KIND, {"applied": [tuple(one) for one in timeouts]})


def _timeouts_in(log: Checkpoint | None) -> list[AppliedTimeouts]:
    return [] if log is None else [AppliedTimeouts(*one) for one in log.header["applied"]]


class TopicStore(CheckpointStore):
    """Checkpoints in a compacted topic, those of a partition in the partition of the same number.

    The bytes of a checkpoint are cut into chunks that fit a message; a last message has their number and checksum.

    ``largest``  the size of the largest message of the topic.
    """

    def __init__(self, topic: str, owner: Owner, brokers: Brokers, largest: int) -> None:
        super().__init__(owner)
        self._topic = topic
        self._brokers = brokers
        self._size = max(1, min(CHUNK_BYTES, largest - OVERHEAD))
        self._slot: dict[int, int] = {}  # of the last checkpoint that is complete

    def messages(self, partition: int, checkpoint: Checkpoint) -> Iterator[OutputMessage]:
        slot = 1 - self._slot.get(partition, 0)
        count = size = crc = 0
        for chunk in _chunks(checkpoint.frames(), self._size):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            yield self._message(partition, f"{slot}/{count}", chunk)
            count += 1
        yield self._message(partition, f"{slot}/all", json.dumps({"parts": count, "bytes": size, "crc": crc}).encode())
        self._slot[partition] = slot  # not before: an incomplete one is overwritten, not the complete one

    def log(self, partition: int, timeouts: Sequence[AppliedTimeouts]) -> list[OutputMessage] | None:
        value = b"".join(_log_of(timeouts).frames())
        return [self._message(partition, "timers", value)] if len(value) <= self._size else None

    def _message(self, partition: int, name: str, value: bytes) -> OutputMessage:
        return OutputMessage(self._topic, f"{partition}/{name}".encode(), value, [], partition)

    def load(self, partition: int, up_to: int | None) -> Resume | None:
        more = {"auto.offset.reset": "earliest", "enable.partition.eof": True}
        config = self._brokers.consumer(f"{self.owner.group}-look", more)
        consumer = TopicConsumer(self._topic, config, self._brokers, "")
        try:
            low, high = consumer.bounds(partition)
            tail = TAIL
            while True:
                start = max(low, high - tail)
                found = self.newest(self._read(consumer, partition, start, high), up_to)
                if found is not None or start == low:
                    return found
                tail *= 4
        finally:
            consumer.client.close()

    def _read(self, consumer: TopicConsumer, partition: int, start: int, stop: int) -> list[tuple[str, bytes]]:
        """The messages from an offset on, in order."""
        found: list[tuple[str, bytes]] = []
        if start >= stop:
            return found
        consumer.client.assign(consumer.places({partition: start}))
        while partition not in consumer.at_end and not self._brokers.stopped():
            for message in consumer.read(1000, 0.05).get(partition, ()):
                found.append(((message.key or b"").decode("utf-8", "replace"), message.value or b""))
        consumer.client.unassign()
        return found

    def newest(self, messages: Sequence[tuple[str, bytes]], up_to: int | None) -> Resume | None:
        """The newest checkpoint of which all chunks are among these messages, and the log of timeouts."""
        where = f"the topic {self._topic!r}"
        chunks: dict[str, bytes] = {}
        complete: list[tuple[int, int, bytes]] = []
        log: Checkpoint | None = None
        for key, value in messages:
            partition, _, name = key.partition("/")
            slot, _, chunk = name.partition("/")
            if name == "timers":
                log = Checkpoint.of(TIMEOUTS_KIND, value, f"the log of timeouts in {where}")
            elif chunk != "all":
                chunks[name] = value
            else:
                count, size, crc = self._manifest(value)
                data = b"".join(chunks.get(f"{slot}/{number}", b"") for number in range(count))
                if len(data) == size and zlib.crc32(data) == crc:
                    complete.append((int(partition), int(slot), data))
        for number, at, data in reversed(complete):
            checkpoint = Checkpoint.of(KIND, data, f"a checkpoint in {where}")
            self.owner.check(checkpoint.header, where)
            if up_to is None or checkpoint.header["offset"] <= up_to:
                self._slot[number] = at
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


class FolderStore(CheckpointStore):
    """Two files per partition, in a folder that is shared by all processes of an application.

    A file is written after its offset was committed. If that fails, for example because the disk is full, the host
    continues with the previous checkpoint: a restart reads more input again, and nothing is lost.
    """

    def __init__(self, folder: Path, owner: Owner) -> None:
        super().__init__(owner)
        self._folder = folder
        self._numbers: dict[int, int] = {}  # of the last checkpoint of each partition; they count on
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder {str(folder)!r} for checkpoints cannot be created: {error}.") from error

    def save(self, partition: int, checkpoint: Checkpoint) -> None:
        number = self._numbers.get(partition, 0) + 1
        try:
            self._file(partition, number % 2).save(checkpoint.with_header(number=number))
            self._numbers[partition] = number
        except SlacklineError as error:
            logger.error(
                "partition %d: %s Continuing; a restart would resume from the previous checkpoint. Free some space",
                partition, error,
            )  # fmt: skip

    def log(self, partition: int, timeouts: Sequence[AppliedTimeouts]) -> list[OutputMessage] | None:
        try:
            self._file(partition, "timers", TIMEOUTS_KIND).save(_log_of(timeouts))
        except SlacklineError as error:
            logger.error("partition %d: %s", partition, error)
            return None
        return []

    def load(self, partition: int, up_to: int | None) -> Resume | None:
        found: dict[int, Checkpoint] = {}
        for slot in (0, 1):
            try:
                checkpoint = self._file(partition, slot).load()
            except StateError as error:
                logger.warning("partition %d: a checkpoint cannot be read and is ignored: %s", partition, error)
                continue
            if checkpoint is not None:
                self.owner.check(checkpoint.header, f"the folder {str(self._folder)!r}")
                found[checkpoint.header["number"]] = checkpoint
        self._numbers[partition] = max(found, default=0)
        numbers = [number for number, one in found.items() if up_to is None or one.header["offset"] <= up_to]
        if not numbers:
            return None
        log = self._file(partition, "timers", TIMEOUTS_KIND).load()
        return Resume(found[max(numbers)], _timeouts_in(log))

    def _file(self, partition: int, name: object, kind: str = KIND) -> FolderCheckpointStore:
        return FolderCheckpointStore(self._folder, kind, f"{partition}-{name}.checkpoint")


def _chunks(data: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes, so many at a time."""
    buffer = bytearray()
    for piece in data:
        buffer += piece
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


class PendingCheckpoint:
    """A checkpoint that is not complete: saved engine by engine, then written message by message, while input is
    processed.

    With many keys, saving and writing take seconds, which would delay results; so both are incremental. The checkpoint
    has the state at its start, whatever is processed meanwhile
    (:meth:`slackline.runtime.keyed.KeyedEngines.snapshot`); it supersedes any that was started before. Writing starts
    when all engines are saved; an incomplete checkpoint is ignored on load.

    ``snapshot``  as :meth:`InputPartition.snapshot` returns it.
    """

    def __init__(
        self, partition: int, store: CheckpointStore, snapshot: tuple[Mapping[str, Any], Iterator[bytes]]
    ) -> None:
        #: When it was started, in seconds of :func:`time.monotonic`.
        self.at = time.monotonic()
        #: Seconds until all engines were saved.
        self.took = 0.0
        #: The checkpoint, once all engines are saved.
        self.checkpoint: Checkpoint | None = None
        #: Bytes of the engines that are saved.
        self.size = 0
        self._partition = partition
        self._store = store
        self._header, self._left = snapshot
        self._pieces: list[bytes] = []
        self._messages: Iterator[OutputMessage] = iter(())
        self._next: OutputMessage | None = None  # the first that was not returned yet

    @property
    def is_written(self) -> bool:
        """Whether all of its messages were returned."""
        return self.checkpoint is not None and self._next is None

    def save(self, seconds: float) -> None:
        """Save engines for so long, but one at least, if any are left."""
        if self.checkpoint is not None:
            return
        start = time.monotonic()
        for piece in self._left:
            self._pieces.append(piece)
            self.size += len(piece)
            if time.monotonic() - start >= seconds:
                break
        else:
            self.checkpoint = self._store.owner.checkpoint(self._header, self._pieces)
            self._messages = self._store.messages(self._partition, self.checkpoint)
            self._next = next(self._messages, None)
            self.took = time.monotonic() - self.at

    def messages(self, most: float) -> list[OutputMessage]:
        """The next messages to write, once all is saved."""
        taken: list[OutputMessage] = []
        while self._next is not None and len(taken) < most:
            taken.append(self._next)
            self._next = next(self._messages, None)
        return taken
