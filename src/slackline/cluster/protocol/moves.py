"""A detector on its way, as the target and as the source of a handover see it (see ``handover``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from slackline.cluster.protocol.feed import Portion, portion_of
from slackline.cluster.protocol.messages import InputDelays, ProtocolError, State
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, NEVER

Records = dict[str, list[Portion]]


@dataclass(slots=True)
class Arriving:
    """A detector that is to run here, as the target sees it."""

    detector: str
    source: str
    began: float
    #: Who wants to know how it went.
    request: Any
    #: By input: the number from which it comes directly, 0 if that is not known; and from which on it is recorded.
    covered: dict[str, int]
    recorded: dict[str, int]
    records: Records = field(default_factory=dict)
    asked: float | None = None
    delays: InputDelays | None = None
    #: How long a message takes from the source to here, in stream time.
    forwarding: int = 0
    state: State | None = None
    state_at: float = 0.0
    forwarded: int = 0

    def has_all(self) -> bool:
        """Whether everything is there between the state and what was recorded here."""
        assert self.state is not None
        for kind, position in self.state.positions.items():
            number = position + 1
            for portion in in_order(self.records.get(kind, ()), number):
                number = portion.next if portion.first == number else number
            if number < self.recorded[kind]:
                return False
        return True

    def figures(self, now: float) -> dict[str, Any]:
        """How it went."""
        assert self.state is not None
        return {
            "detector": self.detector,
            "from": self.source,
            "term": self.state.term,
            "seconds": now - self.began,
            "stopped_seconds": now - self.state_at,
            "state_bytes": len(self.state.state),
            "forwarded": self.forwarded,
            "last": self.state.last,
        }


@dataclass(slots=True)
class Leaving:
    """A detector that ran here, as the source sees it."""

    target: str
    state: State
    #: By input: the number from which the target gets it directly, 0 if it has not said.
    covered: dict[str, int]
    records: Records = field(default_factory=dict)
    is_taken: bool = False


def unsound(state: State, inputs: Iterable[str], published: Iterable[str]) -> str | None:
    """What no node sends as a state of a detector with these inputs and publications; None if nothing is wrong."""
    if set(state.positions) != set(inputs) or any(position < 0 for position in state.positions.values()):
        return "positions of other inputs than it has"
    if set(state.outlets) != set(published) or state.term < 1:
        return "other publications than it has"
    for kind, outlet in state.outlets.items():
        numbers = [outlet.kept[0].first if outlet.kept else outlet.next]
        for item in outlet.kept:
            if item.type != kind or item.first != numbers[-1] or item.count < 1:
                return f"events of type {kind!r} that are not in order"
            try:
                portion_of(item, True)
            except ProtocolError as error:
                return f"events that cannot be read: {error}"
            numbers.append(item.first + item.count)
        told = NEVER <= outlet.watermark <= FOREVER and 0 <= outlet.back <= FOREVER
        if numbers[-1] != outlet.next or outlet.next < 1 or not told:
            return f"numbers of type {kind!r} that cannot be"
        if any(first < 1 or durable < 0 for first, durable, _, _ in outlet.subscribers.values()):
            return f"subscribers of type {kind!r} that cannot be"
    return None


def missed_of(state: State, records: Records) -> list[ProgressUpdate]:
    """What has come of a detector's inputs after its state was taken."""
    return [
        portion.updates
        for kind, position in state.positions.items()
        for portion in in_order(records.get(kind, ()), position + 1)
    ]


def in_order(portions: Iterable[Portion], number: int) -> Iterator[Portion]:
    """Portions from a number on, in the order of numbers, each event once."""
    for portion in sorted(portions, key=lambda each: each.first):
        rest = portion.since(number)
        if rest is not None and len(rest.updates.events):
            yield rest
            number = rest.next
