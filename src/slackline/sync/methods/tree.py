"""Binary trees of points with readiness tables [Sync, IV-B and IV-C].

- An event on its way to its place takes its stream's bit out of every node that it passes on the right.
- Nodes on the left of a node are older, so they are owed no more than it is: they *inherit* its table. What a node is
  really owed is its own table and those of all nodes above it that it is left of.
- Nodes on the right are newer: if a node may not go, none on its right may.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from slackline.sync.methods.tables import EVERYBODY, Tables, owed_by
from slackline.sync.stream import Point, Stream, Waiting


class TreeNode:
    """The events of one point."""

    __slots__ = ("events", "left", "owed", "point", "right")

    def __init__(self, waiting: Waiting, owed: int) -> None:
        self.point = waiting.point
        self.events = [waiting]
        self.owed = owed
        self.left: TreeNode | None = None
        self.right: TreeNode | None = None


class Tree(Tables):
    """What the trees of methods 1 and 2 have in common: unbalanced, without links to parents."""

    def __init__(self) -> None:
        super().__init__()
        self.root: TreeNode | None = None

    def _nodes(self) -> Iterator[TreeNode]:
        return nodes(self.root)

    def expel(self, upto: Point) -> list[Waiting]:
        """Cut the tree at a point: what lies left of the cut goes. Who inherits from whom stays as it is."""
        out: list[Waiting] = []
        above: TreeNode | None = None  # the last node that stays and has the cut on its left
        node = self.root
        while node is not None:
            self.work.visited += 1
            if node.point <= upto:
                self._take(node, out)
                node = node.right
                self._hang(above, node)
            else:
                above, node = node, node.left
        return out

    def sweep(self) -> list[Waiting]:
        """All that may go: the oldest node, with what it inherits on the way down to it, and again."""
        out: list[Waiting] = []
        while self.root is not None:
            above: TreeNode | None = None
            node, inherited = self.root, EVERYBODY
            while node.left is not None:
                inherited &= node.owed
                above, node = node, node.left
                self.work.visited += 1
            self.work.visited += 1
            if not self._ready(node, inherited):
                break
            self._take_alone(node, out)
            self._hang(above, node.right)
        return out

    def kept(self) -> Iterator[Waiting]:
        """Each node before those below it: a tree has only one shape that gives this order."""
        left_out = [self.root]
        while left_out:
            node = left_out.pop()
            if node is not None:
                yield from node.events
                left_out += (node.right, node.left)

    def restore(self, waiting: list[Waiting], streams: list[Stream]) -> None:
        self._restore_bits(streams)
        self._size = len(waiting)
        above: list[TreeNode] = []  # the nodes that may get one more on their right
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
        """Put a node where the one it replaces was: left of ``above``, or at the root."""
        if above is None:
            self.root = node
        else:
            above.left = node

    def _take(self, node: TreeNode, out: list[Waiting]) -> None:
        """Give a node and all on its left away, in order."""
        for each in nodes(node.left):
            self.work.visited += 1
            self._take_alone(each, out)
        node.left = None
        self._take_alone(node, out)

    def _take_alone(self, node: TreeNode, out: list[Waiting]) -> None:
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
