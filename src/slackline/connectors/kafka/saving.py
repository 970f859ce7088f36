"""A snapshot in the making: saved engine by engine, then written part by part, while the partition goes on.

To save all engines that had arrivals takes seconds where there are many, and so does to write them. Nobody who waits
for an answer should wait for that: so both are done a little at a time. The cut is the one of the beginning, whatever
is read meanwhile (:meth:`slackline.runtime.sites.Sites.cut`). Nothing is written before all is saved; a snapshot that
was not saved or not written to its end is as if it had never been.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.records import Record
from slackline.connectors.kafka.snapshots import PartitionSnapshot, Snapshots


class Saving:
    """A snapshot of what the engines of a partition are when this is made. It ends any that was begun before."""

    def __init__(self, machine: InputPartition, snapshots: Snapshots) -> None:
        #: When it was begun, in seconds of :func:`time.monotonic`.
        self.at = time.monotonic()
        #: Seconds until all engines were saved.
        self.took = 0.0
        #: The snapshot, once all engines are saved.
        self.snapshot: PartitionSnapshot | None = None
        self._number = machine.number
        self._offset = machine.offset
        self._snapshots = snapshots
        self._left = machine.cut()
        self._state: list[bytes] = []
        self._records: Iterator[Record] = iter(())
        self._next: Record | None = None  # the first that was not given out yet

    @property
    def is_written(self) -> bool:
        """Whether all of its records were given out."""
        return self.snapshot is not None and self._next is None

    def save(self, seconds: float) -> None:
        """Save engines for so long, but one at least, if any are left."""
        if self.snapshot is not None:
            return
        start = time.monotonic()
        for piece in self._left:
            self._state.append(piece)
            if time.monotonic() - start >= seconds:
                break
        else:
            self.snapshot = PartitionSnapshot(self._offset, self._state)
            self._records = self._snapshots.records(self._number, self.snapshot)
            self._next = next(self._records, None)
            self.took = time.monotonic() - self.at

    def records(self, most: float) -> list[Record]:
        """The next records to write, once all is saved."""
        taken: list[Record] = []
        while self._next is not None and len(taken) < most:
            taken.append(self._next)
            self._next = next(self._records, None)
        return taken
