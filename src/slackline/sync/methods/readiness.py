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

from bisect import insort
from collections.abc import Iterator

from slackline.sync.methods.method import Method
from slackline.sync.streams import BufferedEvent, Point, Stream

#: An empty table: all streams owe.
ALL_STREAMS = -1


class TreeNode:
    """The events of one point, with their table; only a balanced tree sets ``above`` and ``red``."""

    __slots__ = ("above", "events", "left", "owed", "point", "red", "right")

    above: TreeNode
    left: TreeNode
    right: TreeNode

    def __init__(self, point: Point, owed: int, nil: TreeNode | None = None) -> None:
        self.point = point
        self.owed = owed
        self.events: list[BufferedEvent] = []
        self.red = nil is not None
        self.above = self.left = self.right = nil or self

    def add(self, waiting: BufferedEvent) -> None:
        """Add an event of another stream at the same point."""
        insort(self.events, waiting)
        self.owed &= ~waiting.stream.bit


class Tree(Method):
    """A search tree whose nodes have readiness tables. ``nil`` stands for every missing node, and is above the root."""

    def __init__(self) -> None:
        super().__init__()
        self.nil = TreeNode((-1, -1), ALL_STREAMS)
        self.root = self.nil
        self._size = 0
        # The bits of all streams so far, and those of the live streams.
        self._all = 0
        self._live = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[BufferedEvent]:
        for node in self._nodes(self.root):
            yield from node.events

    def add(self, stream: Stream) -> None:
        if self._all & stream.bit:  # a removed stream had this bit
            for node in self._nodes(self.root):
                node.owed &= ~stream.bit
        self._all |= stream.bit
        self._live |= stream.bit

    def mask(self, stream: Stream) -> list[BufferedEvent]:
        self._live &= ~stream.bit
        return self.sweep()

    def unmask(self, stream: Stream) -> None:
        self._live |= stream.bit

    def sweep(self) -> list[BufferedEvent]:
        """Release the oldest node, tested with the tables that it inherits, again and again."""
        out: list[BufferedEvent] = []
        while self.root is not self.nil:
            oldest, above, inherited = self._oldest()
            if not self._ready(oldest, inherited):
                break
            self._remove(oldest, above, out)
        return out

    def check_invariants(self) -> None:
        points = [node.point for node in self._nodes(self.root)]
        assert points == sorted(set(points)), "the tree is not in order"
        assert self._size == sum(1 for _ in self), "the tree's size is wrong"

    def _restore_bits(self, streams: list[Stream]) -> None:
        self._all = sum(stream.bit for stream in streams)
        self._live = sum(stream.bit for stream in streams if stream.live)

    def _nodes(self, root: TreeNode) -> Iterator[TreeNode]:
        """The nodes in order. No recursion: a tree of streams that deliver in order is one long branch."""
        path: list[TreeNode] = []
        node = root
        while path or node is not self.nil:
            while node is not self.nil:
                path.append(node)
                node = node.left
            node = path.pop()
            yield node
            node = node.right

    def _put(self, waiting: BufferedEvent, owed: int) -> TreeNode | None:
        """Add an event [Sync, Algorithm 1], as a loop; returns its node if that is new, with the table ``owed``."""
        self._size += 1
        point, bit = waiting.point, waiting.stream.bit
        above, node, new = self.nil, self.root, None
        compared = updated = 0
        while node is not self.nil:
            compared += 1
            above = node
            if point < node.point:
                node = node.left
            elif point == node.point:
                node.add(waiting)
                break
            else:
                node.owed &= ~bit
                updated += 1
                node = node.right
        else:
            new = self._node(waiting, owed)
            new.above = above
            if above is not self.nil and point > above.point:
                above.right = new
            else:
                self._hang(above, new)
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared
        return new

    def _node(self, waiting: BufferedEvent, owed: int) -> TreeNode:
        node = TreeNode(waiting.point, owed, self.nil)
        node.events.append(waiting)
        return node

    def _ready(self, node: TreeNode, inherited: int = ALL_STREAMS) -> bool:
        return not node.owed & inherited & self._live

    def _oldest(self) -> tuple[TreeNode, TreeNode, int]:
        """The oldest node, the one above it, and the tables that it inherits."""
        above, node, inherited, visited = self.nil, self.root, ALL_STREAMS, 1
        while node.left is not self.nil:
            inherited &= node.owed
            above, node = node, node.left
            visited += 1
        self.work.visited += visited
        return node, above, inherited

    def _remove(self, oldest: TreeNode, above: TreeNode, out: list[BufferedEvent]) -> None:
        """Remove the oldest node: nothing is on its left, so its right child replaces it."""
        self._release(oldest, out)
        self._hang(above, oldest.right)

    def _release(self, node: TreeNode, out: list[BufferedEvent]) -> None:
        out += node.events
        self._size -= len(node.events)

    def _hang(self, above: TreeNode, node: TreeNode) -> None:
        """Replace a child: left of ``above``, or the root."""
        if above is self.nil:
            self.root = node
        else:
            above.left = node


