"""Method 2: look at the nodes on the way to the place of an event [Sync, IV-C, Algorithm 4].

Adding and processing are joined. On the way down a mask collects what is inherited from nodes passed on the left.
A node passed on the right may go if its table and the mask say so, and all on its left with it; if it may not, nobody
further right may, so nothing more is looked at. (In [Sync] the root is asked at this place; the node at hand is
meant.) Events on the left of a node that may not go are not looked at, even if they may: some delay is left.
"""

from __future__ import annotations

from slackline.sync.methods.tables import EVERYBODY, join
from slackline.sync.methods.tree import Tree, TreeNode
from slackline.sync.stream import Waiting


class Method2(Tree):
    """The tree with insertion and processing in one."""

    def insert(self, waiting: Waiting) -> list[Waiting]:
        self._size += 1
        out: list[Waiting] = []
        point, bit = waiting.point, waiting.stream.bit
        inherited, can_check = EVERYBODY, True
        above: TreeNode | None = None  # where the node at hand hangs, and on which side
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
                join(node, waiting)
                break
            node.owed &= ~bit
            updated += 1
            if can_check and self._ready(node, inherited):
                self._take(node, out)
                node = node.right
                self._hang(above, node)  # while we may check, all nodes passed on the right are gone
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
            self._take(node, out)
            self._hang(above, node.right)
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared + can_check
        return out
