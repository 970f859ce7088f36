"""Errors.

Every error derives from :class:`SlacklineError`, carries its facts as attributes, and its message says
what was given, what was expected and what to do.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

#: Where the code of this package is.
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


class SlacklineError(Exception):
    """Base of all errors that Slackline raises on purpose.

    ``outputs`` is what a push produced before it raised, so that no output is lost; ``refused`` are the events of a
    push that were not admitted, where known.
    """

    outputs: list[Any] = []  # noqa: RUF012
    refused: list[Any] = []  # noqa: RUF012


class HierarchyError(SlacklineError):
    """The detectors do not form a hierarchy: a cycle, a type published twice, an unknown clock type, ..."""


class ConfigError(SlacklineError):
    """An option has a value that cannot work."""


class SchemaError(SlacklineError):
    """A table lacks a column or has one of the wrong type."""


class NotAnEventError(SlacklineError):
    """A detector published something that is not an event, or an event of a type not in its ``publishes``."""


def raised_text(cause: BaseException) -> str:
    """What was raised, and where in the code of the user, as far as its traceback shows.

    >>> raised_text(ValueError("no such player."))
    'ValueError: no such player'
    """
    text = f"{type(cause).__name__}: {cause}".rstrip(". :")
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(cause.__traceback__)]
    theirs = [(file, line) for file, line in frames if not file.startswith((_PACKAGE, "<frozen importlib"))]
    if not theirs:
        return text
    first, _ = theirs[0]
    line = [line for file, line in theirs if file == first][-1]
    return f"{text} ({os.path.basename(first)}, line {line})"


class DetectorError(SlacklineError):
    """A detector raised on an event.

    The rest of the push was processed; ``outputs`` holds what it produced.
    """

    def __init__(self, detector: str, event: Any, state_size: int, cause: BaseException, failures: int = 1):
        self.detector = detector
        self.event = event
        self.state_size = state_size
        self.cause = cause
        self.failures = failures
        more = f" (and {failures - 1} more failures in this push)" if failures > 1 else ""
        super().__init__(
            f"detector {detector!r} raised {raised_text(cause)} on {event!r}, "
            f"state of {state_size} bytes{more}. The event is in `engine.quarantined`; the rest of the "
            f"push was processed (see this error's `outputs`). Fix the detector, or create the engine with "
            f"on_error='quarantine' to continue without raising."
        )


class BufferLimitError(SlacklineError):
    """More events are buffered than ``max_buffered`` allows, usually because stream time does not move."""

    def __init__(self, buffered: int, limit: int, cause: str, option: str = "max_buffered", remedy: str = ""):
        self.buffered = buffered
        self.limit = limit
        self.cause = cause
        remedy = remedy or "Raise max_buffered, or set overflow='release' to release the oldest buffered events."
        super().__init__(
            f"{buffered} events are buffered, {option}={limit} allows no more: {cause} Nothing was dropped. {remedy}"
        )


class StateError(SlacklineError):
    """A state cannot be saved, or saved bytes cannot be restored."""


class UnsupportedStateError(StateError):
    """An attribute of a detector is of a kind that cannot be saved."""

    def __init__(self, where: str, value: Any, why: str = ""):
        self.where = where
        self.kind = f"{type(value).__module__}.{type(value).__qualname__}"
        super().__init__(
            f"{where} is a {self.kind}, which cannot be saved{': ' + why if why else ''}. Kinds that can: None, bool, "
            f"int, float, complex, str, bytes, list, tuple, set, frozenset, dict, deque, dates, times, Decimal, "
            f"dataclasses, slackline.Event, NumPy arrays and scalars. Store state in those, or give the detector "
            f"snapshot() and restore(state) that turn it into them."
        )


class ClosedError(SlacklineError):
    """The engine was closed: its stream has ended."""


class ConcurrentUseError(SlacklineError):
    """An engine was called during another call, from another thread or by one of its detectors."""
