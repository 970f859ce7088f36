"""MQTT 5: the messages of topics as a source, a topic as a sink. Needs the extra ``connectors``.

**Back pressure.** A message is acknowledged when the batch after its own is asked for, and the broker may have only
``in_flight`` messages under way that are not acknowledged (Receive Maximum). Not all brokers keep to it (mosquitto
2.0.11 does not), and messages of QoS 0 are exempt; so with twice as many waiting the connection is not read. A burst
waits at the broker, up to the broker's own limit of queued messages.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from paho.mqtt.client import Client, MQTTErrorCode, MQTTMessage, MQTTv5, error_string
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from slackline.connectors.formats import json_record
from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.runtime.backoff import Backoff, Sleep
from slackline.runtime.output import BadRecord, OutputRecord
from slackline.runtime.sink import Sink, SinkError
from slackline.runtime.source import Records, Source, SourceError

#: Reason codes that retrying does not change (MQTT 5, section 2.4): protocol error, protocol version, client
#: identifier, user name or password, not authorized, banned, authentication method, topic filter, topic name, size of
#: the packet, payload format.
_FINAL = {0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8F, 0x90, 0x95, 0x99}
#: Retained messages: the broker sends them at the first subscription, and not again after a reconnect.
_SEND_RETAINED, _NO_RETAINED = 0, 2
#: Seconds to wait for an answer of the broker, and between two looks whether the connection is alive.
_TIMEOUT, _LOOP = 10.0, 1.0
#: Messages that a sink has under way, unless the broker allows fewer (MQTT 5, Receive Maximum).
_UNDER_WAY = 64

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker is, and how to log in."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ConnectionLost(Exception):
    """A connection to a broker failed or ended. ``code`` is the broker's reason code, 0 if it gave none."""

    def __init__(self, reason: object, code: int = 0) -> None:
        super().__init__(str(reason))
        self.code = code


