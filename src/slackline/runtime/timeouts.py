"""Keys without arrivals: when their buffered events are flushed (idle timeout), and when their state is dropped (state
TTL). A machine without a clock: wall time comes in as an argument, in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ConfigError
from slackline.core.time import seconds_in


def milliseconds(option: str, given: Any) -> int:
    """A length of wall time as whole milliseconds: a number of seconds, ``timedelta``, or text such as ``"30 s"``.

    >>> milliseconds("idle_timeout", "30 seconds"), milliseconds("state_ttl", "1 day 12 hours"), milliseconds("x", 1.5)
    (30000, 129600000, 1500)
    """
    bare: Any = given
    if isinstance(given, str) and re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", given):
        bare = float(given)
    is_number = isinstance(bare, int | float) and not isinstance(bare, bool)
    total: Any = bare * 1000.0 if is_number else (seconds_in(bare) or 0) * 1000
    if not 1 <= total < 2**53:
        raise ConfigError(
            f"{option}={given!r} is not valid; it must be a length of wall time of at least a millisecond: a number of "
            f"seconds, a timedelta, or text such as '30 seconds', '5 min', '2 hours' or '1 day'."
        )
    return int(total)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """After how many milliseconds without arrivals a key is flushed, and after how many its state is dropped."""

    idle: int | None = None
    ttl: int | None = None

    @classmethod
    def of(cls, idle_timeout: Any = None, state_ttl: Any = None) -> Timeouts:
        """From what a user gave."""
        idle = None if idle_timeout is None else milliseconds("idle_timeout", idle_timeout)
        ttl = None if state_ttl is None else milliseconds("state_ttl", state_ttl)
        if idle is not None and ttl is not None and ttl < idle:
            raise ConfigError(
                f"state_ttl={state_ttl!r} is shorter than idle_timeout={idle_timeout!r}: the state of a key would be "
                f"dropped before the key is idle. Make it longer, or leave idle_timeout out: a key is flushed before "
                f"its state is dropped."
            )
        return cls(idle, ttl)

    def __bool__(self) -> bool:
        return self.idle is not None or self.ttl is not None


class Activity:
    """When each key last had arrivals, and when the next timeout is due.

    A name is that of an engine (a key or a shard), or a pair of a shard and a key of it.
    """

    def __init__(self, timeouts: Timeouts, saved: Iterable[tuple[Any, int, bool]] = ()) -> None:
        self.timeouts = timeouts
        #: By name: the time of its last arrivals, and whether it has been flushed since.
        self._last: dict[Hashable, tuple[int, bool]] = {name: (at, flushed) for name, at, flushed in saved}

    def save(self) -> list[tuple[Any, int, bool]]:
        """The state, for a checkpoint."""
        return [(name, at, flushed) for name, (at, flushed) in self._last.items()]

    def arrived(self, names: Iterable[Any], at: int) -> None:
        """These had arrivals."""
        for name in names:
            self._last[name] = max(at, self._last.get(name, (at, False))[0]), False

    def idle(self, at: int) -> list[Any]:
        """Those that are to be flushed; flushed ones are kept only where states expire, too."""
        wait = self.timeouts.idle
        if wait is None:
            return []
        due = [name for name, (last, flushed) in self._last.items() if not flushed and last + wait <= at]
        for name in due:
            if self.timeouts.ttl is None:
                del self._last[name]
            else:
                self._last[name] = self._last[name][0], True
        return due

    def expired(self, at: int) -> list[Any]:
        """Those whose state is to be dropped; their activity is dropped here."""
        wait = self.timeouts.ttl
        due = [] if wait is None else [name for name, (last, _) in self._last.items() if last + wait <= at]
        for name in due:
            del self._last[name]
        return due

    def drop(self, name: Any) -> None:
        """The state of this one is gone."""
        self._last.pop(name, None)

    def next_at(self) -> int | None:
        """When the first timeout is due; None if none is pending."""
        idle, ttl = self.timeouts.idle, self.timeouts.ttl
        due = [at + idle for at, flushed in self._last.values() if idle is not None and not flushed]
        due += [at + ttl for at, _ in self._last.values() if ttl is not None]
        return min(due, default=None)
