"""Snapshots: what the engines of a partition were when the input had been read up to an offset.

A snapshot is no log of changes: the input is. Whoever takes a partition over loads its newest snapshot, reads the input
from there up to the offset that was committed, and throws away what comes out, since it is written already; engines
that get the same arrivals are the same (laws 3 and 6). So a commit costs nothing but a commit, and snapshots may be
seldom.

The state of a snapshot is bytes in pieces, one for each engine and one for what is of none, each with its length in
front: so it can be made, and written, a little at a time.

In a compacted topic a snapshot is cut into parts that fit a record, and a last record says how many they are. Two
places are used in turn, so that the older one is whole until the newer one is. The parts of a partition's snapshots lie
in the partition of the same number.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition

from slackline.connectors.kafka.brokers import Brokers
from slackline.connectors.kafka.records import Record
from slackline.core import codec
from slackline.core.errors import StateError

#: Bytes of a part; less if the topic's records must be smaller.
PART_BYTES = 512 * 1024
#: A record is so much larger than its value, about: key, headers, batch.
OVERHEAD = 1024
#: Records that are looked at first, from the end; then twice as many, until there is a snapshot.
TAIL = 64
#: Bytes that hold the length of a piece.
LENGTH = 8

STATE_KIND, STATE_VERSION = "kafka partition", 2


class PartitionSnapshot(NamedTuple):
    """The state of a partition's engines after all records before ``offset``; None: engines that saw nothing.

    The state is bytes that are to be read one after the other, wherever they are cut.
    """

    offset: int
    state: Sequence[bytes] | None

    @property
    def size(self) -> int:
        """The bytes of the state."""
        return sum(map(len, self.state or ()))

    def parts(self) -> tuple[list[bytes], dict[Any, int]] | None:
        """The engines, as their sites have saved them, and the changes; None where nothing was seen."""
        if self.state is None:
            return None
        changes, *sites = _unframed(b"".join(self.state))
        match codec.load(STATE_KIND, STATE_VERSION, changes):
            case {"changes": dict(counts)}:
                return sites, counts
        raise StateError("the snapshot of a partition does not fit this release; start anew with another group.")


def changes_as_bytes(changes: dict[Any, int]) -> bytes:
    """The first piece of a state: how many changes there were of each key. The others are those of the sites."""
    return codec.dump(STATE_KIND, STATE_VERSION, {"changes": changes})


def framed(piece: bytes) -> bytes:
    """A piece of a state with its length."""
    return len(piece).to_bytes(LENGTH) + piece


def _unframed(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        stop = at + LENGTH + int.from_bytes(data[at : at + LENGTH])
        yield data[at + LENGTH : stop]
        at = stop


class Owner(NamedTuple):
    """Whose snapshots they are."""

    group: str
    topic: str
    detectors: tuple[str, ...]

    def check(self, told: dict[str, Any], where: str) -> None:
        """Refuse a snapshot of somebody else."""
        detectors = told.get("detectors")
        named = tuple(map(str, detectors)) if isinstance(detectors, list) else ()
        theirs = Owner(str(told.get("group")), str(told.get("topic")), named)
        if theirs[:2] == self[:2] and theirs != self:
            raise StateError(
                f"{where} holds the state of {self.group!r} with the detectors {list(theirs.detectors)}, and the "
                f"hierarchy given has {list(self.detectors)}. Run it with the hierarchy that it had, or start anew "
                f"with another group."
            )
        if theirs != self:
            raise StateError(
                f"{where} holds the state of the application {theirs.group!r} on the topic {theirs.topic!r}, and this "
                f"is {self.group!r} on {self.topic!r}. Nothing was changed. Give this application a state of its own."
            )


class Snapshots(Protocol):
    """Where snapshots are kept."""

    def newest(self, partition: int, up_to: int | None) -> PartitionSnapshot | None:
        """The newest snapshot of a partition that is not after an offset, if one is given."""

    def records(self, partition: int, snapshot: PartitionSnapshot) -> Iterator[Record]:
        """What to write, in this order, not before the snapshot's offset is; the last one makes it valid."""

    def keep(self, partition: int, snapshot: PartitionSnapshot) -> None:
        """Keep a snapshot whose offset is committed, where :meth:`records` did not."""


