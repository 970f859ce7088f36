"""The peer protocol: what a node does on the messages of its peers, and when the cluster is complete.

It updates membership, directory, publications, subscriptions and migrations; the engine is driven by the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from slackline.cluster.protocol import messages as m
from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.membership import (
    ClientRequest,
    Membership,
    Objection,
    PeerConnected,
    PeerEvent,
    PeerLost,
    PeerMessage,
)
from slackline.cluster.protocol.migration import MigrationRequests, Migrations
from slackline.cluster.protocol.pubsub import Publisher, PubSub, SubscriptionOptions
from slackline.core.outcome import Output
from slackline.core.time import NEVER

#: A message with events is sent when it has so many bytes.
MESSAGE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node says of itself that does not change."""

    name: str
    application: str
    fingerprint: str
    address: str
    ingress: tuple[str, ...]
    #: Whether the node measures delays itself (policy slack).
    slack: bool


class PeerProtocol:
    """Handles the messages of peers, and sends this node's."""

    def __init__(
        self,
        info: NodeInfo,
        membership: Membership,
        directory: Directory,
        pubsub: PubSub,
        migrations: Migrations,
        requests: MigrationRequests,
        log: Callable[[str, str], None],
        overview: Callable[[], dict[str, Any]],
    ) -> None:
        self.info = info
        self.membership = membership
        self.directory = directory
        self.pubsub = pubsub
        self.migrations = migrations
        self.requests = requests
        self.log = log
        self.overview = overview
        #: Stream time, as far as it is known here.
        self.clk = NEVER
        #: After a restart: peers of the last checkpoint that have not announced yet what they run.
        self.awaited: set[str] = set()
        #: Outputs of detectors that were taken back.
        self.outputs: list[Output] = []
        #: Links of clients that wait for an overview.
        self.queries: dict[str, None] = {}
        self._truncated: set[str] = set()  # types of which a lost node misses events, as was logged
        self._started_at: float | None = None
        #: Whether every detector runs, and every sensor type enters, somewhere, or did so before.
        self.is_complete = self._has_warned = False

    def answer_queries(self) -> None:
        """Send the overview to the clients that have asked since the last call, to each once."""
        if self.queries:
            overview = m.Overview(self.overview())
            for link in self.queries:
                self.membership.reply(link, overview)
            self.queries = {}

    def take_outputs(self) -> list[Output]:
        """The outputs since the last call."""
        outputs, self.outputs = self.outputs, []
        return outputs

    # Start.

    @property
    def is_ready(self) -> bool:
        """Whether the cluster is complete: every detector runs, and every sensor type enters, somewhere."""
        return self.is_complete and not self.awaited

    def may_process(self, now: float) -> bool:
        """Whether processing may start: after a restart, when all peers have announced what they run, or are lost."""
        if self._has_waited(now):
            self.awaited = set()
        return not self.awaited and self.membership.rejected is None

    def _has_waited(self, now: float) -> bool:
        """Whether the session timeout has passed since the start."""
        if self._started_at is None:
            self._started_at = now
        return now - self._started_at >= self.membership.session_timeout

    def check_complete(self, now: float) -> None:
        """Check whether the cluster is complete; if it is not for long, log what is missing."""
        if self.membership.ready_since is not None:
            return
        self.is_complete = self.is_complete or self.directory.is_complete
        if self.is_complete:
            self.membership.ready_since = now
        elif not self._has_warned and self._has_waited(now):
            self._has_warned = True
            obstacles = "; ".join(self.directory.obstacles())
            self.log("warning", f"{self.info.name} is waiting to start: {obstacles}.")

    # Peers.

    def hello(self, now: float) -> m.Hello:
        """How this node identifies itself."""
        info, membership = self.info, self.membership
        known = {peer.name: peer.address for peer in membership.peers.values() if peer.address and not peer.has_left}
        return m.Hello(
            membership.identity, membership.age(now), info.application, info.fingerprint, dict(self.migrations.runs),
            list(info.ingress), info.address, known,
        )  # fmt: skip

    def objection(self, sender: str, hello: m.Hello) -> Objection | None:
        """Why a node is refused; None if it is not."""
        info = self.info
        if hello.application != info.application:
            return Objection(f"{sender!r} runs {hello.application!r}, {info.name!r} runs {info.application!r}")
        (theirs, _, their_parts), (ours, _, our_parts) = (each.fingerprint.partition(" ") for each in (hello, info))
        if theirs == ours and their_parts != our_parts:
            return Objection(
                f"{sender!r} was started with the parts {their_parts or '(none)'}, and {info.name!r} with "
                f"{our_parts or '(none)'}: give all nodes the same --parts"
            )
        if hello.fingerprint != info.fingerprint:
            return Objection(
                f"{sender!r} has another version of the application (fingerprint {hello.fingerprint}, on {info.name!r} "
                f"{info.fingerprint}): install the same code, and give the same options"
            )
        claimants = self.directory.claimants(hello.runs, hello.ingress)
        peers = [name for name in (info.name, *self.membership.connected(claimants)) if name in claimants]
        reason = self.directory.objection(sender, hello.runs, hello.ingress, peers)
        if reason is not None:
            return Objection(reason)
        if sender in self.membership.peers or sender in self.awaited:
            return None
        claimed = self.directory.claimed(hello.runs, peers)
        if not claimed:
            return None
        name, node = claimed
        reason = f"{sender!r}, which is not known here, claims the detector {name!r}; it runs on {node!r}"
        self.log("warning", f"node refused: {reason}.")
        return Objection(reason, is_final=False)

    def handle(self, events: list[PeerEvent], now: float) -> None:
        """Handle events of the membership. The first ProtocolError is raised after all of them."""
        first: m.ProtocolError | None = None
        for event in events:
            try:
                match event:
                    case PeerConnected(peer, hello, restarted):
                        self._on_connected(peer, hello, restarted)
                    case PeerLost(peer):
                        self._on_lost(peer)
                    case ClientRequest(link, m.MigrationRequest() as request):
                        self.requests.submit(request, link, now)
                    case ClientRequest(link, _):
                        self.queries[link] = None
                    case PeerMessage(peer, body):
                        self._on_message(peer, body, now)
            except m.ProtocolError as error:
                first = first or error
        if first is not None:
            raise first

    def _on_connected(self, peer: str, hello: m.Hello | None, restarted: bool) -> None:
        self.awaited.discard(peer)
        incarnation = self.membership.peers[peer].session.peer_incarnation
        is_known = restarted and peer in self.directory.runs
        how = f"reconnected after restart (incarnation {incarnation})" if is_known else "connected"
        self.log("info", f"node {peer} {how}")
        self.membership.send(peer, m.Announce(dict(self.migrations.runs), list(self.info.ingress)))
        if restarted:
            for publication in self.pubsub.publications.values():
                publication.on_peer_lost(peer)
        if hello is not None:
            self._on_announce(peer, hello.runs, hello.ingress)
        if restarted:
            self.migrations.on_peer_restarted(peer)

    def _on_lost(self, peer: str) -> None:
        self.log("warning", f"node {peer} is lost")
        for publication in self.pubsub.publications.values():
            publication.on_peer_lost(peer)
        self.requests.on_peer_lost(peer)
        self.migrations.on_peer_lost(peer)

    def on_goodbye(self, peer: str) -> None:
        """A peer has left the cluster."""
        self.log("info", f"node {peer} left the cluster")
        self.membership.peers[peer].has_left = True
        self.membership.addresses.pop(peer, None)
        self.directory.remove(peer)
        for publication in self.pubsub.publications.values():
            publication.unsubscribe(peer)
        self.outputs += self.migrations.on_peer_left(peer)
        self.requests.on_peer_lost(peer)
        self._update_expected()

    def _on_announce(self, peer: str, runs: dict[str, int], ingress: list[str]) -> None:
        """A peer announces what it runs: migrations to it are done, and detectors of a lower term stop here."""
        self.directory.update(peer, runs, ingress)
        for detector, term in runs.items():
            self.migrations.on_done(peer, detector, term)
        for detector in self.migrations.stop_superseded():
            self.log(
                "warning", f"detector {detector!r} runs on {self.directory.host(detector)} now and was stopped here"
            )
        self._update_expected()

    def announce(self) -> None:
        """Announce what runs here now."""
        self.migrations.changed = False
        runs, ingress = dict(self.migrations.runs), list(self.info.ingress)
        self.directory.update(self.info.name, runs, ingress)
        self._update_expected()
        for name in self.membership.connected():  # others get it when they connect
            self.membership.send(name, m.Announce(runs, ingress))

    def _update_expected(self) -> None:
        for kind, publication in self.pubsub.publications.items() if not self.pubsub.retains else ():
            unknown = {""} if self.directory.has_unplaced_listener(kind) else set()  # it may know us before we know it
            publication.expect(self.directory.listeners(kind) - {self.info.name} | unknown)

    # Messages.

    def _on_message(self, peer: str, body: m.Body, now: float) -> None:
        pubsub, migrations = self.pubsub, self.migrations
        match body:
            case m.Data(segments, forwarded_for):
                decoded = pubsub.receive(segments, now)
                if forwarded_for:
                    migrations.on_forwarded(forwarded_for, decoded)
                    return
                for kind in dict.fromkeys(segment.type for segment in segments):
                    if kind not in pubsub.subscriptions:  # the subscription migrated with its publisher
                        self.membership.send(peer, m.Unsubscribe(kind))
            case m.Ack(received):
                for kind, (offset, durable) in received.items():
                    if kind in pubsub.publications:
                        pubsub.publications[kind].acknowledge(peer, offset, durable, now)
            case m.Subscribe():
                self._on_subscribe(peer, body)
            case m.Subscribed(kind, offset):
                self._on_subscribed(peer, kind, offset, now)
            case m.Unsubscribe(kind):
                if kind in pubsub.publications:
                    pubsub.publications[kind].unsubscribe(peer)
            case m.Resend(kind, first, last):
                self._on_resend(peer, kind, first, last)
            case m.Truncated(kind, last):
                if kind in pubsub.subscriptions:
                    pubsub.subscriptions[kind].skip(last + 1)
                    lost = f"events of type {kind!r} up to offset {last} are lost"
                    self.log("warning", f"{lost}: {peer} no longer retains them")
            case m.Announce(runs, ingress):
                self._on_announce(peer, runs, ingress)
            case m.Heartbeat():
                self.membership.on_heartbeat(peer, body, now)
            case m.Goodbye():
                self.on_goodbye(peer)
            case m.MigrateTo():
                self.requests.on_migrate_to(body, peer, now)
            case m.MigrationResult():
                self.requests.on_result(body)
            case m.CopyRequest():
                migrations.on_copy_request(peer, body)
            case m.StateChunk():
                migrations.on_chunk(peer, body)
            case m.StateRequest():
                migrations.state_requests.append((peer, body))
            case m.InputDelays():
                migrations.on_delays(body, self.clk)
            case m.DetectorState():
                migrations.on_state(peer, body, now)
            case m.StopForwarding():
                migrations.on_stop_forwarding(peer, body)
            case m.MigrationDone(detector, term):
                migrations.on_done(peer, detector, term)
            case m.ConfirmMigration():
                migrations.on_confirm(peer, body)
            case m.MigrationRejected():
                self.outputs += migrations.on_rejected(peer, body)

    def on_records(self, records: Iterable[bytes], now: float) -> None:
        """Records of logs were read. A ProtocolError if they are malformed, or of another cluster."""
        segments = []
        for data in records:
            record = m.decode_record(data)
            if record.cluster != self.info.fingerprint:
                raise m.ProtocolError(
                    f"the log of type {record.segment.type!r} was written by another application, or another version "
                    f"of it (fingerprint {record.cluster}, on {self.info.name!r} {self.info.fingerprint}): give each "
                    f"cluster a bus of its own."
                )
            segments.append(record.segment)
        read, truncated = self.pubsub.read(segments, now)
        for kind, first in truncated.items():
            lost = f"events of type {kind!r} up to offset {first - 1} are lost"
            self.log("warning", f"{lost}: the bus no longer retains them")
        self.migrations.on_read(read, truncated)

    def _on_subscribe(self, peer: str, body: m.Subscribe) -> None:
        publication = self.pubsub.publications.get(body.type)
        if publication is None:  # it has migrated
            self.membership.send(peer, m.Subscribed(body.type, 0))
            return
        first = publication.subscribe(peer, body.since, body.reliable, body.progress_only, body.durable)
        self.membership.send(peer, m.Subscribed(body.type, first))
        if 0 < body.since < first:
            self.membership.send(peer, m.Truncated(body.type, first - 1))

    def _on_subscribed(self, peer: str, kind: str, offset: int, now: float) -> None:
        subscription = self.pubsub.subscriptions.get(kind)
        if subscription is None or subscription.publisher is None or subscription.publisher.node != peer:
            return
        if not offset:  # it has migrated
            subscription.publisher = None
            return
        subscription.confirmed, subscription.direct_from, subscription.received_at = True, offset, now
        self.migrations.on_subscribed(kind, offset)

    def _on_resend(self, peer: str, kind: str, first: int, last: int) -> None:
        if kind in self.pubsub.publications:
            segments, truncated = self.pubsub.publications[kind].resend(peer, first, last)
            if segments:
                self.membership.send_unreliable(peer, m.Data(segments))
            if truncated:
                self.membership.send(peer, m.Truncated(kind, truncated))

    # Subscriptions and publications.

    def subscribe(self, now: float) -> None:
        """Subscribe to everything that is needed here, at its current publisher."""
        publishers, needed = {}, self._needed_types()
        for kind in needed:
            node = self.directory.publisher(kind)
            peer = None if node is None else self.membership.peers.get(node)
            if peer is not None and peer.is_up and not self.pubsub.retains:  # a log needs no requests
                publishers[kind] = Publisher(peer.name, peer.session.peer_incarnation)
        for name, body in self.pubsub.subscription_requests(needed, publishers, now):
            if name in self.membership.peers:
                self.membership.send(name, body)

    def _needed_types(self) -> dict[str, SubscriptionOptions]:
        hierarchy, needed = self.directory.hierarchy, self.migrations.needed_inputs()
        if self.info.ingress or self.info.slack:  # delays are measured here, by stream time
            for kind in (*hierarchy.clock, *hierarchy.clock_aids):
                needed.setdefault(kind, SubscriptionOptions(False, progress_only=True))
        return {kind: options for kind, options in needed.items() if kind not in self.pubsub.publications}

    def drop_former_subscribers(self, now: float) -> None:
        """Retain nothing for connected peers that run no listener and have not renewed their subscription in time."""
        timeout = self.membership.session_timeout
        for kind, publication in self.pubsub.publications.items():
            for node, subscriber in list(publication.subscribers.items()):
                if subscriber.renewed_at is None:
                    subscriber.renewed_at = now
                if now - subscriber.renewed_at < timeout:
                    continue
                peer = self.membership.peers.get(node)
                settled = peer is not None and peer.is_up and now >= peer.connected_at + timeout
                if settled and node not in self.directory.listeners(kind) and not subscriber.progress_only:
                    publication.unsubscribe(node)
                else:
                    subscriber.renewed_at = now

    def publish(self) -> None:
        """Send all subscribers what is new for them."""
        publications = self.pubsub.publications
        self._truncated = {
            kind
            for kind in self._truncated & publications.keys()
            if any(each.is_lost for each in publications[kind].subscribers.values())
        }
        for kind in set(self.pubsub.trim()) - self._truncated:
            self._truncated.add(kind)
            self.log(
                "warning",
                f"more than {self.pubsub.settings.retention} events of type {kind!r} wait for a lost node; the oldest "
                f"are dropped, and it will miss them.",
            )
        subscribers = {node for each in self.pubsub.publications.values() for node in each.subscribers}
        for peer in self.membership.connected(subscribers):
            segments: list[m.Segment] = []
            size = 0
            for segment in self.pubsub.due(peer):
                segments.append(segment)
                size += len(segment.events)
                if size > MESSAGE_BYTES:
                    self.membership.send_unreliable(peer, m.Data(segments))
                    segments, size = [], 0
            if segments:
                self.membership.send_unreliable(peer, m.Data(segments))
