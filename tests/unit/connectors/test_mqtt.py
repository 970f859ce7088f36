"""MQTT streams, from a real broker: topics, filters, a broker that goes away and comes back, back pressure."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any

import aiomqtt
import pytest
from tests.unit.connectors.conftest import Broker
from tests.unit.connectors.helpers import LIMIT, Listed, Sleeper, Tap, events, points, run, some_of, until

import slackline as sl
from slackline.connectors import AdapterError, Junction, MqttStream
from slackline.core.errors import ConfigError
from slackline.core.extras import MissingExtraError


def stream(broker: Broker, topic: str, **options: Any) -> MqttStream:
    return MqttStream("127.0.0.1", topic, **{"ts": "ts", "port": broker.port, "sleep": Sleeper(), **options})


async def publish(broker: Broker, topic: str, times: Iterable[int], qos: int = 1, retain: bool = False) -> None:
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        for ts in times:
            await client.publish(topic, json.dumps({"ts": ts}), qos=qos, retain=retain)


async def subscribed(*streams: MqttStream) -> None:
    await until(lambda: all(each._subscribed for each in streams))


def test_messages_of_a_topic_are_a_stream(broker: Broker) -> None:
    async def scenario() -> None:
        door = stream(broker, "home/door")
        reading = asyncio.create_task(some_of(door, 3))
        await subscribed(door)
        async with aiomqtt.Client("127.0.0.1", broker.port) as client:
            for payload in ('{"ts": 1, "open": true}', "nonsense", b"\xff\xfe", "[1]", "", '{"ts": 2}', '{"ts": 3}'):
                await client.publish("home/door", payload, qos=1)
        found = await reading
        assert found[0] == sl.Event("home/door", ts=1, source="home/door", open=True)
        assert [event.ts for event in found] == [1, 2, 3]
        assert door.counts() == {"taken": 3, "rejected": 4, "reconnects": 0}
        assert door.rejected[0].place == "message on home/door"

    broker.start()
    run(scenario())


def test_each_topic_of_a_filter_is_a_stream_of_its_own(broker: Broker) -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        home, log = stream(broker, "home/+"), Tap("log")
        junction = Junction([home, log], out.extend, max_delay=LIMIT)
        running = asyncio.create_task(junction.run())
        await subscribed(home)
        log.put(*events("log", 2))
        await until(lambda: len(out) == 1)
        for ts, topic in [(3, "home/door"), (4, "home/lift"), (6, "home/door"), (7, "home/lift")]:
            await publish(broker, topic, [ts])
        await until(lambda: junction.stats().waiting == 4)  # for the log
        log.put(*events("log", 9))
        await until(lambda: len(out) == 4)  # the last of the lift waits for the door
        junction.stop()
        stats = await running
        assert points(out) == [
            (2, "log"),
            (3, "home/door"),
            (4, "home/lift"),
            (6, "home/door"),
            (7, "home/lift"),
            (9, "log"),
        ]
        assert [event.type for event in out[:3]] == ["tick", "home/door", "home/lift"]
        assert set(stats.streams) == {"home/door", "home/lift", "log"}
        assert set(stats.adapters) == {"home/+", "log"}

    broker.start()
    run(scenario())


def test_a_filter_with_a_name_is_one_stream(broker: Broker) -> None:
    async def scenario() -> None:
        home = stream(broker, "home/#", name="home")
        reading = asyncio.create_task(some_of(home, 2))
        await subscribed(home)
        await publish(broker, "home/door", [1])
        await publish(broker, "home/lift/2", [2])
        assert points(await reading) == [(1, "home"), (2, "home")]

    broker.start()
    run(scenario())


def test_a_broker_that_goes_away_and_comes_back_is_found_again(broker: Broker) -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        door = stream(broker, "door")
        others = Listed("log", events("log", *range(5, 30, 5)))
        junction = Junction([door, others], out.extend, max_delay=0.05)
        running = asyncio.create_task(junction.run())  # the broker is not there yet
        await until(lambda: door.counts()["reconnects"] > 0)
        await until(lambda: len(out) == 5)  # the other stream goes on
        broker.start()
        await subscribed(door)
        await publish(broker, "door", [40, 41])
        await until(lambda: len(out) == 7)
        before = door.counts()["reconnects"]
        broker.end()
        await until(lambda: door.counts()["reconnects"] > before)
        broker.start()
        for ts in range(50, 10_000):  # what comes before it has subscribed again is lost
            await publish(broker, "door", [ts])
            if len(out) > 7:
                break
        junction.stop()
        stats = await running
        assert [event.ts for event in out[:7]] == [5, 10, 15, 20, 25, 40, 41]
        assert out[7].source == "door"
        assert out == sorted(out, key=lambda event: event.ts)
        assert stats.adapters["door"].state == "stopped"

    run(scenario())


def test_a_kept_session_delivers_what_was_published_meanwhile(broker: Broker) -> None:
    async def read(count: int, *first: int) -> list[int]:
        door = stream(broker, "door", client_id="slackline-test")
        reading = asyncio.create_task(some_of(door, count))
        await subscribed(door)
        await publish(broker, "door", first)
        return [event.ts for event in await reading]

    async def scenario() -> None:
        assert await read(3, 1, 2, 3) == [1, 2, 3]
        await publish(broker, "door", [4, 5])  # nobody listens
        broker.end()
        broker.start()  # it keeps sessions over a restart
        await publish(broker, "door", [6])
        # At least once: an event is acknowledged when the next one is asked for, and after the third none was.
        assert await read(4) == [3, 4, 5, 6]

    broker.start()
    run(scenario())


def test_retained_messages_come_once_and_not_after_each_loss_of_connection(broker: Broker) -> None:
    async def scenario() -> None:
        await publish(broker, "door", [1], retain=True)
        door = stream(broker, "door")
        found: list[int] = []
        iterator = aiter(door)
        found.append((await anext(iterator)).ts)
        broker.end()
        broker.start()  # it keeps retained messages over a restart
        following = asyncio.ensure_future(anext(iterator))
        for ts in range(2, 10_000):
            await publish(broker, "door", [ts])
            if following.done():
                break
        found.append((await following).ts)
        await iterator.aclose()
        assert found[0] == 1
        assert found[1] >= 2

    broker.start()
    run(scenario())


class Watched(MqttStream):
    """Knows its connection, so that a test can see how many messages lie there."""

    queue: Any = None

    def _client(self) -> aiomqtt.Client:
        client = super()._client()
        self.queue = client._queue
        return client


@pytest.mark.parametrize("qos", [0, 1])
def test_a_burst_waits_at_the_broker_and_not_in_memory(broker: Broker, qos: int) -> None:
    async def scenario() -> None:
        out: list[sl.Event] = []
        go = asyncio.Event()
        most = 0

        async def sink(found: list[sl.Event]) -> None:
            nonlocal most
            await go.wait()
            out.extend(found)
            most = max(most, door.queue.qsize())

        door = Watched("127.0.0.1", "door", port=broker.port, ts="ts", in_flight=5)
        junction = Junction([door], sink, queue=3, ahead=2)
        running = asyncio.create_task(junction.run())
        await subscribed(door)
        await publish(broker, "door", range(400), qos=qos)
        await until(lambda: door.counts()["taken"] == 3 and door.queue.qsize() >= 4)
        await asyncio.sleep(0.05)
        assert door.counts()["taken"] == 3  # nothing more is taken while the queue is full
        assert door.queue.qsize() <= 2 * 5
        go.set()
        await until(lambda: len(out) == 400)
        junction.stop()
        await running
        assert [event.ts for event in out] == list(range(400))
        assert most <= 2 * 5

    broker.start("allow_anonymous true", "max_queued_messages 1000")
    run(scenario())


def test_a_broker_that_goes_away_while_we_do_not_read_is_noticed_afterwards(broker: Broker) -> None:
    async def scenario() -> None:
        door = Watched("127.0.0.1", "door", port=broker.port, ts="ts", in_flight=2, sleep=Sleeper())
        iterator = aiter(door)
        first = asyncio.ensure_future(anext(iterator))
        await subscribed(door)
        await publish(broker, "door", range(20), qos=0)
        assert (await first).ts == 0
        await until(lambda: door.queue.qsize() == 4)
        broker.end()
        broker.start()
        # What had been sent is read to its end, and then it connects again.
        assert [(await anext(iterator)).ts for _ in range(19)] == list(range(1, 20))
        following = asyncio.ensure_future(anext(iterator))
        for ts in range(20, 10_000):
            await publish(broker, "door", [ts])
            if following.done():
                break
        assert (await following).ts >= 20
        assert door.counts()["reconnects"] == 1
        await iterator.aclose()

    broker.start()
    run(scenario())


def test_a_broker_that_refuses_us_ends_the_stream_with_a_clear_error(broker: Broker) -> None:
    broker.start("allow_anonymous false")
    with pytest.raises(AdapterError, match=r"the broker 127\.0\.0\.1:\d+ refuses 'door'.*authori[sz]ed"):
        run(some_of(stream(broker, "door"), 1))


@pytest.mark.parametrize("topic", ["a#b", "a/#/b", "#/b", "a/b+", "++", "", "a\0b", "x" * 65_536])
def test_a_filter_that_cannot_be_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="neither a topic nor a filter"):
        MqttStream("host", topic, ts="ts", name="bad")


@pytest.mark.parametrize("topic", ["#", "+", "/", "a/+/b/#", "$share/group/a/+"])
def test_a_filter_that_can_be_is_taken(topic: str) -> None:
    assert MqttStream("host", topic, ts="ts").name == topic


@pytest.mark.parametrize("in_flight", [0, 65_536])
def test_more_in_flight_than_the_protocol_allows_is_refused(in_flight: int) -> None:
    with pytest.raises(ConfigError, match="1 to 65535"):
        MqttStream("host", "topic", ts="ts", in_flight=in_flight)


def test_without_its_package_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiomqtt", None)  # importing it fails now
    with pytest.raises(MissingExtraError, match=r"pip install 'slackline-streams\[streams\]'"):
        MqttStream("host", "topic", ts="ts")
