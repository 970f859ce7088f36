"""Applications: how they are named, loaded, and stopped.

``module:name``, ``file.py:name``, or ``file.py``. The name, ``hierarchy`` unless given, is a
:class:`~slackline.Hierarchy`, or a function without arguments that makes one. An application that reads its own
recordings names a function of a recording's path; it gives the hierarchy for that one, and a function that gives its
arrivals, table by table, from the start: ``slackline_soccer:recorded``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from slackline.core.errors import ConfigError, SlacklineError, raised_text
from slackline.core.hierarchy import Hierarchy

Tables = Callable[[], Any]


def load_application(named: str, recording: Path | None) -> tuple[Hierarchy, Tables | None]:
    """The hierarchy that is named, and the tables of the recording if the application reads it itself."""
    found = _imported(named)
    if isinstance(found, Hierarchy):
        return found, None
    if not callable(found) or isinstance(found, type):
        raise ConfigError(
            f"{named} is of type {type(found).__name__}; it must be a slackline.Hierarchy, or a function that makes "
            f"one."
        )
    wanted = [
        parameter
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if wanted and recording is None:
        raise ConfigError(f"{named} makes its hierarchy for a recording; give one.")
    made = found(recording) if wanted else found()
    if isinstance(made, Hierarchy):
        return made, None
    match made:
        case (Hierarchy() as hierarchy, tables) if wanted and callable(tables):
            return hierarchy, tables
    raise ConfigError(
        f"{named}() returns {type(made).__name__}; it must give a slackline.Hierarchy, or, called with a recording, a "
        f"hierarchy and a function that gives the recording's tables."
    )


def _imported(named: str) -> Any:
    module, colon, name = named.rpartition(":")
    if not colon and named.endswith(".py"):
        module, name = named, "hierarchy"
    if not module or not name:
        raise ConfigError(
            f"{named!r} does not name an application; write module:name, e.g. my_app:hierarchy, or a file."
        )
    found = _from_file(Path(module)) if module.endswith(".py") else _from_path(module)
    if not hasattr(found, name):
        others = [each for each, value in vars(found).items() if isinstance(value, Hierarchy)]
        hint = f" It has {', '.join(others)}." if others else ""
        raise ConfigError(f"{module!r} has no {name!r}; write module:name of a slackline.Hierarchy.{hint}")
    return getattr(found, name)


def _from_path(module: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not look here by itself
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot import {module!r}: there is no module {error.name!r}. Run this in the folder of the application, "
            f"or install it."
        ) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file. Give the Python file of an application, or module:name.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # what lies beside it, as Python does for a script
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except SlacklineError:
        raise
    except Exception as error:
        raise ConfigError(f"{path} cannot be loaded: it raised {raised_text(error)}.") from error
    return module


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Meanwhile SIGINT and SIGTERM call ``stop``. For the main thread."""
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
