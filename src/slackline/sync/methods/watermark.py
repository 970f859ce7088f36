"""The watermark method: what the ordering core does (docs/concepts/watermarks.md), for streams that deliver in order.

A stream's last event is its watermark, the least watermark of all live streams is the watermark, and every event up to the
watermark may go. Nothing is kept per event and stream: no tables. The events are in one heap, the watermarks in another,
where a watermark that has moved is corrected only when it comes to the top: until then it is a lower bound. An arrival
costs O(log streams + log waiting) and nothing waits longer than it must.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from slackline.sync.methods.method import Method
from slackline.sync.stream import Point, Stream, Waiting

FOREVER: Point = (2**63, 0)


class Watermark(Method):
    """Two heaps: what waits, and how far the streams are."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Waiting] = []
        #: (a lower bound of its watermark, entry, stream) of every live stream. Entries of streams that were masked
        #: stay until they come to the top, or are more than half.
        self._fronts: list[tuple[Point, int, Stream]] = []
        self._entries = 0
        self._dead = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(sorted(self._waiting))

    def oldest(self) -> Waiting | None:
        return self._waiting[0] if self._waiting else None

    def add(self, stream: Stream) -> None:
        self._entries += 1
        stream.entry = self._entries
        heappush(self._fronts, (stream.watermark, stream.entry, stream))

    def insert(self, waiting: Waiting) -> list[Waiting]:
        heappush(self._waiting, waiting)
        return self.expel(self._watermark())

    def mask(self, stream: Stream) -> list[Waiting]:
        self._dead += stream.entry != 0  # one that was disabled may be removed, too
        stream.entry = 0
        if 2 * self._dead > len(self._fronts):
            self._fronts = [front for front in self._fronts if front[2].entry == front[1]]
            heapify(self._fronts)
            self._dead = 0
        return self.sweep()

    def unmask(self, stream: Stream) -> None:
        self.add(stream)

    def sweep(self) -> list[Waiting]:
        return self.expel(self._watermark())

    def expel(self, upto: Point) -> list[Waiting]:
        waiting = self._waiting
        out: list[Waiting] = []
        while waiting and waiting[0][0] <= upto:
            out.append(heappop(waiting))
        self.work.visited += len(out) + 1
        return out

    def restore(self, waiting: list[Waiting], streams: list[Stream]) -> None:
        self._waiting = sorted(waiting)
        for stream in streams:
            if stream.live:
                self.add(stream)

    def check_invariants(self) -> None:
        for heap in (self._waiting, self._fronts):
            assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap))), "a heap is not in order"
        live = [(front, stream) for front, entry, stream in self._fronts if stream.entry == entry]
        assert all(front <= stream.watermark for front, stream in live), "a front is ahead of its stream"
        assert len(live) + self._dead == len(self._fronts), "dead entries are not counted right"

    def _watermark(self) -> Point:
        """The least watermark. What is on top is corrected until it is right."""
        fronts = self._fronts
        visited = 1
        while fronts:
            front, entry, stream = fronts[0]
            if stream.entry != entry:
                heappop(fronts)
                self._dead -= 1
            elif stream.watermark is front:
                break
            else:
                heapreplace(fronts, (stream.watermark, entry, stream))
            visited += 1
        self.work.visited += visited
        return fronts[0][0] if fronts else FOREVER
