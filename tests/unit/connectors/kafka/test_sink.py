"""Producers: when one gives up, and in which order groups of messages are acknowledged; a sink without a broker."""

import asyncio
import time
from typing import Any

import pytest

from slackline.connectors.kafka.brokers import Brokers, StoppedError
from slackline.connectors.kafka.sink import IdempotentProducer, KafkaSink, OutputMessage
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import SinkError

MESSAGE = OutputMessage("out", b"a", b"{}", [])


class Full:
    """A client whose queue is full for the first few messages."""

    def __init__(self, full: int = 0) -> None:
        self.full = full
        self.did: list[Any] = []

    def produce(self, topic: str, *args: Any, **more: Any) -> None:
        self.full -= 1
        if self.full >= 0:
            raise BufferError
        self.did.append(topic)

    def poll(self, wait: float) -> None:
        pass

    def flush(self, wait: float) -> int:
        self.did.append("acknowledged")
        return 0


def producer(client: Full, stopped: bool = False) -> tuple[IdempotentProducer, Brokers]:
    brokers = Brokers("127.0.0.1:1", "app", None, lambda: stopped)
    made = IdempotentProducer(brokers.producer(1000), brokers, "out", lambda offset, wait: client.did.append(offset))
    made._producer.close()
    brokers.found()  # the real client may have reported that none answers
    made._producer = client  # type: ignore[assignment]
    return made, brokers


def test_a_full_queue_is_waited_for_after_a_stop_too_while_a_broker_answers() -> None:
    client = Full(3)
    made, brokers = producer(client, stopped=True)
    made.write([MESSAGE])
    assert client.did == ["out"]
    client.full = 3
    brokers.lost("a test")
    with pytest.raises(StoppedError):
        made.write([MESSAGE])


def test_each_group_is_acknowledged_before_the_next_and_all_before_the_offset() -> None:
    client = Full()
    made, _ = producer(client)
    log, last = MESSAGE._replace(topic="log"), MESSAGE._replace(topic="last")
    made.commit([[log], [MESSAGE, MESSAGE], [last]], 7)
    assert client.did == ["log", "acknowledged", "out", "out", "acknowledged", "last", "acknowledged", 7]
    client.did.clear()
    made.commit([[MESSAGE]], None)  # the offset follows later
    assert client.did == ["out"]


def test_a_sink_waits_for_a_broker_where_it_can_be_stopped() -> None:
    async def scenario() -> None:
        sink = KafkaSink("kafka://127.0.0.1:1/out")
        start = time.monotonic()
        assert sink.open() is None and time.monotonic() - start < 10
        writing = asyncio.create_task(sink.write([OutputRecord(kind="event", id="a")]))
        await asyncio.sleep(0.1)
        assert not writing.done()
        await sink.close()
        with pytest.raises(SinkError, match=r"stopped while no broker answered at 127\.0\.0\.1:1"):
            await writing

    asyncio.run(scenario())
