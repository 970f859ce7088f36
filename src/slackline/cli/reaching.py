"""Options of commands that connect to nodes: address and TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TlsCert = Annotated[
    Path | None,
    typer.Option(
        help="Certificate of this node, PEM. TLS is required for addresses other than loopback; `slackline "
        "certificates` makes the files.",
        dir_okay=False,
    ),
]
TlsKey = Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.", dir_okay=False)]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        help="Certificate of the authority that signs for the nodes of this cluster only, PEM.", dir_okay=False
    ),
]
At = Annotated[str, typer.Option(help="HOST:PORT of any node of the cluster.")]
