"""What all commands print: errors with an exit code that means something, notes and progress on stderr, tables."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slackline.core.errors import ConfigError, HierarchyError, SchemaError, SlacklineError

P = ParamSpec("P")
R = TypeVar("R")

FAILED = 1
WRONG_USE = 2
#: Characters of a line where no terminal says how wide it is.
WIDE = 120


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """A command that prints a Slackline error to stderr and exits with 2 (wrong use) or 1 (failed)."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _plain_warnings():
                return command(*args, **kwargs)
        except SlacklineError as error:
            typer.echo(f"slackline: {error}", err=True)
            wrong_use = isinstance(error, ConfigError | HierarchyError | SchemaError)
            raise typer.Exit(WRONG_USE if wrong_use else FAILED) from error
        except BrokenPipeError:
            raise  # the reader of standard output has stopped; typer exits
        except OSError as error:
            typer.echo(f"slackline: {error}.", err=True)
            raise typer.Exit(FAILED) from error

    wrapped.__doc__ = _unwrapped(command.__doc__ or "")
    return wrapped


def _unwrapped(docstring: str) -> str:
    """A docstring with a line per paragraph, since the help wraps lines at the width of the terminal.

    >>> _unwrapped("Order\\nrecords.\\n\\n    See\\n    the guide.")
    'Order records.\\n\\nSee the guide.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(docstring).split("\n\n"))


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings of the library as lines on stderr, without the place in its code."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def line(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if category is UserWarning:
                typer.echo(f"slackline: {message} (warning)", err=True)
            else:
                show(message, category, *place)

        warnings.showwarning = line  # type: ignore[assignment]
        yield


def stdout() -> Console:
    """The console for tables and sentences."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    return console


def say(notes: Iterable[str], warnings: Iterable[str] = ()) -> None:
    """Print notes and warnings to stderr, a line each."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for note in notes:
        console.print(f"note: {escape(note)}")
    for warning in warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")


def wrote(path: Path, what: str = "") -> None:
    """Print to stderr that a file was written."""
    typer.echo(f"wrote {path}{what}", err=True)


def write_page(path: Path, page: str) -> None:
    """Write an HTML page."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as cause:
        raise SlacklineError(f"cannot write {path}: {cause}.") from cause
    wrote(path)


@contextmanager
def progress() -> Iterator[Callable[..., None]]:
    """Progress on stderr, if it is a terminal: call it with what is done, how much of it, and of how much."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:>24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int = 0, total: int | None = None) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield show


def table(title: str, *headings: str) -> Table:
    """A table without rows. Columns whose heading begins with ``>`` are of numbers."""
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        if heading.startswith(">"):
            made.add_column(heading[1:], justify="right", vertical="bottom", no_wrap=True)
        else:
            made.add_column(heading, vertical="bottom", overflow="fold")
    return made
