"""Timers in event time: a detector sets them, and is called when its input has passed their time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ConfigError
from slackline.core.event import Event, Source
from slackline.core.time import MAX_TS, whole


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer, to be yielded by a detector: ``on_timer`` is called when the watermark passes event time ``at``.

    It takes its place in the total order: after all events with ``ts <= at``, before all later ones; timers of equal
    time in the order of their tags. A detector has one timer per ``tag`` (per key, if it is keyed): setting it again
    moves it, :meth:`cancel` removes it. A time that has passed already is due at once.

    ``key`` is set in the timer that ``on_timer`` gets: the key of the instance.

    >>> timer = Timer(60, "silence")
    >>> timer.derive("silent", device="d1"), Timer.cancel("silence")
    (Event('silent', ts=60, device='d1'), Timer(at=None, tag='silence', key=None))
    """

    at: int | None
    tag: str = ""
    key: Source = None

    def __post_init__(self) -> None:
        if type(self.at) is not int and self.at is not None:
            at = whole(self.at)
            if at is None:
                raise ConfigError(
                    f"Timer(at={self.at!r}) is not valid; it must be an event time: a whole number, such as "
                    f"event.ts + 60. Use Timer.cancel(tag) to cancel a timer."
                )
            object.__setattr__(self, "at", at)
        if self.at is not None and not -MAX_TS <= self.at <= MAX_TS:
            raise ConfigError(f"Timer(at={self.at!r}) is not valid; it must be at most 2**62.")
        if type(self.tag) is not str:
            raise ConfigError(f"Timer(tag={self.tag!r}) is not valid; it must be a string.")

    @classmethod
    def cancel(cls, tag: str = "") -> Timer:
        """To be yielded: cancel the timer with this tag, if there is one."""
        return cls(None, tag)

    def derive(self, type: str, ts: int | None = None, **payload: Any) -> Event:
        """A new event caused by this timer; its time stamp defaults to ``at`` and may be earlier (back-dated)."""
        if ts is None:
            assert self.at is not None, "a cancelled timer causes no events"
            ts = self.at
        return Event.of(type, ts, None, None, payload)
