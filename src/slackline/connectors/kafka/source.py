"""Reading topics: a consumer that waits for brokers and skips nothing, and a topic as the source of a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as _Message

from slackline.connectors.kafka.brokers import REBALANCED, UNAVAILABLE, BrokerError, Brokers, FencedError, StoppedError
from slackline.connectors.kafka.formats import Message, MessageBatch, MessageReader
from slackline.connectors.kafka.settings import STARTS, KafkaAddress, client_properties
from slackline.core import check
from slackline.core.errors import StateError
from slackline.runtime.options import RunOptions
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import Records, Source, SourceError

#: Records of one batch, at most: the worker processes so many as a whole, and so its checkpoints are between batches.
ROWS = 4_096
#: Messages that are taken from the client at once, at most.
SOME = 500
#: Seconds to wait for messages.
WAIT = 0.1


class TopicConsumer:
    """A consumer of one topic.

    ``config``  as :meth:`Brokers.consumer` returns it.
    ``remedy``  what to do where messages are gone that must be read.
    """

    def __init__(self, topic: str, config: dict[str, Any], brokers: Brokers, remedy: str) -> None:
        self.topic = topic
        self.client = Consumer(config)
        #: By partition: the offset before which all was read.
        self.positions: dict[int, int] = {}
        #: Partitions that were read to their end, if the consumer is to report it.
        self.at_end: set[int] = set()
        self._found: dict[int, list[Message]] = {}  # by the read that is under way
        self._brokers = brokers
        self._remedy = remedy

    def bounds(self, number: int) -> tuple[int, int]:
        """The first offset of a partition, and the one behind its last message."""
        place = TopicPartition(self.topic, number)
        found: tuple[int, int] = self._brokers.retry(
            f"looking up the end of {self.topic!r}", lambda wait: self.client.get_watermark_offsets(place, timeout=wait)
        )
        return found

    def places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        """Partitions to be read from these offsets, for an assignment."""
        self.positions.update(offsets)
        self.at_end -= offsets.keys()
        for number in offsets:  # a rebalance while messages are read: these are read again
            self._found.pop(number, None)
        return [TopicPartition(self.topic, number, offset) for number, offset in offsets.items()]

    def read(self, most: int, wait: float) -> dict[int, list[Message]]:
        """The next messages by partition, as many as have been fetched. Waits for the first."""
        found = self._found = {}
        for taken in self._taken(most, wait):
            failed = [message for message in taken if message.error() is not None]
            for message in failed:
                self._on_error(message)
            good = [message for message in taken if message.error() is None] if failed else taken
            for number, run in groupby(good, _Message.partition):
                assert number is not None
                each = list(run)
                parts = (map(part, each) for part in (_Message.offset, _Message.key, _Message.value))
                found.setdefault(number, []).extend(map(Message, *parts))
        for number, messages in found.items():
            if messages[-1].offset >= self.positions.get(number, 0):  # otherwise its end followed
                self.positions[number] = messages[-1].offset + 1
                self.at_end.discard(number)
        if found:
            self._brokers.found()
        return found

    def _taken(self, most: int, wait: float) -> Iterator[list[Any]]:
        """The client's messages, some at a time: unlike ours, the garbage collector tracks them."""
        first = self.client.poll(wait)
        while first is not None:
            taken = [first, *self.client.consume(min(most, SOME) - 1, 0)]
            yield taken
            most -= len(taken)
            first = self.client.poll(0) if len(taken) == SOME and most > 0 else None

    def _on_error(self, message: Any) -> None:
        error, number = message.error(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self.positions[number] = message.offset()
            self.at_end.add(number)
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self.gone(number, self.positions.get(number or 0))
        if error.code() in UNAVAILABLE:
            self._brokers.lost(error.str())
        elif error.code() in REBALANCED or error.code() == KafkaError._MAX_POLL_EXCEEDED:
            raise FencedError(f"the group has removed this process: {error.str()}.")
        elif error.fatal() or not error.retriable():
            raise BrokerError(f"reading {self.topic!r} at {self._brokers.address}: {error.str()}.")

    def gone(self, number: int | None, offset: int | None) -> StateError:
        """Messages are gone that must be read."""
        return StateError(
            f"the topic {self.topic!r} no longer has offset {offset} of partition {number}, from which the input must "
            f"be read: its retention is shorter than the time since the last checkpoint, or it was created anew. "
            f"{self._remedy}"
        )


class KafkaSource(Source):
    """Reads all partitions of a topic, or a share of them, each in order; between partitions there is none.

    ``address``  ``kafka://HOST:PORT/TOPIC``; the topic must exist. Partitions that are added later are not read.
    ``schema``   the format of the messages; where its key is ``key`` and records have no such field, the message's own
                 key is used.
    ``start``    where to begin without a position: ``"earliest"`` or ``"latest"``.
    ``client``   properties of librdkafka.
    ``name``     the topic unless given.

    The position is the next offset of each partition; inside a message of many rows, the offset and the next row.
    """

    live, bounded, partitioned = True, False, True

    def __init__(
        self,
        address: str | KafkaAddress,
        *,
        schema: RecordSchema | None = None,
        start: str = "earliest",
        client: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        check.one_of("start", start, STARTS)
        self._address = KafkaAddress.of(address)
        self.name = name or self._address.topic
        self._start = start
        schema = schema or RecordSchema()
        self._reader = MessageReader.of(schema)
        self._tables = schema.format == "arrow"
        self._position: dict[str, int | list[int]] = {}
        self._part, self._parts = 0, 1
        self._closed = threading.Event()
        self._brokers = Brokers(self._address.brokers, "slackline", client, self._closed.is_set)

    @classmethod
    def of(cls, address: str, options: RunOptions) -> KafkaSource:
        """The source by the options of the command line."""
        client = client_properties(options.kafka_config)
        return cls(address, schema=options.schema, start=options.start, client=client)

    def describe(self) -> str:
        return f"topic of Kafka at {self._address.brokers}"

    def take_part(self, part: int, parts: int) -> None:
        self._part, self._parts = part, parts

    def position(self) -> dict[str, int | list[int]]:
        return dict(self._position)

    def seek(self, position: Any) -> None:
        others = [number for number in position if int(number) % self._parts != self._part]
        if others:
            raise StateError(
                f"the checkpoint has positions in the partitions {', '.join(others)} of {self._address.topic!r}, which "
                f"part {self._part} of {self._parts} does not have. Give the parts as they were, or start anew."
            )
        self._position = dict(position)

    async def close(self) -> None:
        self._closed.set()

    async def batches(self) -> AsyncIterator[Records]:
        config = self._brokers.consumer(f"slackline-{self.name}")
        consumer = TopicConsumer(self._address.topic, config, self._brokers, "Start anew with --fresh.")
        try:
            await asyncio.to_thread(self._assign, consumer)
            while not self._closed.is_set():
                for number, messages in (await asyncio.to_thread(consumer.read, ROWS, WAIT)).items():
                    # A table may have more rows than a batch: the position is then inside its message.
                    for part in [[message] for message in messages] if self._tables else [messages]:
                        for batch in self._reader.read(part, f"{self._address.topic}/{number}"):
                            for records in self._cut(str(number), batch):
                                yield records
        except StoppedError:
            return
        except BrokerError as error:
            raise SourceError(str(error)) from error
        finally:
            await asyncio.to_thread(consumer.client.close)

    def _assign(self, consumer: TopicConsumer) -> None:
        (partitions,) = self._brokers.require_topics(consumer.topic)
        if partitions < self._parts:
            raise BrokerError(
                f"the topic {consumer.topic!r} has {partitions} partitions, too few to be read in {self._parts} parts."
            )
        offsets = {}
        for number in range(self._part, partitions, self._parts):
            low, high = consumer.bounds(number)
            at = self._position.setdefault(str(number), low if self._start == "earliest" else high)
            offsets[number] = at if isinstance(at, int) else at[0]
            if not low <= offsets[number] <= high:
                raise consumer.gone(number, offsets[number])
        consumer.client.assign(consumer.places(offsets))

    def _cut(self, number: str, batch: MessageBatch) -> Iterator[Records]:
        """The records of a batch, not too many at a time; the position is behind them."""
        records, offset = batch.records, batch.messages[-1].offset
        at = self._position[number]
        row = at[1] if isinstance(at, list) and at[0] == offset else 0
        while row < len(records):
            part = records[row : row + ROWS]
            row += ROWS
            self._position[number] = offset + 1 if row >= len(records) else [offset, row]
            yield part
