"""A client of a running node: overview of the cluster, and migration of detectors."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from slackline.cluster.connection import Connection, HandshakeError, dial
from slackline.cluster.protocol.messages import (
    VERSION,
    Answer,
    Body,
    Envelope,
    Order,
    Overview,
    Query,
    Rejected,
    decode,
    encode,
)
from slackline.cluster.tls import Credentials
from slackline.core.errors import SlacklineError
from slackline.runtime.address import Address


class NoAnswerError(SlacklineError):
    """A node could not be reached, or did not answer."""


async def overview(address: Address, credentials: Credentials, patience: float = 10.0) -> dict[str, Any]:
    """The cluster as seen by the node at ``address``."""
    said = await _ask(address, credentials, Query(), patience)
    assert isinstance(said, Overview)
    return said.nodes


async def move(
    address: Address, credentials: Credentials, detector: str, node: str, patience: float = 30.0
) -> dict[str, Any]:
    """Migrate a detector to a node; returns figures of the migration. A SlacklineError says why it failed."""
    order = Order(detector, node, secrets.token_hex(8))
    said = await _ask(address, credentials, order, patience)
    assert isinstance(said, Answer)
    if said.error:
        raise SlacklineError(said.error)
    return said.figures


async def _ask(address: Address, credentials: Credentials, body: Query | Order, patience: float) -> Body:
    """The node's answer."""
    try:
        connection = await dial(address, credentials)
    except HandshakeError as error:
        raise NoAnswerError(f"cannot connect to a node at {address}: {error}") from error
    try:
        envelope = Envelope(VERSION, f"client {secrets.token_hex(8)}", 1, 0, 0, 0, body)
        connection.write([encode(envelope)])
        async with asyncio.timeout(patience):
            return await _answer(connection, body, patience)
    except TimeoutError:
        raise NoAnswerError(f"the node at {address} did not answer within {patience:g} s.") from None
    except HandshakeError as error:
        raise NoAnswerError(f"cannot connect to a node at {address}: {error}") from error
    except (SlacklineError, OSError) as error:
        raise NoAnswerError(f"the node at {address} did not answer: {error}") from error
    finally:
        connection.drop()


async def _answer(connection: Connection, body: Query | Order, patience: float) -> Body:
    """Read until the answer comes; a node sends other messages to every peer."""
    frames = await connection.first(patience + 1)
    while frames:
        for frame in frames:
            match decode(frame).body:
                case Overview() as said if isinstance(body, Query):
                    return said
                case Answer() as said if isinstance(body, Order) and said.request == body.request:
                    return said
                case Rejected(reason):
                    raise SlacklineError(reason)
        frames = await connection.read()
    raise SlacklineError("it closed the connection.")
