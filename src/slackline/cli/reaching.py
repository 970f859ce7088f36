"""Options by which commands reach nodes: where they are, and what they want to see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SecretFile = Annotated[
    Path | None,
    typer.Option(
        help="File with a secret that all nodes share, 16 bytes or more: `openssl rand -hex 32 > FILE`. It, or TLS, is "
        "needed where an address is not on this machine.",
        dir_okay=False,
    ),
]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate to show, PEM.", dir_okay=False)]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key, PEM.", dir_okay=False)]
TlsCa = Annotated[
    Path | None,
    typer.Option(help="Who signs the certificates of all nodes, and of nobody else, PEM.", dir_okay=False),
]
At = Annotated[str, typer.Option(help="HOST:PORT of any node of the network.")]
