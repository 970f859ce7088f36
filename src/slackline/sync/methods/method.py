"""How events that wait are kept, and which of them may go: the one interface of all methods.

An event may go when every live stream has delivered something at or after its point. The synchroniser knows the
streams (``Stream.watermark``, ``Stream.live``) and tells a method what happens; a method keeps the events, and gives
back those that may go, in order. A method may keep an event longer than it must (methods 1 and 2 do), but never
gives one away too early, and never one before an older one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from slackline.sync.stream import Point, Stream, Waiting


@dataclass(slots=True)
class Work:
    """What a method has done, counted as [Sync] counts: for comparisons between methods."""

    #: Time stamps compared while looking for the place of an event.
    comparisons: int = 0
    #: Readiness tables changed.
    updates: int = 0
    #: Nodes looked at: on the way to an event's place, to see whether they may go, and to take them out.
    visited: int = 0


class Method(ABC):
    """Keeps the events that wait. See the module's text for the contract."""

    def __init__(self) -> None:
        self.work = Work()

    @abstractmethod
    def __len__(self) -> int:
        """How many events wait."""

    @abstractmethod
    def __iter__(self) -> Iterator[Waiting]:
        """The events that wait, in order."""

    def oldest(self) -> Waiting | None:
        """The first of the events that wait."""
        return next(iter(self), None)

    @abstractmethod
    def add(self, stream: Stream) -> None:
        """A stream joined. What waits already does not wait for it."""

    @abstractmethod
    def insert(self, waiting: Waiting) -> list[Waiting]:
        """An event arrived, and its stream's watermark has moved; what may go now."""

    @abstractmethod
    def mask(self, stream: Stream) -> list[Waiting]:
        """A stream is not waited for any longer (removed or disabled); what may go now."""

    @abstractmethod
    def unmask(self, stream: Stream) -> None:
        """A disabled stream has come back: it is waited for again. Its event is inserted next."""

    @abstractmethod
    def sweep(self) -> list[Waiting]:
        """All that may go, also what the method would have held longer."""

    @abstractmethod
    def expel(self, upto: Point) -> list[Waiting]:
        """All events up to a point, whether they may go or not."""

    def kept(self) -> Iterator[Waiting]:
        """The events that wait, in the order from which :meth:`restore` makes the same of them again."""
        return iter(self)

    @abstractmethod
    def restore(self, waiting: list[Waiting], streams: list[Stream]) -> None:
        """Start with what another one ``kept``, of these streams; nothing was inserted before."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Raise AssertionError if the method's own structure is broken."""
