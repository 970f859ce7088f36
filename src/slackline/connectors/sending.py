"""Lines of JSON on their way out: to a web server by POST, or to an MQTT broker. At least once.

A receiver that is away is tried again, after 0.5 s, 1 s, 2 s and so on up to 30 s; who sends waits meanwhile. What was
on its way when a connection was lost is sent again, so some lines may come twice: they have an ``id``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from slackline.connectors.errors import AdapterError, require
from slackline.core.errors import ConfigError
from slackline.runtime.backoff import Backoff, Sleep

#: Answers of a web server that may be others next time, besides 5xx.
_TEMPORARY = {408, 425, 429}


class Sender(Protocol):
    """Where lines go."""

    async def send(self, lines: Sequence[str]) -> None:
        """Return when they have arrived."""

    async def close(self) -> None:
        """Nothing more will be sent."""


class HttpSender:
    """Posts lines to a web server, many at once, as ``application/x-ndjson``. It takes them by an answer of 2xx."""

    def __init__(self, url: str, *, timeout: float = 30.0, sleep: Sleep = asyncio.sleep) -> None:
        require("HttpSender", "httpx")
        import httpx

        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigError(f"{url!r} is nothing that HTTP can post to; give http://host/path or https://host/path.")
        self._url = url
        self._client = httpx.AsyncClient(timeout=timeout)
        self._backoff = Backoff(url, sleep, what="sink")

    async def send(self, lines: Sequence[str]) -> None:
        import httpx

        body = "".join(f"{line}\n" for line in lines).encode()
        while True:
            try:
                answer = await self._client.post(
                    self._url, content=body, headers={"Content-Type": "application/x-ndjson"}
                )
                status = answer.status_code
                if answer.is_success:
                    self._backoff.succeeded()
                    return
                if status < 500 and status not in _TEMPORARY:
                    raise AdapterError(
                        f"{self._url} answered {status} {answer.reason_phrase} to a POST, which will not change by "
                        f"asking again. Check the address."
                    )
                why = f"the server answered {status} {answer.reason_phrase}"
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
            await self._backoff.wait(why)

    async def close(self) -> None:
        await self._client.aclose()


class MqttSender:
    """Publishes each line as a message of a topic, with QoS 1: the broker acknowledges it."""

    def __init__(
        self,
        host: str,
        topic: str,
        *,
        port: int = 1883,
        username: str | None = None,
        password: str | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        require("MqttSender", "aiomqtt")
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise ConfigError(f"topic={topic!r} cannot be published to; give a topic without `+` and `#`.")
        self._topic = topic
        self._where: dict[str, Any] = {"hostname": host, "port": port, "username": username, "password": password}
        self._backoff = Backoff(f"{host}:{port}/{topic}", sleep, what="sink")
        self._client: Any = None

    async def send(self, lines: Sequence[str]) -> None:
        import aiomqtt

        left = list(lines)
        while left:
            try:
                client = await self._connected()
                while left:
                    await client.publish(self._topic, left[0].encode(), qos=1)
                    del left[0]
                self._backoff.succeeded()
            except aiomqtt.MqttError as error:
                await self.close()
                await self._backoff.wait(error)

    async def _connected(self) -> Any:
        import aiomqtt

        if self._client is None:
            client = aiomqtt.Client(protocol=aiomqtt.ProtocolVersion.V5, **self._where)
            await client.__aenter__()
            self._client = client
        return self._client

    async def close(self) -> None:
        import aiomqtt

        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(aiomqtt.MqttError):  # it is gone already
                await client.__aexit__(None, None, None)


def broker_of(url: str) -> dict[str, Any]:
    """Host, port, topic and login that an address names: ``mqtt://USER:PASSWORD@HOST:PORT/TOPIC``.

    >>> broker_of("mqtt://127.0.0.1/hall/+/door")
    {'host': '127.0.0.1', 'topic': 'hall/+/door', 'port': 1883, 'username': None, 'password': None}
    """
    # "#" stands for all topics below, and begins nothing here.
    parts = urlsplit(url.replace("#", "%23"))
    try:
        port = parts.port or 1883
    except ValueError:
        port = 0
    topic = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "mqtt" or not parts.hostname or not topic or not port or parts.query:
        raise ConfigError(
            f"{url!r} names no broker and topic; write mqtt://HOST:PORT/TOPIC, e.g. mqtt://127.0.0.1/hall."
        )
    return {
        "host": parts.hostname, "topic": topic, "port": port,
        "username": parts.username, "password": parts.password,
    }  # fmt: skip
