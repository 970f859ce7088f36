"""Method 1: insert an event, then test the root [Sync, IV-B, Algorithms 1 to 3].

Insertion and processing are separate. Only the table of the root is tested, which is complete, because every event
passes the root. If the root is ready, so are all nodes on its left; the next root is the nearest one on the right that
is not ready. Events on the left of the root wait for the root, even if no stream owes them anything: that is the added
delay of the method.
"""

from __future__ import annotations

from slackline.sync.methods.readiness import Tree, TreeNode, add_to_node
from slackline.sync.streams import BufferedEvent, Stream


class Method1(Tree):
    """The tree with separate insertion and processing."""

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        self._add(waiting)
        return self._process()

    def mask(self, stream: Stream) -> list[BufferedEvent]:
        self._live &= ~stream.bit
        return self._process()

    def _add(self, waiting: BufferedEvent) -> None:
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
                add_to_node(node, waiting)
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

    def _process(self) -> list[BufferedEvent]:
        """Algorithms 2 and 3: while the root is ready, release it and its left side."""
        out: list[BufferedEvent] = []
        while self.root is not None:
            self.work.visited += 1
            if not self._ready(self.root):
                break
            self._release(self.root, out)
            self.root = self.root.right
        return out
