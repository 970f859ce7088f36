"""What may be pushed into a synchroniser."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.time import MAX_TS


def listed(events: Any) -> list[Event]:
    """The events, before any is taken: what gives them may raise."""
    if isinstance(events, Iterable):
        return list(events)
    raise ConfigError(f"push() takes an event or several; got a {type(events).__name__}: {events!r}.")


def why_not(ts: Any) -> str | None:
    """Why a time stamp cannot be; None if it can."""
    if type(ts) is int and 0 <= ts <= MAX_TS:  # nearly always, and ten times as fast as asking whether it is a number
        return None
    if isinstance(ts, bool) or not isinstance(ts, Integral):
        return f"the time stamp {ts!r} is no whole number"
    if not 0 <= int(ts) <= MAX_TS:
        return f"the time stamp {ts!r} is {'negative' if int(ts) < 0 else 'absurdly large'}"
    return None
