"""A node: one instance of the middleware, as a machine without I/O.

In come messages, local arrivals and the time; out come :class:`~slackline.cluster.actions.Actions`: messages, outputs,
and when to be called again. A host brings the two together with sockets and clocks (``hosts``), a simulation with
virtual ones (``sim.network``).

What a detector sees does not depend on where it runs. Under ``auto``, ``ready`` and ``ordered`` how far a type has come
is found once, where it enters or is published, and travels with its events; so the network's delays cost time, and
never order. Whether a sensor event is late is decided where it enters. Each detector sees the total order of what was
let in, on whatever node, before and after a move, and again after a crash. Under ``slack`` each node hears events as
they arrive there, and finds its own K [Migration, IV].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pyarrow as pa

from slackline.cluster.actions import Actions, Notice, SearchOrder
from slackline.cluster.controller.controller import PlacementController
from slackline.cluster.placement import Solution
from slackline.cluster.protocol import messages as m
from slackline.cluster.protocol import saving
from slackline.cluster.protocol.bootstrap import Bootstrap
from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.errands import Errands
from slackline.cluster.protocol.exchange import Exchange
from slackline.cluster.protocol.feed import Portion
from slackline.cluster.protocol.fingerprint import fingerprint
from slackline.cluster.protocol.handover import Handovers
from slackline.cluster.protocol.membership import LONGEST_NAME, Membership
from slackline.cluster.protocol.overview import awaited, figures_of, overview_of
from slackline.cluster.protocol.peer_protocol import NodeInfo, PeerProtocol
from slackline.cluster.settings import NodeSettings
from slackline.core.errors import BufferLimitError, ConfigError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Output, ProgressUpdate
from slackline.engine import Engine

#: A checkpoint is made at the earliest so many times as long after the last as that took.
SAVING = 5.0

#: So many seconds later those who are behind go on, if nothing comes.
CATCH_UP = 0.001


class Node:
    """Some detectors of a hierarchy, and what it takes to run them together with those of other nodes.

    ``identity``    a number drawn at random by who makes the node: it tells two nodes of one name apart.
    ``ingress``     the sensor types that enter here, by :meth:`push`.
    ``detectors``   those that run here at first.
    ``application`` where every node has the application from, such as ``my_app:hierarchy``.
    ``address``     where others may reach the host, which tells it to them.
    Whatever else is given goes to the engine. Here ``now`` is seconds of any clock that does not go back.
    """

    #: How detectors change hands; studies have others, to compare with (``sim.baselines``).
    handover_method: ClassVar[type[Handovers]] = Handovers

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
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(f"a node called {name!r}; a name has 1 to {LONGEST_NAME} printable characters.")
        if engine_options.get("late") == "deliver":
            raise ConfigError("late='deliver' would make what is found depend on where it runs; nodes divert.")
        engine = Engine(hierarchy, detectors=list(detectors), sensors=list(ingress), **engine_options)
        self._assemble(name, engine, identity, 1, tuple(ingress), application, address, settings or NodeSettings())
        self._handovers.runs = dict.fromkeys(engine.detectors, 1)
        for kind in (*self._enters, *self._published()):
            self._exchange.open(kind)
        self._talk.announce()

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
        #: The share of time that the host works, and the seconds that it took to make and keep the last checkpoint.
        self.busy = self.saving_took = 0.0
        #: Whether it has left in order.
        self.is_gone = False
        self._engine = engine
        self._enters = ingress
        options = engine.stats()["options"]
        slack = options["policy"] == "slack"
        self._membership = Membership(name, identity, incarnation, settings.lost_after)
        self._directory = Directory(engine.hierarchy)
        self._exchange = Exchange(engine.hierarchy, settings, slack)
        self._handovers = self.handover_method(name, engine, self._exchange, self._directory, self._membership)
        self._steering = PlacementController(name, settings, self.order, self._note)
        self._errands = Errands(
            name, self._handovers, self._membership, self._directory, self._note, self._steering.has_room
        )  # fmt: skip
        card = NodeInfo(name, application, fingerprint(engine.hierarchy, options), address, ingress, slack)
        self._talk = PeerProtocol(
            card, self._membership, self._directory, self._exchange, self._handovers, self._errands, self._note,
            self.overview,
        )  # fmt: skip
        self._beginning = Bootstrap(self._talk, settings.lost_after, self._note)
        # Whether what enters here is judged by a time that others tell.
        self._told_time = options["policy"] in ("auto", "ready") and not set(engine.hierarchy.clock) <= set(ingress)
        self._arrivals: list[tuple[list[Event] | pa.Table, Any]] = []
        self._is_unrepeatable = False  # whether some of them would not come again, or not at the same time
        self._ends = self._has_ended = False
        self._actions = Actions()
        self._is_choked = self._leaves = False
        self._ran = 0.0  # when it last did
        self._beat_at = self._acknowledge_at = self._save_at = -math.inf
        self._requests = 0

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

    def end(self, now: float) -> None:
        """There are no more local arrivals after those that were pushed."""
        self._ends = True

    def link_up(self, link: str, now: float) -> None:
        """There is a way to somebody."""
        self._membership.link_up(link, now)

    def link_down(self, link: str, now: float) -> None:
        """The way is there no longer."""
        self._talk.happen(self._membership.link_down(link), now)

    def receive(self, link: str, data: bytes, now: float) -> None:
        """A message. A ProtocolError says that it is none; it has changed nothing."""
        self._talk.happen(self._membership.receive(link, data, now, self._talk.objection), now)

    def order(self, detector: str, to: str, now: float, if_room: bool = False) -> str:
        """Have a detector moved to a node. The name of the request; a notice tells what became of it.

        ``if_room``: that node may refuse, if it sheds, and would come above its limit.
        """
        self._requests += 1
        request = f"{self.name}/{self._membership.incarnation}/{self._requests}"
        self._errands.order(m.Order(detector, to, request, if_room), None, now)
        return request

    def found(self, search: SearchOrder, solution: Solution | str, now: float) -> None:
        """What came of a search that was wanted (:class:`Actions`): a solution, or why there is none."""
        self._steering.on_search_result(search, solution)

    def leave(self, now: float) -> None:
        """Leave in order: the detectors go elsewhere first; then :attr:`is_gone`."""
        self._leaves = True

    # Out.

    def run(self, now: float) -> Actions:
        """Do what there is to do, and say what the host has to do. Call it after each of the above, or several."""
        self._ran = now
        self._talk.happen(self._membership.tick(now), now)
        if self._beginning.has_started(now):
            self._work(now)
            self._talk.subscribe(now)
            self._beginning.look_around(now)
            for peer, again in self._exchange.gaps(now):
                self._tell(peer, again)
        if self._leaves and not self.is_gone:
            self.is_gone = self._errands.go_elsewhere(now, self.settings.lost_after, self.is_through)
        self._beat(now)
        for answer in self._errands.take_answers():
            self._steering.on_move_result(*answer, now)
        if self._handovers.changed:
            self._talk.announce()
        self._talk.forget_former_lives(now)
        self._talk.publish()
        self._actions.late, self._actions.quarantined, _ = self._engine.drain()  # now, or they come again after a crash
        self._save(now)
        actions, self._actions = self._actions, Actions()
        actions.outputs += self._talk.take_outputs()
        actions.messages += self._membership.due(now, lambda: self._talk.hello(now))
        actions.cut = self._membership.cut()
        actions.search = self._steering.pop_search()
        actions.call_at = self._call_at(now)
        return actions

    def _work(self, now: float) -> None:
        """Let the engine have everything that is there for it, and detectors come and go."""
        exchange, handovers = self._exchange, self._handovers
        patience = self.settings.lost_after
        has_time, busy = not self._arrivals, True
        while busy:
            busy = False
            if not exchange.is_full:
                if self._arrivals and (self._told_time or self._is_unrepeatable):
                    handovers.must_survive = True  # what is late depends on when the time was told: decide once
                self._is_unrepeatable = False
                for arrivals, wall in self._arrivals:
                    self._engines(lambda a=arrivals, w=wall: self._engine.push(a, now=w))  # type: ignore[misc]
                self._arrivals = []
                if self._ends and not self._has_ended:
                    self._has_ended = True
                    self._engines(lambda: self._engine.end(self._enters))
                busy = self._hand_on(exchange.take(now, awaited(self._engine) if self._is_choked else None))
            if has_time and not busy and self._engine.held:  # once: what comes goes first
                self._engines(lambda: self._engine.push([]))
            has_time = False
            for updates in self._engine.progress_updates():
                self._talk.clk = max(self._talk.clk, updates.clk)
                handovers.record(exchange.publish(updates))
            for arriving in handovers.complete(now, patience)[:1]:  # what it publishes is news for the next
                busy = True
                self._actions.outputs += handovers.finish(arriving, now)
        for request, error, figures in handovers.go_on(now, min(1.0, patience)):
            self._errands.answer(request, error, figures)

    def _hand_on(self, portions: list[Portion]) -> bool:
        """Give the engine what has come, in the order of numbers; whether there was something."""
        for portion in portions:
            self._handovers.record(portion)
            self._talk.clk = max(self._talk.clk, portion.updates.clk)
        if portions:
            self._take([portion.updates for portion in portions])
        return bool(portions)

    def _take(self, updates: list[ProgressUpdate]) -> None:
        """Give the engine news. What it cannot take harms nothing else."""
        try:
            self._engines(lambda: self._engine.receive(updates))
        except ConfigError as error:
            if len(updates) == 1:
                lost = f"{len(updates[0].events)} events of type {updates[0].type!r}"
                self._note("error", f"{lost} cannot be taken: {error}")
            for one in updates if len(updates) > 1 else ():
                self._take([one])

    def _engines(self, call: Callable[[], list[Output]]) -> None:
        """Collect what the engine finds. Where too much waits, only that is handed on for which it waits."""
        try:
            self._actions.outputs += call()
            self._is_choked = False
        except BufferLimitError as full:
            self._actions.outputs += full.outputs
            if not self._is_choked:
                self._note("warning", f"{full}")
            self._is_choked = True

    def _beat(self, now: float) -> None:
        beats = now >= self._beat_at
        if beats or now >= self._acknowledge_at:
            self._acknowledge_at = now + self.settings.beat / 4
            for peer, have in self._exchange.acknowledgements(again=beats).items():
                self._tell(peer, m.Ack(have))
        if not beats:
            return
        self._beat_at = now + self.settings.beat
        figures = self._figures(now)
        for peer in self._membership.there():
            self._membership.beat(peer, figures, self.busy, now)
            standings = self._exchange.standings(peer)
            if standings:
                self._membership.tell(peer, m.Data(standings))
        if self.is_ready and not self._leaves:
            self._steering.on_heartbeat(self.overview, now)

    def _figures(self, now: float) -> dict[str, Any]:
        willing = self.settings.optimise == "master" and not self._leaves
        return figures_of(self._engine, self._exchange, self._membership, self.settings, willing, now)

    def _tell(self, peer: str, body: m.Body) -> None:
        if peer in self._membership.peers:
            self._membership.tell(peer, body)

    def _call_at(self, now: float) -> float:
        times = [self._beat_at, self._membership.next_at(), self._exchange.gap_at()]
        if self._exchange.feeds:
            times.append(self._acknowledge_at)
        if self._handovers.arriving:
            times.append(now + self.settings.reorder)
        if self._engine.held:
            times.append(now + CATCH_UP)
        return max(now, min(at for at in times if at is not None))

    def _published(self) -> list[str]:
        return [kind for name in self._handovers.runs for kind in self._engine.hierarchy.published(name)]

    def _note(self, level: str, text: str) -> None:
        self._actions.notices.append(Notice(level, text))

    # What is known.

    @property
    def is_ready(self) -> bool:
        """Whether everybody is there who is needed: before, nothing should be pushed."""
        return self._beginning.is_ready

    @property
    def is_full(self) -> bool:
        """Whether somebody must catch up before more is pushed."""
        return self._exchange.is_full or self._is_choked or len(self._arrivals) > 1

    @property
    def is_through(self) -> bool:
        """Whether everything has ended that runs or enters here, and everybody has all of it."""
        return self._exchange.is_through and not self._handovers.arriving and not self._handovers.leaving

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or enters here, while others are there, and may send something."""
        return not self._exchange.outgoing and bool(self._membership.there())

    @property
    def failed(self) -> str | None:
        """Why the network does not want this node; None if it does."""
        return self._membership.turned_away

    @property
    def runs(self) -> list[str]:
        """The detectors that run here."""
        return sorted(self._handovers.runs)

    def addresses(self) -> dict[str, str]:
        """Where other nodes are to be reached, by name, as far as they have said."""
        return dict(self._membership.addresses)

    def overview(self) -> dict[str, Any]:
        """The network as it is seen here: plain values that JSON can hold."""
        own = self._figures(self._ran)
        return overview_of(self.name, self.busy, own, self._membership, self._directory, self._handovers)

    # Checkpoints.

    def _save(self, now: float) -> None:
        every = self.settings.checkpoint_every
        if every is None:
            self._handovers.must_survive = False
            return
        if self._handovers.must_survive or self.is_gone or now >= self._save_at:
            # Who has much to save saves less often, or would do nothing else.
            self._save_at, self._handovers.must_survive = now + max(every, SAVING * self.saving_took), False
            self._exchange.survives()
            self._actions.checkpoint = self.save()

    def save(self) -> bytes:
        """Everything, as bytes; nothing in them is ever unpickled."""
        membership = self._membership
        known = sorted({*self._talk.awaits, *(n for n, peer in membership.peers.items() if not peer.has_left)})
        who = (self.name, membership.identity, membership.incarnation, self._talk.card.application, known)
        return saving.saved(who, self._engine, self._enters, self._has_ended, self._exchange, self._handovers)

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
        """A node that comes back, in a new life, where the saved one was."""
        state = saving.loaded(data)
        engine = Engine.load(state.engine, hierarchy, **engine_options)
        node = cls.__new__(cls)
        node._assemble(
            state.name, engine, state.identity, state.incarnation + 1, tuple(state.enters), state.application, address,
            settings or NodeSettings(),
        )  # fmt: skip
        node._ends = node._has_ended = state.has_ended
        saving.restore(state, node._exchange, node._handovers)
        node._talk.awaits = set(state.peers)
        node._talk.announce()
        return node

    def check_invariants(self) -> None:
        """What must hold between any two calls; tests call it."""
        self._engine.check_invariants()
        self._exchange.check_invariants()
        assert set(self._handovers.runs) == set(self._engine.detectors), "what runs is not what is said to run"
        assert set(self._exchange.outgoing) == {*self._enters, *self._published()}, "publishes what does not run here"
