"""What a node makes of what others say: who is there and runs what, who gets what, what is to move.

It reads messages and keeps the books (directory, exchange, handovers); the engine is not its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slackline.cluster.protocol import messages as m
from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.errands import Errands
from slackline.cluster.protocol.exchange import Exchange, Want
from slackline.cluster.protocol.feed import Publisher
from slackline.cluster.protocol.handover import Handovers
from slackline.cluster.protocol.membership import Asked, Happening, Lost, Membership, Met, Said
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
    enters: tuple[str, ...]
    #: Whether K is found here, from delays as they are here.
    slack: bool


class PeerProtocol:
    """The talk of a node with its peers."""

    def __init__(
        self,
        card: NodeInfo,
        membership: Membership,
        directory: Directory,
        exchange: Exchange,
        handovers: Handovers,
        errands: Errands,
        note: Callable[[str, str], None],
        overview: Callable[[], dict[str, Any]],
    ) -> None:
        self.card = card
        self.membership = membership
        self.directory = directory
        self.exchange = exchange
        self.handovers = handovers
        self.errands = errands
        self.note = note
        self.overview = overview
        #: Stream time, as far as it is known here.
        self.clk = NEVER
        #: Peers that were there before a crash and have not said yet what they run.
        self.awaits: set[str] = set()
        self._anew: list[str] = []
        #: What detectors found that came back because somebody was lost.
        self.outputs: list[Output] = []

    def take_outputs(self) -> list[Output]:
        """What was found meanwhile."""
        taken, self.outputs = self.outputs, []
        return taken

    # Who is there.

    def hello(self, now: float) -> m.Hello:
        card, membership = self.card, self.membership
        there = (peer for peer in membership.peers.values() if not peer.has_left)
        knows = {peer.name: peer.address for peer in there if peer.address}
        runs, enters = dict(self.handovers.runs), list(card.enters)
        age = membership.age(now)
        return m.Hello(membership.identity, age, card.application, card.fingerprint, runs, enters, card.address, knows)

    def objection(self, sender: str, hello: m.Hello) -> str | None:
        """Why a node cannot be met; None if it can."""
        card = self.card
        if hello.application != card.application:
            return f"{sender!r} runs {hello.application!r}, {card.name!r} runs {card.application!r}"
        if hello.fingerprint != card.fingerprint:
            return (
                f"{sender!r} has another version of the application (fingerprint {hello.fingerprint}, on {card.name!r} "
                f"{card.fingerprint}): install the same code, and give the same options"
            )
        there = [card.name, *self.membership.there()]
        return self.directory.objection(sender, hello.runs, hello.enters, there)

    def happen(self, happenings: list[Happening], now: float) -> None:
        """Take note of what happened. The first ProtocolError is raised when all have had their turn."""
        wrong: m.ProtocolError | None = None
        for happening in happenings:
            try:
                match happening:
                    case Met(peer, hello, anew):
                        self._met(peer, hello, anew)
                    case Lost(peer):
                        self._lost(peer)
                    case Asked(link, m.Order() as order):
                        self.errands.order(order, link, now)
                    case Asked(link, _):
                        self.membership.answer(link, m.Overview(self.overview()))
                    case Said(peer, body):
                        self._said(peer, body, now)
            except m.ProtocolError as error:
                wrong = wrong or error
        if wrong is not None:
            raise wrong

    def _met(self, peer: str, hello: m.Hello | None, anew: bool) -> None:
        self.awaits.discard(peer)
        restarted = anew and peer in self.directory.runs
        incarnation = self.membership.peers[peer].session.peer_incarnation
        how = f"reconnected after restart (incarnation {incarnation})" if restarted else "connected"
        self.note("info", f"node {peer} {how}")
        self.membership.send(peer, m.Announce(dict(self.handovers.runs), list(self.card.enters)))
        if anew:  # what was on its way from or to its former life is not any more
            for outgoing in self.exchange.outgoing.values():
                outgoing.lose(peer)
        if hello is not None:
            self._learn(peer, hello.runs, hello.enters)
        if anew:
            self._anew.append(peer)
            self._lose_former()

    def await_nobody(self) -> None:
        """Go on without those who have not said what they run."""
        self.awaits = set()
        self._lose_former()

    def _lose_former(self) -> None:
        """End what was under way with former lives; after our own crash, when all have told what they run."""
        while self._anew and not self.awaits:
            self.outputs += self.handovers.lose(self._anew.pop(), anew=True)

    def _lost(self, peer: str) -> None:
        self.note("warning", f"node {peer} is lost")
        self.errands.lose(peer)
        for outgoing in self.exchange.outgoing.values():
            outgoing.lose(peer)
        self.outputs += self.handovers.lose(peer)

    def _left(self, peer: str) -> None:
        self.note("info", f"node {peer} left the cluster")
        self.membership.peers[peer].has_left = True
        self.membership.addresses.pop(peer, None)
        self.directory.forget(peer)
        for outgoing in self.exchange.outgoing.values():
            outgoing.unsubscribe(peer)
        self.outputs += self.handovers.lose(peer)
        self.errands.lose(peer)
        self._expect()

    def _learn(self, peer: str, runs: dict[str, int], enters: list[str]) -> None:
        """A node says what it runs: detectors that have left for it are safe, and some may have left us behind."""
        self.directory.learn(peer, runs, enters)
        for detector, term in runs.items():
            self.handovers.on_taken(peer, detector, term)
        for detector in self.handovers.give_way():
            self.note(
                "warning", f"detector {detector!r} runs on {self.directory.host(detector)} now and was stopped here"
            )
        self._expect()

    def announce(self) -> None:
        """Tell everybody what runs here now."""
        self.handovers.changed = False
        runs, enters = dict(self.handovers.runs), list(self.card.enters)
        self.directory.learn(self.card.name, runs, enters)
        self._expect()
        for name in self.membership.there():  # the others are told when they are met
            self.membership.send(name, m.Announce(runs, enters))

    def _expect(self) -> None:
        for kind, outgoing in self.exchange.outgoing.items():
            unknown = {""} if self.directory.is_awaited(kind) else set()  # it may know us before we know it
            outgoing.expect(self.directory.listeners(kind) - {self.card.name} | unknown)

    # What is said.

    def _said(self, peer: str, body: m.Body, now: float) -> None:
        exchange, handovers = self.exchange, self.handovers
        match body:
            case m.Data(items, forwarded):
                portions = exchange.offer(items, now)
                if forwarded:
                    handovers.on_forwarded(forwarded, portions)
                    return
                for kind in {item.type for item in items} - exchange.feeds.keys():
                    self.membership.send(peer, m.Unsubscribe(kind))  # a subscription that moved with its publisher
            case m.Ack(received):
                for kind, (have, durable) in received.items():
                    if kind in exchange.outgoing:
                        exchange.outgoing[kind].acknowledge(peer, have, durable)
            case m.Subscribe():
                self._subscribe(peer, body)
            case m.Subscribed(kind, number):
                self._subscribed(peer, kind, number, now)
            case m.Unsubscribe(kind):
                if kind in exchange.outgoing:
                    exchange.outgoing[kind].unsubscribe(peer)
            case m.Resend(kind, first, last):
                self._again(peer, kind, first, last)
            case m.Truncated(kind, last):
                if kind in exchange.feeds:
                    exchange.feeds[kind].skip(last + 1)
                    self.note(
                        "warning", f"events of type {kind!r} up to number {last} are lost: {peer} does not keep them"
                    )
            case m.Announce(runs, enters):
                self._learn(peer, runs, enters)
            case m.Heartbeat():
                self.membership.on_beat(peer, body, now)
            case m.Goodbye():
                self._left(peer)
            case m.MigrateTo():
                self.errands.take(body, peer, now)
            case m.Answer():
                self.errands.on_answer(body)
            case m.StateRequest():
                handovers.asks.append((peer, body))
            case m.InputDelays():
                handovers.on_delays(body, self.clk)
            case m.State():
                handovers.on_state(peer, body, now)
            case m.StopForwarding():
                handovers.on_enough(peer, body)
            case m.MigrationDone(detector, term):
                handovers.on_taken(peer, detector, term)
            case m.MigrationRejected():
                self.outputs += handovers.on_declined(peer, body)

    def _subscribe(self, peer: str, body: m.Subscribe) -> None:
        outgoing = self.exchange.outgoing.get(body.type)
        if outgoing is None:  # it comes from elsewhere now
            self.membership.send(peer, m.Subscribed(body.type, 0))
            return
        first = outgoing.subscribe(peer, max(0, body.since), body.reliable, body.ticks)
        self.membership.send(peer, m.Subscribed(body.type, first))
        if 0 < body.since < first:
            self.membership.send(peer, m.Truncated(body.type, first - 1))

    def _subscribed(self, peer: str, kind: str, number: int, now: float) -> None:
        feed = self.exchange.feeds.get(kind)
        if feed is None or feed.asked is None or feed.asked.node != peer:
            return
        if number < 1:  # not there any more
            feed.asked = None
            return
        feed.confirmed, feed.direct, feed.heard_at = True, number, now
        self.handovers.on_subscribed(kind, number)

    def _again(self, peer: str, kind: str, first: int, last: int) -> None:
        if kind in self.exchange.outgoing:
            items, gone = self.exchange.outgoing[kind].again(peer, first, last)
            if items:
                self.membership.tell(peer, m.Data(items))
            if gone:
                self.membership.send(peer, m.Truncated(kind, gone))

    # What is needed here.

    def subscribe(self, now: float) -> None:
        """See to it that everything comes that is needed here, from where it comes now."""
        publishers, wanted = {}, self._wanted()
        for kind in wanted:
            node = self.directory.publisher(kind)
            peer = None if node is None else self.membership.peers.get(node)
            if node is not None and peer is not None and peer.is_there:
                publishers[kind] = Publisher(node, peer.session.peer_incarnation)
        for node, body in self.exchange.subscriptions(wanted, publishers, now):
            if node in self.membership.peers:
                self.membership.send(node, body)

    def _wanted(self) -> dict[str, Want]:
        hierarchy, exchange = self.directory.hierarchy, self.exchange
        wanted: dict[str, Want] = {}
        needs = [(name, kind) for name in self.handovers.runs for kind in hierarchy.listens[name]]
        for name, kind in (*needs, *self.handovers.inputs()):
            if kind not in exchange.outgoing:
                reliable = kind in hierarchy.reliable[name] or (kind in wanted and wanted[kind].reliable)
                wanted[kind] = Want(reliable, False)
        if self.card.enters or self.card.slack:  # whoever measures delays needs to know the time
            for kind in (*hierarchy.clock, *hierarchy.clock_aids):
                if kind not in exchange.outgoing:
                    wanted.setdefault(kind, Want(False, True))
        return wanted

    def forget_former_lives(self, now: float) -> None:
        """Keep nothing for who is there again, had time to subscribe, and has not: it listens no longer."""
        for kind, outgoing in self.exchange.outgoing.items():
            for node in [node for node, subscriber in outgoing.subscribers.items() if subscriber.is_lost]:
                peer = self.membership.peers.get(node)
                settled = peer is not None and peer.is_there and now >= peer.met_at + self.membership.lost_after
                if settled and node not in self.directory.listeners(kind):
                    outgoing.unsubscribe(node)

    def publish(self) -> None:
        """Send everybody what is new for them."""
        keep = self.exchange.settings.keep
        for kind in self.exchange.trim():
            self.note(
                "warning",
                f"more than {keep} events of type {kind!r} wait for a lost node; the oldest are dropped, and it will "
                f"miss them.",
            )
        for peer in self.membership.there():
            items: list[m.Item] = []
            size = 0
            for item in self.exchange.due(peer):
                items.append(item)
                size += len(item.events)
                if size > MESSAGE_BYTES:
                    self.membership.tell(peer, m.Data(items))
                    items, size = [], 0
            if items:
                self.membership.tell(peer, m.Data(items))
