"""Keys that fall silent: when what they hold is let go, and when they are forgotten. A machine without Spark in it.

Wall time is that of the micro-batch, which Spark writes down before it starts and uses again when it is done again. So
the same keys are silent then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from slackline.core.errors import ConfigError

_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS = {name: _MS["ms"] for name in ("ms", "millisecond", "milliseconds")}
_UNITS |= {name: _MS["s"] for name in ("s", "sec", "second", "seconds")}
_UNITS |= {name: _MS["min"] for name in ("min", "minute", "minutes")}
_UNITS |= {name: _MS["h"] for name in ("h", "hour", "hours")}
_UNITS |= {name: _MS["d"] for name in ("d", "day", "days")}
_PART = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]+)\s*")


def milliseconds(option: str, text: Any) -> int:
    """A length of time in words, as whole milliseconds.

    >>> milliseconds("idle", "30 seconds"), milliseconds("forget", "1 day 12 hours"), milliseconds("idle", "1.5 min")
    (30000, 129600000, 90000)
    """
    total, at = 0.0, 0
    words = text.lower() if isinstance(text, str) else ""
    while at < len(words) and (part := _PART.match(words, at)) and part[2] in _UNITS:
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if at < len(words) or total < 1:
        raise ConfigError(
            f"{option}={text!r} is not valid; it is a length of wall time of at least a millisecond, such as "
            f"'30 seconds', '5 min', '2 hours' or '1 day'."
        )
    return int(total)


@dataclass(frozen=True, slots=True)
class Silence:
    """After how many milliseconds without rows what a key holds is let go, and after how many it is forgotten."""

    idle: int | None = None
    forget: int | None = None

    @classmethod
    def of(cls, idle: str | None, forget: str | None) -> Silence:
        """As the user writes it."""
        made = cls(*(None if v is None else milliseconds(n, v) for n, v in (("idle", idle), ("forget", forget))))
        if made.idle is not None and made.forget is not None and made.forget < made.idle:
            raise ConfigError(
                f"forget={forget!r} is shorter than idle={idle!r}: a key would be forgotten before it is idle. Make it "
                f"longer, or leave idle out: what is forgotten is let go first."
            )
        return made

    def __bool__(self) -> bool:
        return self.idle is not None or self.forget is not None

    def watched(self, sharded: bool) -> tuple[Silence, Silence]:
        """What sites are watched for, and what the keys of shards are, which go one by one."""
        return (Silence(self.idle), Silence(forget=self.forget)) if sharded else (self, Silence())


def shard_key(shard: str, key: str) -> str:
    """A key of a shard as one name."""
    return f"{shard} {key}"


def by_shard(names: Iterable[str]) -> dict[str, list[str]]:
    """The keys of each shard.

    >>> by_shard([shard_key("64/3", "a b"), shard_key("64/7", "c"), shard_key("64/3", "d")])
    {'64/3': ['a b', 'd'], '64/7': ['c']}
    """
    keys: dict[str, list[str]] = {}
    for name in names:
        shard, _, key = name.partition(" ")
        keys.setdefault(shard, []).append(key)
    return keys


class Ledger:
    """When each site of a group last had rows, and when somebody must be looked at next.

    ``expired`` is a timer that is no more.
    """

    def __init__(self, silence: Silence, saved: tuple[Any, ...] | None = None, expired: int | None = None) -> None:
        names, times, released, timer = saved or ((), (), (), None)
        self.silence = silence
        #: By site: the time of its last rows, and whether what it held then was let go.
        self.sites: dict[str, tuple[int, bool]] = dict(zip(names, zip(times, released, strict=True), strict=True))
        #: The timer that is set.
        self.timer: int | None = None if timer == expired else timer

    def save(self) -> tuple[Any, ...]:
        """The ledger as one value of the state store."""
        times, released = zip(*self.sites.values(), strict=True) if self.sites else ((), ())
        return list(self.sites), list(times), list(released), self.timer

    def rows(self, names: Iterable[str], now: int) -> None:
        """Sites have rows."""
        for name in names:
            self.sites[name] = max(now, self.sites.get(name, (now, False))[0]), False

    def idle(self, now: int) -> list[str]:
        """The sites that must let go what they hold; they are taken to have done so."""
        wait = self.silence.idle
        if wait is None:
            return []
        due = [name for name, (at, released) in self.sites.items() if not released and at + wait <= now]
        for name in due:
            self.sites[name] = self.sites[name][0], True
        return due

    def forgotten(self, now: int) -> list[str]:
        """The sites that are to be forgotten; they are no more here."""
        wait = self.silence.forget
        due = [] if wait is None else [name for name, (at, _) in self.sites.items() if at + wait <= now]
        for name in due:
            del self.sites[name]
        return due

    def next_timer(self) -> int | None:
        """When the first of them is due; None if nobody is."""
        idle, forget = self.silence.idle, self.silence.forget
        due = [at + idle for at, released in self.sites.values() if idle is not None and not released]
        due += [at + forget for at, _ in self.sites.values() if forget is not None]
        return min(due, default=None)
