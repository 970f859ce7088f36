"""Readiness tables: what methods 1 and 2 and their balanced variant have in common [Sync, IV-B].

A node holds the events of one point and a readiness table: one bit per stream, kept as its complement ``owed``, the
streams that have not yet delivered anything at or after the point. So a node may go when it is owed nothing by a live
stream, and tables of different size need no care: a stream that joined later than a node has no bit in the node's
table, and what two tables say together (``&``) is what they share.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Iterator
from typing import Protocol

from slackline.sync.methods.method import Method
from slackline.sync.stream import Point, Stream, Waiting

#: A table that says nothing: everybody owes.
EVERYBODY = -1


class Tabled(Protocol):
    """The events of one point, with their table."""

    point: Point
    owed: int
    events: list[Waiting]


class Tables(Method):
    """A method whose nodes have readiness tables."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        #: The bits of all streams there ever were.
        self._all = 0
        #: The bits of the streams that are waited for.
        self._live = 0

    @abstractmethod
    def _nodes(self) -> Iterator[Tabled]:
        """The nodes in order."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Waiting]:
        for node in self._nodes():
            yield from node.events

    def add(self, stream: Stream) -> None:
        if self._all & stream.bit:  # a removed stream had this bit
            for node in self._nodes():
                node.owed &= ~stream.bit
        self._all |= stream.bit
        self._live |= stream.bit

    def mask(self, stream: Stream) -> list[Waiting]:
        self._live &= ~stream.bit
        return self.sweep()

    def unmask(self, stream: Stream) -> None:
        self._live |= stream.bit

    def check_invariants(self) -> None:
        points = [node.point for node in self._nodes()]
        assert points == sorted(set(points)), "the tree is not in order"
        assert self._size == sum(1 for _ in self), "the tree's size is wrong"

    def _restore_bits(self, streams: list[Stream]) -> None:
        self._all = sum(stream.bit for stream in streams)
        self._live = sum(stream.bit for stream in streams if stream.live)

    def _ready(self, node: Tabled, inherited: int = EVERYBODY) -> bool:
        return not node.owed & inherited & self._live


def join(node: Tabled, waiting: Waiting) -> None:
    """Another stream's event at the same point."""
    insort(node.events, waiting)
    node.owed &= ~waiting.stream.bit


def owed_by(streams: list[Stream], point: Point) -> int:
    """The bits of the streams that have not reached a point."""
    return sum(stream.bit for stream in streams if stream.watermark < point)
