"""Messages of an MQTT broker, as one stream or as many: the sensor network's protocol.

**Back pressure.** A message is acknowledged when the event it became has been taken, and the broker may have only
``in_flight`` messages on the way to us that are not acknowledged (MQTT 5, Receive Maximum). Not all brokers keep to it
(mosquitto 2.0.11 does not), and messages of QoS 0 are exempt; so with twice as many in memory the connection is not
read. A burst waits at the broker, as far as the broker's own bound for queued messages goes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from slackline.connectors.adapter import RecordStream
from slackline.connectors.errors import AdapterError, require
from slackline.connectors.inbox import Inbox
from slackline.core import check
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.runtime.backoff import Backoff, Sleep

if TYPE_CHECKING:
    import aiomqtt

#: Refusals of the broker that asking again does not change (MQTT 5, section 2.4): protocol error, protocol version,
#: client identifier, user or password, not authorised, banned, authentication method, topic filter.
_FINAL = {0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8F}

#: Retained messages: the broker sends them when we subscribe first, and not again after a loss of connection.
_SEND_RETAINED, _NO_RETAINED = 0, 2


class MqttStream(RecordStream):
    """JSON messages of a topic as a stream of events, in the order in which the broker delivers them.

    ``host``, ``port``  the broker; it must speak MQTT 5.
    ``topic``   a topic, or a filter with ``+`` and ``#``.
    ``ts``      the field with the time stamps; ``type``, ``type_field``, ``seq`` and ``unit`` as in
                :class:`~slackline.runtime.record.Fields`.
    ``name``    the stream's name; the topic unless given. With a filter and no name, **each topic is a stream of its
                own** that joins when its first message comes; a junction needs ``max_delay`` then, as nobody can know
                whether a topic is silent or at its end.
    ``client_id``  who we are. If given, the broker keeps a session for ``session_expiry`` seconds while we are away and
                delivers what we missed. Without it, what is published while we are away is lost.
    ``in_flight``  how many messages may be on their way, not acknowledged.
    ``username``, ``password``, ``tls``  as the broker wants them.

    A broker that goes away is tried again, after 0.5 s, 1 s, 2 s and so on up to 30 s. Delivery is at least once: after
    a loss of connection some messages of a kept session may come twice. Give them a ``seq``, and an engine that gets
    the events drops the copies.
    """

    def __init__(
        self,
        host: str,
        topic: str,
        *,
        ts: str,
        port: int = 1883,
        name: str | None = None,
        type: str | None = None,
        type_field: str | None = None,
        seq: str | None = None,
        unit: str = "us",
        client_id: str | None = None,
        session_expiry: int = 3600,
        in_flight: int = 64,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        require("MqttStream", "aiomqtt")
        if not _is_filter(topic):
            raise ConfigError(
                f"topic={topic!r:.100} is neither a topic nor a filter: `+` stands for a whole level, as in a/+/b, and "
                f"`#` for all that follow, as in a/#."
            )
        super().__init__(name or topic, ts, type, type_field, seq, unit)
        check.whole_number("in_flight", in_flight, 1, 0xFFFF)  # as MQTT allows
        self.many = name is None and ("+" in topic or "#" in topic)
        #: The type of an event is its topic's, too, where each topic is a stream.
        self._typed = type is not None or type_field is not None
        self._host, self._port, self._topic = host, port, topic
        self._client_id = client_id
        self._session_expiry = session_expiry if client_id is not None else 0
        self._in_flight = in_flight
        self._inbox = Inbox(2 * in_flight)
        self._login = {"username": username, "password": password, "tls_context": tls}
        self._backoff = Backoff(self.name, sleep)
        self._subscribed = False

    def counts(self) -> dict[str, int]:
        """Messages taken and rejected, and attempts to connect that had to be repeated."""
        return super().counts() | {"reconnects": self._backoff.attempts}

    async def __aiter__(self) -> AsyncIterator[Event]:
        import aiomqtt

        while True:
            try:
                async with aclosing(self._session()) as events:
                    async for event in events:
                        yield event
                why: object = "the broker ended the connection"
            except aiomqtt.MqttError as error:
                code = getattr(getattr(error, "rc", None), "value", None)
                if code in _FINAL:
                    raise AdapterError(
                        f"the broker {self._host}:{self._port} refuses {self._topic!r}: {error}. Check the topic, the "
                        f"client_id, the user and the password."
                    ) from error
                why = f"broker {self._host}:{self._port}: {error}"
            await self._backoff.wait(why)

    async def _session(self) -> Any:
        """The events of one connection."""
        async with self._client() as client:
            self._inbox.watch(client)
            await self._subscribe(client)
            async for message in client.messages:
                self._backoff.succeeded()
                topic = message.topic.value
                source = topic if self.many else self.name
                kind = topic if self.many and not self._typed else None
                event = self._event(bytes(message.payload), f"message on {topic}", source, kind)
                if event is not None:
                    yield event
                self._inbox.acknowledge(message)

    def _client(self) -> aiomqtt.Client:
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = self._in_flight
        properties.SessionExpiryInterval = self._session_expiry
        return aiomqtt.Client(
            self._host,
            self._port,
            identifier=self._client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=self._client_id is None,
            properties=properties,
            queue_type=self._inbox.queue_type(),
            **self._login,  # type: ignore[arg-type]
        )

    async def _subscribe(self, client: aiomqtt.Client) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        retained = _NO_RETAINED if self._subscribed else _SEND_RETAINED
        answers = await client.subscribe(self._topic, options=SubscribeOptions(qos=1, retainHandling=retained))
        for answer in answers:
            if getattr(answer, "is_failure", False):
                raise AdapterError(
                    f"the broker {self._host}:{self._port} refuses the subscription to {self._topic!r}: {answer}. "
                    f"Check the topic filter and the user's rights."
                )
        self._subscribed = True


def _is_filter(topic: str) -> bool:
    from aiomqtt import Wildcard

    try:
        Wildcard(topic)
    except (TypeError, ValueError):
        return False
    return "\0" not in topic
