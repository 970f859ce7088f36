"""The source's side of a handover: detectors that leave this node (see ``handover``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.exchange import Exchange, Want
from slackline.cluster.protocol.feed import Publisher
from slackline.cluster.protocol.membership import Membership
from slackline.cluster.protocol.messages import InputDelays, MigrationRejected, State, StateRequest, StopForwarding
from slackline.cluster.protocol.moves import Arriving, Leaving, missed_of
from slackline.core.errors import UnsupportedStateError
from slackline.core.outcome import Output
from slackline.core.time import NEVER
from slackline.engine import Engine


class Departures:
    """The detectors of this node, and those that leave it."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        exchange: Exchange,
        directory: Directory,
        membership: Membership,
    ) -> None:
        self.name = name
        self.engine = engine
        self.exchange = exchange
        self.directory = directory
        self.membership = membership
        #: The detectors that run here, with their terms.
        self.runs: dict[str, int] = {}
        self.arriving: dict[str, Arriving] = {}
        self.leaving: dict[str, Leaving] = {}
        #: Questions to answer when the engine has done all it can: detector, who asks, what it has.
        self.asks: list[tuple[str, StateRequest]] = []
        #: What became of handovers to here: request, what is wrong (empty: nothing), figures.
        self.done: list[tuple[Any, str, dict[str, Any]]] = []
        # By type: detectors that came while it was not known from which number on it does, and who forwards it.
        self._forwarded_by: dict[str, list[tuple[str, str]]] = {}
        #: Whether somebody has to be told what runs here now; whether that must survive a crash.
        self.changed = False
        self.must_survive = False

    def give(self, target: str, body: StateRequest) -> None:
        """Hand a detector over. Everything that came here has been given to the engine, and its news was published."""
        name, exchange, hierarchy = body.detector, self.exchange, self.engine.hierarchy
        leaving = self.leaving.get(name)
        if leaving is not None and leaving.target == target:  # a question from before it was lost was answered
            leaving.covered |= {kind: number for kind, number in body.covered.items() if kind in leaving.covered}
            return
        if name not in self.runs:
            self.membership.send(target, MigrationRejected(name, 0, self._whereabouts(name)))
            return
        kinds = hierarchy.listens[name]
        covered = {kind: max(0, body.covered.get(kind, 0)) for kind in kinds}
        stats = self.engine.stats()
        delays = {kind: int(stats["types"][kind]["K"]) for kind in kinds}
        clk, watermark = stats["clk"], stats["detectors"][name]["watermark"]
        positions = {kind: exchange.number(kind) - 1 for kind in kinds}
        try:
            state = self.engine.detach(name)
        except UnsupportedStateError as error:
            self.membership.send(target, MigrationRejected(name, 0, f"its state cannot be taken along: {error}"))
            return
        outlets = {kind: exchange.close(kind) for kind in hierarchy.published(name)}
        del self.runs[name]
        for kind, outlet in outlets.items():
            want = self.need(kind)
            if want is not None:
                outlet.subscribers[self.name] = (outlet.next, outlet.next - 1, want.reliable, False)
                feed = exchange.follow(kind, want, outlet.next)
                feed.asked, feed.confirmed, feed.direct = self._publisher(target), True, outlet.next
                feed.paused = True  # until the detector is safe there: it might come back
        term = self.directory.term(name) + 1
        message = State(name, term, NEVER if watermark is None else watermark, state, positions, outlets)
        self.membership.send(target, InputDelays(name, delays, NEVER if clk is None else clk))
        self.membership.send(target, message)
        self.leaving[name] = Leaving(target, message, covered)
        self.changed = self.must_survive = True

    def _whereabouts(self, name: str) -> str:
        if name in self.leaving:
            return f"it is on its way from {self.name!r} to {self.leaving[name].target!r}"
        if name in self.arriving:
            return f"it is on its way to {self.name!r}, and does not run there yet"
        host = self.directory.host(name)
        return f"it does not run on {self.name!r}" + ("" if host is None else f", but on {host!r}")

    def need(self, kind: str) -> Want | None:
        """How a type is needed here, by those who run and those who are on their way; None if it is not."""
        hierarchy = self.engine.hierarchy
        readers = [name for name in self.runs if kind in hierarchy.listens[name]]
        readers += [name for name, wanted in self.inputs() if wanted == kind]
        return Want(any(kind in hierarchy.reliable[name] for name in readers), False) if readers else None

    def _publisher(self, node: str) -> Publisher:
        return Publisher(node, self.membership.peers[node].session.peer_incarnation)

    def on_enough(self, target: str, body: StopForwarding) -> None:
        leaving = self.leaving.get(body.detector)
        told = [ask.covered for peer, ask in self.asks if peer == target and ask.detector == body.detector]
        if leaving is not None and leaving.target == target:
            told.append(leaving.covered)
        for covered in told:
            if body.type in covered and body.next > 0:
                covered[body.type] = body.next

    def on_taken(self, target: str, detector: str, term: int) -> None:
        """The detector is safe there."""
        leaving = self.leaving.get(detector)
        if leaving is None or leaving.target != target or term < leaving.state.term:
            return
        self._be_rid_of(leaving)

    def _be_rid_of(self, leaving: Leaving) -> None:
        self.must_survive = self.must_survive or not leaving.is_taken
        leaving.is_taken, leaving.records = True, {}
        for kind in leaving.state.outlets:
            if kind in self.exchange.feeds:
                self.exchange.feeds[kind].paused = False

    def tidy(self) -> None:
        """Forget the detectors that are safe elsewhere and have all their inputs there."""
        for name, leaving in list(self.leaving.items()):
            if leaving.is_taken and not any(self._is_forwarded(leaving, kind) for kind in leaving.covered):
                del self.leaving[name]

    def _is_forwarded(self, leaving: Leaving, kind: str) -> bool:
        """Whether the target still depends on us for a type."""
        number, exchange = leaving.covered[kind], self.exchange
        here = max(exchange.number(kind), exchange.known.get(kind, 0), leaving.state.positions[kind] + 1)
        return number == 0 or here < number

    def take_back(self, detector: str) -> list[Output]:
        """Let a detector that left run here again."""
        leaving = self.leaving[detector]
        if self.directory.term(detector) >= leaving.state.term:  # it got there, and perhaps farther
            self._be_rid_of(leaving)
        del self.leaving[detector]
        if leaving.is_taken:
            return []
        state = leaving.state
        for kind, outlet in state.outlets.items():
            self.exchange.drop(kind)
            self.exchange.open(kind).take_over(outlet)
            self.exchange.outgoing[kind].unsubscribe(self.name)
        outputs = self.engine.attach(state.state, missed=missed_of(state, leaving.records))
        self.runs[detector] = max(self.directory.term(detector), state.term) + 1
        self.changed = self.must_survive = True
        return outputs

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Detector and type, of all that must come here for those on their way."""
        for name, arriving in self.arriving.items():
            yield from ((name, kind) for kind in arriving.covered)
        for name, leaving in self.leaving.items():
            for kind in leaving.covered:
                if not leaving.is_taken or self._is_forwarded(leaving, kind):
                    yield name, kind
