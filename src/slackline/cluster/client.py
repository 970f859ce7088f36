"""Asking a node from outside: who runs what, and move this there."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from slackline.cluster.connection import Connection, dial
from slackline.cluster.secret import Credentials
from slackline.core.errors import ConfigError, SlacklineError
from slackline.nodes.messages import (
    VERSION,
    Answer,
    Body,
    Envelope,
    Order,
    Overview,
    Query,
    TurnedAway,
    decode,
    encode,
)
from slackline.runtime.address import Address


class NoAnswerError(SlacklineError):
    """A node could not be reached, or did not say what it was asked for."""


async def overview(address: Address, credentials: Credentials, patience: float = 10.0) -> dict[str, Any]:
    """The network as the node there sees it, by node."""
    said = await _ask(address, credentials, Query(), patience)
    assert isinstance(said, Overview)
    return said.nodes


async def move(
    address: Address, credentials: Credentials, detector: str, node: str, patience: float = 30.0
) -> dict[str, Any]:
    """Let a detector move to a node; how that went. A SlacklineError if it cannot be, and why."""
    order = Order(detector, node, secrets.token_hex(8))
    said = await _ask(address, credentials, order, patience)
    assert isinstance(said, Answer)
    if said.error:
        raise SlacklineError(said.error)
    return said.figures


async def _ask(address: Address, credentials: Credentials, body: Query | Order, patience: float) -> Body:
    """What the node answers."""
    try:
        connection = await dial(address, credentials)
    except ConfigError:
        raise
    except (SlacklineError, OSError) as error:
        raise NoAnswerError(f"cannot speak to a node at {address}: {error}") from error
    try:
        envelope = Envelope(VERSION, f"client {secrets.token_hex(8)}", 1, 0, 0, 0, body)
        connection.write([encode(envelope)])
        async with asyncio.timeout(patience):
            return await _answer(connection, body)
    except TimeoutError:
        raise NoAnswerError(f"the node at {address} has not answered within {patience:g} s.") from None
    except (SlacklineError, OSError) as error:
        raise NoAnswerError(f"the node at {address} has not answered: {error}") from error
    finally:
        connection.drop()


async def _answer(connection: Connection, body: Query | Order) -> Body:
    """Hear until the answer comes; a node says other things, too, to whoever it meets."""
    while frames := await connection.read():
        for frame in frames:
            match decode(frame).body:
                case Overview() as said if isinstance(body, Query):
                    return said
                case Answer() as said if isinstance(body, Order) and said.request == body.request:
                    return said
                case TurnedAway(reason):
                    raise SlacklineError(reason)
    raise SlacklineError("it has hung up.")
