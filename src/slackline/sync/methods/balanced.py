"""Method 2 on a balanced tree, as its authors propose [Sync, IV-E]: a red-black tree.

Insertion takes O(log buffered) steps, but in a balanced tree the root is in the middle, so its table does not apply to
the oldest node. So after insertion the oldest node is tested with the tables that it inherits on the way down to it,
and removed while it is ready. No event is released later than necessary.

**Rotations.** A node inherits the tables of the nodes above it that it is left of. A left rotation adds one such node
to the lower node, whose table is implied anyway. A right rotation removes the former parent from the node that moves
up, which therefore combines the table of the parent into its own.
"""

from __future__ import annotations

from slackline.sync.methods.readiness import Tree, TreeNode, owed_by
from slackline.sync.streams import BufferedEvent, Point, Stream


class Balanced(Tree):
    """A red-black tree with readiness tables."""

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        self._put(waiting, self._all & ~waiting.stream.bit)
        return self.sweep()

    def expel(self, upto: Point) -> list[BufferedEvent]:
        out: list[BufferedEvent] = []
        while self.root is not self.nil:
            oldest, above, _ = self._oldest()
            if oldest.point > upto:
                break
            self._remove(oldest, above, out)
        return out

    def restore(self, waiting: list[BufferedEvent], streams: list[Stream]) -> None:
        self._restore_bits(streams)
        for each in waiting:
            self._put(each, 0)
        for node in self._nodes(self.root):
            node.owed = owed_by(streams, node.point)

    def _put(self, waiting: BufferedEvent, owed: int) -> TreeNode | None:
        if (node := super()._put(waiting, owed)) is not None:
            self._fix_insertion(node)
        return node

    def _remove(self, oldest: TreeNode, above: TreeNode, out: list[BufferedEvent]) -> None:
        super()._remove(oldest, above, out)
        oldest.right.above = above
        if not oldest.red:
            self._fix_removal(oldest.right)

    def _rotate_left(self, node: TreeNode) -> None:
        up = node.right
        node.right = up.left
        if up.left is not self.nil:
            up.left.above = node
        self._replace(node, up)
        up.left = node
        node.above = up

    def _rotate_right(self, node: TreeNode) -> None:
        up = node.left
        up.owed &= node.owed
        node.left = up.right
        if up.right is not self.nil:
            up.right.above = node
        self._replace(node, up)
        up.right = node
        node.above = up

    def _replace(self, node: TreeNode, up: TreeNode) -> None:
        above = node.above
        up.above = above
        if above is self.nil:
            self.root = up
        elif above.left is node:
            above.left = up
        else:
            above.right = up

    def _fix_insertion(self, node: TreeNode) -> None:
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

    def _fix_removal(self, node: TreeNode) -> None:
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

    def check_invariants(self) -> None:
        super().check_invariants()
        assert not self.root.red and not self.nil.red, "the root must be black"
        self._blacks(self.root)

    def _blacks(self, node: TreeNode) -> int:
        """The number of black nodes on every way down from here."""
        if node is self.nil:
            return 1
        assert not (node.red and (node.left.red or node.right.red)), "a red node below a red one"
        left, right = self._blacks(node.left), self._blacks(node.right)
        assert left == right, "the tree is out of balance"
        return left + (not node.red)
