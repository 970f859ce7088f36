"""``slackline migrate DETECTOR NODE``: migrate a detector to another node while it runs."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from slackline.cli.failure import reports_errors
from slackline.cli.reaching import At, TlsCa, TlsCert, TlsKey
from slackline.cluster import client
from slackline.cluster.links import Credentials
from slackline.runtime.address import Address


@reports_errors
def migrate(
    detector: Annotated[str, typer.Argument(help="The detector to migrate, as `slackline nodes` shows it.")],
    node: Annotated[str, typer.Argument(help="The node to which it migrates.")],
    at: At,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the result.", min=0.1)] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print duration and costs as JSON.")] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Migrate a detector to another node. Its outputs do not change: none is lost, repeated or reordered."""
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    metrics = asyncio.run(client.migrate(Address.of(at), credentials, detector, node, timeout))
    if as_json:
        typer.echo(json.dumps(metrics, indent=2))
        return
    typer.echo(
        f"{detector} migrated from {metrics['from']} to {node} in {1000 * metrics['seconds']:.0f} ms: "
        f"{metrics['state_bytes']:,} bytes of state, {metrics['forwarded']:,} forwarded messages."
    )
