"""A topic as the sink of a worker: at least once, each write acknowledged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence

from slackline.connectors.kafka.address import KafkaAddress, client_properties
from slackline.connectors.kafka.brokers import Brokers, StoppedError
from slackline.connectors.kafka.errors import BrokerError
from slackline.connectors.kafka.messages import OutputTopics
from slackline.connectors.kafka.settings import connection, writer
from slackline.connectors.kafka.topics import Topics
from slackline.connectors.kafka.writing import Plain
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.options import RunOptions
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import Sink, SinkError


class KafkaSink(Sink):
    """Writes events to a topic, late events and quarantined records to topics beside it, which are created.

    ``address``   ``kafka://HOST:PORT/TOPIC``; the topic must exist. The other parameters are those of
                  :class:`~slackline.connectors.kafka.KafkaHost`.
    """

    def __init__(
        self,
        address: str | KafkaAddress,
        *,
        late_topic: str | None = None,
        quarantine_topic: str | None = None,
        duplicates: bool = False,
        client: Mapping[str, str] | None = None,
    ) -> None:
        self._address = KafkaAddress.of(address)
        self._topics = OutputTopics.of(self._address.topic, late_topic, quarantine_topic, duplicates)
        self._client = connection(self._address, "slackline", client or {})
        self._closed = threading.Event()
        self._brokers = Brokers(self._address.brokers, self._closed.is_set)
        self._producer: Plain | None = None

    @classmethod
    def of(cls, address: str, options: RunOptions) -> KafkaSink:
        """The sink by the options of the command line."""
        client = {} if options.kafka_config is None else client_properties(options.kafka_config)
        return cls(
            address, late_topic=options.late_topic, quarantine_topic=options.quarantine_topic,
            duplicates=options.duplicates == "write", client=client,
        )  # fmt: skip

    def describe(self) -> str:
        return f"topic of Kafka; late events to {self._topics.late}, quarantined ones to {self._topics.quarantine}"

    def open(self) -> Checkpoint | None:
        topics = Topics(self._client, self._brokers)
        topics.require(self._address.topic)
        for name in self._topics.made:
            topics.create(name, 1)
        batch = min(map(topics.largest_record, (self._address.topic, *self._topics.made)))
        self._producer = Plain(writer(self._client, batch), str(self._address), self._brokers)
        return None

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Write records, and wait until all are acknowledged."""
        assert self._producer is not None
        await asyncio.to_thread(self._write, self._producer, records)

    def _write(self, producer: Plain, records: Sequence[OutputRecord]) -> None:
        try:
            producer.write(self._topics.messages(records))
            producer.settle()
        except BrokerError as error:
            raise SinkError(str(error)) from error
        except StoppedError:
            raise SinkError(f"stopped while no broker answered at {self._address.brokers}.") from None

    async def close(self) -> None:
        self._closed.set()
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close)
