"""Simulated links: packets that take time, get lost, come twice, overtake each other, and queue for bandwidth.

All times are virtual, in seconds. A :class:`Link` says how packets get from one node to another; a
:class:`Direction` is one at work, with a random generator of its own: what happens on one changes nothing on another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from slackline.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Link:
    """How packets get from one node to another.

    ``latency``      how long each takes at least, in seconds; up to ``jitter`` more, uniformly.
    ``loss``         the share that never arrives; ``duplication`` the share that arrives twice.
    ``reordering``   the share that is held up for up to another latency and jitter, so that those behind overtake it.
                     All others arrive in the order in which they were sent.
    ``bandwidth``    bytes per second; packets queue for it. None: no limit.

    >>> Link(latency=0.02).expected_delay(1000)
    0.02
    >>> Link(latency=0.02, jitter=0.01, bandwidth=100_000).expected_delay(1000)
    0.035
    """

    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("latency", "jitter"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is not valid; it must be seconds, 0 or more.")
        for name in ("loss", "duplication", "reordering"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not valid; it must be a share from 0 to 1.")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ConfigError(
                f"bandwidth={self.bandwidth} is not valid; it must be bytes per second, more than 0, or None."
            )

    def expected_delay(self, size: int) -> float:
        """How long a packet of so many bytes takes on average, if nothing is before it and it is not held up."""
        return self.latency + self.jitter / 2 + (size / self.bandwidth if self.bandwidth else 0.0)


@dataclass(frozen=True, slots=True)
class Partition:
    """From ``start`` until ``end`` nothing passes between the nodes of ``side`` and ``other`` (None: all others).

    Packets just vanish; nodes find out by themselves. With ``told`` their hosts see the links break, and make them
    anew at the end.
    """

    start: float
    end: float
    side: frozenset[str]
    other: frozenset[str] | None = None
    told: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ConfigError(
                f"a partition from {self.start} to {self.end} is none; its end must come after its start."
            )

    def separates(self, one: str, another: str) -> bool:
        """Whether these two are on different sides."""
        for a, b in ((one, another), (another, one)):
            if a in self.side and (b not in self.side if self.other is None else b in self.other):
                return True
        return False

    def holds(self, now: float) -> bool:
        """Whether it is there now."""
        return self.start <= now < self.end


@dataclass(slots=True)
class Traffic:
    """What was sent in one direction, by the class of the message: counts, bytes, and those lost and doubled."""

    messages: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)


class Direction:
    """One direction of a link at work."""

    def __init__(self, link: Link, random: Random) -> None:
        self.link = link
        self.traffic = Traffic()
        self._random = random
        # When the packets before have been sent out.
        self._free_at = 0.0
        #: When the last of those that keep their order arrives.
        self.last_at = 0.0

    def arrivals(self, kind: str, size: int, now: float) -> list[float]:
        """When a packet that is sent now arrives: never, once or twice. It is counted under ``kind``."""
        link, traffic = self.link, self.traffic
        traffic.messages[kind] += 1
        traffic.size[kind] += size
        if link.bandwidth is not None:
            self._free_at = max(now, self._free_at) + size / link.bandwidth
            now = self._free_at
        if self._happens(link.loss):
            traffic.lost[kind] += 1
            return []
        times = [self._arrival(now)]
        if self._happens(link.duplication):
            traffic.doubled[kind] += 1
            times.append(self._arrival(now))
        return times

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

    def _arrival(self, now: float) -> float:
        link = self.link
        at = now + link.latency + (self._random.random() * link.jitter if link.jitter else 0.0)
        if self._happens(link.reordering):
            return at + self._random.random() * (link.latency + link.jitter)
        self.last_at = max(self.last_at, at)
        return self.last_at