class TopicSnapshots:
    """Snapshots in a compacted topic."""

    def __init__(self, topic: str, owner: Owner, look: dict[str, Any], brokers: Brokers, largest: int) -> None:
        self._topic = topic
        self._owner = owner
        self._look = look
        self._brokers = brokers
        self._size = max(1, min(PART_BYTES, largest - OVERHEAD))
        self._place: dict[int, int] = {}  # of the last snapshot that is whole

    def records(self, partition: int, snapshot: PartitionSnapshot) -> Iterator[Record]:
        place = 1 - self._place.get(partition, 0)
        count = crc = 0
        for part in _parts(snapshot.state or (), self._size):
            crc = zlib.crc32(part, crc)
            yield self._record(partition, f"{place}/{count}", part)
            count += 1
        told = {**self._owner._asdict(), "offset": snapshot.offset, "parts": count, "place": place}
        told |= {"bytes": snapshot.size, "crc": crc, "empty": snapshot.state is None}
        yield self._record(partition, f"{place}/all", json.dumps(told).encode())
        self._place[partition] = place  # not before: one that has no end is written over, not the one that has

    def _record(self, partition: int, name: str, value: bytes) -> Record:
        return Record(self._topic, f"{partition}/{name}".encode(), value, [], partition)

    def keep(self, partition: int, snapshot: PartitionSnapshot) -> None:
        """They are written already."""

    def newest(self, partition: int, up_to: int | None) -> PartitionSnapshot | None:
        consumer = Consumer(self._brokers.config(self._look))
        try:
            place = TopicPartition(self._topic, partition)
            low, high = self._brokers.patiently(
                "asking for snapshots", lambda wait: consumer.get_watermark_offsets(place, timeout=wait)
            )
            tail = TAIL
            while True:
                start = max(low, high - tail)
                found = self._complete(self._read(consumer, partition, start, high), up_to)
                if found is not None or start == low:
                    return found
                tail *= 4
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, partition: int, start: int, stop: int) -> list[tuple[str, bytes]]:
        """The records from an offset on, in order."""
        found: list[tuple[str, bytes]] = []
        consumer.assign([TopicPartition(self._topic, partition, start)])
        ended = start >= stop
        while not ended:
            for message in self._brokers.patiently("reading snapshots", lambda wait: consumer.consume(1000, 0.05)):
                error = message.error()
                if error is None:
                    found.append(((message.key() or b"").decode("utf-8", "replace"), message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF or self._brokers.stopped():
                    ended = True
        consumer.unassign()
        return found

    def _complete(self, records: Sequence[tuple[str, bytes]], up_to: int | None) -> PartitionSnapshot | None:
        """The newest snapshot of which all parts are there."""
        parts: dict[str, bytes] = {}
        best: PartitionSnapshot | None = None
        for key, value in records:
            partition, _, name = key.partition("/")
            place, _, part = name.partition("/")
            if part != "all":
                parts[name] = value
                continue
            told = self._told(value)
            data = b"".join(parts.get(f"{place}/{nr}", b"") for nr in range(told["parts"]))
            whole = len(data) == told["bytes"] and zlib.crc32(data) == told["crc"]
            if whole and (up_to is None or told["offset"] <= up_to):
                self._place[int(partition)] = int(place)
                best = PartitionSnapshot(told["offset"], None if told["empty"] else (data,))
        return best

    def _told(self, value: bytes) -> dict[str, Any]:
        try:
            told = json.loads(value)
        except ValueError:
            told = None
        if not isinstance(told, dict) or not {"offset", "parts", "bytes", "crc", "empty"} <= set(told):
            raise StateError(
                f"the topic {self._topic!r} holds something else than the states of an application. Give another topic."
            )
        self._owner.check(told, f"the topic {self._topic!r}")
        return told


def _parts(state: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes, so many at a time."""
    held = bytearray()
    for piece in state:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
