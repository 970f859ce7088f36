"""Two older methods of migration, to compare with the cooperative handover [Thesis, 5.1.4].

**Snapshot alone**: the old host sends the detector's state and its K, and stops; the new one starts with that, and
subscribes. What waited at the old host, and what comes before the new subscription counts, is missed; and if events
take longer to the new host, K is too small.

**Classic**: the ordering unit stays behind. The old host sends the ordered stream on, event by event, until the new one
has met every type directly, and knows its delays. Nothing is missed, but much is sent, and everything waits for K there
and for the way from there.

Both are nodes that differ from :class:`slackline.cluster.protocol.Node` in nothing else, for the simulated network.
They know nothing of crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from slackline.cluster.protocol import Node, wire
from slackline.cluster.protocol.messages import Data, DetectorState, Segment, StateRequest
from slackline.cluster.protocol.migration import Client, IncomingMigration, Migrations
from slackline.cluster.protocol.pubsub import DecodedSegment, SubscriptionOptions
from slackline.core import codec
from slackline.core.event import Event
from slackline.core.outcome import Output
from slackline.core.time import FOREVER, NEVER
from slackline.engine import migration


def without_what_waits(state: bytes) -> bytes:
    """A detector as :meth:`slackline.engine.host.HostInterface.detach` gave it, without the events that wait for it."""
    content = codec.load(migration.KIND, migration.VERSION, state)
    content["buffer"] |= {"heap": [], "overdue": []}
    return codec.dump(migration.KIND, migration.VERSION, content, where=content["name"])


class StopAndCopyMigrations(Migrations):
    """The cooperative handover with the whole state sent while the detector stands still."""

    copies = False


class StopAndCopyNode(Node):
    """Moves detectors by stopping them, and sending their whole state then."""

    migration_method = StopAndCopyMigrations


class SnapshotMigrations(StopAndCopyMigrations):
    """A detector goes with its state and its K."""

    def start(self, detector: str, client: Client, now: float) -> str | None:
        """Ask at once; subscribe when the detector has come."""
        followed = set(self.pubsub.subscriptions)
        error = super().start(detector, client, now)
        if error is None:
            incoming = self.incoming[detector]
            for kind in [kind for kind in incoming.direct_from if kind in self.pubsub.subscriptions.keys() - followed]:
                self.pubsub.unsubscribe(kind)
            incoming.direct_from = dict.fromkeys(incoming.direct_from, 1)  # forward nothing
            self.request_states(now, 0.0)
        return error

    def migrating_inputs(self) -> Iterator[tuple[str, str]]:
        """Nothing has to come for a detector before it is there."""
        return iter(())

    def on_state(self, source: str, body: DetectorState, now: float) -> None:
        super().on_state(source, body, now)
        incoming = self.incoming.get(body.detector)
        if incoming is not None and incoming.state is not None:
            incoming.state = DetectorState(
                body.detector, body.term, body.last, without_what_waits(body.state), body.positions, body.publications
            )

    def ready(self, now: float, timeout: float) -> list[IncomingMigration]:
        return [incoming for incoming in self.incoming.values() if incoming.state is not None]

    def complete(self, incoming: IncomingMigration, now: float) -> list[Output]:
        incoming.inputs = {}
        outputs = super().complete(incoming, now)
        for kind in incoming.direct_from:
            subscription = self.pubsub.subscriptions.get(kind)
            if kind not in self.pubsub.publications and (subscription is None or subscription.progress_only):
                self.pubsub.subscribe(kind, SubscriptionOptions(False), 0)
        return outputs

    def on_subscribed(self, kind: str, offset: int) -> None:
        subscription = self.pubsub.subscriptions[kind]
        if not subscription.next:
            subscription.next = offset

    def initial_slack(self, incoming: IncomingMigration) -> dict[str, int]:
        return {} if incoming.delays is None else dict(incoming.delays.delays)


class SnapshotNode(Node):
    """Moves detectors by snapshot alone."""

    migration_method = SnapshotMigrations


class ToRelay(NamedTuple):
    """An event that the old host has not sent on yet, in the order in which it will."""

    ts: int
    type: str
    source: str
    seq: int
    number: int
    event: Event


@dataclass(slots=True)
class Relay:
    """A detector whose ordering unit stays behind: what is to be sent on."""

    target: str
    waiting: list[ToRelay] = field(default_factory=list)


class ClassicMigrations(StopAndCopyMigrations):
    """A detector gets the ordered stream from its old host, until all types were met directly."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.relays: dict[str, Relay] = {}
        # As the target: by detector, the types that were met directly, and the numbers that came from the old host.
        self._met: dict[str, set[str]] = {}
        self._forwarded: set[tuple[str, int]] = set()
        self._relayed: set[str] = set()

    # Target.

    def start(self, detector: str, client: Client, now: float) -> str | None:
        error = super().start(detector, client, now)
        if error is None:
            self._met[detector] = set()
            self._relayed.discard(detector)
        return error

    def request_states(self, now: float, timeout: float) -> None:
        """Ask for the ordered stream at once, and for the detector when every type was met."""
        for name, incoming in self.incoming.items():
            if name not in self._relayed:
                self._relayed.add(name)
                self.membership.send(incoming.source, StateRequest(name, {}))
            if incoming.requested_at is None and all(self._is_met(name, kind) for kind in incoming.direct_from):
                incoming.requested_at = now
                self.membership.send(incoming.source, StateRequest(name, dict(incoming.direct_from)))

    def _is_met(self, detector: str, kind: str) -> bool:
        subscription, publication = self.pubsub.subscriptions.get(kind), self.pubsub.publications.get(kind)
        if (subscription is not None and subscription.watermark == FOREVER) or (
            publication is not None and publication.progress.watermark == FOREVER
        ):
            self._met[detector].add(kind)
        if kind not in self._met[detector] and subscription is not None and subscription.direct_from:
            direct = [
                p
                for p in subscription.pending.values()
                if p.next >= subscription.direct_from and (kind, p.first) not in self._forwarded
            ]
            if any(len(segment.update.events) or segment.update.watermark == FOREVER for segment in direct):
                self._met[detector].add(kind)
        return kind in self._met[detector]

    def on_forwarded(self, detector: str, segments: Iterable[DecodedSegment]) -> None:
        self._forwarded |= {(segment.segment.type, segment.first) for segment in segments}

    # Source.

    def hand_over(self, target: str, body: StateRequest) -> None:
        """The first question begins the relay, the second ends it."""
        if body.detector not in self.runs or body.direct_from:
            self.relays.pop(body.detector, None)
            super().hand_over(target, body)
        else:
            self.relays[body.detector] = Relay(target)

    def record(self, segment: DecodedSegment) -> None:
        super().record(segment)
        kind = segment.segment.type
        for name, met in self._met.items():
            if name in self.incoming and len(segment.update.events):
                met.add(kind)
        for name, relay in self.relays.items():
            if kind in self.engine.hierarchy.listens[name]:
                relay.waiting += [
                    ToRelay(event.ts, kind, str(event.source), event.seq or 0, segment.first + i, event)
                    for i, event in enumerate(segment.update.events)
                ]

    def discard_done(self) -> None:
        """Send what the reorder buffer has released."""
        super().discard_done()
        for name, relay in self.relays.items():
            watermark = self.engine.stats()["detectors"][name]["watermark"]
            relay.waiting.sort()
            while relay.waiting and watermark is not None and relay.waiting[0].ts <= watermark:
                ready = relay.waiting.pop(0)
                segment = Segment(ready.type, ready.number, 1, NEVER, 0, NEVER, 0, events=wire.packed([ready.event]))
                self.membership.send(relay.target, Data([segment], name))


class ClassicNode(Node):
    """Moves detectors by sending the ordered stream on until all types were met."""

    migration_method = ClassicMigrations
