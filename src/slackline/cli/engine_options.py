"""Options of the engine on a command line: ``--engine KEY=VALUE``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Any

from slackline.core.errors import ConfigError
from slackline.engine import Engine

#: Options that are no plain values, or that whoever makes engines gives them.
_NEVER_GIVEN = ("hierarchy", "detectors", "sensors", "now", "speculation")


def known_options(but: Iterable[str] = ()) -> list[str]:
    """The options that can be given."""
    hidden = (*_NEVER_GIVEN, *but)
    return [name for name in inspect.signature(Engine).parameters if name not in hidden]


def engine_options(texts: Iterable[str], but: Iterable[str] = ()) -> dict[str, Any]:
    """
    >>> engine_options(["policy=slack", "late_target=0.01", "timeout=null"])
    {'policy': 'slack', 'late_target': 0.01, 'timeout': None}
    """
    options: dict[str, Any] = {}
    known = known_options(but)
    for text in texts:
        key, equals, value = text.partition("=")
        if key not in known or not equals:
            raise ConfigError(f"--engine {text} is not valid; write KEY=VALUE, KEY one of {', '.join(known)}.")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    return options
