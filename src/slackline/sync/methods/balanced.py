"""Method 2 on a balanced tree, as its authors propose [Sync, IV-E]: a red-black tree.

Insertion takes O(log buffered) steps, but in a balanced tree the root is in the middle, so its table does not apply to
the oldest node. So after insertion the oldest node is tested with the tables that it inherits on the way down to it,
and removed while it is ready. No event is released later than necessary.

**Rotations.** A node inherits the tables of the nodes above it that it is left of. A left rotation adds one such node
to the lower node, whose table is implied anyway. A right rotation removes the former parent from the node that moves
up, which therefore combines the table of the parent into its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline.sync.methods.readiness import ALL_STREAMS, Tables, add_to_node, owed_by
from slackline.sync.streams import BufferedEvent, Point, Stream


class BalancedNode:
    """A node of the balanced tree: as in the plain one, with a colour and a link to its parent."""

    __slots__ = ("above", "events", "left", "owed", "point", "red", "right")

    above: BalancedNode
    left: BalancedNode
    right: BalancedNode
    events: list[BufferedEvent]

    def __init__(self, point: Point, owed: int, nil: BalancedNode | None = None) -> None:
        self.point = point
        self.owed = owed
        self.events = []
        self.red = nil is not None
        self.above = self.left = self.right = nil or self


class Balanced(Tables):
    """A red-black tree with readiness tables. ``nil`` stands for every missing node, and is above the root."""

    def __init__(self) -> None:
        super().__init__()
        self.nil = BalancedNode((-1, -1), ALL_STREAMS)
        self.root = self.nil

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        self._put(waiting, self._all & ~waiting.stream.bit)
        return self.sweep()

    def expel(self, upto: Point) -> list[BufferedEvent]:
        out: list[BufferedEvent] = []
        while self.root is not self.nil:
            oldest, _ = self._oldest()
            if oldest.point > upto:
                break
            self._remove(oldest, out)
        return out

    def restore(self, waiting: list[BufferedEvent], streams: list[Stream]) -> None:
        self._restore_bits(streams)
        for each in waiting:
            self._put(each, 0)
        for node in self._nodes():
            node.owed = owed_by(streams, node.point)

    def _put(self, waiting: BufferedEvent, owed: int) -> None:
        self._size += 1
        point, bit = waiting.point, waiting.stream.bit
        above, node = self.nil, self.root
        compared = updated = 0
        while node is not self.nil:
            compared += 1
            above = node
            if point < node.point:
                node = node.left
            elif point == node.point:
                add_to_node(node, waiting)
                break
            else:
                node.owed &= ~bit
                updated += 1
                node = node.right
        else:
            node = BalancedNode(point, owed, self.nil)
            node.events.append(waiting)
            node.above = above
            if above is self.nil:
                self.root = node
            elif point < above.point:
                above.left = node
            else:
                above.right = node
            self._fix_insertion(node)
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared

    def sweep(self) -> list[BufferedEvent]:
        out: list[BufferedEvent] = []
        while self.root is not self.nil:
            oldest, inherited = self._oldest()
            if not self._ready(oldest, inherited):
                break
            self._remove(oldest, out)
        return out

    def _oldest(self) -> tuple[BalancedNode, int]:
        """The oldest node, and the tables that it inherits."""
        node, inherited, visited = self.root, ALL_STREAMS, 1
        while node.left is not self.nil:
            inherited &= node.owed
            node = node.left
            visited += 1
        self.work.visited += visited
        return node, inherited

    def _remove(self, oldest: BalancedNode, out: list[BufferedEvent]) -> None:
        """Remove the oldest node: nothing is on its left, so its right child replaces it."""
        out += oldest.events
        self._size -= len(oldest.events)
        child, above = oldest.right, oldest.above
        child.above = above
        if above is self.nil:
            self.root = child
        else:
            above.left = child
        if not oldest.red:
            self._fix_removal(child)

    def _rotate_left(self, node: BalancedNode) -> None:
        up = node.right
        node.right = up.left
        if up.left is not self.nil:
            up.left.above = node
        self._replace(node, up)
        up.left = node
        node.above = up

    def _rotate_right(self, node: BalancedNode) -> None:
        up = node.left
        up.owed &= node.owed
        node.left = up.right
        if up.right is not self.nil:
            up.right.above = node
        self._replace(node, up)
        up.right = node
        node.above = up

    def _replace(self, node: BalancedNode, up: BalancedNode) -> None:
        above = node.above
        up.above = above
        if above is self.nil:
            self.root = up
        elif above.left is node:
            above.left = up
        else:
            above.right = up

    def _fix_insertion(self, node: BalancedNode) -> None:
        """No red node may have a red one below it."""
        while node.above.red:
            above, top = node.above, node.above.above
            if above is top.left:
                uncle, inner, rotate_above, rotate_top = top.right, above.right, self._rotate_left, self._rotate_right
            else:
                uncle, inner, rotate_above, rotate_top = top.left, above.left, self._rotate_right, self._rotate_left
            if uncle.red:
                above.red = uncle.red = False
                top.red = True
                node = top
                continue
            if node is inner:
                rotate_above(above)
                above = node
            above.red = False
            top.red = True
            rotate_top(top)
            break
        self.root.red = False

    def _fix_removal(self, node: BalancedNode) -> None:
        """The branch of ``node``, which is on the left of all, has one black node too few."""
        while node is not self.root and not node.red:
            above = node.above
            sibling = above.right
            if sibling.red:
                sibling.red = False
                above.red = True
                self._rotate_left(above)
                sibling = above.right
            if not sibling.left.red and not sibling.right.red:
                sibling.red = True
                node = above
                continue
            if not sibling.right.red:
                sibling.left.red = False
                sibling.red = True
                self._rotate_right(sibling)
                sibling = above.right
            sibling.red = above.red
            above.red = False
            sibling.right.red = False
            self._rotate_left(above)
            node = self.root
        node.red = False

    def _nodes(self) -> Iterator[BalancedNode]:
        path: list[BalancedNode] = []
        node = self.root
        while path or node is not self.nil:
            while node is not self.nil:
                path.append(node)
                node = node.left
            node = path.pop()
            yield node
            node = node.right

    def check_invariants(self) -> None:
        super().check_invariants()
        assert not self.root.red and not self.nil.red, "the root must be black"
        self._blacks(self.root)

    def _blacks(self, node: BalancedNode) -> int:
        """The number of black nodes on every way down from here."""
        if node is self.nil:
            return 1
        assert not (node.red and (node.left.red or node.right.red)), "a red node below a red one"
        left, right = self._blacks(node.left), self._blacks(node.right)
        assert left == right, "the tree is out of balance"
        return left + (not node.red)
