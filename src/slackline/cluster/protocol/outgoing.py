"""One type where it enters or is published: its numbers, its subscribers, and what is kept for them.

Everything that is sent comes from what is kept: an item is kept until all who need it have it, those whose subscription
is reliable so that it survives their crash. A subscriber may have ``window`` events on the way; one that is slower loses
what is not reliable, and is waited for otherwise (:attr:`Outgoing.is_full`). Beyond ``keep`` events nothing is kept for
those who are lost; they are told (:class:`~slackline.cluster.protocol.messages.Truncated`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from slackline.cluster.protocol import wire
from slackline.cluster.protocol.messages import Item, Outlet
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import NEVER


@dataclass(slots=True)
class Subscriber:
    """A node that gets a type: the next number to send, and what it has."""

    next: int
    reliable: bool
    ticks: bool
    received: int = 0
    durable: int = 0
    is_lost: bool = False
    #: Watermark, back and clock that it was told last.
    told: tuple[int, int, int] = (NEVER, 0, NEVER)
    #: Pseudo events that it was not told yet.
    warnings: list[int] = field(default_factory=list)
    #: Events that it did not get since it is too slow.
    dropped: int = 0

    @property
    def has(self) -> int:
        """Up to which number nothing needs to be kept for it."""
        return self.durable if self.reliable else self.received


class Outgoing:
    """The publisher's side of one type."""

    def __init__(self, kind: str, keep: int, window: int, always_clock: bool) -> None:
        self.kind = kind
        self.keep = keep
        self.window = window
        #: Whether everybody is told the clock, even where nothing else is new: under slack it counts.
        self.always_clock = always_clock
        #: The number of the next event.
        self.next = 1
        self.kept: list[Item] = []
        self.watermark, self.back, self.clk, self.K, self.default_slack = NEVER, 0, NEVER, 0, -1
        self.subscribers: dict[str, Subscriber] = {}
        #: Nodes that will subscribe from the start: everything is kept for them. None: nobody has said yet who.
        self.expected: set[str] | None = None
        #: Events that were given up though somebody had not got them.
        self.given_up = 0
        self._held = 0  # events in what is kept

    # In.

    def publish(self, updates: ProgressUpdate) -> Item:
        """Number events, and keep them for those who get them."""
        self.watermark, self.back, self.clk, self.K, self.default_slack = updates[3:]
        count = len(updates.events)
        wanted = count and (self.subscribers or self.expected is None or self.expected)
        item = self._item(self.next, count, list(updates.warnings), wire.packed(updates.events) if wanted else b"")
        self.next += count
        if wanted:
            self.kept.append(item)
            self._held += count
        elif not count:
            for subscriber in self.subscribers.values():
                subscriber.warnings += updates.warnings
        return item

    def standing(self, warnings: list[int] | None = None) -> Item:
        """How far the type has come, without events."""
        return self._item(self.next, 0, warnings or [], b"")

    def _item(self, first: int, count: int, warnings: list[int], events: bytes) -> Item:
        told = self.watermark, self.back, self.clk, self.K, self.default_slack
        return Item(self.kind, first, count, *told, warnings, events)

    def subscribe(self, node: str, since: int, reliable: bool, ticks: bool) -> int:
        """Let a node have the type from a number on (0: the next one); the first number that is left for it."""
        first = since or self.next
        if not ticks and first < self.next:
            first = max(first, min(self._first_kept(), self.next))
        # Who does not say from where may turn out to need what is on its way to others.
        has = (first if since or ticks else min(first, self._first_kept())) - 1
        self.subscribers[node] = Subscriber(first, reliable, ticks, has, has)
        if self.expected is not None:
            self.expected.discard(node)
        return first

    def _first_kept(self) -> int:
        return self.kept[0].first if self.kept else self.next

    def unsubscribe(self, node: str) -> None:
        self.subscribers.pop(node, None)

    def lose(self, node: str) -> None:
        """A node is gone, and may come back."""
        subscriber = self.subscribers.get(node)
        if subscriber is not None:
            if subscriber.reliable:
                subscriber.is_lost = True
            else:
                del self.subscribers[node]

    def acknowledge(self, node: str, received: int, durable: int) -> None:
        subscriber = self.subscribers.get(node)
        if subscriber is not None:
            subscriber.received = max(subscriber.received, min(received, self.next - 1))
            subscriber.durable = max(subscriber.durable, min(durable, self.next - 1))

    def again(self, node: str, first: int, last: int) -> tuple[list[Item], int]:
        """The kept items with some of these numbers, and the last number before what is kept (0: all are there)."""
        if node not in self.subscribers:
            return [], 0
        items = [item for item in self._from(first) if item.first <= last]
        gone = min(last, self._first_kept() - 1)
        return items, gone if gone >= first else 0

    def _from(self, number: int) -> list[Item]:
        """The kept items from the one that has this number on."""
        at = bisect_right(self.kept, number, key=lambda item: item.first)
        if at and self.kept[at - 1].first + self.kept[at - 1].count > number:
            at -= 1
        return self.kept[at:]

    # Out.

    def due(self, node: str) -> list[Item]:
        """What to send to a subscriber now."""
        subscriber = self.subscribers[node]
        if subscriber.is_lost:
            return []
        sent: list[Item] = []
        if not subscriber.ticks and subscriber.next < self.next:
            for item in self._from(subscriber.next):
                if subscriber.next - 1 - subscriber.received > self.window:
                    break
                sent.append(item)
                subscriber.next = item.first + item.count
                subscriber.told = (item.watermark, item.back, item.clk)
        if subscriber.ticks or subscriber.next == self.next:
            updates = (self.watermark, self.back, self.clk)
            clock = (subscriber.ticks or self.always_clock) and updates[2] != subscriber.told[2]
            if clock or updates[:2] != subscriber.told[:2] or subscriber.warnings:
                sent.append(self.standing(subscriber.warnings))
                subscriber.told, subscriber.warnings = updates, []
        return sent

    def trim(self) -> bool:
        """Forget what everybody has, and what is too much; whether a reliable subscriber had not got all of that."""
        needed = (
            0 if self.expected is None or self.expected else min([s.has for s in self._readers], default=self.next - 1)
        )
        at = 0
        while at < len(self.kept) and self.kept[at].first + self.kept[at].count - 1 <= needed:
            at += 1
        self._drop(at)
        unsafe = False
        while self._held > self.keep and not self._waits_for_the_slow:
            oldest = self.kept[0]
            last = oldest.first + oldest.count - 1
            for subscriber in self._readers:
                if subscriber.has < last:
                    unsafe = unsafe or subscriber.reliable
                    subscriber.dropped += max(0, last + 1 - max(subscriber.next, oldest.first))
                    subscriber.next = max(subscriber.next, last + 1)
                    subscriber.received = max(subscriber.received, last)
                    subscriber.durable = max(subscriber.durable, last)
            self.given_up += oldest.count
            self._drop(1)
        return unsafe

    @property
    def _readers(self) -> list[Subscriber]:
        return [subscriber for subscriber in self.subscribers.values() if not subscriber.ticks]

    def _drop(self, items: int) -> None:
        if items:
            self._held -= sum(item.count for item in self.kept[:items])
            del self.kept[:items]

    @property
    def _waits_for_the_slow(self) -> bool:
        """Whether somebody who is there, and reliable, has not got what is kept: then it is kept, up to twice as much."""
        first = self.kept[0].first
        return self._held <= 2 * self.keep and any(
            s.reliable and not s.is_lost and s.has <= first for s in self._readers
        )

    @property
    def is_full(self) -> bool:
        """Whether no more should be published until somebody has caught up."""
        return self._held > self.keep

    # Moving.

    def outlet(self) -> Outlet:
        """All of it, for the node to which the publisher goes."""
        subscribers = {node: (s.next, s.durable, s.reliable, s.ticks) for node, s in self.subscribers.items()}
        return Outlet(self.next, self.watermark, self.back, list(self.kept), subscribers)

    def take_over(self, outlet: Outlet) -> None:
        """Go on where another node was."""
        self.next, self.watermark, self.back = outlet.next, outlet.watermark, outlet.back
        self.kept = list(outlet.kept)
        self._held = sum(item.count for item in self.kept)
        self.subscribers = {
            node: Subscriber(first, reliable, ticks, durable, durable)
            for node, (first, durable, reliable, ticks) in outlet.subscribers.items()
        }

    def expect(self, nodes: Iterable[str]) -> None:
        """These nodes run detectors that listen to the type: until they subscribe, all is kept for them."""
        self.expected = {node for node in nodes if node not in self.subscribers}

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        assert self._held == sum(item.count for item in self.kept), f"{self.kind}: miscounted what is kept"
        numbers = [item.first for item in self.kept]
        assert numbers == sorted(numbers), f"{self.kind}: kept out of order"
        for before, after in zip(self.kept, self.kept[1:], strict=False):
            assert before.first + before.count == after.first, f"{self.kind}: a gap in what is kept"
