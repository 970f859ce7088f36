"""A client of a running node: overview of the cluster, and migration of detectors."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from slackline.cluster.connection import Connection, Credentials, HandshakeError, dial
from slackline.cluster.protocol import messages as m
from slackline.core.errors import SlacklineError
from slackline.runtime.address import Address


class NoAnswerError(SlacklineError):
    """A node could not be reached, or did not answer."""


async def overview(address: Address, credentials: Credentials, timeout: float = 10.0) -> dict[str, Any]:
    """The cluster as seen by the node at ``address``."""
    answer = await _ask(address, credentials, m.Query(), timeout)
    assert isinstance(answer, m.Overview)
    return answer.nodes


async def migrate(
    address: Address, credentials: Credentials, detector: str, node: str, timeout: float = 30.0
) -> dict[str, Any]:
    """Migrate a detector to a node; returns its duration and costs. A SlacklineError says why it failed."""
    request = m.MigrationRequest(detector, node, secrets.token_hex(8))
    answer = await _ask(address, credentials, request, timeout)
    assert isinstance(answer, m.MigrationResult)
    if answer.error:
        raise SlacklineError(answer.error)
    return answer.metrics


async def _ask(
    address: Address, credentials: Credentials, body: m.Query | m.MigrationRequest, timeout: float
) -> m.Body:
    """Send a request to a node; returns its answer."""
    credentials.check(address)
    connection: Connection | None = None
    try:
        connection = await dial(address, credentials)
        connection.write([m.encode(m.Envelope(m.VERSION, f"client {secrets.token_hex(8)}", 1, 0, 0, 0, body))])
        async with asyncio.timeout(timeout):
            return await _answer(connection, body, timeout)
    except TimeoutError:
        raise NoAnswerError(f"the node at {address} did not answer within {timeout:g} s.") from None
    except HandshakeError as error:
        raise NoAnswerError(f"cannot connect to a node at {address}: {error}") from error
    except (SlacklineError, OSError) as error:
        raise NoAnswerError(f"the node at {address} did not answer: {error}") from error
    finally:
        if connection is not None:
            connection.drop()


async def _answer(connection: Connection, body: m.Query | m.MigrationRequest, timeout: float) -> m.Body:
    """Read until the answer is received; a node sends other messages to every peer."""
    frames = await connection.first(timeout + 1)
    while frames:
        for frame in frames:
            answer = m.decode(frame).body
            if isinstance(answer, m.Rejected):
                raise SlacklineError(answer.reason)
            if isinstance(answer, m.Overview) and isinstance(body, m.Query):
                return answer
            if isinstance(answer, m.MigrationResult) and answer.request == getattr(body, "request", None):
                return answer
        frames = await connection.read()
    raise SlacklineError("it closed the connection.")
