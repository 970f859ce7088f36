"""What the broker sent and nobody took yet: bounded, and nothing is thrown away.

aiomqtt's own queue is unbounded, or discards what does not fit. This one stops reading the connection instead, so that
the rest waits in the network and at the broker. It needs a hand on what aiomqtt keeps to itself: paho's client and the
future that tells of a lost connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiomqtt


class Inbox:
    """Watches the queue of a client: with ``most`` messages in it the connection is not read, until half are gone."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._client: aiomqtt.Client | None = None
        self._paused = False

    def queue_type(self) -> type[asyncio.Queue[aiomqtt.Message]]:
        """The class of the queue, as aiomqtt wants it. It tells us when something is put and taken."""
        inbox = self

        class Watched(asyncio.Queue):  # the two methods are asyncio's own hooks for this
            def _put(self, item: aiomqtt.Message) -> None:
                super()._put(item)
                inbox._check(self.qsize())

            def _get(self) -> aiomqtt.Message:
                message: aiomqtt.Message = super()._get()
                inbox._check(self.qsize())
                return message

        return Watched

    def watch(self, client: aiomqtt.Client) -> None:
        """Take care of a client that is connected."""
        self._client = client
        self._paused = False
        # aiomqtt acknowledges what it has queued, before anybody has taken it; we do it when it was taken.
        client._client.manual_ack_set(True)

    def acknowledge(self, message: aiomqtt.Message) -> None:
        """Tell the broker that a message was taken."""
        if self._client is not None:
            self._client._client.ack(message.mid, message.qos)

    def _check(self, size: int) -> None:
        socket = self._client._client.socket() if self._client is not None else None
        if socket is None or socket.fileno() < 0:
            return  # the connection is lost; what is in the queue is still good
        if size >= self.most and not self._paused:
            self._paused = True
            asyncio.get_running_loop().remove_reader(socket)
        elif size <= self.most // 2 and self._paused:
            self._paused = False
            asyncio.get_running_loop().add_reader(socket, self._read)

    def _read(self) -> None:
        """Read the connection, as aiomqtt does."""
        assert self._client is not None
        try:
            self._client._client.loop_read()
        except Exception as error:
            if not self._client._disconnected.done():
                self._client._disconnected.set_exception(error)
