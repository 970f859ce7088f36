"""Errors as users should see them: one message, no traceback, an exit code that means something."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from slackline.core.errors import ConfigError, HierarchyError, SchemaError, SlacklineError

P = ParamSpec("P")
R = TypeVar("R")

FAILED = 1
WRONG_USE = 2


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """A command that prints a Slackline error to stderr and exits with 2 (wrong use) or 1 (failed)."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except SlacklineError as error:
            typer.echo(f"slackline: {error}", err=True)
            wrong_use = isinstance(error, ConfigError | HierarchyError | SchemaError)
            raise typer.Exit(WRONG_USE if wrong_use else FAILED) from error

    return wrapped
