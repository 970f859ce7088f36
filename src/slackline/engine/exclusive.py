"""One call of an engine at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from slackline.core.errors import ConcurrentUseError

P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[P, R]) -> Callable[P, R]:
    """Let nobody else into an engine meanwhile: neither another thread, nor a detector that calls it."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        idle: list[None] = args[0]._idle  # type: ignore[attr-defined]
        try:
            idle.pop()  # atomic, so that of two threads one fails
        except IndexError:
            raise ConcurrentUseError(
                f"{method.__name__}() was called while another call of this engine is under way. An engine is for one "
                f"thread at a time, and not for its own detectors: use a lock or a queue, or one engine per thread."
            ) from None
        try:
            return method(*args, **kwargs)
        finally:
            idle.append(None)

    return guarded
