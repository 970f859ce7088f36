"""Kafka as the bus of a node: a topic per type, with one partition, from which nothing that was sent is removed.

**Writing.** Whatever publishes a type (a detector, or the ingress of a sensor type) has a producer of its own, with its
name as the transactional id. The node that begins to publish takes the id: the broker then fences the former owner,
so that nothing of it comes after what the new one writes. Transactions are for that alone. Subscribers read records
before they are committed, so a hop costs no more than the broker does. What a crash takes back is written again, by
restored detectors, with the same events at the same offsets, and dropped by offset.

**Reading.** The offset of an event is the protocol's, not Kafka's. A read starts some records before the end of the
topic, and further back until it finds the offset: consecutive records never leave out offsets.

Two threads do the work, one for each. Their results are taken by the host's own thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from slackline.cluster.interface import Append
from slackline.cluster.protocol.messages import MAX_BYTES, ProtocolError, decode_record
from slackline.connectors.kafka.brokers import (
    BATCH,
    FENCED,
    UNAVAILABLE,
    BrokerError,
    Brokers,
    FencedError,
    StoppedError,
    error_of,
)
from slackline.connectors.kafka.settings import KafkaAddress, check_topic
from slackline.core.errors import ConfigError, SlacklineError

#: What matters of librdkafka's log is raised; that a former producer is fenced is no error.
_librdkafka = logging.getLogger("slackline.kafka.librdkafka.bus")
_librdkafka.setLevel(logging.CRITICAL + 1)

#: Records before the end of a topic at which a read starts; then so many times as many.
TAIL, FURTHER = 64, 8
#: Seconds that the reader waits for records, between looks for other work; and messages that it takes at once.
WAIT, SOME = 0.005, 500
#: Seconds after which a transaction is committed, and after which the broker aborts one that is not: no outage of the
#: broker may last longer.
COMMIT_EVERY, TRANSACTION_TIMEOUT = 60.0, 600.0


class Read(NamedTuple):
    """A record that was read, by the number of the request to read its topic."""

    type: str
    request: int
    record: bytes


@dataclass(slots=True)
class _Reader:
    """A topic that is read: from which offset of the protocol on, from which message (0: the newest, and 0)."""

    type: str
    request: int
    #: The offset to be found; None: it was.
    wanted: int | None
    low: int
    at: int
    back: int = TAIL


@dataclass(slots=True)
class _Writer:
    """The producer of one publisher, in one epoch."""

    producer: Producer
    epoch: tuple[int, int]
    types: set[str]
    begun_at: float | None = None
    unconfirmed: int = 0


class KafkaBus:
    """The logs of a node's types, at a broker.

    ``address``    ``kafka://HOST:PORT/PREFIX``: the topics are ``PREFIX.TYPE``, of a part ``PREFIX.TYPE.PART``, and
                   are created.
    ``types``      the types that nodes read; ``publisher``: the detectors that publish some of them.
    ``client``     properties of librdkafka.
    """

    def __init__(
        self,
        address: KafkaAddress,
        types: Iterable[str],
        publisher: Mapping[str, str],
        client: Mapping[str, str] | None,
    ) -> None:
        self._prefix = address.topic
        self._topics = {kind: check_topic(f"{address.topic}.{kind.replace('/', '.')}") for kind in types}
        self._types = {topic: kind for kind, topic in self._topics.items()}
        if len(self._types) < len(self._topics):
            raise ConfigError(f"two of the types {sorted(self._topics)} would have the same topic; rename one.")
        self._publisher = publisher
        self._closed = threading.Event()
        self._brokers = Brokers(address.brokers, "slackline-bus", client, self._closed.is_set)
        self._wake: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._appends: queue.SimpleQueue[list[Append] | None] = queue.SimpleQueue()
        self._requests: deque[tuple[str, int, int | None]] = deque()
        #: By type: the number of the last request to read it.
        self._last: dict[str, int] = {}
        self._confirmed: deque[Append] = deque()
        self._found: deque[Read] = deque()
        self._error: SlacklineError | None = None
        #: By type that the node publishes, the epoch (None: not known yet). Errors in others do not matter any more.
        self._epochs: dict[str, tuple[int, int] | None] = {}
        self._writers: dict[str, _Writer] = {}
        self._readers: dict[str, _Reader] = {}
        self._threads: list[threading.Thread] = []

    # The host's thread.

    async def open(self, begins: Iterable[str], wake: Callable[[], object]) -> None:
        """Create the topics that do not exist.

        ``begins``  types that are published for the first time. ``wake`` is called when something can be taken.
        """
        self._wake, self._loop = wake, asyncio.get_running_loop()
        try:
            await asyncio.to_thread(self._prepare, list(begins))
        except StoppedError:
            raise SlacklineError(f"stopped while no broker answered at {self._brokers.address}.") from None
        for work in (self._write, self._read):
            thread = threading.Thread(target=self._guarded, args=[work], name="slackline bus", daemon=True)
            self._threads.append(thread)
            thread.start()

    def append(self, appends: list[Append], published: Iterable[str]) -> None:
        """Write records; ``published``: what the node publishes now."""
        former = self._epochs
        latest = {append.type: append.epoch for append in appends}
        self._epochs = {kind: latest.get(kind, former.get(kind)) for kind in published}
        if appends or former.keys() - self._epochs:  # writers that are closed soon need not be fenced
            self._appends.put(appends)

    def read(self, reads: Mapping[str, int | None]) -> None:
        """Read topics from these offsets on, as in :class:`~slackline.cluster.interface.Actions`."""
        for kind, offset in reads.items():
            self._last[kind] = self._last.get(kind, 0) + 1
            self._requests.append((kind, self._last[kind], offset))

    def confirmed(self) -> dict[str, Append]:
        """By type: the last record that was written since the last call. Raises what has failed."""
        if self._error is not None:
            raise self._error
        found = [self._confirmed.popleft() for _ in range(len(self._confirmed))]
        return {append.type: append for append in found}

    def take(self) -> list[bytes]:
        """The records that were read since the last call."""
        found = [self._found.popleft() for _ in range(len(self._found))]
        return [each.record for each in found if each.request == self._last[each.type]]

    async def close(self) -> None:
        """Write what is left, and close. While no broker answers, it is dropped: the checkpoint has it."""
        self._appends.put(None)
        self._closed.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoppedError:
            pass
        except SlacklineError as error:
            self._error = self._error or error
            self._notify()
        except KafkaException as raised:
            self._error = self._error or BrokerError(f"the bus {self._prefix!r}: {error_of(raised).str()}.")
            self._notify()

    def _notify(self) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    # Topics.

    def _prepare(self, begins: list[str]) -> None:
        topics = list(self._topics.values())
        self._brokers.create_topics(topics, 1, {"max.message.bytes": str(MAX_BYTES)})
        for topic, partitions in zip(topics, self._brokers.require_topics(*topics), strict=True):
            if partitions != 1:
                raise ConfigError(
                    f"the topic {topic!r} has {partitions} partitions; the topic of a bus has one, which orders its "
                    f"events. Delete it, and it will be created, or give another prefix."
                )
        if begins:
            consumer = Consumer(self._consumer())
            try:
                for kind in self._topics.keys() & set(begins):
                    if self._bounds(consumer, self._topics[kind])[1] > 0:
                        raise ConfigError(
                            f"the topic {self._topics[kind]!r} has records already, of another cluster or of an "
                            f"earlier one: give this cluster another prefix than {self._prefix!r}, or delete its "
                            f"topics. A node that resumes needs the --folder that it had."
                        )
            finally:
                consumer.close()

    def _bounds(self, consumer: Consumer, topic: str) -> tuple[int, int]:
        place = TopicPartition(topic, 0)
        bounds: tuple[int, int] = self._brokers.retry(
            f"looking up the end of {topic!r}", lambda wait: consumer.get_watermark_offsets(place, timeout=wait)
        )
        return bounds

    def _consumer(self) -> dict[str, Any]:
        more = {
            "isolation.level": "read_uncommitted", "fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 10,
            "fetch.message.max.bytes": MAX_BYTES, "receive.message.max.bytes": 2 * MAX_BYTES,
        }  # fmt: skip
        return self._brokers.consumer(f"slackline-bus-{self._prefix}", more)

    # The thread that writes.

    def _write(self) -> None:
        try:
            while not self._closed.is_set() or not self._appends.empty():
                waits = any(writer.unconfirmed for writer in self._writers.values())
                with suppress(queue.Empty):
                    for append in self._appends.get(timeout=0.002 if waits else 0.2) or ():
                        self._append(append)
                self._confirm()
        finally:
            for name in list(self._writers):
                self._close_writer(name, at_end=True)

    def _confirm(self) -> None:
        """Take the broker's answers, and commit what is old. Writers of epochs that have ended are closed."""
        for name, writer in list(self._writers.items()):
            if not self._is_current(writer.epoch, writer.types):
                self._close_writer(name)
                continue
            self._call(name, lambda w=writer: w.producer.poll(0))  # type: ignore[misc]
            if writer.begun_at is not None and time.monotonic() - writer.begun_at > COMMIT_EVERY:
                with self._unless_ended(name, writer.epoch, writer.types):
                    self._retry(name, "committing", writer.producer.commit_transaction)
                    writer.begun_at = None

    def _is_current(self, epoch: tuple[int, int], types: Iterable[str]) -> bool:
        """Whether the node publishes one of these types in this epoch."""
        return any(self._epochs.get(kind) == epoch for kind in types)

    @contextmanager
    def _unless_ended(self, name: str, epoch: tuple[int, int], types: Iterable[str]) -> Iterator[None]:
        """The next owner may fence a publisher whose epoch ends meanwhile."""
        try:
            yield
        except FencedError:
            if self._is_current(epoch, types):
                raise
            self._close_writer(name)

    def _append(self, append: Append) -> None:
        if self._is_current(append.epoch, [append.type]):  # a late take-over would fence the next owner
            name = self._publisher.get(append.type, append.type)
            with self._unless_ended(name, append.epoch, [append.type]):
                self._produce(name, append)

    def _produce(self, name: str, append: Append) -> None:
        writer = self._writers.get(name)
        if writer is None or writer.epoch != append.epoch:
            writer = self._take_over(name, append)
        writer.types.add(append.type)
        if writer.begun_at is None:
            self._call(name, writer.producer.begin_transaction)
            writer.begun_at = time.monotonic()

        def delivered(error: KafkaError | None, _: Message) -> None:
            writer.unconfirmed -= 1
            if error is None:
                self._confirmed.append(append)
                self._notify()
            elif self._is_current(append.epoch, [append.type]) and self._writers.get(name) is writer:
                self._error = self._error or self._failed(name, error)
                self._notify()

        topic = self._topics[append.type]
        while True:
            try:
                writer.producer.produce(topic, append.record, partition=0, on_delivery=delivered)
                writer.unconfirmed += 1
                return
            except BufferError:
                writer.producer.poll(0.05)
                if self._brokers.is_down and self._closed.is_set():
                    raise StoppedError from None
            except KafkaException as raised:
                raise self._failed(name, error_of(raised)) from raised

    def _take_over(self, name: str, append: Append) -> _Writer:
        """A producer in the epoch of a publisher, which fences the former owner."""
        self._close_writer(name)
        config = self._brokers.producer(BATCH, f"{self._prefix}-{name}")
        milliseconds = int(1000 * TRANSACTION_TIMEOUT)
        config |= {"transaction.timeout.ms": milliseconds, "message.max.bytes": MAX_BYTES, "logger": _librdkafka}
        writer = self._writers[name] = _Writer(Producer(config), append.epoch, set())
        # Without a connection, librdkafka looks for the coordinator half a second later.
        self._retry(
            name, "connecting", lambda wait: writer.producer.list_topics(self._topics[append.type], timeout=wait)
        )
        self._retry(name, "taking over", writer.producer.init_transactions)
        return writer

    def _close_writer(self, name: str, at_end: bool = False) -> None:
        writer = self._writers.pop(name, None)
        if writer is None:
            return
        with suppress(KafkaException), warnings.catch_warnings():  # a fenced one cannot commit
            warnings.simplefilter("ignore", RuntimeWarning)
            if at_end and writer.begun_at is not None and not self._brokers.is_down:
                writer.producer.commit_transaction(5.0)
            writer.producer.purge()
            writer.producer.close()

    def _retry(self, name: str, what: str, request: Callable[[float], object]) -> None:
        while True:
            try:
                request(2.0)
            except KafkaException as raised:
                error = error_of(raised)
                if error.fatal() or error.txn_requires_abort() or not error.retriable():
                    raise self._failed(name, error) from raised
                self._brokers.lost(f"{what}: {error.str()}")
            else:
                self._brokers.found()
                return
            if self._closed.is_set():
                raise StoppedError

    def _call(self, name: str, request: Callable[[], object]) -> None:
        try:
            request()
        except KafkaException as raised:
            raise self._failed(name, error_of(raised)) from raised

    def _failed(self, name: str, error: KafkaError) -> SlacklineError:
        if error.code() in FENCED or error.fatal():
            return FencedError(
                f"another node publishes for {name!r} on the bus {self._prefix!r} now: {error.str()}. If this node is "
                f"not resumed elsewhere, restart it from its --folder."
            )
        return BrokerError(
            f"writing to the bus {self._prefix!r} for {name!r}: {error.str()}. Restart the node from its --folder: it "
            f"writes again what is missing."
        )

    # The thread that reads.

    def _read(self) -> None:
        consumer = Consumer(self._consumer())
        try:
            while not self._closed.is_set():
                while self._requests:
                    self._seek(consumer, *self._requests.popleft())
                message = consumer.poll(WAIT)
                if message is not None:
                    moved: set[str] = set()  # these are read from further back now: the rest is of no use
                    for each in (message, *consumer.consume(SOME, 0)):
                        if each.topic() not in moved and self._take(consumer, each):
                            moved.add(str(each.topic()))
                    self._notify()
        finally:
            consumer.close()

    def _seek(self, consumer: Consumer, kind: str, request: int, offset: int | None) -> None:
        topic = self._topics[kind]
        if kind in self._readers:
            del self._readers[kind]
            consumer.incremental_unassign([TopicPartition(topic, 0)])
        if offset is None:
            return
        low, high = self._bounds(consumer, topic)
        at = max(low, high - TAIL)
        self._readers[kind] = _Reader(kind, request, offset or None, low, at)
        consumer.incremental_assign([TopicPartition(topic, 0, at)])

    def _take(self, consumer: Consumer, message: Message) -> bool:
        """Keep a record for the host; whether the topic is read from further back instead."""
        error, topic = message.error(), message.topic()
        if error is not None:
            if error.code() in UNAVAILABLE or error.retriable():
                self._brokers.lost(error.str())
                return False
            raise BrokerError(f"reading {topic!r} at {self._brokers.address}: {error.str()}.")
        self._brokers.found()
        reader, record = self._readers.get(self._types[str(topic)]), message.value()
        if reader is None:
            return False
        is_late = reader.wanted is not None and reader.at > reader.low
        if is_late and self._first(record or b"", str(topic)) > (reader.wanted or 0):
            reader.back *= FURTHER
            reader.at = max(reader.low, reader.at - reader.back)
            consumer.incremental_unassign([TopicPartition(str(topic), 0)])
            consumer.incremental_assign([TopicPartition(str(topic), 0, reader.at)])
            return True
        reader.wanted = None
        self._found.append(Read(reader.type, reader.request, record or b""))
        return False

    def _first(self, record: bytes, topic: str) -> int:
        try:
            return decode_record(record).segment.first
        except ProtocolError as error:
            raise ProtocolError(f"the topic {topic!r} of the bus has {error}") from None
