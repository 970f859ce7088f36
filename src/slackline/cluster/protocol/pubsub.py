"""Publish and subscribe: the types that a node publishes, and those that it receives [Thesis, 2.2.1, 2.2.2].

**A publication** assigns the offsets of a type where it enters the cluster or is published. Everything that is sent
comes from its retained segments. A segment is retained until every subscriber has it; until it survives the crash of
every subscriber that is reliable. At most ``window`` events are in flight to a subscriber. A slower one loses events,
or, if it is reliable, has back pressure on the publisher (:attr:`Publication.is_full`). For lost nodes at most
``retention`` events are retained; then they receive a :class:`~slackline.cluster.protocol.messages.Truncated`; with
failover they have back pressure, too. A subscriber renews its subscription by acks, with every heartbeat, also before
it has any event.

**A subscription** delivers a type in the order of offsets, each event once. Segments may arrive twice, out of order,
over two paths (from the publisher, and forwarded by the node from which a detector has migrated), or not at all. A
segment that is ahead of its turn is buffered. After a timeout a gap is requested again, if the type is reliable here,
or counted as lost. So the engine gets a stream without gaps and duplicates [Migration, IV-A, step 2].

**Where the bus retains** (``NodeSettings.bus``), a log per type is between the two. The log is the only subscriber of a
publication, and a reliable one: it acknowledges what it has. A subscription is a position in the log: it needs no
messages, and can be read again from any offset. Consecutive records of a log never leave out offsets; after a crash, or
a migration, some may repeat.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from slackline.cluster.interface import NodeSettings
from slackline.cluster.protocol import wire
from slackline.cluster.protocol.messages import (
    Body,
    ProtocolError,
    PublicationState,
    Resend,
    Segment,
    Subscribe,
    Unsubscribe,
)
from slackline.core.batch import Batch
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER

#: The subscriber of all publications, where the bus retains: the log. No node has this name.
LOG = ""
#: Heartbeat intervals without a segment of a type after which the subscription is renewed.
SILENT = 3


class DecodedSegment(NamedTuple):
    """A segment, with its events from offset ``first`` on as an engine takes them."""

    first: int
    update: ProgressUpdate
    segment: Segment

    @property
    def next(self) -> int:
        """The offset after the last."""
        return self.first + len(self.update.events)

    def encoded(self) -> Segment:
        """The segment with its events, also if nothing subscribed to it when it was published."""
        if self.segment.count and not self.segment.events:
            return msgspec.structs.replace(self.segment, events=wire.packed(self.update.events))
        return self.segment

    def since(self, offset: int) -> DecodedSegment | None:
        """The events from this offset on; None if there are none."""
        if offset <= self.first:
            return self
        return None if offset >= self.next else self._slice(offset, self.next)

    def until(self, offset: int) -> DecodedSegment | None:
        """The events before this offset; None if there are none."""
        if offset >= self.next:
            return self
        if offset <= self.first:
            return None
        part = self._slice(self.first, offset)
        return part._replace(update=part.update._replace(watermark=NEVER))

    def _slice(self, first: int, stop: int) -> DecodedSegment:
        events, start, end = self.update.events, first - self.first, stop - self.first
        part = events.slice(start, end) if isinstance(events, Batch) else events[start:end]
        return DecodedSegment(first, self.update._replace(events=part), self.segment)


def decoded(segment: Segment, hierarchy: Hierarchy) -> DecodedSegment:
    """A segment with its events, or a ProtocolError."""
    read = wire.unpacked_events if segment.type in hierarchy.publisher else wire.unpacked
    events = read(hierarchy.event_type(segment.type), segment.events, segment.count)
    update = ProgressUpdate(
        segment.type, events, tuple(segment.warnings), segment.watermark, segment.max_backdate, segment.clk, segment.K,
        segment.default_slack,
    )  # fmt: skip
    return DecodedSegment(segment.first, update, segment)


# Publishing.


@dataclass(slots=True)
class Subscriber:
    """A node that subscribes to a type: the next offset to send, and what it has acknowledged."""

    next: int
    reliable: bool
    progress_only: bool
    received: int = 0
    durable: int = 0
    is_lost: bool = False
    #: When it was last known to need the type; None: not yet.
    renewed_at: float | None = None
    #: Watermark, max_backdate and clock that were sent last.
    sent_progress: tuple[int, int, int] = (NEVER, 0, NEVER)
    #: Pseudo events to send.
    warnings: list[int] = field(default_factory=list)
    #: Events that it missed because it is too slow.
    dropped: int = 0

    @property
    def released(self) -> int:
        """The offset up to which nothing needs to be retained for it."""
        return self.durable if self.reliable else self.received


class Publication:
    """The publisher's side of one type."""

    def __init__(
        self, kind: str, retention: int, window: int, always_clock: bool, waits_for_lost: bool = False
    ) -> None:
        self.kind = kind
        #: Whether lost subscribers have back pressure, too: with failover they come back soon.
        self.waits_for_lost = waits_for_lost
        self.retention = retention
        self.window = window
        #: Whether every change of the clock is sent: under slack each node measures delays by it.
        self.always_clock = always_clock
        #: The offset of the next event.
        self.next = 1
        self.retained: list[Segment] = []
        #: The last update, without events.
        self.progress = ProgressUpdate(kind, (), (), NEVER, 0, NEVER)
        self.subscribers: dict[str, Subscriber] = {}
        #: Nodes that will subscribe from the start: everything is retained for them. None: not known yet.
        self.expected: set[str] | None = None
        #: Retained events that were dropped before every subscriber had them.
        self.dropped = 0
        #: Whether the first record has been given to the log whose acknowledgement shows that former owners are fenced.
        self.is_taking_over = False
        self._retained_events = 0

    def publish(self, update: ProgressUpdate) -> Segment:
        """Assign offsets to events, and retain them for the subscribers."""
        self.progress = update._replace(events=(), warnings=())
        count = len(update.events)
        wanted = count and (self.subscribers or self.expected is None or self.expected)
        events = wire.packed(update.events) if wanted else b""
        segment = Segment(self.kind, self.next, count, *self.progress[3:], list(update.warnings), events)
        self.next += count
        if wanted:
            self.retained.append(segment)
            self._retained_events += count
        elif not count:
            for subscriber in self.subscribers.values():
                subscriber.warnings += update.warnings
        return segment

    def progress_segment(self, warnings: Iterable[int] = ()) -> Segment:
        """The progress of the type, without events."""
        return Segment(self.kind, self.next, 0, *self.progress[3:], list(warnings))

    def subscribe(self, node: str, since: int, reliable: bool, progress_only: bool, durable: int) -> int:
        """Add a subscriber from an offset on (0: the next one); returns the first offset that it will get.

        Events up to ``durable`` survive its crash.
        """
        first = since or self.next
        if not progress_only and first < self.next:
            first = max(first, min(self._first_retained(), self.next))
        # A subscriber that gives no offset may turn out to need what is in flight to others.
        has = (first if since or progress_only else min(first, self._first_retained())) - 1
        self.subscribers[node] = Subscriber(first, reliable, progress_only, has, min(has, durable) if since else has)
        if self.expected is not None:
            self.expected.discard(node)
        return first

    def _first_retained(self) -> int:
        return self.retained[0].first if self.retained else self.next

    def unsubscribe(self, node: str) -> None:
        self.subscribers.pop(node, None)

    def on_peer_lost(self, node: str) -> None:
        """A subscriber is lost, and may reconnect."""
        subscriber = self.subscribers.get(node)
        if subscriber is not None and subscriber.reliable:
            subscriber.is_lost = True
        elif subscriber is not None:
            del self.subscribers[node]

    def acknowledge(self, node: str, received: int, durable: int, now: float) -> None:
        subscriber = self.subscribers.get(node)
        if subscriber is not None:
            subscriber.renewed_at = now
            subscriber.received = max(subscriber.received, min(received, self.next - 1))
            subscriber.durable = max(subscriber.durable, min(durable, self.next - 1))

    def resend(self, node: str, first: int, last: int) -> tuple[list[Segment], int]:
        """The retained segments with some of these offsets, and the last offset that is truncated (0: none is)."""
        if node not in self.subscribers:
            return [], 0
        segments = [segment for segment in self._since(first) if segment.first <= last]
        truncated = min(last, self._first_retained() - 1)
        return segments, truncated if truncated >= first else 0

    def _since(self, offset: int) -> list[Segment]:
        """The retained segments from the one with this offset on."""
        at = bisect_right(self.retained, offset, key=lambda segment: segment.first)
        if at and self.retained[at - 1].first + self.retained[at - 1].count > offset:
            at -= 1
        return self.retained[at:]

    def due(self, node: str) -> list[Segment]:
        """What to send to a subscriber now."""
        subscriber = self.subscribers[node]
        if subscriber.is_lost:
            return []
        due: list[Segment] = []
        if not subscriber.progress_only and subscriber.next < self.next:
            for segment in self._since(subscriber.next):
                if subscriber.next - 1 - subscriber.received > self.window:
                    break
                due.append(segment)
                subscriber.next = segment.first + segment.count
                subscriber.sent_progress = (segment.watermark, segment.max_backdate, segment.clk)
        if subscriber.progress_only or subscriber.next == self.next:
            progress = self.progress[3:6]
            clock = (subscriber.progress_only or self.always_clock) and progress[2] != subscriber.sent_progress[2]
            if clock or progress[:2] != subscriber.sent_progress[:2] or subscriber.warnings:
                due.append(self.progress_segment(subscriber.warnings))
                subscriber.sent_progress, subscriber.warnings = progress, []
        return due

    def trim(self) -> bool:
        """Drop what all subscribers have, and what exceeds the retention; whether a reliable one had not all of it."""
        readers = [subscriber for subscriber in self.subscribers.values() if not subscriber.progress_only]
        released = min([each.released for each in readers], default=self.next - 1)
        if self.expected is None or self.expected:
            released = 0
        at = 0
        while at < len(self.retained) and self.retained[at].first + self.retained[at].count - 1 <= released:
            at += 1
        self._drop(at)
        lossy = False
        while self._retained_events > self.retention and not self._has_slow_reader(readers):
            oldest = self.retained[0]
            last = oldest.first + oldest.count - 1
            for each in readers:
                if each.released < last:
                    lossy = lossy or each.reliable
                    each.dropped += max(0, last + 1 - max(each.next, oldest.first))
                    each.next = max(each.next, last + 1)
                    each.received, each.durable = max(each.received, last), max(each.durable, last)
            self.dropped += oldest.count
            self._drop(1)
        return lossy

    def _drop(self, segments: int) -> None:
        self._retained_events -= sum(segment.count for segment in self.retained[:segments])
        del self.retained[:segments]

    def _has_slow_reader(self, readers: list[Subscriber]) -> bool:
        """Whether a connected, reliable subscriber lacks the oldest segment, or a node will subscribe from the start.

        Then all is retained: the node is full, and publishes no more than its engine has received already.
        """
        last = self.retained[0].first + self.retained[0].count - 1
        waited_for = [each for each in readers if each.reliable and (self.waits_for_lost or not each.is_lost)]
        slow = any(each.released < last for each in waited_for)
        return slow or self.expected is None or bool(self.expected)

    @property
    def is_full(self) -> bool:
        """Whether no more should be published until a subscriber has caught up."""
        return self._retained_events > self.retention

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is published, and all subscribers have everything."""
        return self.progress.watermark == FOREVER and not self.retained

    def state(self) -> PublicationState:
        """Everything that the node needs to which the publisher migrates, or that restarts."""
        subscribers = {
            node: (each.next, each.durable, each.reliable, each.progress_only)
            for node, each in self.subscribers.items()
        }
        return PublicationState(self.next, *self.progress[3:5], list(self.retained), subscribers)

    def restore(self, state: PublicationState) -> None:
        """Continue from a state."""
        self.next = state.next
        self.progress = self.progress._replace(watermark=state.watermark, back=state.max_backdate)
        self.retained = list(state.retained)
        self._retained_events = sum(segment.count for segment in self.retained)
        self.subscribers = {
            node: Subscriber(first, reliable, progress_only, durable, durable)
            for node, (first, durable, reliable, progress_only) in state.subscribers.items()
        }

    def write_to_log(self) -> None:
        """The only subscriber is the log: what it has not acknowledged is appended again."""
        has = self._first_retained() - 1
        self.subscribers, self.expected = {LOG: Subscriber(has + 1, True, False, has, has)}, set()

    def expect(self, nodes: Iterable[str]) -> None:
        """These nodes run detectors that listen to the type: until they subscribe, everything is retained."""
        self.expected = {node for node in nodes if node not in self.subscribers}

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        assert self._retained_events == sum(segment.count for segment in self.retained), f"{self.kind}: miscounted"
        for before, after in zip(self.retained, self.retained[1:], strict=False):
            assert before.first + before.count == after.first, f"{self.kind}: a gap in the retained segments"


# Subscribing.


class SubscriptionOptions(NamedTuple):
    """How a type is needed on this node."""

    reliable: bool
    progress_only: bool = False


class Publisher(NamedTuple):
    """The node that publishes a type, in its current incarnation."""

    node: str
    incarnation: int


@dataclass(slots=True)
class Subscription:
    """The subscriber's side of one type."""

    kind: str
    reliable: bool
    #: Whether only clock and progress are needed, no events.
    progress_only: bool = False
    #: The offset of the next event to deliver; 0: not known until the state of a migrating detector arrives.
    next: int = 1
    #: The offset up to which delivered events survive a crash.
    durable: int = 0
    #: The node to which the subscription was sent, when, and whether it was confirmed.
    publisher: Publisher | None = None
    requested_at: float = 0.0
    confirmed: bool = False
    received_at: float = 0.0
    #: When its publisher, or a detector that listens to it, migrated.
    migrated_at: float = -math.inf
    #: The first offset that the publisher sends; 0: not known yet.
    direct_from: int = 0
    #: Nothing is delivered while the migration of its publisher is not confirmed.
    paused: bool = False
    lost: int = 0
    duplicates: int = 0
    acknowledged: tuple[int, int] = (0, 0)
    gap_since: float | None = None
    #: Segments that are ahead of their turn, by first offset.
    pending: dict[int, DecodedSegment] = field(default_factory=dict)
    #: Progress of the type, as delivered.
    watermark: int = NEVER
    clk: int = NEVER

    def receive(self, segment: DecodedSegment, now: float, limit: int) -> None:
        """Buffer a segment, unless it is a duplicate. At most ``limit`` events are buffered ahead of their turn."""
        self.received_at = now
        if self.progress_only:
            self.next = max(self.next, segment.first)
        count = len(segment.update.events)
        if (self.next and segment.next < self.next) or (segment.next == self.next and count):
            self.duplicates += count
            return
        known = self.pending.get(segment.first)
        if known is None or _extent(segment) > _extent(known):
            buffered = sum(len(each.update.events) for each in self.pending.values())
            if segment.first == self.next or buffered <= limit:
                self.pending[segment.first] = segment

    def deliver(self, now: float) -> list[DecodedSegment]:
        """The segments whose turn it is."""
        delivered: list[DecodedSegment] = []
        if not self.next or self.paused:
            return delivered
        while self.pending and min(self.pending) <= self.next:
            segment = self.pending.pop(min(self.pending))
            rest = segment.since(self.next) if len(segment.update.events) else segment
            if rest is None:
                continue
            update = rest.update
            if not len(update.events) and (rest.first < self.next or not self._is_new(update)):
                continue
            self.watermark, self.clk = max(self.watermark, update.watermark), max(self.clk, update.clk)
            # Without the events, the watermark means nothing.
            watermark = NEVER if self.progress_only else self.watermark
            delivered.append(rest._replace(update=update._replace(watermark=watermark)))
            self.next = rest.next
        if not self.pending:
            self.gap_since = None
        elif self.gap_since is None:
            self.gap_since = now
        return delivered

    def _is_new(self, update: ProgressUpdate) -> bool:
        return bool(update.watermark > self.watermark or update.clk > self.clk or update.warnings)

    @property
    def end(self) -> int:
        """The offset after all events that were received without a gap."""
        end = self.next
        for first in sorted(self.pending):
            end = max(end, self.pending[first].next) if first <= end else end
        return end

    @property
    def gap(self) -> tuple[int, int] | None:
        """The first and last offset of the first gap."""
        return (self.next, min(self.pending) - 1) if self.pending and self.next else None

    def skip(self, to: int) -> None:
        """Count the events before this offset as lost."""
        if self.next and to > self.next:
            self.lost += to - self.next
            self.next = to
            self.gap_since = None

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        assert all(each.first == first for first, each in self.pending.items()), (
            f"{self.kind}: buffered at wrong offset"
        )
        assert self.durable < max(self.next, 1), f"{self.kind}: events that were not delivered are durable"


