"""Simulated TCP links: packets take time, queue for bandwidth, and arrive in order.

A lost packet is retransmitted after a timeout: it arrives later, and so does everything behind it on that link. A
packet is lost for good only when its connection breaks. All times are virtual, in seconds. A :class:`Link` configures
one direction; a :class:`LinkDirection` is one in use, with its own random generator, so that faults on one link do not
change another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from slackline.core.errors import ConfigError

#: Seconds after which a lost packet is retransmitted.
RETRANSMIT_AFTER = 0.2


@dataclass(frozen=True, slots=True)
class Link:
    """The properties of a connection from one node to another; packets arrive in order.

    ``latency``      the smallest delay of a packet, in seconds; up to ``jitter`` more, uniformly.
    ``loss``         the share of transmissions that are lost and repeated ``RETRANSMIT_AFTER`` seconds later.
    ``bandwidth``    bytes per second; packets queue for it. None: no limit.

    >>> Link(latency=0.02).expected_delay(1000)
    0.02
    >>> Link(latency=0.02, jitter=0.01, bandwidth=100_000).expected_delay(1000)
    0.035
    """

    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("latency", "jitter"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is not valid; it must be seconds, 0 or more.")
        if not 0 <= self.loss < 1:
            raise ConfigError(f"loss={self.loss} is not valid; it must be a share, at least 0 and less than 1.")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ConfigError(
                f"bandwidth={self.bandwidth} is not valid; it must be bytes per second, more than 0, or None."
            )

    def expected_delay(self, size: int) -> float:
        """The mean delay of a packet of so many bytes that is not lost and does not queue."""
        return self.latency + self.jitter / 2 + (size / self.bandwidth if self.bandwidth else 0.0)


@dataclass(frozen=True, slots=True)
class Partition:
    """From ``start`` until ``end`` nothing passes between the nodes of ``side`` and ``other`` (None: all others).

    The links stay up, and packets are retransmitted until the end. With ``detected`` the links break at the start,
    packets in flight are lost, and the hosts reconnect at the end.
    """

    start: float
    end: float
    side: frozenset[str]
    other: frozenset[str] | None = None
    detected: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end < float("inf"):
            raise ConfigError(
                f"a partition from {self.start} to {self.end} is not valid; its end must come after its start."
            )

    def separates(self, one: str, another: str) -> bool:
        """Whether these two are on different sides."""
        for a, b in ((one, another), (another, one)):
            if a in self.side and (b not in self.side if self.other is None else b in self.other):
                return True
        return False

    def is_active(self, now: float) -> bool:
        """Whether it separates nodes now."""
        return self.start <= now < self.end


@dataclass(slots=True)
class Traffic:
    """Traffic in one direction by class of message: counts, bytes, and packets lost at least once."""

    messages: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


class LinkDirection:
    """One direction of a link in use."""

    def __init__(self, link: Link, random: Random) -> None:
        self.link = link
        self.traffic = Traffic()
        self._random = random
        # When the bandwidth is free again.
        self._free_at = 0.0
        #: When the last packet arrives.
        self.last_at = 0.0

    def arrival(self, kind: str, size: int, now: float, passes: Callable[[float], bool]) -> float:
        """When a packet that is sent now arrives; ``passes`` says whether a transmission at a time may succeed.

        It is counted under ``kind``.
        """
        link, traffic = self.link, self.traffic
        traffic.messages[kind] += 1
        traffic.size[kind] += size
        if link.bandwidth is not None:
            now = self._free_at = max(now, self._free_at) + size / link.bandwidth
        sent = now
        while not passes(sent) or (link.loss and self._random.random() < link.loss):
            sent += RETRANSMIT_AFTER
        traffic.lost[kind] += sent > now
        at = sent + link.latency + (self._random.random() * link.jitter if link.jitter else 0.0)
        self.last_at = max(self.last_at, at)
        return self.last_at
