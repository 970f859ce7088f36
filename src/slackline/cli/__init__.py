"""The command line: ``slackline COMMAND``. One file per command; applications add theirs by entry points.

Exit codes: 0 done, 1 failed, 2 wrong use. Figures go to stdout, everything else to stderr.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

from slackline.core.extras import explain

try:
    import rich
    import typer
except ImportError as error:
    raise explain(error, "the command line") from error

from slackline.cli.applications import Commands
from slackline.cli.bench import bench
from slackline.cli.calibrate import calibrate
from slackline.cli.cluster import cluster
from slackline.cli.console import reports_errors
from slackline.cli.explain import explain as explain_command
from slackline.cli.node import node
from slackline.cli.nodes import certificates, migrate, nodes
from slackline.cli.order import order
from slackline.cli.place import place
from slackline.cli.run import run
from slackline.cli.state import state
from slackline.cli.study import study
from slackline.cli.sync import sync

__all__ = ["app", "reports_errors"]

app = typer.Typer(
    name="slackline",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"slackline {version('slackline-streams')}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Restores event-time order in out-of-order streams with minimal added latency, and runs detectors on them."""


for _command in (run, order, study, sync, calibrate, node, nodes, migrate, place, certificates):
    app.command()(_command)
app.command("explain")(explain_command)
app.add_typer(cluster, name="cluster")
app.add_typer(state, name="state")
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(bench)

del rich