class Connection:
    """One connection to a broker: paho's client, which reads and writes in a thread of its own.

    ``on_message`` is called in that thread; while it waits, nothing is read. Methods that wait raise
    :class:`ConnectionLost`.
    """

    def __init__(
        self, broker: Broker, client_id: str | None = None, on_message: Callable[[MQTTMessage], None] | None = None
    ) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        #: Done when the connection is lost.
        self.lost: asyncio.Future[ConnectionLost] = self._loop.create_future()
        self._accepted: asyncio.Future[ReasonCode] = self._loop.create_future()
        self._answers: dict[int, asyncio.Future[ReasonCode]] = {}
        self._reason = ConnectionLost("the connection was closed")
        self._is_closed = False
        #: How many messages may be under way to the broker.
        self.receive_maximum = 0xFFFF
        self._client = client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTv5, reconnect_on_failure=False, manual_ack=True
        )
        client.max_inflight_messages = 0  # not limited by paho, which does not know the broker's limit
        if broker.username is not None:
            client.username_pw_set(broker.username, broker.password)
        if broker.tls is not None:
            client.tls_set_context(broker.tls)
        client.on_connect = lambda _1, _2, _3, code, properties: self.in_loop(self._on_connect, code, properties)
        client.on_disconnect = lambda _1, _2, _3, code, _5: self._on_disconnect(code)
        client.on_subscribe = lambda _1, _2, mid, codes, _5: self.in_loop(self._on_answer, mid, codes[0])
        client.on_publish = lambda _1, _2, mid, code, _5: self.in_loop(self._on_answer, mid, code)
        client.on_message = None if on_message is None else lambda _1, _2, message: on_message(message)
        client.on_socket_register_write = lambda *_: None  # so that other threads do not write, but wake up this one

    async def open(self, clean_start: bool = True, properties: Properties | None = None) -> None:
        """Connect, and wait until the broker accepts the connection."""
        threading.Thread(target=self._run, args=(clean_start, properties), daemon=True).start()
        code = await self.answer(self._accepted)
        if code.is_failure:
            raise ConnectionLost(code, code.value)

    def subscribe(self, topic: str, retained: int) -> asyncio.Future[ReasonCode]:
        """Subscribe with QoS 1; return the future answer."""
        code, mid = self._client.subscribe(topic, options=SubscribeOptions(qos=1, retainHandling=retained))
        return self._expect(code, mid)

    def publish(self, topic: str, payload: bytes) -> asyncio.Future[ReasonCode]:
        """Publish with QoS 1; return the future acknowledgement."""
        info = self._client.publish(topic, payload, qos=1)
        return self._expect(info.rc, info.mid)

    def acknowledge(self, message: MQTTMessage) -> None:
        """Confirm to the broker that a message was processed."""
        self._client.ack(message.mid, message.qos)

    async def answer(self, future: asyncio.Future[ReasonCode]) -> ReasonCode:
        """Wait for an answer of the broker."""
        each = cast("list[asyncio.Future[Any]]", [future, self.lost])
        await asyncio.wait(each, timeout=_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        raise self.lost.result() if self.lost.done() else ConnectionLost(f"no answer within {_TIMEOUT:g} s")

    async def close(self) -> None:
        """Disconnect."""
        self._is_closed = True
        if self._client.disconnect() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            await asyncio.wait([self.lost], timeout=_TIMEOUT)

    def in_loop(self, call: Callable[..., object], *given: Any) -> None:
        """Make a call in the thread of the event loop, unless that has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *given)

    def _run(self, clean_start: bool, properties: Properties | None) -> None:
        """The thread: connect, then read, write and keep alive until the connection ends."""
        try:
            self._client.connect(self._broker.host, self._broker.port, clean_start=clean_start, properties=properties)
            if self._is_closed:
                self._client.disconnect()
            while self._client.loop(_LOOP) == MQTTErrorCode.MQTT_ERR_SUCCESS:
                pass
        except Exception as error:  # whatever the bytes of the broker lead paho to
            self._reason = ConnectionLost(f"{type(error).__name__}: {error}")
        self.in_loop(_set, self.lost, self._reason)

    def _on_connect(self, code: ReasonCode, properties: Any) -> None:
        self.receive_maximum = getattr(properties, "ReceiveMaximum", self.receive_maximum)
        _set(self._accepted, code)

    def _on_disconnect(self, code: ReasonCode) -> None:
        self._reason = ConnectionLost(code, code.value)

    def _expect(self, code: MQTTErrorCode, mid: int | None) -> asyncio.Future[ReasonCode]:
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            raise ConnectionLost(error_string(code))
        self._answers[mid] = self._loop.create_future()
        return self._answers[mid]

    def _on_answer(self, mid: int, code: ReasonCode) -> None:
        if mid in self._answers:
            _set(self._answers.pop(mid), code)


def _set(future: asyncio.Future[_T], value: _T) -> None:
    if not future.done():
        future.set_result(value)


class MqttSource(Source):
    """The messages of a topic, each of them a JSON object, in the order in which the broker delivers them.

    ``host``, ``port``  the broker.
    ``topic``      a topic, or a filter with ``+`` and ``#``.
    ``name``       the name of the source; default the topic. With a filter and no name, each topic is a source of
                   events of its own: a record has its topic in the field ``source``, unless the message has that field.
    ``client_id``  identifies this client. If given, the broker keeps the session for ``session_expiry`` seconds while
                   it is disconnected and delivers what was missed. Without it, what is published meanwhile is lost.
    ``in_flight``  how many messages may be under way, not acknowledged.
    ``username``, ``password``, ``tls``  as the broker requires.

    A lost broker is retried after 0.5 s, 1 s, 2 s and so on up to 30 s. Delivery is at least once: after a reconnect
    some messages of a kept session may be delivered twice; with a sequence number the engine drops the second.
    """

    live = True

    def __init__(
        self,
        host: str,
        topic: str,
        *,
        port: int = 1883,
        name: str | None = None,
        client_id: str | None = None,
        session_expiry: int = 3600,
        in_flight: int = 64,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        if not _is_filter(topic):
            raise ConfigError(
                f"topic={topic!r:.100} is neither a topic nor a topic filter: `+` stands for a whole level, as in "
                f"a/+/b, and `#` for all levels that follow, as in a/#."
            )
        self.name = check.text("name", topic if name is None else name)
        self._broker = Broker(host, port, username, password, tls)
        self._topic = topic
        self.multiplexed = name is None and ("+" in topic or "#" in topic)
        self._client_id = client_id
        self._session_expiry = session_expiry if client_id is not None else 0
        self._in_flight = check.whole_number("in_flight", in_flight, 1, 0xFFFF)  # as MQTT allows
        self._backoff = Backoff(self.name, sleep, what="source")
        self._has_subscribed = False
        self._number = 0  # of the last message
        self._waiting: deque[MQTTMessage] = deque()

    def describe(self) -> str:
        return f"MQTT {self._broker}, topic {self._topic}"

    async def batches(self) -> AsyncIterator[Records]:
        while True:
            try:
                async with aclosing(self._session()) as found:
                    async for records in found:
                        yield records
            except ConnectionLost as error:
                if error.code in _FINAL:
                    raise SourceError(
                        f"the broker {self._broker} refuses {self._topic!r}: {error}. Check the topic, the client_id, "
                        f"the user name and the password."
                    ) from error
                await self._backoff.wait(f"broker {self._broker}: {error}")

    async def _session(self) -> AsyncGenerator[Records]:
        """The records of one connection."""
        waiting = self._waiting = deque()
        updates, room = asyncio.Event(), threading.Semaphore(2 * self._in_flight - 1)

        def on_message(message: MQTTMessage) -> None:
            waiting.append(message)
            connection.in_loop(updates.set)
            room.acquire()

        connection = Connection(self._broker, self._client_id, on_message)
        connection.lost.add_done_callback(lambda _: updates.set())
        try:
            await self._subscribe(connection)
            while True:
                while not waiting:
                    if connection.lost.done():
                        raise connection.lost.result()
                    updates.clear()
                    await updates.wait()
                self._backoff.succeeded()
                batch = [waiting.popleft() for _ in range(min(len(waiting), self._in_flight))]
                room.release(len(batch))
                yield [self._record(message) for message in batch]
                for message in batch:
                    connection.acknowledge(message)
        finally:
            room.release(0xFFFF)  # nothing waits any more
            await connection.close()

    async def _subscribe(self, connection: Connection) -> None:
        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = self._in_flight
        properties.SessionExpiryInterval = self._session_expiry
        await connection.open(self._client_id is None, properties)
        retained = _NO_RETAINED if self._has_subscribed else _SEND_RETAINED
        answer = await connection.answer(connection.subscribe(self._topic, retained))
        if answer.is_failure:
            raise SourceError(
                f"the broker {self._broker} refuses the subscription to {self._topic!r}: {answer}. Check the topic "
                f"filter and the user's permissions."
            )
        self._has_subscribed = True

    def _record(self, message: MQTTMessage) -> dict[str, Any] | BadRecord:
        self._number += 1
        record = json_record(bytes(message.payload), f"message {self._number}, topic {message.topic}")
        if self.multiplexed and isinstance(record, dict):
            record.setdefault("source", message.topic)
        return record


class MqttSink(Sink):
    """Publishes each record as a message of a topic, with QoS 1: the broker acknowledges it.

    A lost broker is retried after 0.5 s, 1 s, 2 s and so on up to 30 s. Delivery is at least once: what was not
    acknowledged when the connection was lost is published again.
    """

    def __init__(
        self,
        host: str,
        topic: str,
        *,
        port: int = 1883,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        if not _is_filter(topic) or "+" in topic or "#" in topic:
            raise ConfigError(f"topic={topic!r:.100} cannot be published to; give a topic without `+` and `#`.")
        self._broker = Broker(host, port, username, password, tls)
        self._topic = topic
        self._backoff = Backoff(f"{self._broker}/{topic}", sleep, what="sink")
        self._connection: Connection | None = None

    def describe(self) -> str:
        return f"MQTT {self._broker}, topic {self._topic}, a message for each record"

    async def write(self, records: Sequence[OutputRecord]) -> None:
        left = [record.json() for record in records]
        while left:
            try:
                await self._publish(left)
                self._backoff.succeeded()
            except ConnectionLost as error:
                await self.close()
                if error.code in _FINAL:
                    raise SinkError(
                        f"the broker {self._broker} refuses messages for {self._topic!r}: {error}. Check the topic, "
                        f"the user name, the password, and how large the broker permits messages to be."
                    ) from error
                await self._backoff.wait(error)

    async def _publish(self, left: list[bytes]) -> None:
        """Publish messages; those that were acknowledged are removed from the list."""
        if self._connection is None:
            self._connection = Connection(self._broker)
            await self._connection.open()
        count = min(_UNDER_WAY, self._connection.receive_maximum)
        while left:
            for future in [self._connection.publish(self._topic, payload) for payload in left[:count]]:
                code = await self._connection.answer(future)
                if code.is_failure:
                    raise ConnectionLost(code, code.value)
                del left[0]

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _is_filter(topic: Any) -> bool:
    """Whether a text is a topic, or a filter of topics (MQTT 5, section 4.7)."""
    if not isinstance(topic, str) or not topic or len(topic.encode()) > 0xFFFF or "\0" in topic or "#/" in topic:
        return False
    return not any(len(level) > 1 and ("+" in level or "#" in level) for level in topic.split("/"))