def _extent(segment: DecodedSegment) -> tuple[int, int, int]:
    """Of two segments with the same first offset the one with the greater extent says more."""
    return segment.next, segment.update.watermark, segment.update.clk


# All types of a node.


class PubSub:
    """The publications and subscriptions of a node."""

    def __init__(self, hierarchy: Hierarchy, settings: NodeSettings, slack: bool) -> None:
        self.hierarchy = hierarchy
        self.settings = settings
        self.slack = slack
        #: From the lowest level up.
        self.publications: dict[str, Publication] = {}
        self.subscriptions: dict[str, Subscription] = {}
        #: The next offset that a type had when it was last closed here: up to there the engine knows it.
        self.closed_at: dict[str, int] = {}
        published = [kind for name in hierarchy.names for kind in hierarchy.published(name)]
        self._level = {kind: level for level, kind in enumerate((*hierarchy.sensor_types, *published))}
        #: Whether the bus retains what is sent, in logs.
        self.retains = settings.bus is not None
        # By type whose log is read: the offset that comes next (0: not known yet).
        self._reading: dict[str, int] = {}
        # Types of which a record was appended since they were opened.
        self._owned: set[str] = set()
        self._listened = {kind for name in hierarchy.names for kind in hierarchy.listens[name]}
        self._clocks = {*hierarchy.clock, *hierarchy.clock_aids}

    def next_offset(self, kind: str) -> int:
        """The offset of the next event of a type that detectors here will see; 0 if that is not known."""
        if kind in self.publications:
            return self.publications[kind].next
        return self.subscriptions[kind].next if kind in self.subscriptions else 0

    def _close(self, kind: str) -> None:
        if kind not in self.subscriptions or not self.subscriptions[kind].progress_only:
            self.closed_at[kind] = max(self.closed_at.get(kind, 0), self.next_offset(kind))

    # Publications.

    def open_publication(self, kind: str, state: PublicationState | None = None) -> Publication:
        """Publish a type here from now on, from a state if there is one."""
        settings = self.settings
        always_clock = self.slack or (self.retains and kind in self._clocks)
        publication = Publication(
            kind, settings.retention, settings.window, always_clock, settings.failover_after is not None
        )
        if state is not None:
            publication.restore(state)
        if self.retains and kind in self._listened | self._clocks:
            publication.write_to_log()
        elif self.retains:  # nobody reads it
            publication.subscribers, publication.expected = {}, set()
        self.publications[kind] = publication
        self.publications = dict(sorted(self.publications.items(), key=lambda item: self._level[item[0]]))
        return publication

    def close_publication(self, kind: str) -> PublicationState:
        """Stop publishing a type here."""
        self._close(kind)
        self._owned.discard(kind)
        return self.publications.pop(kind).state()

    def publish(self, update: ProgressUpdate) -> DecodedSegment:
        """Publish an update of the engine."""
        publication = self.publications[update.type]
        first = publication.next
        return DecodedSegment(first, update, publication.publish(update))

    def due(self, node: str) -> list[Segment]:
        """What to send to a node now, lower levels first."""
        publications = self.publications.values()
        return [segment for each in publications if node in each.subscribers for segment in each.due(node)]

    def progress(self, node: str) -> list[Segment]:
        """The progress of all types that a node has up to their end: it notices by this what got lost."""
        segments = []
        for publication in self.publications.values():
            subscriber = publication.subscribers.get(node)
            if subscriber is not None and (subscriber.progress_only or subscriber.next == publication.next):
                segments.append(publication.progress_segment())
        return segments

    def trim(self) -> list[str]:
        """Drop what all subscribers have; returns the types of which a reliable subscriber has lost events."""
        return [kind for kind, publication in self.publications.items() if publication.trim()]

    @property
    def is_full(self) -> bool:
        """Whether a subscriber must catch up before more is published."""
        return any(publication.is_full for publication in self.publications.values())

    @property
    def has_ended(self) -> bool:
        """Whether all publications have ended, and all subscribers have everything."""
        read = self.subscriptions.values() if self.retains else ()
        return all(publication.has_ended for publication in self.publications.values()) and all(
            each.progress_only or each.watermark == FOREVER for each in read
        )

    # Subscriptions.

    def subscribe(self, kind: str, options: SubscriptionOptions, since: int) -> Subscription:
        """Receive a type from an offset on; 0: not known yet."""
        self.unsubscribe(kind)
        subscription = Subscription(kind, options.reliable, options.progress_only, since, max(0, since - 1))
        self.subscriptions[kind] = subscription
        return subscription

    def unsubscribe(self, kind: str) -> Subscription | None:
        """Stop receiving a type."""
        self._close(kind)
        return self.subscriptions.pop(kind, None)

    def receive(self, segments: Iterable[Segment], now: float) -> list[DecodedSegment]:
        """Decode segments, and give them to their subscriptions. A ProtocolError is raised before anything changes."""
        read = []
        for segment in segments:
            if segment.type not in self._level:
                raise ProtocolError(f"events of type {segment.type!r}, which the application does not know.")
            read.append(decoded(segment, self.hierarchy))
        for each in read:
            subscription = self.subscriptions.get(each.segment.type)
            if subscription is not None:
                subscription.receive(each, now, self.settings.window)
        return read

    def deliver(self, now: float, only: set[str] | None = None) -> list[DecodedSegment]:
        """The segments whose turn it is; of these types only, where some are given."""
        subscriptions = [each for kind, each in self.subscriptions.items() if only is None or kind in only]
        return [segment for each in subscriptions for segment in each.deliver(now)]

    def subscription_requests(
        self, needed: Mapping[str, SubscriptionOptions], publishers: Mapping[str, Publisher], now: float
    ) -> list[tuple[str, Body]]:
        """The messages after which everything that is needed is sent here, and nothing else; each with its receiver."""
        requests: list[tuple[str, Body]] = []
        renewal = SILENT * self.settings.heartbeat_interval
        for kind in [kind for kind in self.subscriptions if kind not in needed]:
            dropped = self.unsubscribe(kind)
            if dropped is not None and dropped.publisher is not None:
                requests.append((dropped.publisher.node, Unsubscribe(kind)))
        for kind, wanted in needed.items():
            known = self.subscriptions.get(kind)
            if (
                known is None
                or (known.progress_only and not wanted.progress_only)
                or (wanted.progress_only and not known.next)
            ):
                known = self.subscribe(kind, wanted, 1)
            if known.reliable < wanted.reliable:
                known.reliable, known.publisher = True, None
            publisher, last = publishers.get(kind), known.publisher
            if publisher is None or (last == publisher and now - known.received_at < renewal):
                continue
            migrated = last is not None and last.node != publisher.node and kind in self.hierarchy.publisher
            if migrated and not known.confirmed and now - known.requested_at < renewal:
                continue  # the detector migrates with its subscribers, or the request is answered with 0
            if not (migrated and known.confirmed):
                options = (known.reliable, known.progress_only, self._durable(known))
                requests.append((publisher.node, Subscribe(kind, known.next, *options)))
                known.confirmed = False
            known.publisher, known.requested_at, known.received_at = publisher, now, now
            known.migrated_at = now if migrated else known.migrated_at
        return requests

    def resend_requests(self, now: float) -> list[tuple[str, Resend]]:
        """Gaps to request again, each with its receiver; those of types that are not reliable are skipped instead.

        Not right after a migration: segments of the previous publisher may be slower than those of the new one.
        """
        requests = []
        for kind, each in self.subscriptions.items():
            gap = each.gap
            if gap is None or each.gap_since is None or each.paused or now < each.gap_since + self.settings.gap_timeout:
                continue
            each.gap_since = now
            settled = now >= each.migrated_at + self.settings.session_timeout
            if gap[0] < each.direct_from and not settled:
                continue  # the gap is forwarded to the detector that has migrated here
            if not each.reliable and settled:
                each.skip(gap[1] + 1)
            elif each.publisher is not None:
                requests.append((each.publisher.node, Resend(kind, *gap)))
        return requests

    def resend_at(self) -> float | None:
        """When the next gap times out."""
        times = [
            each.gap_since
            for each in self.subscriptions.values()
            if each.gap is not None and not each.paused and each.gap_since is not None
        ]
        return min(times) + self.settings.gap_timeout if times else None

    def acks(self, repeat: bool) -> dict[str, dict[str, tuple[int, int]]]:
        """By node and type: what was not acknowledged yet; ``repeat``: also what was, as acks may get lost."""
        acks: dict[str, dict[str, tuple[int, int]]] = {}
        for kind, each in self.subscriptions.items():
            ack = (max(0, each.next - 1), self._durable(each))
            if each.progress_only or each.publisher is None:
                continue
            if repeat or ack != each.acknowledged:
                each.acknowledged = ack
                acks.setdefault(each.publisher.node, {})[kind] = ack
        return acks

    def _durable(self, subscription: Subscription) -> int:
        """The offset up to which events need not be sent again after a crash: without checkpoints, all that were."""
        return max(0, subscription.next - 1) if self.settings.checkpoint_every is None else subscription.durable

    def mark_durable(self) -> None:
        """A checkpoint is made: everything that was delivered survives a crash."""
        for each in self.subscriptions.values():
            each.durable = max(each.durable, each.next - 1)

    # Logs.

    def appends(self) -> list[Segment]:
        """What to append to logs now, lower levels first."""
        segments = self.due(LOG) if self.retains else []
        for kind in {segment.type for segment in segments} - self._owned:
            self.publications[kind].is_taking_over = True
            self._owned.add(kind)
        return segments

    def appended(self, kind: str, offset: int, now: float) -> None:
        """The log of a type has all events before this offset, and nothing of former owners will follow."""
        publication = self.publications.get(kind)
        if publication is not None:
            publication.is_taking_over = False
            publication.acknowledge(LOG, offset - 1, offset - 1, now)

    def reads(self, again: Mapping[str, int]) -> dict[str, int | None]:
        """The logs to be read from another offset from now on; ``again``: from here on at most, by type."""
        wanted: dict[str, int] = dict(again)
        for kind, each in self.subscriptions.items():
            buffered = sum(len(one.update.events) for one in each.pending.values())
            if each.progress_only:
                wanted[kind] = self._reading.get(kind, 0)
            elif each.next and not each.paused and buffered <= self.settings.window:
                wanted[kind] = min(each.end, wanted.get(kind, each.end))
        changed: dict[str, int | None] = {kind: None for kind in self._reading if kind not in wanted}
        changed |= {
            kind: offset for kind, offset in wanted.items() if kind not in self._reading or offset < self._reading[kind]
        }
        for kind, at in changed.items():
            if at is None:
                del self._reading[kind]
            else:
                self._reading[kind] = at
        return changed

    def read(self, segments: Iterable[Segment], now: float) -> tuple[list[DecodedSegment], dict[str, int]]:
        """Give records of logs to the subscriptions; returns them, and by type the first offset that is retained where
        the log no longer has the one that comes next."""
        read, truncated = [], {}
        for segment in segments:
            at = self._reading.get(segment.type)
            if at is None:
                continue
            subscription, end = self.subscriptions.get(segment.type), segment.first + segment.count
            if subscription is None or not subscription.progress_only:
                read.append(segment)
                if 0 < at < segment.first:
                    truncated[segment.type] = segment.first
                    if subscription is not None:
                        subscription.skip(segment.first)
            if subscription is not None and (subscription.progress_only or end == subscription.next):
                # It has all of these events, but may not have their progress.
                read.append(msgspec.structs.replace(segment, first=end, count=0, events=b""))
            self._reading[segment.type] = end
        return self.receive(read, now), truncated

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        assert not self.publications.keys() & self.subscriptions.keys(), "a type is published and subscribed to"
        for publication in self.publications.values():
            publication.check_invariants()
        for subscription in self.subscriptions.values():
            subscription.check_invariants()
