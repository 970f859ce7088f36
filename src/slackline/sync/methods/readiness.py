"""Readiness tables, and the binary trees of methods 1 and 2 that have them [Sync, IV-B and IV-C].

**Tables.** A node has the events of one point and a readiness table: one bit per stream, stored as its complement
``owed``, the streams that have not yet delivered anything at or after the point. A node is ready when no live stream is
in ``owed``. Tables of different size need no care: a stream that was added later than a node has no bit in the table of
the node, and two tables combine by ``&``.

**Trees.**

- An event that is inserted clears the bit of its stream in every node that it passes on the right.
- Nodes on the left of a node are older, so they are owed no more than it is: they *inherit* its table. The table that
  counts for a node is its own combined with those of all nodes above it that it is left of.
- Nodes on the right are newer: if a node is not ready, none on its right is.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import insort
from collections.abc import Iterator
from typing import Protocol

from slackline.sync.methods.method import Method
from slackline.sync.streams import BufferedEvent, Point, Stream

#: An empty table: all streams owe.
ALL_STREAMS = -1


class Tabled(Protocol):
    """The events of one point, with their table."""

    point: Point
    owed: int
    events: list[BufferedEvent]


class Tables(Method):
    """A method whose nodes have readiness tables."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        # The bits of all streams so far.
        self._all = 0
        # The bits of the live streams.
        self._live = 0

    @abstractmethod
    def _nodes(self) -> Iterator[Tabled]:
        """The nodes in order."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[BufferedEvent]:
        for node in self._nodes():
            yield from node.events

    def add(self, stream: Stream) -> None:
        if self._all & stream.bit:  # a removed stream had this bit
            for node in self._nodes():
                node.owed &= ~stream.bit
        self._all |= stream.bit
        self._live |= stream.bit

    def mask(self, stream: Stream) -> list[BufferedEvent]:
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

    def _ready(self, node: Tabled, inherited: int = ALL_STREAMS) -> bool:
        return not node.owed & inherited & self._live


def add_to_node(node: Tabled, waiting: BufferedEvent) -> None:
    """Add an event of another stream at the same point."""
    insort(node.events, waiting)
    node.owed &= ~waiting.stream.bit


def owed_by(streams: list[Stream], point: Point) -> int:
    """The bits of the streams that have not reached a point."""
    return sum(stream.bit for stream in streams if stream.watermark < point)


class TreeNode:
    """The events of one point."""

    __slots__ = ("events", "left", "owed", "point", "right")

    def __init__(self, waiting: BufferedEvent, owed: int) -> None:
        self.point = waiting.point
        self.events = [waiting]
        self.owed = owed
        self.left: TreeNode | None = None
        self.right: TreeNode | None = None


class Tree(Tables):
    """The tree of methods 1 and 2: unbalanced, without links to parents."""

    def __init__(self) -> None:
        super().__init__()
        self.root: TreeNode | None = None

    def _nodes(self) -> Iterator[TreeNode]:
        return nodes(self.root)

    def expel(self, upto: Point) -> list[BufferedEvent]:
        """Cut the tree at a point: all nodes left of the cut are released. Inheritance does not change."""
        out: list[BufferedEvent] = []
        above: TreeNode | None = None  # the last node that remains and has the cut on its left
        node = self.root
        while node is not None:
            self.work.visited += 1
            if node.point <= upto:
                self._release(node, out)
                node = node.right
                self._hang(above, node)
            else:
                above, node = node, node.left
        return out

    def sweep(self) -> list[BufferedEvent]:
        """Release the oldest node, tested with the tables that it inherits, again and again."""
        out: list[BufferedEvent] = []
        while self.root is not None:
            above: TreeNode | None = None
            node, inherited = self.root, ALL_STREAMS
            while node.left is not None:
                inherited &= node.owed
                above, node = node, node.left
                self.work.visited += 1
            self.work.visited += 1
            if not self._ready(node, inherited):
                break
            self._release_node(node, out)
            self._hang(above, node.right)
        return out

    def save_order(self) -> Iterator[BufferedEvent]:
        """Preorder: only one shape of a search tree gives this order."""
        left_out = [self.root]
        while left_out:
            node = left_out.pop()
            if node is not None:
                yield from node.events
                left_out += (node.right, node.left)

    def restore(self, waiting: list[BufferedEvent], streams: list[Stream]) -> None:
        self._restore_bits(streams)
        self._size = len(waiting)
        above: list[TreeNode] = []  # nodes that may get a right child
        node: TreeNode | None = None
        for each in waiting:
            if node is not None and node.point == each.point:
                insort(node.events, each)
                continue
            node = TreeNode(each, owed_by(streams, each.point))
            if not above:
                self.root = node
            elif node.point < above[-1].point:
                above[-1].left = node
            else:
                while above and above[-1].point < node.point:
                    older = above.pop()
                older.right = node
            above.append(node)

    def _hang(self, above: TreeNode | None, node: TreeNode | None) -> None:
        """Replace a child: left of ``above``, or the root."""
        if above is None:
            self.root = node
        else:
            above.left = node

    def _release(self, node: TreeNode, out: list[BufferedEvent]) -> None:
        """Release a node and all on its left, in order."""
        for each in nodes(node.left):
            self.work.visited += 1
            self._release_node(each, out)
        node.left = None
        self._release_node(node, out)

    def _release_node(self, node: TreeNode, out: list[BufferedEvent]) -> None:
        out += node.events
        self._size -= len(node.events)


def nodes(root: TreeNode | None) -> Iterator[TreeNode]:
    """The nodes of a tree in order. No recursion: a tree of streams that deliver in order is one long branch."""
    path: list[TreeNode] = []
    node = root
    while path or node is not None:
        while node is not None:
            path.append(node)
            node = node.left
        node = path.pop()
        yield node
        node = node.right
