"""Method 1: find the place of an event, then look at the root [Sync, IV-B, Algorithms 1 to 3].

Adding a node and processing the tree are separate. Only the root's table is looked at, which is complete, because every
event passes the root. Once the root may go, so may all on its left; the next root is the nearest one on the right that
may not go. Events on the root's left wait for the root, even if nobody owes them anything: that is the method's added
delay.
"""

from __future__ import annotations

from slackline.sync.methods.tables import join
from slackline.sync.methods.tree import Tree, TreeNode
from slackline.sync.stream import Stream, Waiting


class Method1(Tree):
    """The tree with processing apart from insertion."""

    def insert(self, waiting: Waiting) -> list[Waiting]:
        self._add(waiting)
        return self._process()

    def mask(self, stream: Stream) -> list[Waiting]:
        self._live &= ~stream.bit
        return self._process()

    def _add(self, waiting: Waiting) -> None:
        """Algorithm 1, as a loop."""
        self._size += 1
        point, bit = waiting.point, waiting.stream.bit
        node = self.root
        if node is None:
            self.root = TreeNode(waiting, self._all & ~bit)
            return
        compared = updated = 0
        while True:
            compared += 1
            if point < node.point:
                if node.left is None:
                    node.left = TreeNode(waiting, self._all & ~bit)
                    break
                node = node.left
            elif point == node.point:
                join(node, waiting)
                break
            else:
                node.owed &= ~bit
                updated += 1
                if node.right is None:
                    node.right = TreeNode(waiting, self._all & ~bit)
                    break
                node = node.right
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared

    def _process(self) -> list[Waiting]:
        """Algorithms 2 and 3: while the root may go, it and its left side do."""
        out: list[Waiting] = []
        while self.root is not None:
            self.work.visited += 1
            if not self._ready(self.root):
                break
            self._take(self.root, out)
            self.root = self.root.right
        return out
