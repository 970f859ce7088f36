"""Migration: a detector moves to another node while it runs, by cooperative handover [Migration, IV; Thesis, 5.1.3].

Everything that affects a migration is in this file: its records, the protocol (:class:`Migrations`), and the requests
of clients and controllers (:class:`MigrationRequests`).

**Roles.** The *source* runs the detector; the *target* is to run it, and drives the migration. ::

    target                                                   source
      | MigrateTo was received: IncomingMigration               |
      |--- CopyRequest(copy) ---------------------------------->| copies the state while the detector runs, if large
      |<-- StateChunk(copy, data) ------------------------------| (state_transfer)
      | Subscribe to each input; Subscribed(next) says from     |
      | which offset the publisher sends it directly            |
      | the copy is complete, or the state is not copied        |
      |--- StateRequest(direct_from) -------------------------->| gives the engine all inputs received so far, detaches
      |<-- InputDelays(delays, clk) ----------------------------| the detector and closes its publications:
      |<-- DetectorState(term, state, positions, publications)--| OutgoingMigration, retains state and inputs
      |<-- StateChunk(copy, data) ------------------------------| what has changed since it was copied
      |<-- Data(segments, forwarded_for) -----------------------| each input below direct_from
      | has all inputs behind the positions, and all chunks     |
      | with the digest of the source: attaches the             |
      | detector and opens its publications                     |
      |--- MigrationDone(term) -------------------------------->| discards state and inputs (is_done)
      |--- StopForwarding(type, next) ------------------------->| when direct_from was not known before;
                                                                  forgets the migration when nothing is forwarded

The engine at the target buffers inputs of its own detectors meanwhile, and so records them for the one that arrives.
Forwarded and direct segments have the same offsets; duplicates are dropped. As the state request follows the
subscription, what was published before has reached the source before the request has, unless one path is much slower
than the other: there is hardly ever something to forward. If an input has not started after a while, the state is
requested without its offset.

**Where the bus retains**, the log has all inputs: the state is requested at once, and the target reads from it what the
state does not have. Nothing is forwarded (``direct_from`` is 1: the first offset), and the source records no inputs: if
it takes the detector back, it reads them, too. The target records from the state request on what its own detectors get,
which spares it to read that again.

**Publications** migrate with the detector: next offset, retained segments, subscribers. Subscribers follow the
directory and need not subscribe again. At the source, a detector that listens to the migrated one becomes a subscriber,
paused until the migration is done.

**Failures.** From the DetectorState on the detector is the target's: the source runs it again only when it is certain
that the target has not, and never will, in this term. The target says so by a MigrationRejected. While the target is
lost the source waits, and records the inputs; the session delivers what was sent when they reconnect. If one of the two
restarts, the session has ended, and the source asks (ConfirmMigration): a target that has ever run the detector in this
term, by its checkpoint, answers MigrationDone, any other MigrationRejected. If the source is lost before it has sent
the state, the migration fails; a state that was received stays valid until the source restarts. The rest of a copy is
of use to the target that has the copy: one that has given it up rejects the migration, and the source runs the detector
again. The source retains the detached detector itself; its complete state is encoded for checkpoints only.

**Crashes.** A checkpoint has the running detectors with their terms, and the outgoing migrations with state and inputs.
It is made before any message leaves that reports a change of these (``checkpoint_required``). Incoming migrations are
not in it: the source notices the restart of the target.

**Terms.** Each migration raises the detector's term, and so does taking it back. At most one node ever runs a detector
in a term, and no node runs it in a lower one after that. A node that is restored from an old backup may claim a lower
term: it stops the detector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec

from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.membership import Membership
from slackline.cluster.protocol.messages import (
    COPIED,
    STATE,
    ConfirmMigration,
    CopyRequest,
    Data,
    DetectorState,
    Goodbye,
    InputDelays,
    MigrateTo,
    MigrationDone,
    MigrationRejected,
    MigrationRequest,
    MigrationResult,
    ProtocolError,
    PublicationState,
    StateChunk,
    StateRequest,
    StopForwarding,
)
from slackline.cluster.protocol.pubsub import DecodedSegment, Publisher, PubSub, SubscriptionOptions, decoded
from slackline.cluster.protocol.state_transfer import StateReceiver, StateSender
from slackline.core.errors import BufferLimitError, ConfigError, StateError, UnsupportedStateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Output, ProgressUpdate
from slackline.core.time import NEVER
from slackline.engine import Engine
from slackline.engine.migration import Detached

#: Segments by type.
Inputs = dict[str, list[DecodedSegment]]

# Records.


@dataclass(slots=True)
class IncomingMigration:
    """A detector that is to run here, as the target sees it."""

    detector: str
    source: str
    started_at: float
    #: Where the result is reported.
    client: Client
    #: By input: the offset from which its publisher sends it here (0: not known), and from which it is recorded here.
    direct_from: dict[str, int]
    recorded_from: dict[str, int]
    received: StateReceiver
    inputs: Inputs = field(default_factory=dict)
    #: By input the first offset that the log retains, where it no longer has all.
    truncated: dict[str, int] = field(default_factory=dict)
    requested_at: float | None = None
    delays: InputDelays | None = None
    #: How long a message takes from the source to here, in stream time.
    forwarding_delay: int = 0
    state: DetectorState | None = None
    state_at: float = 0.0
    forwarded: int = 0

    def missing(self) -> dict[str, int]:
        """By input the first event that is missing between the state and what was recorded here."""
        assert self.state is not None
        missing = {}
        for kind, position in self.state.positions.items():
            offset = max(position + 1, self.truncated.get(kind, 0))
            for segment in in_order(self.inputs.get(kind, ()), offset):
                offset = segment.next if segment.first == offset else offset
            if offset < self.recorded_from[kind]:
                missing[kind] = offset
        return missing

    def metrics(self, now: float) -> dict[str, Any]:
        """Duration and costs."""
        assert self.state is not None
        return {
            "detector": self.detector,
            "from": self.source,
            "term": self.state.term,
            "seconds": now - self.started_at,
            "stopped_seconds": now - self.state_at,
            "state_bytes": self.received.bytes,
            "copied_bytes": self.received.copied_bytes,
            "forwarded": self.forwarded,
            "last": self.state.last,
        }


@dataclass(slots=True)
class OutgoingMigration:
    """A detector that ran here, as the source sees it."""

    target: str
    #: Without what is sent in chunks.
    state: DetectorState
    #: By input: the offset from which the target gets it directly, 0 if it has not said.
    direct_from: dict[str, int]
    inputs: Inputs = field(default_factory=dict)
    is_done: bool = False
    #: The incarnation of the target to which the state was sent; 0: this node has restarted since.
    incarnation: int = 0
    #: The detector itself, if its state is sent in chunks.
    detached: Detached | None = None

    def whole_state(self) -> DetectorState:
        """The state with all that was sent in chunks."""
        if self.detached is not None:
            self.state = msgspec.structs.replace(self.state, state=self.detached.whole(), copy=0)
            self.detached = None
        return self.state

    @property
    def recorded(self) -> int:
        """The number of recorded events."""
        return sum(len(each.update.events) for segments in self.inputs.values() for each in segments)


def in_order(segments: Iterable[DecodedSegment], offset: int) -> Iterator[DecodedSegment]:
    """Segments from an offset on, in the order of offsets, each event once."""
    for segment in sorted(segments, key=lambda each: each.first):
        rest = segment.since(offset)
        if rest is not None and len(rest.update.events):
            yield rest
            offset = rest.next


def missed_inputs(state: DetectorState, inputs: Inputs) -> list[ProgressUpdate]:
    """The inputs of a detector that are not in its state."""
    return [
        segment.update
        for kind, position in state.positions.items()
        for segment in in_order(inputs.get(kind, ()), position + 1)
    ]


def fault_of(state: DetectorState, inputs: Iterable[str], hierarchy: Hierarchy) -> str | None:
    """What is wrong with the state of a detector with these inputs; None if nothing is."""
    if set(state.positions) != set(inputs):
        return "positions of other inputs than it has"
    if set(state.publications) != set(hierarchy.published(state.detector)):
        return "other publications than it has"
    for kind, publication in state.publications.items():
        offset = publication.retained[0].first if publication.retained else publication.next
        for segment in publication.retained:
            if segment.type != kind or segment.first != offset or segment.count < 1:
                return f"events of type {kind!r} that are not in order"
            try:
                decoded(segment, hierarchy)
            except ProtocolError as error:
                return f"events that cannot be read: {error}"
            offset += segment.count
        if offset != publication.next:
            return f"events of type {kind!r} that are not in order"
    return None


# The protocol.


class Migrations:
    """The detectors of this node, and their migrations from and to it."""

    #: Whether large states are copied while the detector runs; benchmarks compare it with other methods.
    copies: ClassVar[bool] = True

    def __init__(self, name: str, engine: Engine, pubsub: PubSub, directory: Directory, membership: Membership) -> None:
        self.name = name
        self.engine = engine
        self.pubsub = pubsub
        self.directory = directory
        self.membership = membership
        #: The detectors that run here, with their terms.
        self.runs: dict[str, int] = {}
        #: The highest term in which each detector has ever run here.
        self.terms: dict[str, int] = {}
        self.incoming: dict[str, IncomingMigration] = {}
        self.outgoing: dict[str, OutgoingMigration] = {}
        #: By detector: the state that is being sent.
        self.senders: dict[str, StateSender] = {}
        self._copies = 0
        #: Whether more of a state can be sent at once.
        self.is_sending = False
        #: Requests to answer when the engine has processed everything: target, request.
        self.state_requests: list[tuple[str, StateRequest]] = []
        #: Results of migrations to here: client, error (empty: success), metrics.
        self.results: list[tuple[Client, str, dict[str, Any]]] = []
        # By type: sources that forward it and do not know from which offset it is sent here directly, with detectors.
        self._forwarders: dict[str, list[tuple[str, str]]] = {}
        #: Whether peers must be sent what runs here now; whether a checkpoint must have it first.
        self.changed = False
        self.checkpoint_required = False

    def step(self, now: float, timeout: float) -> list[tuple[Client, str, dict[str, Any]]]:
        """Answer and send state requests, when the engine has processed everything; returns the results so far.

        A state is requested after ``timeout`` seconds also where inputs have not started.
        """
        requests, self.state_requests = self.state_requests, []
        for target, request in requests:
            if not self._is_taking_over(request.detector):
                self.hand_over(target, request)
            elif target in self.membership.connected():
                self.state_requests.append((target, request))
            else:
                self.membership.send(target, MigrationRejected(request.detector, 0, f"{target!r} was lost"))
        self._send_states()
        self.discard_done()
        self._end_forwarding()
        self.request_states(now, timeout)
        results, self.results = self.results, []
        return results

    # Target.

    def start(self, detector: str, client: Client, now: float) -> str | None:
        """Start to migrate a detector to this node; why not, if that is not possible."""
        host = self.directory.host(detector)
        if detector in self.runs:
            return f"detector {detector!r} runs on {self.name!r} already"
        if detector in self.incoming or detector in self.outgoing:
            return f"detector {detector!r} is migrating; wait until that is done"
        if host is None:
            return f"detector {detector!r} does not run on any node"
        if host not in self.membership.connected():
            return f"detector {detector!r} runs on {host!r}, which is lost"
        self._copies += 1
        received = self._expect(detector, host, now, client, self._copies).received
        if self.copies:
            self.membership.send(host, CopyRequest(detector, received.number))
        else:
            received.is_copied = True
        return None

    def _expect(self, detector: str, source: str, now: float, client: Client, copy: int) -> IncomingMigration:
        received = StateReceiver(self.engine, detector, copy)
        incoming = self.incoming[detector] = IncomingMigration(detector, source, now, client, {}, {}, received)
        for kind in self.engine.hierarchy.listens[detector]:
            self.subscribe(kind, kind in self.engine.hierarchy.reliable[detector])
            incoming.direct_from[kind] = 1 if self.pubsub.retains else self.pubsub.next_offset(kind)
        if not self.pubsub.retains:
            self._record_inputs(incoming)
        return incoming

    def _record_inputs(self, incoming: IncomingMigration) -> None:
        if not incoming.recorded_from:
            incoming.recorded_from = {kind: self.pubsub.next_offset(kind) for kind in incoming.direct_from}

    def subscribe(self, kind: str, reliable: bool) -> None:
        """Receive a type here, from whatever offset on, unless that is so already."""
        known = self.pubsub.subscriptions.get(kind)
        if kind not in self.pubsub.publications and (known is None or known.progress_only):
            self.pubsub.subscribe(kind, SubscriptionOptions(reliable), 0)

    def on_subscribed(self, kind: str, offset: int) -> None:
        """A type is sent directly from this offset on."""
        for incoming in self.incoming.values():
            if incoming.direct_from.get(kind) == 0:
                incoming.direct_from[kind] = offset
                if incoming.requested_at is not None:
                    self.membership.send(incoming.source, StopForwarding(incoming.detector, kind, offset))
        self._stop_forwarding(kind, offset)

    def _stop_forwarding(self, kind: str, offset: int) -> None:
        for source, detector in self._forwarders.pop(kind, ()):
            if source in self.membership.peers:
                self.membership.send(source, StopForwarding(detector, kind, offset))

    def _end_forwarding(self) -> None:
        """Nothing more needs to be forwarded for detectors that have left this node again."""
        for kind, forwarders in self._forwarders.items():
            left = [
                (source, name) for source, name in forwarders if name not in self.runs and name not in self.outgoing
            ]
            self._forwarders[kind] = [each for each in forwarders if each not in left]
            for source, name in left:
                if source in self.membership.peers:
                    self.membership.send(source, StopForwarding(name, kind, 1))

    def request_states(self, now: float, timeout: float) -> None:
        """Request the detectors whose inputs have started, or have not for too long."""
        for incoming in self.incoming.values():
            expired = now - incoming.started_at >= timeout
            started = all(incoming.direct_from.values()) or expired
            if incoming.requested_at is None and started and incoming.received.is_copied:
                incoming.requested_at = now
                self._record_inputs(incoming)
                self.membership.send(incoming.source, StateRequest(incoming.detector, dict(incoming.direct_from)))

    def on_delays(self, body: InputDelays, clk: int) -> None:
        incoming = self.incoming.get(body.detector)
        if incoming is not None:
            incoming.delays = body
            incoming.forwarding_delay = max(0, clk - body.clk) if NEVER not in (clk, body.clk) else 0

    def on_state(self, source: str, body: DetectorState, now: float) -> None:
        """The detector has arrived: from now on it is known which of its inputs are missing."""
        incoming = self.incoming.get(body.detector)
        if incoming is None or incoming.source != source or incoming.state is not None:
            reason = f"{self.name!r} does not expect it"
            self.membership.send(source, MigrationRejected(body.detector, body.term, reason))
            return
        incoming.state, incoming.state_at = body, now
        self._record_inputs(incoming)
        if body.copy not in (0, incoming.received.number):
            self._fail(incoming, "the copy that its state completes was given up")
            return
        if body.state:
            incoming.received.add(StateChunk(body.detector, 0, body.state, STATE))
        incoming.received.number = body.copy
        fault = fault_of(body, incoming.direct_from, self.engine.hierarchy)
        if fault is not None:
            self._fail(incoming, f"{source!r} sent it with {fault}")
            return
        for kind, position in body.positions.items():
            subscription = self.pubsub.subscriptions.get(kind)
            if subscription is not None and not subscription.next:
                subscription.next, subscription.durable, subscription.migrated_at = position + 1, position, now
                for each in self.incoming.values():
                    if each.recorded_from.get(kind) == 0:
                        each.recorded_from[kind] = subscription.next

    def on_chunk(self, source: str, body: StateChunk) -> None:
        """A part of the state has arrived, or of a copy of it."""
        incoming = self.incoming.get(body.detector)
        if incoming is None or incoming.source != source or incoming.received.number != body.copy:
            return  # it was given up
        fault = incoming.received.add(body)
        if fault is not None:
            self._fail(incoming, fault)

    def on_forwarded(self, detector: str, segments: Iterable[DecodedSegment]) -> None:
        """Inputs that the source received after it had sent the state, and that are not sent here directly."""
        incoming = self.incoming.get(detector)
        if incoming is None:
            return
        for segment in segments:
            incoming.forwarded += 1
            self._add_input(incoming, segment)

    def _add_input(self, incoming: IncomingMigration, segment: DecodedSegment) -> None:
        kind = segment.segment.type
        before = segment.until(incoming.recorded_from.get(kind, 0))
        if before is not None:
            incoming.inputs.setdefault(kind, []).append(before)

    def on_read(self, segments: Iterable[DecodedSegment], truncated: dict[str, int]) -> None:
        """Records of logs: what the states that have arrived do not have."""
        waiting = [each for each in self.incoming.values() if each.state is not None]
        for incoming in waiting:
            incoming.truncated |= truncated
        for segment in segments if waiting else ():
            for incoming in waiting:
                self._add_input(incoming, segment)

    def missing_inputs(self) -> dict[str, int]:
        """By type: the first event that a detector lacks which is to run here."""
        first: dict[str, int] = {}
        for incoming in self.incoming.values():
            for kind, offset in (incoming.missing() if incoming.state is not None else {}).items():
                first[kind] = min(offset, first.get(kind, offset))
        return first

    def ready(self, now: float, timeout: float) -> list[IncomingMigration]:
        """The detectors that can run here now.

        If the source is lost, missing inputs are given up after ``timeout`` seconds, unless they are reliable.
        """
        ready = []
        for incoming in self.incoming.values():
            if incoming.state is None or incoming.received.state is None or not self._is_up_to_date(incoming.state):
                continue
            if self.pubsub.retains:
                if not incoming.missing() and self._has_read(incoming.state.publications):
                    ready.append(incoming)
                continue
            reliable = self.engine.hierarchy.reliable[incoming.detector]
            source_lost = incoming.source not in self.membership.connected()
            given_up = now - incoming.state_at >= timeout and not reliable and source_lost
            if given_up or not incoming.missing():
                ready.append(incoming)
        return ready

    def _has_read(self, publications: dict[str, PublicationState]) -> bool:
        """Whether detectors here have, from the logs, all that the publisher which arrives does not bring along."""
        for kind, publication in publications.items():
            known = self.pubsub.subscriptions.get(kind)
            brought = publication.retained[0].first if publication.retained else publication.next
            if known is not None and known.next and not known.progress_only and known.end < brought:
                return False
        return True

    def _is_up_to_date(self, state: DetectorState) -> bool:
        """Whether the engine here has seen all inputs as far as the detector has, and as far as it ever had."""
        pubsub = self.pubsub
        return all(
            pubsub.next_offset(kind) > max(position, pubsub.closed_at.get(kind, 0) - 1)
            for kind, position in state.positions.items()
        )

    def complete(self, incoming: IncomingMigration, now: float) -> list[Output]:
        """Run a detector here."""
        state, pubsub, name = incoming.state, self.pubsub, incoming.detector
        assert state is not None
        outputs: list[Output] = []
        if self.directory.term(name) >= state.term:
            self._fail(incoming, f"{self.directory.host(name)!r} has taken it back")
            return outputs
        for kind, publication in state.publications.items():
            outputs += self._deliver_retained(kind, publication)
        try:
            outputs += self._attach(state, state.term, incoming.inputs, self.initial_slack(incoming), incoming.received)
        except (ConfigError, StateError) as error:
            self._fail(incoming, f"its state cannot be restored on {self.name!r}: {error}")
            return outputs
        del self.incoming[name]
        if incoming.source == self.name:  # it was taken back
            del self.outgoing[name]
            return outputs
        self.membership.send(incoming.source, MigrationDone(name, state.term))
        for kind, offset in incoming.direct_from.items():
            if not offset:
                self._forwarders.setdefault(kind, []).append((incoming.source, name))
                if kind in pubsub.subscriptions and pubsub.subscriptions[kind].direct_from:
                    self._stop_forwarding(kind, pubsub.subscriptions[kind].direct_from)
            elif incoming.requested_at is None:  # the state answers an earlier request
                self.membership.send(incoming.source, StopForwarding(name, kind, offset))
        for kind in [kind for kind in self._forwarders if kind in pubsub.publications]:  # it is published here by now
            self._stop_forwarding(kind, 1)
        self.results.append((incoming.client, "", incoming.metrics(now)))
        return outputs

    def _attach(
        self,
        state: DetectorState,
        term: int,
        inputs: Inputs,
        slack: dict[str, int],
        received: StateReceiver | None = None,
    ) -> list[Output]:
        """Run a detector here from its state, and publish its types."""
        data, copied = state.state, None
        if received is not None:
            assert received.state is not None
            data, copied = received.state, received.receiver if state.copy else None
        try:
            missed = missed_inputs(state, inputs)
            outputs = self.engine.host.attach(data, missed=missed, delays=slack, receiver=copied)
        except BufferLimitError as full:  # it runs, and its buffered events have back pressure on others
            outputs = full.outputs
        for kind, publication in state.publications.items():
            self.pubsub.unsubscribe(kind)
            self.pubsub.open_publication(kind, publication).unsubscribe(self.name)
        self.runs[state.detector] = self.terms[state.detector] = term
        self.changed = self.checkpoint_required = True
        return outputs

    def _deliver_retained(self, kind: str, publication: PublicationState) -> list[Output]:
        """Detectors here listen to a type whose publisher has arrived: deliver what was in flight from the source."""
        subscription = self.pubsub.subscriptions.get(kind)
        if subscription is None or subscription.progress_only:
            return []
        retained = [decoded(segment, self.engine.hierarchy) for segment in publication.retained]
        segments = [*subscription.pending.values(), *retained]
        if subscription.next:
            rest = list(in_order(segments, subscription.next))
            subscription.next = max(subscription.next, publication.next)
            for segment in rest:
                self.record(segment)
            return self.engine.host.receive([segment.update for segment in rest]) if rest else []
        first = publication.next  # only detectors that are still to arrive listen
        for segment in sorted(segments, key=lambda each: each.next, reverse=True):
            first = min(first, segment.first) if segment.next >= first else first
        for incoming in self.incoming.values():
            if kind in incoming.recorded_from:
                incoming.inputs.setdefault(kind, []).extend(in_order(segments, first))
                incoming.recorded_from[kind] = first
        return []

    def initial_slack(self, incoming: IncomingMigration) -> dict[str, int]:
        """K at first: that at the source, and the time from there to here [Migration, algorithm 1]."""
        known = incoming.delays.delays if incoming.delays is not None and self.pubsub.slack else {}
        return {kind: delay + incoming.forwarding_delay for kind, delay in known.items()}

    def _fail(self, incoming: IncomingMigration, reason: str) -> None:
        self.incoming.pop(incoming.detector, None)
        if incoming.source == self.name:
            outgoing = self.outgoing[incoming.detector]
            if self.directory.term(incoming.detector) > outgoing.state.term:  # it runs elsewhere
                self._confirm(outgoing)
        elif incoming.state is not None:
            self.membership.send(incoming.source, MigrationRejected(incoming.detector, incoming.state.term, reason))
        elif self.copies and incoming.source in self.membership.peers:
            self.membership.send(incoming.source, CopyRequest(incoming.detector, 0))
        self.results.append((incoming.client, f"detector {incoming.detector!r} did not migrate: {reason}", {}))

    # Source.

    def on_copy_request(self, target: str, body: CopyRequest) -> None:
        """A target asks for a copy of a detector's state."""
        name, sender = body.detector, self.senders.get(body.detector)
        if sender is not None and sender.target == target and name in self.runs:
            self.senders.pop(name).end()
            sender = None
        if not body.copy:
            return
        if name not in self.runs and not self._is_sent(name, target):
            self.membership.send(target, MigrationRejected(name, 0, self._whereabouts(name)))
            return
        if sender is not None and sender.copied and sender.target not in self.membership.connected():
            self._end_copy(name, f"{sender.target!r} was lost")
            sender = None
        if sender is None and name in self.runs:
            copied = self.engine.host.copy(name)
            sender = None if copied is None else StateSender.start(name, target, body.copy, copied)
            if sender is not None:
                self.senders[name] = sender
                return
        self.membership.send(target, StateChunk(name, body.copy, b"", COPIED))  # it will be sent whole

    def _send_states(self) -> None:
        for name, sender in list(self.senders.items()):
            try:
                sender.step(self.membership.peers[sender.target].session)
            except UnsupportedStateError as error:
                self._end_copy(name, f"its state cannot be saved: {error}")
            if sender.is_done:
                self.senders.pop(name, None)
        peers = self.membership.peers
        self.is_sending = any(each.is_due(peers[each.target].session) for each in self.senders.values())

    def _end_copy(self, name: str, reason: str = "") -> None:
        """Send no more of a state; its target is notified if there is a reason."""
        sender = self.senders.pop(name, None)
        if sender is not None:
            sender.end()
            if reason:
                self.membership.send(sender.target, MigrationRejected(name, 0, reason))

    def _end_copies(self, target: str) -> None:
        for name in [each.detector for each in self.senders.values() if each.target == target]:
            self._end_copy(name)

    def _is_sent(self, name: str, target: str) -> bool:
        """Whether a detector was sent to this incarnation of a target."""
        outgoing, incarnation = self.outgoing.get(name), self.membership.peers[target].session.peer_incarnation
        if name in self.incoming:  # it is being taken back
            return False
        return outgoing is not None and (outgoing.target, outgoing.incarnation) == (target, incarnation)

    def hand_over(self, target: str, body: StateRequest) -> None:
        """Send a detector to a target. The engine has processed all inputs received here, and all is published."""
        name, pubsub, hierarchy = body.detector, self.pubsub, self.engine.hierarchy
        incarnation = self.membership.peers[target].session.peer_incarnation
        if self._is_sent(name, target):  # the target was lost, has given up, and requests it again
            self._forward_again(self.outgoing[name], body)
            return
        if name not in self.runs:
            self.membership.send(target, MigrationRejected(name, 0, self._whereabouts(name)))
            return
        kinds = hierarchy.listens[name]
        stats = self.engine.stats()
        clk, watermark = stats["stream_time"], stats["detectors"][name]["watermark"]
        positions = {kind: pubsub.next_offset(kind) - 1 for kind in kinds}
        sender, detached, state = self.senders.get(name), None, b""
        if sender is not None and sender.target != target:
            self._end_copy(name, f"it migrates from {self.name!r} to {target!r}")
            sender = None
        try:
            if sender is not None and sender.copied is not None:
                detached = self.engine.host.detach_copied(name, sender.copied)
            else:
                state = self.engine.host.detach(name)
        except UnsupportedStateError as error:
            self._end_copy(name)
            self.membership.send(target, MigrationRejected(name, 0, f"its state cannot be saved: {error}"))
            return
        publications = {kind: pubsub.close_publication(kind) for kind in hierarchy.published(name)}
        del self.runs[name]
        needed = self.needed_inputs()
        for kind, publication in publications.items():
            if kind in needed:
                at = publication.next
                publication.subscribers[self.name] = (at, at - 1, needed[kind].reliable, False)
                subscription = pubsub.subscribe(kind, needed[kind], at)
                subscription.publisher = None if pubsub.retains else Publisher(target, incarnation)
                subscription.confirmed, subscription.direct_from = True, at
                subscription.paused = True  # the detector might be taken back
        delays = {kind: int(stats["types"][kind]["K"]) for kind in kinds}
        self.membership.send(target, InputDelays(name, delays, NEVER if clk is None else clk))
        last = NEVER if watermark is None else watermark
        copy = 0 if detached is None or sender is None else sender.number
        message = DetectorState(name, self.directory.term(name) + 1, last, state, positions, publications, copy)
        in_chunks = detached is not None or len(state) > StateSender.chunk_bytes
        self.membership.send(target, msgspec.structs.replace(message, state=b"") if in_chunks else message)
        if detached is not None and sender is not None:
            sender.finish(detached.rest, detached.beside)
        elif in_chunks:
            self.senders[name] = StateSender(name, target, 0, None)
            self.senders[name].finish(b"", state)
        direct_from = {kind: body.direct_from.get(kind, 0) for kind in kinds}
        self.outgoing[name] = OutgoingMigration(
            target, message, direct_from, incarnation=incarnation, detached=detached
        )
        self.changed = self.checkpoint_required = True

    def _forward_again(self, outgoing: OutgoingMigration, body: StateRequest) -> None:
        """The target gets inputs directly from other offsets now, and may have dropped what was forwarded before."""
        for kind in outgoing.direct_from.keys() & body.direct_from.keys():
            outgoing.direct_from[kind] = at = body.direct_from[kind]
            for segment in outgoing.inputs.get(kind, ()):
                if not at or segment.first < at:
                    self.membership.send(outgoing.target, Data([segment.encoded()], body.detector))

    def _is_taking_over(self, name: str) -> bool:
        """Whether a log has not confirmed yet that former owners of the detector's types are fenced.

        Handed over before that, the node might fence the next owner.
        """
        published = [self.pubsub.publications.get(kind) for kind in self.engine.hierarchy.published(name)]
        return any(each is not None and each.is_taking_over for each in published)

    def _whereabouts(self, name: str) -> str:
        if name in self.outgoing:
            return f"it is migrating from {self.name!r} to {self.outgoing[name].target!r}"
        if name in self.incoming:
            return f"it is migrating to {self.name!r}, and does not run there yet"
        host = self.directory.host(name)
        return f"it does not run on {self.name!r}" + ("" if host is None else f", but on {host!r}")

    def on_stop_forwarding(self, target: str, body: StopForwarding) -> None:
        outgoing = self.outgoing.get(body.detector)
        known = [
            each.direct_from for peer, each in self.state_requests if (peer, each.detector) == (target, body.detector)
        ]
        if outgoing is not None and outgoing.target == target:
            known.append(outgoing.direct_from)
        for direct_from in known:
            if body.type in direct_from:
                direct_from[body.type] = body.next

    def on_done(self, target: str, detector: str, term: int) -> None:
        """The detector runs at the target, also after a crash."""
        outgoing = self.outgoing.get(detector)
        if outgoing is not None and outgoing.target == target and term >= outgoing.state.term:
            self._confirm(outgoing)

    def _confirm(self, outgoing: OutgoingMigration) -> None:
        self.checkpoint_required = self.checkpoint_required or not outgoing.is_done
        outgoing.is_done, outgoing.inputs = True, {}
        self._end_copy(outgoing.state.detector)
        outgoing.detached = None
        outgoing.state = msgspec.structs.replace(outgoing.state, state=b"")  # the target has it
        for kind in outgoing.state.publications:
            if kind in self.pubsub.subscriptions:
                self.pubsub.subscriptions[kind].paused = False

    def discard_done(self) -> None:
        """Forget the migrations that are done and for which nothing is forwarded."""
        for name, outgoing in list(self.outgoing.items()):
            if outgoing.is_done and not any(self._is_forwarded(outgoing, kind) for kind in outgoing.direct_from):
                del self.outgoing[name]

    def _is_forwarded(self, outgoing: OutgoingMigration, kind: str) -> bool:
        """Whether the target still depends on this node for a type."""
        direct_from, pubsub = outgoing.direct_from[kind], self.pubsub
        at = max(pubsub.next_offset(kind), pubsub.closed_at.get(kind, 0), outgoing.state.positions[kind] + 1)
        return direct_from == 0 or at < direct_from

    def take_back(self, detector: str) -> list[Output]:
        """Run a detector here again whose migration has failed."""
        outgoing = self.outgoing[detector]
        if self.directory.term(detector) >= outgoing.state.term:  # it has arrived, and may have migrated further
            self._confirm(outgoing)
        self._end_copy(detector)
        if outgoing.is_done:
            del self.outgoing[detector]
            return []
        state = outgoing.whole_state()
        term = max(self.directory.term(detector), state.term) + 1
        if self.pubsub.retains:  # when its inputs are read; until then checkpoints have the outgoing migration
            if detector not in self.incoming:
                self._expect(detector, self.name, 0.0, Client(None, None, ""), 0)
                self.on_state(self.name, msgspec.structs.replace(state, term=term), 0.0)
            return []
        del self.outgoing[detector]
        return self._attach(state, term, outgoing.inputs, {})

    # Both.

    def migrating_inputs(self) -> Iterator[tuple[str, str]]:
        """Detector and type of all inputs that migrations need here."""
        for name, incoming in self.incoming.items():
            yield from ((name, kind) for kind in incoming.direct_from)
        for name, outgoing in self.outgoing.items():
            for kind in () if self.pubsub.retains else outgoing.direct_from:
                if not outgoing.is_done or self._is_forwarded(outgoing, kind):
                    yield name, kind

    def needed_inputs(self) -> dict[str, SubscriptionOptions]:
        """By type how it is needed here, by the detectors that run and those that migrate."""
        hierarchy = self.engine.hierarchy
        running = [(name, kind) for name in self.runs for kind in hierarchy.listens[name]]
        needed: dict[str, SubscriptionOptions] = {}
        for name, kind in (*running, *self.migrating_inputs()):
            reliable = kind in hierarchy.reliable[name] or (kind in needed and needed[kind].reliable)
            needed[kind] = SubscriptionOptions(reliable)
        return needed

    def record(self, segment: DecodedSegment) -> None:
        """The engine here gets a segment: detectors that migrate need it too."""
        kind = segment.segment.type
        if not len(segment.update.events):
            return
        for incoming in self.incoming.values():
            if kind in incoming.recorded_from:
                incoming.inputs.setdefault(kind, []).append(segment)
        for name, outgoing in () if self.pubsub.retains else self.outgoing.items():
            direct_from = outgoing.direct_from.get(kind)
            if direct_from is None:
                continue
            if not outgoing.is_done:
                outgoing.inputs.setdefault(kind, []).append(segment)
            if direct_from == 0 or segment.first < direct_from:
                self.membership.send(outgoing.target, Data([segment.encoded()], name))

    def on_rejected(self, sender: str, body: MigrationRejected) -> list[Output]:
        """The other side has ended a migration."""
        incoming, outgoing = self.incoming.get(body.detector), self.outgoing.get(body.detector)
        if outgoing is not None and outgoing.target == sender and outgoing.state.term == body.term:
            return self.take_back(body.detector)
        if incoming is not None and incoming.source == sender and incoming.state is None and not body.term:
            self._fail(incoming, body.reason)
        return []

    def stop_superseded(self) -> list[str]:
        """Stop the detectors that other nodes run in a higher term, and the migrations of a lower one."""
        for incoming in list(self.incoming.values()):
            if incoming.state is not None and self.directory.term(incoming.detector) >= incoming.state.term:
                self._fail(incoming, f"it runs on {self.directory.host(incoming.detector)!r}")
        superseded = [name for name, term in self.runs.items() if self.directory.term(name) > term]
        for name in superseded:
            self._end_copy(name, self._whereabouts(name))
            self.engine.host.detach(name)
            del self.runs[name]
            needed = self.needed_inputs()
            for kind in self.engine.hierarchy.published(name):
                closed = self.pubsub.close_publication(kind)
                if kind in needed:
                    self.pubsub.subscribe(kind, needed[kind], closed.next)
            self.changed = True
        return superseded

    def on_confirm(self, source: str, body: ConfirmMigration) -> None:
        """The source has lost the session in which it sent the state."""
        if self.terms.get(body.detector, 0) >= body.term:
            self.membership.send(source, MigrationDone(body.detector, body.term))
        else:
            reason = f"{self.name!r} has not received it"
            self.membership.send(source, MigrationRejected(body.detector, body.term, reason))

    def on_peer_lost(self, peer: str) -> None:
        """A node is lost, and may reconnect: migrations from there whose state was not received fail."""
        for incoming in [each for each in self.incoming.values() if each.source == peer and each.state is None]:
            self._fail(incoming, f"{peer!r} is lost")

    def on_peer_restarted(self, peer: str) -> None:
        """A node has restarted, or this one: migrations from there fail; what was sent there is to be confirmed."""
        for incoming in [each for each in self.incoming.values() if each.source == peer]:
            self._fail(incoming, f"{peer!r} has restarted")
        self._end_copies(peer)
        for name in [name for name, outgoing in self.outgoing.items() if outgoing.target == peer]:
            outgoing = self.outgoing[name]
            if outgoing.is_done:
                del self.outgoing[name]
            else:
                outgoing.incarnation = 0
                self.membership.send(peer, ConfirmMigration(name, outgoing.state.term))

    def on_peer_left(self, peer: str) -> list[Output]:
        """A node has left the cluster; what has run there has migrated elsewhere before."""
        self.on_peer_lost(peer)
        self._end_copies(peer)
        outputs: list[Output] = []
        for name in [name for name, outgoing in self.outgoing.items() if outgoing.target == peer]:
            outputs += self.take_back(name)
        return outputs

    @property
    def recorded(self) -> int:
        """The events that are recorded for detectors that might be taken back."""
        return sum(each.recorded for each in self.outgoing.values())


