"""``slackline migrate DETECTOR NODE``: migrate a detector to another node while it runs."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from slackline.cli.failure import reports_errors
from slackline.cli.reaching import At, TlsCa, TlsCert, TlsKey
from slackline.cluster.client import move
from slackline.cluster.tls import Credentials
from slackline.runtime.address import Address


@reports_errors
def migrate(
    detector: Annotated[str, typer.Argument(help="The detector to move, as `slackline nodes` shows it.")],
    node: Annotated[str, typer.Argument(help="The node where it is to run.")],
    at: At,
    patience: Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.1)] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
) -> None:
    """Migrate a detector to another node. Its outputs do not change: none is lost, repeated or reordered."""
    credentials = Credentials.of(tls_cert, tls_key, tls_ca)
    figures = asyncio.run(move(Address.of(at), credentials, detector, node, patience))
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    typer.echo(
        f"{detector} runs on {node} now; it came from {figures['from']} in {1000 * figures['seconds']:.0f} ms, with "
        f"{figures['state_bytes']:,} bytes of state and {figures['forwarded']:,} forwarded messages."
    )
