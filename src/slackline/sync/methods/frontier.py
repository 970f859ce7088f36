"""The frontier method: what the ordering core does (DESIGN.md section 2), for streams that deliver in order.

A stream's last event is its frontier, the least frontier of all live streams is the horizon, and every event up to the
horizon may go. Nothing is kept per event and stream: no tables. The events are in one heap, the frontiers in another,
where a frontier that has moved is corrected only when it comes to the top: until then it is a lower bound. An arrival
costs O(log streams + log waiting) and nothing waits longer than it must.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from slackline.sync.methods.method import Method
from slackline.sync.stream import Point, Stream, Waiting

FOREVER: Point = (2**63, 0)


class Frontier(Method):
    """Two heaps: what waits, and how far the streams are."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Waiting] = []
        #: (a lower bound of its frontier, its name, stream), once per live stream.
        self._fronts: list[tuple[Point, str, Stream]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(sorted(self._waiting))

    def add(self, stream: Stream) -> None:
        heappush(self._fronts, (stream.frontier, stream.name, stream))

    def insert(self, waiting: Waiting) -> list[Waiting]:
        heappush(self._waiting, waiting)
        return self.expel(self._horizon())

    def mask(self, stream: Stream) -> list[Waiting]:
        self._fronts = [front for front in self._fronts if front[2] is not stream]
        heapify(self._fronts)
        return self.expel(self._horizon())

    def unmask(self, stream: Stream) -> None:
        self.add(stream)

    def expel(self, upto: Point) -> list[Waiting]:
        waiting = self._waiting
        out: list[Waiting] = []
        while waiting and waiting[0][0] <= upto:
            out.append(heappop(waiting))
        self.work.visited += len(out) + 1
        return out

    def restore(self, waiting: list[Waiting], streams: list[Stream]) -> None:
        self._waiting = sorted(waiting)
        self._fronts = sorted((stream.frontier, stream.name, stream) for stream in streams if stream.live)

    def check_invariants(self) -> None:
        for heap in (self._waiting, self._fronts):
            assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap))), "a heap is not in order"
        assert all(front <= stream.frontier for front, _, stream in self._fronts), "a front is ahead of its stream"

    def _horizon(self) -> Point:
        """The least frontier. What is on top is corrected until it is right."""
        fronts = self._fronts
        visited = 1
        while fronts:
            front, name, stream = fronts[0]
            if stream.frontier is front:
                break
            heapreplace(fronts, (stream.frontier, name, stream))
            visited += 1
        self.work.visited += visited
        return fronts[0][0] if fronts else FOREVER