# Requests.


class Client(NamedTuple):
    """Where the result of a request is reported: a node, a link to a client, or, without both, this node."""

    node: str | None
    link: str | None
    request: str


class MigrationRequests:
    """Sends requests to the target nodes, and results to the clients."""

    def __init__(
        self, migrations: Migrations, log: Callable[[str, str], None], has_room: Callable[[str, float], bool]
    ) -> None:
        self.name = migrations.name
        self.migrations = migrations
        self.membership = migrations.membership
        self.directory = migrations.directory
        self.log = log
        self.has_room = has_room
        #: By request: the target, and where the result is reported.
        self._pending: dict[str, tuple[str, Client]] = {}
        self._results: list[tuple[str, str, dict[str, Any]]] = []
        self._offered: dict[str, tuple[str, float]] = {}

    def submit(self, request: MigrationRequest, link: str | None, now: float) -> None:
        """Request a migration, for a client or for this node."""
        client, names = Client(None, link, request.request), self.directory.hierarchy.names
        nodes = sorted([self.name, *self.membership.connected()])
        if request.detector not in names:
            error = f"there is no detector {request.detector!r}; the application has {list(names)}"
            self.report(client, error, {})
        elif request.node not in nodes:
            self.report(client, f"there is no node {request.node!r}; the cluster has {nodes}", {})
        elif request.node == self.name:
            self._start(request.detector, client, now)
        else:
            self._pending[request.request] = request.node, client
            self.membership.send(request.node, MigrateTo(request.detector, request.request, request.if_room))

    def on_migrate_to(self, body: MigrateTo, peer: str, now: float) -> None:
        """Another node requests a migration to this one."""
        client = Client(peer, None, body.request)
        if body.if_room and not self.has_room(body.detector, now):
            self.report(client, f"{self.name!r} has no room for {body.detector!r}", {})
        elif body.detector not in self.directory.hierarchy.names:
            self.report(client, f"there is no detector {body.detector!r}", {})
        else:
            self._start(body.detector, client, now)

    def _start(self, detector: str, client: Client, now: float) -> None:
        error = self.migrations.start(detector, client, now)
        if error is not None:
            self.report(client, error, {})

    def on_result(self, result: MigrationResult) -> None:
        _, client = self._pending.pop(result.request, ("", None))
        if client is not None:
            self.report(client, result.error, dict(result.metrics))

    def on_peer_lost(self, node: str) -> None:
        """A node is lost: the results of its migrations will not be reported."""
        for request in [request for request, (target, _) in self._pending.items() if target == node]:
            _, client = self._pending.pop(request)
            self.report(client, f"node {node!r}, the target of the migration, is lost", {})

    def report(self, client: Client, error: str, metrics: dict[str, Any]) -> None:
        """Report the result of a request."""
        if client.node is not None and client.request and client.node in self.membership.peers:
            self.membership.send(client.node, MigrationResult(client.request, error, metrics))
        if client.link is not None:
            self.membership.reply(client.link, MigrationResult(client.request, error, metrics))
        if client.node is None and client.link is None:
            self._results.append((client.request, error, metrics))
        if error:
            self.log("warning", f"{error.rstrip('.')}.")
        elif client.node is None or not client.request:
            self.log(
                "info",
                f"detector {metrics['detector']!r} migrated from {metrics['from']} in "
                f"{1000 * metrics['seconds']:.0f} ms: {metrics['state_bytes']} bytes of state, "
                f"{metrics['forwarded']} forwarded messages",
            )

    def take_results(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Results of this node's own requests: request, error, metrics."""
        results, self._results = self._results, []
        return results

    def evacuate(self, now: float, timeout: float, has_ended: bool) -> bool:
        """Shutdown: request that other nodes take the detectors, unless all has ended; returns whether that is done."""
        others = self.membership.connected()
        runs = {} if has_ended else self.migrations.runs
        for detector in list(runs):
            copied = self.migrations.senders.get(detector)
            if copied is not None and copied.target in others:
                continue
            offered = self._offered.get(detector)
            if others and (offered is None or now - offered[1] >= timeout or offered[0] not in others):
                load = {peer: len(self.directory.runs.get(peer, ())) for peer in others}
                for peer, _ in self._offered.values():
                    load[peer] = load.get(peer, 0) + 1
                target = min(others, key=lambda peer: (load[peer], peer))
                self._offered[detector] = (target, now)
                self.membership.send(target, MigrateTo(detector))
        if (runs and others) or self.migrations.outgoing:
            return False
        if runs:
            lost = "their state is lost unless this node has a checkpoint"
            self.log("warning", f"no other node can take the detectors {sorted(runs)}; {lost}.")
        for peer in others:
            self.membership.send(peer, Goodbye())
        return True
