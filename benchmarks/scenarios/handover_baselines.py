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
from slackline.cluster.protocol.exchange import Want
from slackline.cluster.protocol.feed import Portion
from slackline.cluster.protocol.handover import Handovers
from slackline.cluster.protocol.messages import Data, Item, State, StateRequest
from slackline.cluster.protocol.moves import Arriving
from slackline.core import codec
from slackline.core.event import Event
from slackline.core.outcome import Output
from slackline.core.time import FOREVER, NEVER
from slackline.engine import migration


def without_what_waits(state: bytes) -> bytes:
    """A detector as :meth:`slackline.Engine.detach` gave it, without the events that wait for it."""
    content = codec.load(migration.KIND, migration.VERSION, state)
    content["buffer"] |= {"heap": [], "overdue": []}
    return codec.dump(migration.KIND, migration.VERSION, content, where=content["name"])


class SnapshotHandovers(Handovers):
    """A detector goes with its state and its K."""

    def begin(self, detector: str, request: Any, now: float) -> str | None:
        """Ask at once; subscribe when the detector has come."""
        followed = set(self.exchange.feeds)
        error = super().begin(detector, request, now)
        if error is None:
            arriving = self.arriving[detector]
            for kind in [kind for kind in arriving.covered if kind in self.exchange.feeds.keys() - followed]:
                self.exchange.drop(kind)
            arriving.covered = dict.fromkeys(arriving.covered, 1)  # forward nothing
            self.ask(now, 0.0)
        return error

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Nothing has to come for a detector before it is there."""
        return iter(())

    def on_state(self, source: str, body: State, now: float) -> None:
        super().on_state(source, body, now)
        arriving = self.arriving.get(body.detector)
        if arriving is not None and arriving.state is not None:
            arriving.state = State(
                body.detector, body.term, body.last, without_what_waits(body.state), body.positions, body.outlets
            )

    def complete(self, now: float, patience: float) -> list[Arriving]:
        return [arriving for arriving in self.arriving.values() if arriving.state is not None]

    def finish(self, arriving: Arriving, now: float) -> list[Output]:
        arriving.records = {}
        outputs = super().finish(arriving, now)
        for kind in arriving.covered:
            feed = self.exchange.feeds.get(kind)
            if kind not in self.exchange.outgoing and (feed is None or feed.ticks):
                self.exchange.follow(kind, Want(False, False), 0)
        return outputs

    def on_subscribed(self, kind: str, number: int) -> None:
        feed = self.exchange.feeds[kind]
        if not feed.next:
            feed.next = number

    def _delays(self, arriving: Arriving) -> dict[str, int]:
        return {} if arriving.delays is None else dict(arriving.delays.delays)


class SnapshotNode(Node):
    """Moves detectors by snapshot alone."""

    handover_method = SnapshotHandovers


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


class ClassicHandovers(Handovers):
    """A detector gets the ordered stream from its old host, until all types were met directly."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.relays: dict[str, Relay] = {}
        # As the target: by detector, the types that were met directly, and the numbers that came from the old host.
        self._met: dict[str, set[str]] = {}
        self._forwarded: set[tuple[str, int]] = set()
        self._relayed: set[str] = set()

    # Target.

    def begin(self, detector: str, request: Any, now: float) -> str | None:
        error = super().begin(detector, request, now)
        if error is None:
            self._met[detector] = set()
            self._relayed.discard(detector)
        return error

    def ask(self, now: float, patience: float) -> None:
        """Ask for the ordered stream at once, and for the detector when every type was met."""
        for name, arriving in self.arriving.items():
            if name not in self._relayed:
                self._relayed.add(name)
                self.membership.send(arriving.source, StateRequest(name, {}))
            if arriving.asked is None and all(self._is_met(name, kind) for kind in arriving.covered):
                arriving.asked = now
                self.membership.send(arriving.source, StateRequest(name, dict(arriving.covered)))

    def _is_met(self, detector: str, kind: str) -> bool:
        feed, outgoing = self.exchange.feeds.get(kind), self.exchange.outgoing.get(kind)
        if any(each is not None and each.watermark == FOREVER for each in (feed, outgoing)):
            self._met[detector].add(kind)
        if kind not in self._met[detector] and feed is not None and feed.direct:
            direct = [p for p in feed.held.values() if p.next >= feed.direct and (kind, p.first) not in self._forwarded]
            if any(len(portion.updates.events) or portion.updates.watermark == FOREVER for portion in direct):
                self._met[detector].add(kind)
        return kind in self._met[detector]

    def on_forwarded(self, detector: str, portions: Iterable[Portion]) -> None:
        self._forwarded |= {(portion.item.type, portion.first) for portion in portions}

    # Source.

    def give(self, target: str, body: StateRequest) -> None:
        """The first question begins the relay, the second ends it."""
        if body.detector not in self.runs or body.covered:
            self.relays.pop(body.detector, None)
            super().give(target, body)
        else:
            self.relays[body.detector] = Relay(target)

    def record(self, portion: Portion) -> None:
        super().record(portion)
        kind = portion.item.type
        for name, met in self._met.items():
            if name in self.arriving and len(portion.updates.events):
                met.add(kind)
        for name, relay in self.relays.items():
            if kind in self.engine.hierarchy.listens[name]:
                relay.waiting += [
                    ToRelay(event.ts, kind, str(event.source), event.seq or 0, portion.first + i, event)
                    for i, event in enumerate(portion.updates.events)
                ]

    def tidy(self) -> None:
        """Send on what the ordering unit has let go."""
        super().tidy()
        for name, relay in self.relays.items():
            watermark = self.engine.stats()["detectors"][name]["watermark"]
            relay.waiting.sort()
            while relay.waiting and watermark is not None and relay.waiting[0].ts <= watermark:
                ready = relay.waiting.pop(0)
                item = Item(ready.type, ready.number, 1, NEVER, 0, NEVER, 0, events=wire.packed([ready.event]))
                self.membership.send(relay.target, Data([item], name))


class ClassicNode(Node):
    """Moves detectors by sending the ordered stream on until all types were met."""

    handover_method = ClassicHandovers

    @property
    def relayed(self) -> dict[str, str]:
        """The detectors whose ordered input is sent on from here now, and to whom."""
        return {name: relay.target for name, relay in self._handovers.relays.items()}  # type: ignore[attr-defined]
