"""``slackline certificates FOLDER``: TLS certificates for the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackline.cli.failure import reports_errors


@reports_errors
def certificates(
    folder: Annotated[Path, typer.Argument(help="Where the files are written.", file_okay=False)],
    name: Annotated[list[str], typer.Option(help="Name of a node; several times.")],
    days: Annotated[int, typer.Option(help="How long the certificates of nodes are valid.", min=1)] = 365,
) -> None:
    """Make TLS certificates for nodes, signed by a certificate authority of their own.

    The authority is ca.pem and ca.key in FOLDER; it is made at first and reused later. Each node gets NAME.pem and
    NAME.key. Existing files are not overwritten. Give each machine ca.pem and the two files of its node; keep ca.key.
    """
    from slackline.cluster.certificates import AUTHORITY, make_certificates

    written = make_certificates(folder, name, days)
    typer.echo(f"Wrote {', '.join(map(str, written))}. Options of the nodes:", err=True)
    for each in dict.fromkeys(name):
        files = (folder / f"{each}.pem", folder / f"{each}.key", folder / f"{AUTHORITY}.pem")
        options = " ".join(f"--tls-{option} {path}" for option, path in zip(("cert", "key", "ca"), files, strict=True))
        typer.echo(f"{each}: {options}")
