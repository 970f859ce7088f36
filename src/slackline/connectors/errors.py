"""What can go wrong between a stream and the sink, as values."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from slackline.core.errors import SlacklineError
from slackline.core.event import Event
from slackline.core.extras import explain


class AdapterError(SlacklineError):
    """A stream cannot be read, or not any further. The other streams go on."""


class SinkError(SlacklineError):
    """The sink raised. The run has ended.

    ``events`` is what the sink was given. ``pending`` is all that was read from the streams and not given to the
    sink successfully, in order: first ``events``, then what waited behind them.
    """

    def __init__(self, events: Sequence[Event], pending: Sequence[Event], cause: BaseException):
        self.events = list(events)
        self.pending = list(pending)
        self.cause = cause
        which = repr(events[0]) if len(events) == 1 else f"{len(events)} events, {events[0]!r} to {events[-1]!r}"
        super().__init__(
            f"the sink raised {type(cause).__name__}: {cause} on {which}. The run has ended; these events and the "
            f"{len(pending) - len(events)} that waited behind them are in this error's `pending`. Repair the sink, "
            f"give it `pending`, and start a new junction."
        )


def require(user: str, *packages: str) -> None:
    """Raise :class:`~slackline.core.extras.MissingExtraError` unless the packages can be imported."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as cause:
            raise explain(cause, user) from cause
