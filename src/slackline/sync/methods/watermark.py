"""The watermark method: what the ordering core does (docs/concepts/watermarks.md), for streams that deliver in order.

The watermark of a stream is the point of its last event. The watermark of the synchroniser is the minimum of those of
all live streams; every event up to it is ready. There are no tables. The events are in one heap, the watermarks of the
streams in another, where an entry is updated only when it comes to the top: until then it is a lower bound. An arrival
costs O(log streams + log buffered), and no event is released later than necessary.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from slackline.sync.methods.method import Method
from slackline.sync.streams import BufferedEvent, Point, Stream

FOREVER: Point = (2**63, 0)


class Watermark(Method):
    """Two heaps: buffered events, and watermarks of streams."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[BufferedEvent] = []
        # (a lower bound of its watermark, entry, stream) of every live stream. Entries of masked streams stay until
        # they come to the top, or are more than half.
        self._watermarks: list[tuple[Point, int, Stream]] = []
        self._entries = 0
        self._dead = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[BufferedEvent]:
        return iter(sorted(self._waiting))

    def oldest(self) -> BufferedEvent | None:
        return self._waiting[0] if self._waiting else None

    def add(self, stream: Stream) -> None:
        self._entries += 1
        stream.entry = self._entries
        heappush(self._watermarks, (stream.watermark, stream.entry, stream))

    def insert(self, waiting: BufferedEvent) -> list[BufferedEvent]:
        heappush(self._waiting, waiting)
        return self.expel(self._watermark())

    def mask(self, stream: Stream) -> list[BufferedEvent]:
        self._dead += stream.entry != 0  # a disabled stream may be removed, too
        stream.entry = 0
        if 2 * self._dead > len(self._watermarks):
            self._watermarks = [bound for bound in self._watermarks if bound[2].entry == bound[1]]
            heapify(self._watermarks)
            self._dead = 0
        return self.sweep()

    def unmask(self, stream: Stream) -> None:
        self.add(stream)

    def sweep(self) -> list[BufferedEvent]:
        return self.expel(self._watermark())

    def expel(self, upto: Point) -> list[BufferedEvent]:
        waiting = self._waiting
        out: list[BufferedEvent] = []
        while waiting and waiting[0][0] <= upto:
            out.append(heappop(waiting))
        self.work.visited += len(out) + 1
        return out

    def restore(self, waiting: list[BufferedEvent], streams: list[Stream]) -> None:
        self._waiting = sorted(waiting)
        for stream in streams:
            if stream.live:
                self.add(stream)

    def check_invariants(self) -> None:
        for heap in (self._waiting, self._watermarks):
            assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap))), "a heap is not in order"
        live = [(bound, stream) for bound, entry, stream in self._watermarks if stream.entry == entry]
        assert all(bound <= stream.watermark for bound, stream in live), "an entry is ahead of its stream"
        assert len(live) + self._dead == len(self._watermarks), "dead entries are not counted right"

    def _watermark(self) -> Point:
        """The minimum watermark. The top entry is updated until it is current."""
        entries = self._watermarks
        visited = 1
        while entries:
            bound, entry, stream = entries[0]
            if stream.entry != entry:
                heappop(entries)
                self._dead -= 1
            elif stream.watermark is bound:
                break
            else:
                heapreplace(entries, (stream.watermark, entry, stream))
            visited += 1
        self.work.visited += visited
        return entries[0][0] if entries else FOREVER
