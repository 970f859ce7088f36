"""Commands that installed applications add to the command line.

An installed package may add commands by an entry point of the group ``slackline.commands``::

    [project.entry-points."slackline.commands"]
    soccer = "slackline_soccer.commands.soccer:soccer"

The entry point's name is the command's; what it points to is a function, as typer takes it, or a ``typer.Typer`` with
commands below it. It is loaded when the command is asked for, so that one that cannot be loaded (an extra is not
installed) affects no other command.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from slackline.cli.console import FAILED
from slackline.core.extras import MissingExtraError, explain

GROUP = "slackline.commands"


def installed() -> dict[str, EntryPoint]:
    """The entry points of the group, by the names of their commands."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


class Commands(TyperGroup):
    """A group of commands: its own, and those of the applications that are installed."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in installed() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        point = installed().get(cmd_name)
        return own if own is not None or point is None else load(point)


def load(point: EntryPoint) -> Any:
    """The command that an entry point names; if it cannot be loaded, one that says why."""
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        found = _unavailable(error, point.name)
    app = found
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(context_settings=getattr(found, "context_settings", None))(found)
    command = typer.main.get_command(app)
    command.name = point.name
    return command


def _unavailable(error: Exception, name: str) -> Any:
    """A command that only says why it is none: which extra it needs, or what else went wrong."""
    reason = _reason(error, name)

    def unavailable() -> None:
        typer.echo(f"slackline: {reason}.", err=True)
        raise typer.Exit(FAILED)

    unavailable.__doc__ = escape(f"Not available: {reason}.")  # an extra's brackets are not markup
    unavailable.context_settings = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]
    return unavailable


def _reason(error: Exception, name: str) -> str:
    missing = explain(error, name) if isinstance(error, ImportError) else error
    if isinstance(missing, MissingExtraError):  # whatever part of it needs the extra
        return str(MissingExtraError(f"slackline {name}", missing.extra))
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"cannot start {name!r}: the package {error.name!r} is not installed"
    return f"cannot start {name!r}: {type(error).__name__}: {error}"
