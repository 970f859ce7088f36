"""The interface of all methods: they buffer events, and return those that are ready.

An event is *ready* when every live stream has delivered something at or after its point. The synchroniser manages the
streams (``Stream.watermark``, ``Stream.live``) and calls the method; the method buffers the events and returns ready
ones, in order. A method may return an event later than necessary (methods 1 and 2 do), but never too early, and never
before an older one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from slackline.sync.streams import BufferedEvent, Point, Stream


@dataclass(slots=True)
class Work:
    """The work of a method, counted as in [Sync]: for comparisons between methods."""

    #: Time stamps compared while inserting events.
    comparisons: int = 0
    #: Readiness tables changed.
    updates: int = 0
    #: Nodes visited: to insert an event, to test whether they are ready, and to remove them.
    visited: int = 0


class Method(ABC):
    """Buffers events. See the module docstring for the contract."""

    def __init__(self) -> None:
        self.work = Work()

    @abstractmethod
    def __len__(self) -> int:
        """The number of buffered events."""

    @abstractmethod
    def __iter__(self) -> Iterator[BufferedEvent]:
        """The buffered events, in order."""

    def oldest(self) -> BufferedEvent | None:
        """The first of the buffered events."""
        return next(iter(self), None)

    @abstractmethod
    def add(self, stream: Stream) -> None:
        """A stream was added. Events that are buffered already do not wait for it."""

    @abstractmethod
    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        """Insert an event, whose stream's watermark has advanced; returns ready events."""

    @abstractmethod
    def mask(self, stream: Stream) -> list[BufferedEvent]:
        """A stream was removed or disabled, so no event waits for it; returns ready events."""

    @abstractmethod
    def unmask(self, stream: Stream) -> None:
        """A disabled stream delivers again, so events wait for it. Its event is inserted next."""

    @abstractmethod
    def sweep(self) -> list[BufferedEvent]:
        """Return all ready events, also those that the method would have returned later."""

    @abstractmethod
    def expel(self, upto: Point) -> list[BufferedEvent]:
        """Return all events up to a point, ready or not."""

    def save_order(self) -> Iterator[BufferedEvent]:
        """The buffered events, in the order from which :meth:`restore` rebuilds the same structure."""
        return iter(self)

    @abstractmethod
    def restore(self, waiting: list[BufferedEvent], streams: list[Stream]) -> None:
        """Rebuild the structure from the events of :meth:`save_order` and these streams; called on an empty method."""

    @abstractmethod
    def check_invariants(self) -> None:
        """Raise AssertionError if the structure is inconsistent."""
