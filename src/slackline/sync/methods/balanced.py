"""Method 2 on a balanced tree, as its authors propose [Sync, IV-E]: a red-black tree.

The place of an event is found in O(log waiting) steps, but in a balanced tree the root is somewhere in the middle, so
it says nothing about the oldest node. So after insertion the oldest node is looked at, with what it inherits on the
way down to it, and taken out while it may go. Nothing waits longer than it must.

**Rotations.** A node inherits from those above it that it is left of. Turning a tree to the left changes nobody's such
nodes, except that the lower one gets one more, whose table it implies anyway. Turning it to the right takes the node
that was above away from the one that comes up: that one takes its table over.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline.sync.methods.tables import EVERYBODY, Tables, join, owed_by
from slackline.sync.stream import Point, Stream, Waiting


class Knot:
    """A node of the balanced tree: as in the plain one, with a colour and a link to the one above."""

    __slots__ = ("above", "events", "left", "owed", "point", "red", "right")

    above: Knot
    left: Knot
    right: Knot
    events: list[Waiting]

    def __init__(self, point: Point, owed: int, nil: Knot | None = None) -> None:
        self.point = point
        self.owed = owed
        self.events = []
        self.red = nil is not None
        self.above = self.left = self.right = nil or self


class Balanced(Tables):
    """A red-black tree with readiness tables. ``nil`` stands for every missing node, and is above the root."""

    def __init__(self) -> None:
        super().__init__()
        self.nil = Knot((-1, -1), EVERYBODY)
        self.root = self.nil

    def insert(self, waiting: Waiting) -> list[Waiting]:
        self._put(waiting, self._all & ~waiting.stream.bit)
        return self.sweep()

    def expel(self, upto: Point) -> list[Waiting]:
        out: list[Waiting] = []
        while self.root is not self.nil:
            oldest, _ = self._oldest()
            if oldest.point > upto:
                break
            self._take(oldest, out)
        return out

    def restore(self, waiting: list[Waiting], streams: list[Stream]) -> None:
        self._restore_bits(streams)
        for each in waiting:
            self._put(each, 0)
        for knot in self._nodes():
            knot.owed = owed_by(streams, knot.point)

    def _put(self, waiting: Waiting, owed: int) -> None:
        self._size += 1
        point, bit = waiting.point, waiting.stream.bit
        above, knot = self.nil, self.root
        compared = updated = 0
        while knot is not self.nil:
            compared += 1
            above = knot
            if point < knot.point:
                knot = knot.left
            elif point == knot.point:
                join(knot, waiting)
                break
            else:
                knot.owed &= ~bit
                updated += 1
                knot = knot.right
        else:
            knot = Knot(point, owed, self.nil)
            knot.events.append(waiting)
            knot.above = above
            if above is self.nil:
                self.root = knot
            elif point < above.point:
                above.left = knot
            else:
                above.right = knot
            self._mend_insertion(knot)
        work = self.work
        work.comparisons += compared
        work.updates += updated
        work.visited += compared

    def sweep(self) -> list[Waiting]:
        out: list[Waiting] = []
        while self.root is not self.nil:
            oldest, inherited = self._oldest()
            if not self._ready(oldest, inherited):
                break
            self._take(oldest, out)
        return out

    def _oldest(self) -> tuple[Knot, int]:
        """The oldest node, and what it inherits."""
        knot, inherited, visited = self.root, EVERYBODY, 1
        while knot.left is not self.nil:
            inherited &= knot.owed
            knot = knot.left
            visited += 1
        self.work.visited += visited
        return knot, inherited

    def _take(self, oldest: Knot, out: list[Waiting]) -> None:
        """Take the oldest node out: nothing is on its left, so what is on its right comes up."""
        out += oldest.events
        self._size -= len(oldest.events)
        child, above = oldest.right, oldest.above
        child.above = above
        if above is self.nil:
            self.root = child
        else:
            above.left = child
        if not oldest.red:
            self._mend_removal(child)

    def _turn_left(self, knot: Knot) -> None:
        up = knot.right
        knot.right = up.left
        if up.left is not self.nil:
            up.left.above = knot
        self._replace(knot, up)
        up.left = knot
        knot.above = up

    def _turn_right(self, knot: Knot) -> None:
        up = knot.left
        up.owed &= knot.owed
        knot.left = up.right
        if up.right is not self.nil:
            up.right.above = knot
        self._replace(knot, up)
        up.right = knot
        knot.above = up

    def _replace(self, knot: Knot, up: Knot) -> None:
        above = knot.above
        up.above = above
        if above is self.nil:
            self.root = up
        elif above.left is knot:
            above.left = up
        else:
            above.right = up

    def _mend_insertion(self, knot: Knot) -> None:
        """No red node may have a red one below it."""
        while knot.above.red:
            above, top = knot.above, knot.above.above
            if above is top.left:
                uncle, inner, turn_above, turn_top = top.right, above.right, self._turn_left, self._turn_right
            else:
                uncle, inner, turn_above, turn_top = top.left, above.left, self._turn_right, self._turn_left
            if uncle.red:
                above.red = uncle.red = False
                top.red = True
                knot = top
                continue
            if knot is inner:
                turn_above(above)
                above = knot
            above.red = False
            top.red = True
            turn_top(top)
            break
        self.root.red = False

    def _mend_removal(self, knot: Knot) -> None:
        """The branch of ``knot``, which is on the left of all, has one black node too few."""
        while knot is not self.root and not knot.red:
            above = knot.above
            sibling = above.right
            if sibling.red:
                sibling.red = False
                above.red = True
                self._turn_left(above)
                sibling = above.right
            if not sibling.left.red and not sibling.right.red:
                sibling.red = True
                knot = above
                continue
            if not sibling.right.red:
                sibling.left.red = False
                sibling.red = True
                self._turn_right(sibling)
                sibling = above.right
            sibling.red = above.red
            above.red = False
            sibling.right.red = False
            self._turn_left(above)
            knot = self.root
        knot.red = False

    def _nodes(self) -> Iterator[Knot]:
        path: list[Knot] = []
        knot = self.root
        while path or knot is not self.nil:
            while knot is not self.nil:
                path.append(knot)
                knot = knot.left
            knot = path.pop()
            yield knot
            knot = knot.right

    def check_invariants(self) -> None:
        super().check_invariants()
        assert not self.root.red and not self.nil.red, "the root must be black"
        self._blacks(self.root)

    def _blacks(self, knot: Knot) -> int:
        """The number of black nodes on every way down from here."""
        if knot is self.nil:
            return 1
        assert not (knot.red and (knot.left.red or knot.right.red)), "a red node below a red one"
        left, right = self._blacks(knot.left), self._blacks(knot.right)
        assert left == right, "the tree is out of balance"
        return left + (not knot.red)
