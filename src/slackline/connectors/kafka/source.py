"""A topic as the source of a worker: all its partitions, without a consumer group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from slackline.connectors.kafka.address import KafkaAddress, client_properties
from slackline.connectors.kafka.brokers import Brokers, StoppedError
from slackline.connectors.kafka.decoding import MessageBatch, MessageReader
from slackline.connectors.kafka.errors import AWAY
from slackline.connectors.kafka.messages import Message
from slackline.connectors.kafka.settings import STARTS, connection, reader
from slackline.connectors.kafka.topics import Topics
from slackline.core import check
from slackline.core.errors import StateError
from slackline.runtime.options import RunOptions
from slackline.runtime.schema import RecordSchema
from slackline.runtime.source import Records, Source, SourceError

#: Records of one batch, at most: the worker processes so many as a whole, and so its checkpoints are between batches.
ROWS = 4_096
#: Seconds to wait for messages.
WAIT = 0.1


class KafkaSource(Source):
    """Reads all partitions of a topic, each in order; between partitions there is none.

    ``address``  ``kafka://HOST:PORT/TOPIC``; the topic must exist. Partitions that are added later are not read.
    ``schema``   the format of the messages; where its key is ``key`` and records have no such field, the message's own
                 key is used.
    ``start``    where to begin without a position: ``"earliest"`` or ``"latest"``.
    ``client``   properties of librdkafka.
    ``name``     the topic unless given.

    The position is the next offset of each partition; inside a message of many rows, the offset and the next row.
    """

    live, bounded = True, False

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
        self._reader = MessageReader(schema)
        self._tables = schema.format == "arrow"
        self._client = connection(self._address, "slackline", client or {})
        self._position: dict[str, int | list[int]] = {}
        self._closed = threading.Event()
        self._brokers = Brokers(self._address.brokers, self._closed.is_set)

    @classmethod
    def of(cls, address: str, options: RunOptions) -> KafkaSource:
        """The source by the options of the command line."""
        client = {} if options.kafka_config is None else client_properties(options.kafka_config)
        return cls(address, schema=options.schema, start=options.start, client=client)

    def describe(self) -> str:
        return f"topic of Kafka at {self._address.brokers}"

    def position(self) -> dict[str, int | list[int]]:
        return dict(self._position)

    def seek(self, position: Any) -> None:
        self._position = dict(position)

    async def close(self) -> None:
        self._closed.set()

    async def batches(self) -> AsyncIterator[Records]:
        consumer = Consumer(self._brokers.config(reader(self._client, f"slackline-{self.name}")))
        try:
            await asyncio.to_thread(self._assign, consumer)
            while not self._closed.is_set():
                for number, messages in (await asyncio.to_thread(self._read, consumer)).items():
                    # A table may have more rows than a batch: the position is then inside its message.
                    for part in [[message] for message in messages] if self._tables else [messages]:
                        for batch in self._reader.read(part, f"{self._address.topic}/{number}"):
                            for records in self._cut(str(number), batch):
                                yield records
        except StoppedError:
            return
        finally:
            await asyncio.to_thread(consumer.close)

    def _assign(self, consumer: Consumer) -> None:
        topic = self._address.topic
        (partitions,) = Topics(self._client, self._brokers).require(topic)
        places = []
        for number in range(partitions):
            place = TopicPartition(topic, number)
            low, high = self._brokers.retry(
                f"asking for the bounds of {topic!r}",
                lambda wait, place=place: consumer.get_watermark_offsets(place, timeout=wait),  # type: ignore[misc]
            )
            at = self._position.setdefault(str(number), low if self._start == "earliest" else high)
            offset = at if isinstance(at, int) else at[0]
            if not low <= offset <= high:
                raise self._gone(number, offset)
            places.append(TopicPartition(topic, number, offset))
        consumer.assign(places)

    def _read(self, consumer: Consumer) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {}
        for message in consumer.consume(ROWS, WAIT):
            error, number, offset = message.error(), message.partition(), message.offset()
            if error is None:
                assert number is not None and offset is not None
                found.setdefault(number, []).append(Message(offset, message.key(), message.value()))
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise self._gone(number, self._position.get(str(number)))
            elif error.code() in AWAY:
                self._brokers.lost(error.str())
            elif error.fatal() or not error.retriable():
                raise SourceError(f"reading {self._address}: {error.str()}.")
        if found:
            self._brokers.found()
        return found

    def _gone(self, number: object, offset: object) -> StateError:
        return StateError(
            f"the topic {self._address.topic!r} no longer has offset {offset} of partition {number}, from which the "
            f"input must be read: its retention is too short, or it was created anew. Start anew with --fresh."
        )

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
