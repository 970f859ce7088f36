"""Cooperative handover: a detector goes from one node to another while it runs [Migration, IV; Thesis, 5.1.3].

The **target** subscribes to what the detector listens to, and asks for it when it knows from which numbers on it gets
that directly. The **source** answers with the delays of the inputs, then with the detector: its state, what waits for
it, its watermark, the numbers of the last inputs in it, and all that is needed to go on publishing. From then on it runs
there no longer; inputs that the target does not get directly are forwarded, type by type, until it does. The target
lets the detector run when it has everything that came after the state. Echoes have the same numbers, and are dropped.

Until the target says that the detector is safe there, the source keeps the state and all inputs since; if the target is
lost, it takes the detector back. Each change of hands raises the detector's **term**. Should two nodes run a detector
after all, because they could not hear each other, both publish the same events with the same numbers, and when they
meet, the lower term gives way.

As asking comes after subscribing, what was sent before the subscription has reached the source before the question
has, unless the network is odd; so there is hardly ever something to forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackline.cluster.protocol.departures import Departures
from slackline.cluster.protocol.exchange import Want
from slackline.cluster.protocol.feed import Portion, portion_of
from slackline.cluster.protocol.messages import (
    Data,
    InputDelays,
    MigrationDone,
    MigrationRejected,
    Outlet,
    State,
    StateRequest,
    StopForwarding,
)
from slackline.cluster.protocol.moves import Arriving, in_order, missed_of, unsound
from slackline.core.errors import BufferLimitError, ConfigError, StateError
from slackline.core.outcome import Output
from slackline.core.time import NEVER


class Handovers(Departures):
    """Detectors on their way to and from this node."""

    def begin(self, detector: str, request: Any, now: float) -> str | None:
        """Get a detector here; why not, if that cannot be."""
        host = self.directory.host(detector)
        if detector in self.runs:
            return f"detector {detector!r} runs on {self.name!r} already"
        if detector in self.arriving or detector in self.leaving:
            return f"detector {detector!r} is on its way; wait until it has arrived"
        if host is None:
            return f"detector {detector!r} runs nowhere at the moment"
        if host not in self.membership.there():
            return f"detector {detector!r} runs on {host!r}, which is gone"
        arriving = Arriving(detector, host, now, request, {}, {})
        for kind in self.engine.hierarchy.listens[detector]:
            self.exchange_has(kind, detector)
            number = self.exchange.number(kind)
            arriving.covered[kind] = arriving.recorded[kind] = number
        self.arriving[detector] = arriving
        return None

    def exchange_has(self, kind: str, detector: str) -> None:
        """Have a type come here, from whatever number on it does, unless it does already."""
        feed = self.exchange.feeds.get(kind)
        if kind not in self.exchange.outgoing and (feed is None or feed.ticks):
            self.exchange.follow(kind, Want(kind in self.engine.hierarchy.reliable[detector], False), 0)

    def on_subscribed(self, kind: str, number: int) -> None:
        """A type comes directly from this number on."""
        for arriving in self.arriving.values():
            if arriving.covered.get(kind) == 0:
                arriving.covered[kind] = number
                if arriving.asked is not None:
                    self.membership.send(arriving.source, StopForwarding(arriving.detector, kind, number))
        self._have_enough(kind, number)

    def _have_enough(self, kind: str, number: int) -> None:
        """Let nobody forward a type from this number on."""
        for source, detector in self._forwarded_by.pop(kind, ()):
            if source in self.membership.peers:
                self.membership.send(source, StopForwarding(detector, kind, number))

    def go_on(self, now: float, patience: float) -> list[tuple[Any, str, dict[str, Any]]]:
        """Give what others have asked for, and ask; the requests that are done, why not if not, and figures."""
        for peer, ask in self.asks:
            self.give(peer, ask)
        self.asks = []
        self.tidy()
        self.ask(now, patience)
        done, self.done = self.done, []
        return done

    def ask(self, now: float, patience: float) -> None:
        """Ask for the detectors whose inputs come, or have not begun to come for too long."""
        for arriving in self.arriving.values():
            late = now - arriving.began >= patience
            if arriving.asked is None and (all(arriving.covered.values()) or late):
                arriving.asked = now
                self.membership.send(arriving.source, StateRequest(arriving.detector, dict(arriving.covered)))

    def on_delays(self, body: InputDelays, clk: int) -> None:
        arriving = self.arriving.get(body.detector)
        if arriving is not None:
            arriving.delays = body
            arriving.forwarding = max(0, clk - body.clk) if NEVER not in (clk, body.clk) else 0

    def on_state(self, source: str, body: State, now: float) -> None:
        """The detector has come: what follows it in its inputs is known now."""
        arriving = self.arriving.get(body.detector)
        if arriving is None or arriving.source != source or arriving.state is not None:
            self.membership.send(
                source, MigrationRejected(body.detector, body.term, f"{self.name!r} does not expect it")
            )
            return
        arriving.state, arriving.state_at = body, now
        published = self.engine.hierarchy.published(body.detector)
        wrong = unsound(body, arriving.covered, published)
        if wrong is not None:
            self._fail(arriving, f"{source!r} sent it with {wrong}")
            return
        for kind, position in body.positions.items():
            feed = self.exchange.feeds.get(kind)
            if feed is not None and not feed.next:
                feed.next, feed.durable, feed.moved_at = position + 1, position, now
                for each in self.arriving.values():
                    if each.recorded.get(kind) == 0:
                        each.recorded[kind] = feed.next

    def on_forwarded(self, detector: str, portions: Iterable[Portion]) -> None:
        """Inputs that the source got after it had sent the state, or that it knows we do not get."""
        arriving = self.arriving.get(detector)
        if arriving is None:
            return
        for portion in portions:
            arriving.forwarded += 1
            before = portion.until(arriving.recorded.get(portion.item.type, 0))
            if before is not None:
                arriving.records.setdefault(portion.item.type, []).append(before)

    def complete(self, now: float, patience: float) -> list[Arriving]:
        """The detectors that can run here now.

        If the source is lost, so is, after a while, what is missing; of reliable types it will come when that is back.
        """
        return [
            arriving
            for arriving in self.arriving.values()
            if (state := arriving.state) is not None
            and all(self._has_come(kind, position) for kind, position in state.positions.items())
            and (arriving.has_all() or (now - arriving.state_at >= patience and self._is_given_up(arriving)))
        ]

    def _is_given_up(self, arriving: Arriving) -> bool:
        reliable = self.engine.hierarchy.reliable[arriving.detector]
        return not reliable and arriving.source not in self.membership.there()

    def _has_come(self, kind: str, position: int) -> bool:
        """Whether a type has come here as far as to the source, and as far as the engine here knows of it."""
        return self.exchange.number(kind) > max(position, self.exchange.known.get(kind, 0) - 1)

    def finish(self, arriving: Arriving, now: float) -> list[Output]:
        """Let a detector run here, from where it was."""
        state, exchange, name = arriving.state, self.exchange, arriving.detector
        assert state is not None
        outputs: list[Output] = []
        if self.directory.term(name) >= state.term:
            self._fail(arriving, f"{self.directory.host(name)!r} has taken it back")
            return outputs
        for kind, outlet in state.outlets.items():
            outputs += self._catch_up(kind, outlet)
        missed, delays = missed_of(state, arriving.records), self._delays(arriving)
        try:
            outputs += self.engine.attach(state.state, missed=missed, delays=delays)
        except BufferLimitError as full:  # it runs, and has to wait for others
            outputs += full.outputs
        except (ConfigError, StateError) as error:
            self._fail(arriving, f"it cannot go on on {self.name!r}: {error}")
            return outputs
        for kind, outlet in state.outlets.items():
            exchange.drop(kind)
            exchange.open(kind).take_over(outlet)
            exchange.outgoing[kind].unsubscribe(self.name)
        self.runs[name] = state.term
        del self.arriving[name]
        self.membership.send(arriving.source, MigrationDone(name, state.term))
        for kind, number in arriving.covered.items():
            if number and arriving.asked is None:  # the state answers an earlier question
                self.membership.send(arriving.source, StopForwarding(name, kind, number))
        for kind in [kind for kind, number in arriving.covered.items() if not number]:
            self._forwarded_by.setdefault(kind, []).append((arriving.source, name))
            if kind in exchange.feeds and exchange.feeds[kind].direct:
                self._have_enough(kind, exchange.feeds[kind].direct)
        for kind in exchange.outgoing.keys() & self._forwarded_by.keys():  # it comes from here by now
            self._have_enough(kind, 1)
        self.changed = self.must_survive = True
        self.done.append((arriving.request, "", arriving.figures(now)))
        return outputs

    def _catch_up(self, kind: str, outlet: Outlet) -> list[Output]:
        """Others here listen to a type whose publisher has come: let them have what was on its way from the source."""
        feed = self.exchange.feeds.get(kind)
        if feed is None or feed.ticks:
            return []
        portions = [*feed.held.values(), *(portion_of(item, True) for item in outlet.kept)]
        if feed.next:
            left = list(in_order(portions, feed.next))
            feed.next = max(feed.next, outlet.next)
            for portion in left:
                self.record(portion)
            return self.engine.receive([portion.updates for portion in left]) if left else []
        first = outlet.next  # nobody listens yet, but somebody will who is on the way
        for portion in sorted(portions, key=lambda each: each.next, reverse=True):
            first = min(first, portion.first) if portion.next >= first else first
        for arriving in self.arriving.values():
            if kind in arriving.covered:
                arriving.records.setdefault(kind, []).extend(in_order(portions, first))
                arriving.recorded[kind] = first
        return []

    def _delays(self, arriving: Arriving) -> dict[str, int]:
        """K to begin with: the delay there and the way from there to here [Migration, algorithm 1]."""
        known = arriving.delays.delays if arriving.delays is not None and self.exchange.slack else {}
        return {kind: delay + arriving.forwarding for kind, delay in known.items()}

    def _fail(self, arriving: Arriving, reason: str) -> None:
        self.arriving.pop(arriving.detector, None)
        if arriving.state is not None:
            self.membership.send(arriving.source, MigrationRejected(arriving.detector, arriving.state.term, reason))
        self.done.append((arriving.request, f"detector {arriving.detector!r} did not move: {reason}", {}))

    def on_declined(self, sender: str, body: MigrationRejected) -> list[Output]:
        """No handover, from either side."""
        arriving, leaving = self.arriving.get(body.detector), self.leaving.get(body.detector)
        if leaving is not None and leaving.target == sender and leaving.state.term == body.term:
            return self.take_back(body.detector)
        if arriving is not None and arriving.source == sender and arriving.state is None and not body.term:
            self._fail(arriving, body.reason)
        return []

    # Both.

    def record(self, portion: Portion) -> None:
        """Detectors here have got something: so has, in a way, whoever is on its way."""
        kind = portion.item.type
        if not len(portion.updates.events):
            return
        for arriving in self.arriving.values():
            if kind in arriving.covered:
                arriving.records.setdefault(kind, []).append(portion)
        for name, leaving in self.leaving.items():
            number = leaving.covered.get(kind)
            if number is None:
                continue
            if not leaving.is_taken:
                leaving.records.setdefault(kind, []).append(portion)
            if number == 0 or portion.first < number:
                self.membership.send(leaving.target, Data([portion.packed()], name))

    def give_way(self) -> list[str]:
        """Let go of the detectors that others run in a higher term, and of those that come in a lower one."""
        for arriving in list(self.arriving.values()):
            if arriving.state is not None and self.directory.term(arriving.detector) >= arriving.state.term:
                self._fail(arriving, f"it runs on {self.directory.host(arriving.detector)!r}")
        gone = [name for name, term in self.runs.items() if self.directory.term(name) > term]
        for name in gone:
            self.engine.detach(name)
            del self.runs[name]
            outlets = {kind: self.exchange.close(kind) for kind in self.engine.hierarchy.published(name)}
            for kind, outlet in outlets.items():
                want = self.need(kind)
                if want is not None:
                    self.exchange.follow(kind, want, outlet.next)
            self.changed = True
        return gone

    def lose(self, peer: str, anew: bool = False) -> list[Output]:
        """A node is gone: what was to come from there does not, what was to go there stays.

        A state that has come stays valid while the source may come back as it was, and not if it does ``anew``.
        """
        for arriving in [each for each in self.arriving.values() if each.source == peer]:
            if arriving.state is None or anew:
                self._fail(arriving, f"{peer!r} is gone")
        back = [name for name, leaving in self.leaving.items() if leaving.target == peer and not leaving.is_taken]
        outputs = [output for name in back for output in self.take_back(name)]
        for name in [name for name, leaving in self.leaving.items() if leaving.target == peer]:
            del self.leaving[name]
        return outputs
