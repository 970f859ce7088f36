"""Orders to move detectors: who gave them, who carries them out, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from slackline.cluster.protocol.directory import Directory
from slackline.cluster.protocol.handover import Handovers
from slackline.cluster.protocol.membership import Membership
from slackline.cluster.protocol.messages import Answer, Goodbye, MigrateTo, Order


class Client(NamedTuple):
    """Who wants to know: a node, a link to somebody who is none, or nobody but the log."""

    node: str | None
    link: str | None
    request: str


class Errands:
    """Carries orders to the node that has to take a detector, and answers back."""

    def __init__(
        self,
        name: str,
        handovers: Handovers,
        membership: Membership,
        directory: Directory,
        note: Callable[[str, str], None],
        has_room: Callable[[str, float], bool],
    ) -> None:
        self.name = name
        self.handovers = handovers
        self.membership = membership
        self.directory = directory
        self.note = note
        self.has_room = has_room
        #: By request: who carries it out, and who wants to know.
        self._waiting: dict[str, tuple[str, Client]] = {}
        self._answers: list[tuple[str, str, dict[str, Any]]] = []
        self._offered: dict[str, tuple[str, float]] = {}

    def order(self, order: Order, link: str | None, now: float) -> None:
        """Have a detector moved."""
        client = Client(None, link, order.request)
        error = self._objection(order)
        if error is not None:
            self.answer(client, error, {})
        elif order.node == self.name:
            self._begin(order.detector, client, now)
        else:
            self._waiting[order.request] = order.node, client
            self.membership.send(order.node, MigrateTo(order.detector, order.request, order.if_room))

    def _objection(self, order: Order) -> str | None:
        names, there = self.directory.hierarchy.names, [self.name, *self.membership.there()]
        if order.detector not in names:
            return f"there is no detector {order.detector!r}; the application has {list(names)}"
        if order.node not in there:
            return f"there is no node {order.node!r}; there are {sorted(there)}"
        return None

    def take(self, take: MigrateTo, peer: str, now: float) -> None:
        """Another node wants a detector to run here."""
        detector, client = take.detector, Client(peer, None, take.answer_to)
        if take.if_room and not self.has_room(detector, now):
            self.answer(client, f"{self.name!r} has no room for {detector!r}", {})
        elif detector not in self.directory.hierarchy.names:
            self.answer(client, f"there is no detector {detector!r}", {})
        else:
            self._begin(detector, client, now)

    def _begin(self, detector: str, client: Client, now: float) -> None:
        error = self.handovers.begin(detector, client, now)
        if error is not None:
            self.answer(client, error, {})

    def on_answer(self, answer: Answer) -> None:
        _, client = self._waiting.pop(answer.request, ("", None))
        if client is not None:
            self.answer(client, answer.error, dict(answer.figures))

    def lose(self, node: str) -> None:
        """A node is gone: what it was to carry out comes to nothing, as far as anybody will hear."""
        for request in [request for request, (carrier, _) in self._waiting.items() if carrier == node]:
            _, client = self._waiting.pop(request)
            self.answer(client, f"{node!r}, which was to take the detector, is gone", {})

    def answer(self, client: Client, error: str, figures: dict[str, Any]) -> None:
        """Say what became of an order."""
        if client.node is not None and client.request and client.node in self.membership.peers:
            self.membership.send(client.node, Answer(client.request, error, figures))
        if client.link is not None:
            self.membership.answer(client.link, Answer(client.request, error, figures))
        if client.node is None and client.link is None:
            self._answers.append((client.request, error, figures))
        if error:
            self.note("warning", f"{error}.")
        elif client.node is None or not client.request:
            self.note("info", _told(figures))

    def take_answers(self) -> list[tuple[str, str, dict[str, Any]]]:
        """What became of orders that were given here: request, error, figures."""
        taken, self._answers = self._answers, []
        return taken

    # Leaving.

    def go_elsewhere(self, now: float, patience: float, is_through: bool) -> bool:
        """Offer what runs here to others, unless all has ended; whether nothing is left to be done."""
        others = self.membership.there()
        runs = {} if is_through else self.handovers.runs
        for detector in list(runs):
            offered = self._offered.get(detector)
            if others and (offered is None or now - offered[1] >= patience or offered[0] not in others):
                load = {peer: len(self.directory.runs.get(peer, ())) for peer in others}
                for peer, _ in self._offered.values():
                    load[peer] = load.get(peer, 0) + 1
                target = min(others, key=lambda peer: (load[peer], peer))
                self._offered[detector] = (target, now)
                self.membership.send(target, MigrateTo(detector))
        if (runs and others) or self.handovers.leaving:
            return False
        if runs:
            stay = sorted(runs)
            self.note("warning", f"nobody is there to take {stay}; they are in the checkpoint, if one is kept.")
        for peer in others:
            self.membership.send(peer, Goodbye())
        return True


def _told(figures: dict[str, Any]) -> str:
    return (
        f"detector {figures['detector']!r} has come from {figures['from']} in {1000 * figures['seconds']:.0f} ms: "
        f"{figures['state_bytes']} bytes, {figures['forwarded']} forwarded messages"
    )
