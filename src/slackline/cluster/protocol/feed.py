"""One type as it comes from another node: in the order of its numbers, each once.

Items may come twice, out of order, over two paths (directly, and forwarded by who ran a detector before), or not at
all. What comes before its turn is held. A gap that has not closed after a while is asked for again, if the type is
reliable here, or counted and given up. So what is handed on is a stream without holes and echoes
[Migration, IV-A, step 2].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from slackline.cluster.protocol import wire
from slackline.cluster.protocol.messages import Item, ProtocolError
from slackline.core.batch import Batch
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER


class Publisher(NamedTuple):
    """Where a type comes from now: a node, in this life of its."""

    node: str
    incarnation: int


class Portion(NamedTuple):
    """Events of a type in the order of their numbers, from ``first`` on, as the engine takes them and as they came."""

    first: int
    updates: ProgressUpdate
    item: Item

    @property
    def next(self) -> int:
        """The number after the last."""
        return self.first + len(self.updates.events)

    def packed(self) -> Item:
        """The item as it travels, also if it was not to."""
        if self.item.count and not self.item.events:
            return msgspec.structs.replace(self.item, events=wire.packed(self.updates.events))
        return self.item

    def since(self, number: int) -> Portion | None:
        """What of it has this number or a later one; None if nothing."""
        if number <= self.first:
            return self
        if number >= self.next:
            return None
        events = self.updates.events
        cut = number - self.first
        rest = events.slice(cut, len(events)) if isinstance(events, Batch) else events[cut:]
        return Portion(number, self.updates._replace(events=rest), self.item)

    def until(self, number: int) -> Portion | None:
        """What of it has an earlier number; None if nothing."""
        if number >= self.next:
            return self
        if number <= self.first:
            return None
        events, n = self.updates.events, number - self.first
        rest = events.slice(0, n) if isinstance(events, Batch) else events[:n]
        return Portion(self.first, self.updates._replace(events=rest, watermark=NEVER), self.item)


def portion_of(item: Item, derived: bool) -> Portion:
    """An item, read and checked."""
    sound = item.first >= 1 and item.count >= 0 and 0 <= item.back <= FOREVER and 0 <= item.K <= FOREVER
    told = all(NEVER <= ts <= FOREVER for ts in (item.watermark, item.clk)) and -1 <= item.default_slack <= FOREVER
    if not sound or not told:
        raise ProtocolError(f"an item of type {item.type!r} whose numbers cannot be.")
    if any(not 2 * NEVER <= ts <= FOREVER for ts in item.warnings):
        raise ProtocolError(f"an item of type {item.type!r} with a warning that cannot be.")
    read = wire.unpacked_events if derived else wire.unpacked
    events = read(item.type, item.events, item.count)
    updates = ProgressUpdate(
        item.type, events, tuple(item.warnings), item.watermark, item.back, item.clk, item.K, item.default_slack
    )
    return Portion(item.first, updates, item)


@dataclass(slots=True)
class Feed:
    """The subscriber's side of one type."""

    kind: str
    derived: bool
    reliable: bool
    #: Whether only clock and progress are wanted, no events.
    ticks: bool = False
    #: The number of the next event to hand on; 0: not known yet (a detector is about to come that knows).
    next: int = 1
    #: Up to which number what was handed on survives a crash.
    durable: int = 0
    #: Whom we have asked for it, when, and whether that was answered.
    asked: Publisher | None = None
    asked_at: float = 0.0
    confirmed: bool = False
    heard_at: float = 0.0
    #: When its publisher, or who listens to it here, came from another node.
    moved_at: float = -math.inf
    #: The first number that comes directly, once that is known.
    direct: int = 0
    #: Nothing is handed on while its publisher changes hands.
    paused: bool = False
    lost: int = 0
    doubled: int = 0
    acknowledged: tuple[int, int] = (0, 0)
    gap_since: float | None = None
    #: What came before its turn, by its first number.
    held: dict[int, Portion] = field(default_factory=dict)
    #: How far the type has come, as was handed on.
    watermark: int = NEVER
    clk: int = NEVER

    def offer(self, portion: Portion, now: float, most: int) -> None:
        """Take what has come; what is of no use is dropped. At most so many events are held before their turn."""
        self.heard_at = now
        if self.ticks:
            self.next = max(self.next, portion.first)
        if (self.next and portion.next < self.next) or (portion.next == self.next and len(portion.updates.events)):
            self.doubled += len(portion.updates.events)
            return
        known = self.held.get(portion.first)
        if known is None or _further(portion, known):
            if portion.first != self.next and sum(len(p.updates.events) for p in self.held.values()) > most:
                return
            self.held[portion.first] = portion

    def take(self, now: float) -> list[Portion]:
        """What may be handed on now."""
        taken: list[Portion] = []
        if not self.next or self.paused:
            return taken
        while self.held:
            first = min(self.held)
            if first > self.next:
                break
            rest = self.held.pop(first)
            cut = rest.since(self.next) if len(rest.updates.events) else rest
            if cut is None or (not len(cut.updates.events) and cut.first < self.next):
                continue
            if not len(cut.updates.events) and not self._is_new(cut.updates):
                continue
            self.watermark, self.clk = (
                max(self.watermark, cut.updates.watermark),
                max(self.clk, cut.updates.clk),
            )
            # Without the events, how far the type has come means nothing.
            watermark = NEVER if self.ticks else self.watermark
            taken.append(cut._replace(updates=cut.updates._replace(watermark=watermark)))
            self.next = cut.next
        self.gap_since = None if not self.held else self.gap_since if self.gap_since is not None else now
        return taken

    def _is_new(self, updates: ProgressUpdate) -> bool:
        return bool(updates.watermark > self.watermark or updates.clk > self.clk or updates.warnings)

    @property
    def gap(self) -> tuple[int, int] | None:
        """The first numbers that are missing."""
        return (self.next, min(self.held) - 1) if self.held and self.next else None

    def skip(self, to: int) -> None:
        """Give up what is missing before this number."""
        if self.next and to > self.next:
            self.lost += to - self.next
            self.next = to
            self.gap_since = None

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        assert all(portion.first == first for first, portion in self.held.items()), (
            f"{self.kind}: held in a wrong place"
        )
        assert self.durable < max(self.next, 1), f"{self.kind}: what was not handed on survives"


def _further(portion: Portion, known: Portion) -> bool:
    """Whether one of two portions that begin alike says more."""
    return (portion.next, portion.updates.watermark, portion.updates.clk) > (
        known.next,
        known.updates.watermark,
        known.updates.clk,
    )
