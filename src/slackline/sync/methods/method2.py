"""Method 2: test the nodes on the insertion path of an event [Sync, IV-C, Algorithm 4].

Insertion and processing are combined. On the way down a mask collects the tables of nodes passed on the left. A node
passed on the right is ready if its table combined with the mask is, and all on its left with it; if it is not, none
further right is, so no more are tested. ([Sync] tests the root at this place; the current node is meant.) Events on the
left of a node that is not ready are not tested, even if they are ready: some added delay remains.
"""

from __future__ import annotations

from slackline.sync.methods.readiness import ALL_STREAMS, Tree, TreeNode, add_to_node
from slackline.sync.streams import BufferedEvent


class Method2(Tree):
    """The tree with combined insertion and processing."""

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        self._size += 1
        out: list[BufferedEvent] = []
        point, bit = waiting.point, waiting.stream.bit
        inherited, can_check = ALL_STREAMS, True
        above: TreeNode | None = None  # the parent of the current node, and the side
        on_left = True
        node = self.root
        compared = updated = 0
        while node is not None:
            compared += 1
            if point < node.point:
                if can_check:
                    inherited &= node.owed
                above, on_left, node = node, True, node.left
                continue
            if point == node.point:
                add_to_node(node, waiting)
                break
            node.owed &= ~bit
            updated += 1
            if can_check and self._ready(node, inherited):
                self._release(node, out)
                node = node.right
                self._hang(above, node)  # so far all nodes passed on the right were released
                continue
            can_check = False
            above, on_left, node = node, False, node.right
        if node is None:
            node = TreeNode(waiting, self._all & ~bit)
            if above is not None and not on_left:
                above.right = node
            else:
                self._hang(above, node)
        if can_check and self._ready(node, inherited):
            self._release(node, out)
            self._hang(above, node.right)
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared + can_check
        return out