def owed_by(streams: list[Stream], point: Point) -> int:
    """The bits of the streams that have not reached a point."""
    return sum(stream.bit for stream in streams if stream.watermark < point)


class PlainTree(Tree):
    """The tree of methods 1 and 2, which is not balanced."""

    def expel(self, upto: Point) -> list[BufferedEvent]:
        """Cut the tree at a point: all nodes left of the cut are released. Inheritance does not change."""
        out: list[BufferedEvent] = []
        above, node = self.nil, self.root  # above: the last node that remains and has the cut on its left
        while node is not self.nil:
            self.work.visited += 1
            if node.point <= upto:
                self._release_left(node, out)
                node = node.right
                self._hang(above, node)
            else:
                above, node = node, node.left
        return out

    def save_order(self) -> Iterator[BufferedEvent]:
        """Preorder: only one shape of a search tree gives this order."""
        left_out = [self.root]
        while left_out:
            node = left_out.pop()
            if node is not self.nil:
                yield from node.events
                left_out += (node.right, node.left)

    def restore(self, waiting: list[BufferedEvent], streams: list[Stream]) -> None:
        self._restore_bits(streams)
        self._size = len(waiting)
        above: list[TreeNode] = []  # nodes that may get a right child
        node = self.nil
        for each in waiting:
            if node.point == each.point:
                insort(node.events, each)
                continue
            node = self._node(each, owed_by(streams, each.point))
            if not above:
                self.root = node
            elif node.point < above[-1].point:
                above[-1].left = node
            else:
                while above and above[-1].point < node.point:
                    older = above.pop()
                older.right = node
            above.append(node)

    def _release_left(self, node: TreeNode, out: list[BufferedEvent]) -> None:
        """Release a node and all on its left, in order."""
        for each in self._nodes(node.left):
            self.work.visited += 1
            self._release(each, out)
        node.left = self.nil
        self._release(node, out)


class Method1(PlainTree):
    """Method 1: insert an event, then test the root [Sync, IV-B, Algorithms 1 to 3].

    Insertion and processing are separate. Only the table of the root is tested, which is complete, because every event
    passes the root. If the root is ready, so are all nodes on its left; the next root is the nearest one on the right
    that is not ready. Events on the left of the root wait for the root, even if no stream owes them anything: that is
    the added delay of the method.
    """

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        self._put(waiting, self._all & ~waiting.stream.bit)
        return self._process()

    def mask(self, stream: Stream) -> list[BufferedEvent]:
        self._live &= ~stream.bit
        return self._process()

    def _process(self) -> list[BufferedEvent]:
        """Algorithms 2 and 3: while the root is ready, release it and its left side."""
        out: list[BufferedEvent] = []
        while self.root is not self.nil:
            self.work.visited += 1
            if not self._ready(self.root):
                break
            self._release_left(self.root, out)
            self.root = self.root.right
        return out


class Method2(PlainTree):
    """Method 2: test the nodes on the insertion path of an event [Sync, IV-C, Algorithm 4].

    Insertion and processing are combined. On the way down a mask collects the tables of nodes passed on the left. A
    node passed on the right is ready if its table combined with the mask is, and all on its left with it; if it is not,
    none further right is, so no more are tested. ([Sync] tests the root at this place; the current node is meant.)
    Events on the left of a node that is not ready are not tested, even if they are ready: some added delay remains.
    """

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        self._size += 1
        out: list[BufferedEvent] = []
        point, bit = waiting.point, waiting.stream.bit
        inherited, can_check, on_left = ALL_STREAMS, True, True
        above, node = self.nil, self.root  # the parent of the current node, which is on its left or right
        compared = updated = 0
        while node is not self.nil:
            compared += 1
            if point < node.point:
                if can_check:
                    inherited &= node.owed
                above, on_left, node = node, True, node.left
                continue
            if point == node.point:
                node.add(waiting)
                break
            node.owed &= ~bit
            updated += 1
            if can_check and self._ready(node, inherited):
                self._release_left(node, out)
                node = node.right
                self._hang(above, node)  # so far all nodes passed on the right were released
                continue
            can_check = False
            above, on_left, node = node, False, node.right
        else:
            node = self._node(waiting, self._all & ~bit)
            if above is not self.nil and not on_left:
                above.right = node
            else:
                self._hang(above, node)
        if can_check and self._ready(node, inherited):
            self._release_left(node, out)
            self._hang(above, node.right)
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared + can_check
        return out
