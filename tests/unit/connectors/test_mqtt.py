"""MQTT with a real broker: topics, filters, a broker that is stopped and started again, back pressure, publishing."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import paho.mqtt.publish
import pytest
from tests.unit.connectors.conftest import Broker
from tests.unit.connectors.helpers import Sleeper, delivered, run, times, until

from slackline.connectors import MqttSink, MqttSource, OutputRecord, SinkError, SourceError
from slackline.core.errors import ConfigError


def opened(broker: Broker, topic: str, **options: Any) -> MqttSource:
    return MqttSource("127.0.0.1", topic, **{"port": broker.port, "sleep": Sleeper(), **options})


async def send(broker: Broker, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False) -> None:
    messages: Any = [{"topic": topic, "payload": each, "qos": qos, "retain": retain} for each in payloads]
    await asyncio.to_thread(paho.mqtt.publish.multiple, messages, "127.0.0.1", broker.port)


async def publish(broker: Broker, topic: str, ts: Iterable[int], **options: Any) -> None:
    await send(broker, topic, *[json.dumps({"ts": each}).encode() for each in ts], **options)


async def subscribed(source: MqttSource) -> None:
    await until(lambda: source._has_subscribed)


class Reader:
    """Reads a source in the background, one batch after the other."""

    def __init__(self, source: MqttSource) -> None:
        self.found: list[Any] = []
        self._task = asyncio.create_task(self._read(source))

    async def _read(self, source: MqttSource) -> None:
        async with aclosing(source.batches()) as batches:
            async for batch in batches:
                self.found += batch

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def test_messages_of_a_topic_are_records(broker: Broker) -> None:
    async def scenario() -> None:
        door = opened(broker, "home/door")
        reading = asyncio.create_task(delivered(door, 7))
        await subscribed(door)
        bad = (b"nonsense", b"\xff\xfe", b"[1]", b"")
        await send(broker, "home/door", b'{"ts": 1, "open": true}', *bad, b'{"ts": 2}', b'{"ts": 3}')
        found = await reading
        assert found[0] == {"ts": 1, "open": True}
        assert times(found) == [1, *[f"message {n}, topic home/door" for n in (2, 3, 4, 5)], 2, 3]
        assert (door.name, door.live, door.position()) == ("home/door", True, None)

    broker.start()
    run(scenario())


@pytest.mark.parametrize(("name", "sources"), [(None, ["home/door", "own"]), ("home", [None, "own"])])
def test_each_topic_of_a_filter_is_a_source_of_its_own_unless_it_has_a_name(
    broker: Broker, name: str | None, sources: list[str | None]
) -> None:
    async def scenario() -> None:
        home = opened(broker, "home/#", name=name)
        reading = asyncio.create_task(delivered(home, 2))
        await subscribed(home)
        await publish(broker, "home/door", [1])
        await send(broker, "home/lift/2", b'{"ts": 2, "source": "own"}')
        assert [record.get("source") for record in await reading] == sources
        assert home.name == (name or "home/#")

    broker.start()
    run(scenario())


def test_a_broker_that_is_stopped_and_started_again_is_found_again(broker: Broker) -> None:
    async def scenario() -> None:
        pause = Sleeper()
        door = opened(broker, "door", sleep=pause)
        reader = Reader(door)  # the broker does not run yet
        await until(lambda: len(pause.asked) > 0)
        broker.start()
        await subscribed(door)
        await publish(broker, "door", [40, 41])
        await until(lambda: len(reader.found) == 2)
        before = len(pause.asked)
        broker.end()
        await until(lambda: len(pause.asked) > before)
        broker.start()
        for ts in range(50, 10_000):  # what is published before it has subscribed again is lost
            await publish(broker, "door", [ts])
            if len(reader.found) > 2:
                break
        await reader.close()
        assert times(reader.found[:2]) == [40, 41] and reader.found[2]["ts"] >= 50
        assert pause.asked[0] == pause.asked[before] == 0.5

    run(scenario())


def test_a_kept_session_delivers_what_was_published_meanwhile(broker: Broker) -> None:
    async def read(count: int, *first: int) -> list[int]:
        door = opened(broker, "door", client_id="slackline-test")
        reading = asyncio.create_task(delivered(door, count))
        await subscribed(door)
        for ts in first:
            await publish(broker, "door", [ts])
        return times(await reading)

    async def scenario() -> None:
        assert await read(3, 1, 2, 3) == [1, 2, 3]
        await publish(broker, "door", [4, 5])  # while it is disconnected
        broker.end()
        broker.start()  # it keeps sessions over a restart
        await publish(broker, "door", [6])
        # At least once: a batch is acknowledged when the next one is asked for, and after the third message none was.
        assert (await read(4))[-4:] == [3, 4, 5, 6]

    broker.start()
    run(scenario())


def test_retained_messages_are_delivered_once_and_not_after_each_reconnect(broker: Broker) -> None:
    async def scenario() -> None:
        await publish(broker, "door", [1], retain=True)
        async with aclosing(opened(broker, "door").batches()) as batches:
            assert times(await anext(batches)) == [1]
            broker.end()
            broker.start()  # it keeps retained messages over a restart
            following = asyncio.ensure_future(anext(batches))
            for ts in range(2, 10_000):
                await publish(broker, "door", [ts])
                if following.done():
                    break
            assert times(await following)[0] >= 2

    broker.start()
    run(scenario())


@pytest.mark.parametrize("qos", [0, 1])
def test_a_burst_waits_at_the_broker_and_not_in_memory(broker: Broker, qos: int) -> None:
    async def scenario() -> None:
        door = opened(broker, "door", in_flight=5)
        async with aclosing(door.batches()) as batches:
            first = asyncio.ensure_future(anext(batches))
            await subscribed(door)
            await publish(broker, "door", range(400), qos=qos)
            found = times(await first)
            while len(found) < 400:
                await asyncio.sleep(0.05 if len(found) < 40 else 0)  # in which the broker could send all of it
                assert len(door._waiting) <= 2 * 5
                batch = times(await anext(batches))
                assert len(batch) <= 5
                found += batch
            assert found == list(range(400))

    broker.start("allow_anonymous true", "max_queued_messages 1000")
    run(scenario())


def test_a_broker_that_is_stopped_while_the_connection_is_not_read_is_noticed_afterwards(broker: Broker) -> None:
    async def scenario() -> None:
        pause = Sleeper()
        door = opened(broker, "door", in_flight=2, sleep=pause)
        async with aclosing(door.batches()) as batches:
            first = asyncio.ensure_future(anext(batches))
            await subscribed(door)
            await publish(broker, "door", range(20), qos=0)
            found = times(await first)
            await until(lambda: len(door._waiting) == 4)
            broker.end()
            broker.start()
            while len(found) < 20:  # what had been sent is read to its end, and then the source reconnects
                found += times(await anext(batches))
            assert found == list(range(20)) and not pause.asked
            following = asyncio.ensure_future(anext(batches))
            for ts in range(20, 10_000):
                await publish(broker, "door", [ts])
                if following.done():
                    break
            assert times(await following)[0] >= 20
            assert len(pause.asked) == 1

    broker.start()
    run(scenario())


def test_a_broker_that_refuses_the_client_ends_source_and_sink_with_a_clear_error(broker: Broker) -> None:
    broker.start("allow_anonymous false")
    with pytest.raises(SourceError, match=r"the broker 127\.0\.0\.1:\d+ refuses 'door'.*authori[sz]ed"):
        run(delivered(opened(broker, "door"), 1))
    with pytest.raises(SinkError, match=r"refuses messages for 'door'.*authori[sz]ed"):
        run(MqttSink("127.0.0.1", "door", port=broker.port).write([OutputRecord(kind="event", id="a")]))


def test_a_record_that_the_broker_refuses_for_its_size_is_an_error_and_not_retried(broker: Broker) -> None:
    broker.start("allow_anonymous true", "max_packet_size 1000")
    large = OutputRecord(kind="event", id="a", payload={"text": 2_000 * "x"})

    async def scenario() -> None:
        sink = MqttSink("127.0.0.1", "door", port=broker.port, sleep=Sleeper())
        async with asyncio.timeout(5):
            await sink.write([OutputRecord(kind="event", id="b"), large])

    with pytest.raises(SinkError, match=r"refuses messages for 'door'.*too large"):
        run(scenario())


def test_records_are_published_and_again_when_the_broker_is_back(broker: Broker) -> None:
    def records(first: int) -> list[OutputRecord]:
        return [OutputRecord(kind="event", id=f"{ts}", ts=ts) for ts in range(first, first + 100)]

    async def scenario() -> None:
        broker.start()
        source = opened(broker, "found", client_id="reader")
        reader = Reader(source)
        await subscribed(source)
        sink = MqttSink("127.0.0.1", "found", port=broker.port)
        await sink.write(records(0))
        await until(lambda: times(reader.found) == list(range(100)))
        broker.end()
        writing = asyncio.create_task(sink.write(records(100)))
        await asyncio.sleep(0.3)
        assert not writing.done()
        broker.start()
        await writing
        await until(lambda: reader.found[-1]["ts"] == 199)
        await sink.close()
        await reader.close()
        assert list(dict.fromkeys(times(reader.found))) == list(range(200))  # at least once, in order
        assert reader.found[0] == {"kind": "event", "id": "0", "ts": 0}

    run(scenario())


@pytest.mark.parametrize("topic", ["a#b", "a/#/b", "#/b", "a/b+", "++", "", "a\0b", "x" * 65_536])
def test_a_filter_that_cannot_be_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="neither a topic nor a topic filter"):
        MqttSource("host", topic, name="bad")
    with pytest.raises(ConfigError, match="cannot be published to"):
        MqttSink("host", topic)


@pytest.mark.parametrize("topic", ["#", "+", "/", "a/+/b/#", "$share/group/a/+"])
def test_a_filter_that_can_be_is_accepted(topic: str) -> None:
    assert MqttSource("host", topic).name == topic


@pytest.mark.parametrize("in_flight", [0, 65_536])
def test_more_in_flight_than_the_protocol_allows_is_refused(in_flight: int) -> None:
    with pytest.raises(ConfigError, match="1 to 65535"):
        MqttSource("host", "topic", in_flight=in_flight)


def test_source_and_sink_connect_over_tls(broker: Broker, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*request, *names], check=True, capture_output=True)
    broker.start("allow_anonymous true", f"certfile {cert}", f"keyfile {key}", "max_queued_messages 1000")
    tls = ssl.create_default_context(cafile=str(cert))

    async def scenario() -> None:
        source = opened(broker, "door", tls=tls, in_flight=5)
        reader = Reader(source)
        await subscribed(source)
        sink = MqttSink("127.0.0.1", "door", port=broker.port, tls=tls)
        await sink.write([OutputRecord(kind="event", id=f"{ts}", ts=ts) for ts in range(300)])
        await until(lambda: len(reader.found) == 300)
        await sink.close()
        await reader.close()
        assert times(reader.found) == list(range(300))

    run(scenario())
