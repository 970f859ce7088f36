"""A node: one member of a cluster, as a machine without I/O.

In come messages, local arrivals and the time; out come :class:`~slackline.cluster.interface.Actions`: messages,
outputs, and when to be called again. A host connects it to sockets and clocks (``slackline.cluster.tcp``), a simulation
to virtual ones (``slackline.cluster.simulation``).

The input of a detector does not depend on the node that runs it. Under ``auto``, ``ready`` and ``ordered`` the
watermark of a type is found once, where it enters or is published, and travels with its events; so the network's delays
cost time, and never order. Whether a sensor event is late is decided where it enters. Each detector sees its input in
the total order, on any node, before and after a migration, and again after a crash. Under ``slack`` each node measures
the delays of events as they arrive there, and finds its own K [Migration, IV].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from slackline.cluster.controller.controller import PlacementController
from slackline.cluster.interface import Actions, Append, NodeSettings, Notice, SearchOrder, Takeover
from slackline.cluster.placement import Solution
from slackline.cluster.protocol import messages as m
from slackline.cluster.protocol.directory import Directory, fingerprint, overview_of
from slackline.cluster.protocol.membership import MAX_NAME, Membership
from slackline.cluster.protocol.migration import MigrationRequests, Migrations, OutgoingMigration
from slackline.cluster.protocol.peer_protocol import NodeInfo, PeerProtocol
from slackline.cluster.protocol.pubsub import DecodedSegment, PubSub, SubscriptionOptions, decoded
from slackline.core import codec
from slackline.core.errors import BufferLimitError, ConfigError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Output, ProgressUpdate
from slackline.core.time import NEVER
from slackline.engine import Engine

#: The time between checkpoints is at least so many times as long as making the last one took.
CHECKPOINT_SPACING = 5.0
#: Seconds after which deferred detectors run, if nothing arrives.
DEFERRAL = 0.001
#: With more peers, not every heartbeat has the round trips to all of them, so that heartbeats do not grow.
ROUND_TRIPS = 32
#: Metrics of a detector that are sent to other nodes.
_DETECTOR_METRICS = ("K", "watermark", "buffered", "delivered", "late", "published", "wait_mean", "cpu")

_KIND, _VERSION = "node", 2


class _SavedMigration(msgspec.Struct):
    target: str
    state: m.DetectorState
    direct_from: dict[str, int]
    is_done: bool
    inputs: list[m.Segment]


class _SavedSubscription(msgspec.Struct):
    next: int
    reliable: bool
    progress_only: bool
    lost: int


class _SavedPeer(msgspec.Struct):
    """A node of the cluster, and its last incarnation."""

    identity: int
    incarnation: int


class _SavedNode(msgspec.Struct):
    """A checkpoint. Sessions are not in it: a new incarnation starts new ones, and offsets show what got lost."""

    name: str
    identity: int
    incarnation: int
    application: str
    peers: dict[str, _SavedPeer]
    is_complete: bool
    engine: bytes
    ingress: list[str]
    has_ended: bool
    runs: dict[str, int]
    publications: dict[str, m.PublicationState]
    subscriptions: dict[str, _SavedSubscription]
    closed_at: dict[str, int]
    outgoing: list[_SavedMigration]
    terms: dict[str, int] = {}


class Node:
    """Some detectors of a hierarchy, which run together with those of other nodes.

    ``identity``    a random number: it tells two nodes of the same name apart.
    ``ingress``     the sensor types that enter here, by :meth:`push`. Of a type that enters the cluster in parts
                    (:meth:`Hierarchy.in_parts`, the same on all nodes) at most one: ``reading/0``.
    ``detectors``   those that run here at first.
    ``application`` where every node loads the application from, such as ``my_app:hierarchy``.
    ``address``     where other nodes reach the host of this one.
    Other options are the engine's. ``now`` is in seconds of any monotonic clock.
    """

    #: How detectors migrate; benchmarks compare it with other methods.
    migration_method: ClassVar[type[Migrations]] = Migrations

    def __init__(
        self,
        name: str,
        hierarchy: Hierarchy,
        *,
        identity: int,
        ingress: Iterable[str] = (),
        detectors: Iterable[str] = (),
        application: str = "",
        address: str = "",
        settings: NodeSettings | None = None,
        **engine_options: Any,
    ) -> None:
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise ConfigError(f"name={name!r} is not valid; a name has 1 to {MAX_NAME} printable characters.")
        if engine_options.get("late") == "deliver":
            raise ConfigError(
                "late='deliver' is not supported on nodes: results would depend on the node. Nodes divert late events."
            )
        engine = Engine(hierarchy, detectors=list(detectors), sensors=list(ingress), **engine_options)
        self._assemble(name, engine, identity, 1, tuple(ingress), application, address, settings or NodeSettings())
        self._migrations.runs = dict.fromkeys(engine.detectors, 1)
        self._migrations.terms = dict(self._migrations.runs)
        for kind in (*self._ingress, *self._published()):
            self._pubsub.open_publication(kind)
        self._protocol.announce()

    def _assemble(
        self,
        name: str,
        engine: Engine,
        identity: int,
        incarnation: int,
        ingress: tuple[str, ...],
        application: str,
        address: str,
        settings: NodeSettings,
    ) -> None:
        settings.check(engine.hierarchy)
        self.name = name
        self.settings = settings
        #: The share of time that the host is busy, and the seconds that the last checkpoint took; the host sets both.
        self.busy = self.checkpoint_seconds = 0.0
        #: Whether it has left the cluster.
        self.has_left = False
        self._engine = engine
        self._ingress = ingress
        options = engine.stats()["options"]
        slack = options["policy"] == "slack"
        self._membership = Membership(name, identity, incarnation, settings.session_timeout)
        self._directory = Directory(engine.hierarchy)
        self._pubsub = PubSub(engine.hierarchy, settings, slack)
        self._migrations = self.migration_method(name, engine, self._pubsub, self._directory, self._membership)
        self._controller = PlacementController(name, settings, self.migrate, self._log)
        self._requests = MigrationRequests(self._migrations, self._log, self._controller.has_room)
        known_as = fingerprint(engine.hierarchy, options if settings.bus is None else {**options, "bus": settings.bus})
        info = NodeInfo(name, application, known_as, address, ingress, slack)
        self._protocol = PeerProtocol(
            info, self._membership, self._directory, self._pubsub, self._migrations, self._requests, self._log,
            self.overview,
        )  # fmt: skip
        # Whether lateness here depends on stream time that other nodes send.
        self._remote_clock = options["policy"] in ("auto", "ready") and not set(engine.hierarchy.clock) <= set(ingress)
        # Whether stream time is that of the parts which enter here, and when some of them were last pushed.
        types = engine.hierarchy.event_types
        whole = set(engine.hierarchy.clock) <= set(ingress)
        self._has_clock_part = not whole and set(types(engine.hierarchy.clock)) <= set(types(ingress))
        self._pushed_at: float | None = None
        self._followed = NEVER
        self._arrivals: list[tuple[list[Event] | pa.Table, Any]] = []
        self._is_unrepeatable = False  # whether some of them cannot be pushed again after a crash, at the same time
        self._input_ended = self._end_pushed = False
        self._actions = Actions()
        self._buffer_full = self._leaves = False
        self._ran_at = 0.0
        self._heartbeat_at = self._ack_at = self._checkpoint_at = -math.inf
        self._request_count = self._heartbeats = 0

    # In.

    def push(
        self, arrivals: Iterable[Event] | Event | pa.Table, now: float, wall: Any = None, *, repeatable: bool = True
    ) -> None:
        """Local arrivals, for the next :meth:`run`; ``wall`` as ``now`` of :meth:`~slackline.Engine.push`.

        Unless ``repeatable`` the host cannot push them again after a crash. Such arrivals, and those with an arrival
        time, are in a checkpoint before any peer receives what follows from them.
        """
        self._is_unrepeatable = self._is_unrepeatable or not repeatable or wall is not None
        if not isinstance(arrivals, pa.Table):
            arrivals = [arrivals] if isinstance(arrivals, Event) else list(arrivals)
        self._arrivals.append((arrivals, wall))
        if len(arrivals):
            self._pushed_at = now

    def end(self, now: float) -> None:
        """The local input has ended."""
        self._input_ended = True

    def link_up(self, link: str, now: float) -> None:
        """A connection is established."""
        self._membership.link_up(link, now)

    def link_down(self, link: str, now: float) -> None:
        """A connection is closed."""
        self._protocol.handle(self._membership.link_down(link), now)

    def receive(self, link: str, data: bytes, now: float) -> None:
        """A message was received. A ProtocolError if it is malformed; it has changed nothing."""
        self._protocol.handle(self._membership.receive(link, data, now, self._protocol.objection), now)

    def read(self, records: Iterable[bytes], now: float) -> None:
        """Records of the logs that :class:`Actions` asked for. A ProtocolError if one is not of this cluster."""
        self._protocol.on_records(records, now)

    def appended(self, append: Append, now: float) -> None:
        """A log has a record, and all before it. Late acknowledgements of earlier epochs have no effect."""
        if append.epoch == self._epoch(append.type):
            self._pubsub.appended(append.type, append.next, now)

    def migrate(self, detector: str, to: str, now: float, if_room: bool = False) -> str:
        """Request the migration of a detector to a node; returns the request's name. A notice reports the result.

        ``if_room``: a node that sheds load may refuse, if the detector would take it above its limit.
        """
        self._request_count += 1
        request = f"{self.name}/{self._membership.incarnation}/{self._request_count}"
        self._requests.submit(m.MigrationRequest(detector, to, request, if_room), None, now)
        return request

    def found(self, search: SearchOrder, solution: Solution | str, now: float) -> None:
        """The result of a search (:class:`Actions`): a solution, or why there is none."""
        self._controller.on_search_result(search, solution)

    def leave(self, now: float) -> None:
        """Leave the cluster: the detectors migrate to other nodes first; then :attr:`has_left`."""
        self._leaves = True

    def forget(self, peer: str) -> None:
        """A peer that seemed lost has left the cluster, by its last checkpoint: while this node was down."""
        self._protocol.on_goodbye(peer)

    # Out.

    def run(self, now: float) -> Actions:
        """Process all input; returns what the host has to do. Call it after each of the above, or after several."""
        self._ran_at = now
        self._protocol.handle(self._membership.expire(now), now)
        if self._protocol.may_process(now):
            self._process(now)
            self._protocol.subscribe(now)
            self._protocol.check_complete(now)
            for peer, resend in self._pubsub.resend_requests(now):
                self._send_unreliable(peer, resend)
        if self._leaves and not self.has_left:
            self.has_left = self._requests.evacuate(now, self.settings.session_timeout, self.has_ended)
        self._send_heartbeats(now)
        self._protocol.answer_queries()
        for result in self._requests.take_results():
            self._controller.on_move_result(*result, now)
        if self._migrations.changed:
            self._protocol.announce()
        self._protocol.drop_former_subscribers(now)
        self._protocol.publish()
        if self._pubsub.retains and self._protocol.may_process(now):
            self._actions.reads |= self._pubsub.reads(self._migrations.missing_inputs())
        self._actions.late, self._actions.quarantined, _ = self._engine.drain()  # before the checkpoint
        self._make_checkpoint(now)
        actions, self._actions = self._actions, Actions()
        actions.outputs += self._protocol.take_outputs()
        if self._protocol.may_process(now):  # before that, other nodes may own what this one has published
            actions.appends = [self._append(segment) for segment in self._pubsub.appends()]
        actions.messages += self._membership.due(now, lambda: self._protocol.hello(now))
        actions.close = self._membership.links_to_close()
        actions.search = self._controller.pop_search()
        actions.takeovers = [
            Takeover(name, lost.session.peer_incarnation if lost.is_met else None)
            for name in self._controller.pop_resumes()
            if (lost := self._membership.peers.get(name)) is not None
        ]
        actions.call_at = self._call_at(now)
        return actions

    def _process(self, now: float) -> None:
        """Give the engine all its input, publish its progress, and advance migrations, until nothing is left to do."""
        pubsub, migrations = self._pubsub, self._migrations
        timeout = self.settings.session_timeout
        idle, busy = not self._arrivals, True
        while busy:
            busy = False
            if not self._is_blocked:
                self._push_arrivals()
                segments = pubsub.deliver(now, self._blocking_types() if self._buffer_full else None)
                busy = bool(segments)
                self._deliver(segments)
            if idle and not busy and self._engine.deferred:  # once: new input has priority over deferred detectors
                self._collect(lambda: self._engine.push([]))
            idle = False
            for update in self._engine.host.progress_updates():
                self._protocol.clk = max(self._protocol.clk, update.clk)
                migrations.record(pubsub.publish(update))
            for incoming in migrations.ready(now, timeout)[:1]:  # the next one needs what it publishes
                busy = True
                self._actions.outputs += migrations.complete(incoming, now)
        for result in migrations.step(now, min(1.0, timeout)):
            self._requests.report(*result)

    def _push_arrivals(self) -> None:
        if self._arrivals and (self._remote_clock or self._is_unrepeatable):
            self._migrations.checkpoint_required = True  # what is late depends on the moment: decide once
        self._is_unrepeatable = False
        for arrivals, wall in self._arrivals:
            self._collect(lambda a=arrivals, w=wall: self._engine.push(a, now=w))  # type: ignore[misc]
        self._arrivals = []
        if self._input_ended and not self._end_pushed:
            self._end_pushed = True
            self._collect(lambda: self._engine.host.end(self._ingress))

    def _follow_if_idle(self, now: float) -> None:
        """Where nothing of a part of the clock has arrived for long, stream time follows that of the other parts."""
        if not self._has_clock_part or self._end_pushed:
            return
        if self._pushed_at is None or self.is_full or not self.is_ready:
            self._pushed_at = now
        elif now - self._pushed_at >= self.settings.idle_timeout and self._protocol.clk > self._followed:
            self._followed = self._protocol.clk
            self._collect(lambda: self._engine.host.follow(self._followed))
            self._migrations.checkpoint_required = True  # before that is published: what is late is decided once

    def _blocking_types(self) -> set[str]:
        """The types for which buffered events wait."""
        waits = [each["waits_for"] for each in self._engine.host.stats()["detectors"].values()]
        return {wait["type"] for wait in waits if wait is not None}

    def _deliver(self, segments: list[DecodedSegment]) -> None:
        """Give segments to the engine."""
        for segment in segments:
            self._migrations.record(segment)
            self._protocol.clk = max(self._protocol.clk, segment.update.clk)
        updates = [segment.update for segment in segments]
        try:
            self._receive(updates)
        except ConfigError:  # one by one: the others must not be lost
            for update in updates:
                try:
                    self._receive([update])
                except ConfigError as error:
                    lost = f"{len(update.events)} events of type {update.type!r}"
                    self._log("error", f"{lost} cannot be processed: {error}")

    def _receive(self, updates: list[ProgressUpdate]) -> None:
        if updates:
            self._collect(lambda: self._engine.host.receive(updates))

    def _collect(self, call: Callable[[], list[Output]]) -> None:
        """Collect the outputs of a call of the engine, and note whether its buffers are full."""
        try:
            self._actions.outputs += call()
            self._buffer_full = False
        except BufferLimitError as full:
            self._actions.outputs += full.outputs
            if not self._buffer_full:
                self._log("warning", f"{full}")
            self._buffer_full = True

    def _send_heartbeats(self, now: float) -> None:
        due = now >= self._heartbeat_at
        if due or now >= self._ack_at:
            self._ack_at = now + self.settings.heartbeat_interval / 4
            for peer, acks in self._pubsub.acks(repeat=due).items():
                self._send_unreliable(peer, m.Ack(acks))
        if not due:
            return
        self._heartbeat_at = now + self.settings.heartbeat_interval
        self._follow_if_idle(now)
        metrics, peers = self._metrics(), self._membership.connected()
        brief = {name: value for name, value in metrics.items() if name != "round_trips"}
        every = 1 + len(peers) // ROUND_TRIPS
        self._heartbeats += 1
        for place, peer in enumerate(peers):
            shown = metrics if (place + self._heartbeats) % every == 0 else brief
            self._membership.send_heartbeat(peer, shown, self.busy, now)
            progress = self._pubsub.progress(peer)
            if progress:
                self._membership.send_unreliable(peer, m.Data(progress))
        if self.is_ready and not self._leaves:
            self._controller.on_heartbeat(self.overview, now)

    def _send_unreliable(self, peer: str, body: m.Body) -> None:
        if peer in self._membership.peers:
            self._membership.send_unreliable(peer, body)

    def _call_at(self, now: float) -> float:
        times = [self._heartbeat_at, self._membership.next_at()]
        if (resend_at := self._pubsub.resend_at()) is not None:
            times.append(resend_at)
        if self._pubsub.subscriptions:
            times.append(self._ack_at)
        if self._migrations.incoming:
            times.append(now + self.settings.gap_timeout)
        if self._engine.deferred:
            times.append(now + DEFERRAL)
        if self._migrations.is_sending:
            times.append(now)
        return max(now, min(times))

    def _append(self, segment: m.Segment) -> Append:
        record = m.encode(m.LogRecord(m.VERSION, self._protocol.info.fingerprint, segment))
        return Append(segment.type, self._epoch(segment.type), record, segment.first + segment.count)

    def _epoch(self, kind: str) -> tuple[int, int]:
        """The epoch in which a type is published here."""
        publisher = self._engine.hierarchy.publisher.get(kind)
        return 0 if publisher is None else self._migrations.runs.get(publisher, 0), self._membership.incarnation

    def _published(self) -> list[str]:
        return [kind for name in self._migrations.runs for kind in self._engine.hierarchy.published(name)]

    def _log(self, level: str, text: str) -> None:
        self._actions.notices.append(Notice(level, text))

    # State.

    @property
    def is_ready(self) -> bool:
        """Whether the cluster is complete: before that, nothing should be pushed."""
        return self._protocol.is_ready

    @property
    def is_full(self) -> bool:
        """Whether subscribers or detectors must catch up before more is pushed."""
        return self._is_blocked or self._buffer_full or len(self._arrivals) > 1

    @property
    def _is_blocked(self) -> bool:
        """Whether too many events wait for subscribers, or for the target of a migration that is lost."""
        return self._pubsub.is_full or self._migrations.recorded > self.settings.retention

    @property
    def has_ended(self) -> bool:
        """Whether all types that enter or are published here have ended, and all subscribers have everything."""
        migrates = self._migrations.incoming or self._migrations.outgoing
        return self._pubsub.has_ended and not migrates

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or enters here while other nodes are connected: they may migrate something here."""
        return not self._pubsub.publications and bool(self._membership.connected())

    @property
    def failed(self) -> str | None:
        """Why the cluster refuses this node; None if it does not."""
        return self._membership.rejected

    @property
    def incarnation(self) -> int:
        """How often the node was started."""
        return self._membership.incarnation

    @property
    def runs(self) -> list[str]:
        """The detectors that run here."""
        return sorted(self._migrations.runs)

    @property
    def publishes(self) -> list[str]:
        """The types that enter or are published here."""
        return list(self._pubsub.publications)

    def addresses(self) -> dict[str, str]:
        """Addresses of other nodes, by name, as far as they are known."""
        return dict(self._membership.addresses)

    def overview(self) -> dict[str, Any]:
        """The cluster as this node sees it: plain values that JSON can hold."""
        moving = dict.fromkeys(self._migrations.incoming, "incoming")
        moving |= dict.fromkeys(self._migrations.outgoing, "outgoing")
        return overview_of(self.name, self.busy, self._metrics(), self._membership, self._directory, moving)

    def _metrics(self) -> dict[str, Any]:
        """Metrics for other nodes; ``at`` is in seconds of this node's clock."""
        stats = self._engine.host.stats()
        return {
            "at": self._ran_at,
            "limit": self.settings.limit,
            "stays": list(self.settings.stays),
            "master": self.settings.optimise == "master" and not self._leaves,
            "round_trips": self._membership.round_trips(),
            "connected": self._membership.connected(),
            "failover": self.settings.failover_after is not None and not self._leaves,
            "clk": stats["stream_time"],
            "arrivals": stats["arrivals"],
            "duplicates": stats["duplicates"],
            "detectors": {
                name: {key: each[key] for key in _DETECTOR_METRICS}
                | {"waits_for": (each["waits_for"] or {}).get("type")}
                for name, each in stats["detectors"].items()
            },
            "sent": {
                kind: {
                    "events": each.next - 1,
                    "retained": len(each.retained),
                    "truncated": each.dropped,
                    "dropped": sum(subscriber.dropped for subscriber in each.subscribers.values()),
                }
                for kind, each in self._pubsub.publications.items()
            },
            "received": {
                kind: {"events": max(0, each.next - 1), "lost": each.lost, "duplicates": each.duplicates}
                for kind, each in self._pubsub.subscriptions.items()
                if not each.progress_only
            },
        }

    # Checkpoints.

    def _make_checkpoint(self, now: float) -> None:
        every = self.settings.checkpoint_every
        if every is None:
            self._migrations.checkpoint_required = False
        elif self._migrations.checkpoint_required or self.has_left or now >= self._checkpoint_at:
            self._checkpoint_at = now + max(every, CHECKPOINT_SPACING * self.checkpoint_seconds)
            self._migrations.checkpoint_required = False
            self._pubsub.mark_durable()
            self._actions.checkpoint = self.save()

    def save(self) -> bytes:
        """The state as bytes; nothing in them is ever unpickled."""
        membership, pubsub, migrations = self._membership, self._pubsub, self._migrations
        peers = {
            name: _SavedPeer(peer.identity, peer.session.peer_incarnation)
            for name, peer in membership.peers.items()
            if not peer.has_left
        }
        outgoing = []
        for each in migrations.outgoing.values():
            inputs = [segment.encoded() for segments in each.inputs.values() for segment in segments]
            outgoing.append(
                _SavedMigration(each.target, each.whole_state(), dict(each.direct_from), each.is_done, inputs)
            )
        saved = _SavedNode(
            name=self.name,
            identity=membership.identity,
            incarnation=membership.incarnation,
            application=self._protocol.info.application,
            peers=peers,
            is_complete=self._protocol.is_complete,
            engine=self._engine.save(),
            ingress=list(self._ingress),
            has_ended=self._end_pushed,
            runs=dict(migrations.runs),
            publications={kind: each.state() for kind, each in pubsub.publications.items()},
            subscriptions={
                kind: _SavedSubscription(each.next, each.reliable, each.progress_only, each.lost)
                for kind, each in pubsub.subscriptions.items()
                if each.next
            },
            closed_at=dict(pubsub.closed_at),
            outgoing=outgoing,
            terms=dict(migrations.terms),
        )
        return codec.dump(_KIND, _VERSION, msgspec.msgpack.encode(saved), where="node")

    @classmethod
    def load(
        cls,
        data: bytes,
        hierarchy: Hierarchy,
        *,
        address: str = "",
        settings: NodeSettings | None = None,
        **engine_options: Any,
    ) -> Node:
        """A node from its checkpoint, as a new incarnation. A StateError if it is damaged, or none of a node."""
        try:
            saved = msgspec.msgpack.decode(codec.load(_KIND, _VERSION, data), type=_SavedNode)
        except (msgspec.MsgspecError, TypeError) as error:
            raise StateError(f"the checkpoint is damaged ({error}). Restore an older one.") from error
        engine = Engine.load(saved.engine, hierarchy, **engine_options)
        node = cls.__new__(cls)
        node._assemble(
            saved.name, engine, saved.identity, saved.incarnation + 1, tuple(saved.ingress), saved.application,
            address, settings or NodeSettings(),
        )  # fmt: skip
        try:
            node._restore(saved)
        except m.ProtocolError as error:
            raise StateError(f"the checkpoint is damaged ({error}). Restore an older one.") from error
        node._protocol.announce()
        return node

    def _restore(self, saved: _SavedNode) -> None:
        pubsub = self._pubsub
        self._input_ended = self._end_pushed = saved.has_ended
        self._protocol.is_complete = saved.is_complete
        self._protocol.awaited = set(saved.peers)
        for name, peer in saved.peers.items():
            self._membership.expect(name, peer.identity, peer.incarnation)
        self._migrations.runs = dict(saved.runs)
        self._migrations.terms = {**saved.runs, **saved.terms}
        pubsub.closed_at = dict(saved.closed_at)
        for kind, state in saved.publications.items():
            for subscriber in pubsub.open_publication(kind, state).subscribers.values():
                subscriber.is_lost = not pubsub.retains  # until it connects; a log does not get lost
        for kind, each in saved.subscriptions.items():
            options = SubscriptionOptions(each.reliable, each.progress_only)
            pubsub.subscribe(kind, options, each.next).lost = each.lost
        for one in saved.outgoing:
            outgoing = OutgoingMigration(one.target, one.state, one.direct_from, is_done=one.is_done)
            for segment in one.inputs:
                outgoing.inputs.setdefault(segment.type, []).append(decoded(segment, pubsub.hierarchy))
            self._migrations.outgoing[one.state.detector] = outgoing
            for kind in one.state.publications:
                if kind in pubsub.subscriptions and not one.is_done:
                    pubsub.subscriptions[kind].paused = True

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        self._engine.check_invariants()
        self._pubsub.check_invariants()
        assert set(self._migrations.runs) == set(self._engine.detectors), "runs other detectors than it announces"
        published = {*self._ingress, *self._published()}
        assert set(self._pubsub.publications) == published, "publishes types of other detectors than it runs"
