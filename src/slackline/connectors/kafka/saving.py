"""A checkpoint in the making: saved engine by engine, then written part by part, while messages are processed.

To save all engines that had arrivals takes seconds where there are many, and so does writing them. So that results do
not wait for it, both are done a little at a time. The checkpoint is that of the beginning, whatever is processed
meanwhile (:meth:`slackline.runtime.keyed.KeyedEngines.snapshot`). Nothing is written before all is saved; a checkpoint
that was not saved or written to its end is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from slackline.connectors.kafka.checkpoints import CheckpointStore
from slackline.connectors.kafka.messages import Outgoing
from slackline.connectors.kafka.partition import InputPartition
from slackline.runtime.checkpoint import Checkpoint


class Saving:
    """A checkpoint of the engines of a partition as they are when this is made. It ends any that was begun before."""

    def __init__(self, machine: InputPartition, store: CheckpointStore) -> None:
        #: When it was begun, in seconds of :func:`time.monotonic`.
        self.at = time.monotonic()
        #: Seconds until all engines were saved.
        self.took = 0.0
        #: The checkpoint, once all engines are saved.
        self.checkpoint: Checkpoint | None = None
        self._number = machine.number
        self._store = store
        self._header, self._left = machine.snapshot()
        self._pieces: list[bytes] = []
        self._messages: Iterator[Outgoing] = iter(())
        self._next: Outgoing | None = None  # the first that was not returned yet

    @property
    def size(self) -> int:
        """Bytes of the engines that are saved."""
        return sum(map(len, self._pieces))

    @property
    def is_written(self) -> bool:
        """Whether all of its messages were returned."""
        return self.checkpoint is not None and self._next is None

    def save(self, seconds: float) -> None:
        """Save engines for so long, but one at least, if any are left."""
        if self.checkpoint is not None:
            return
        start = time.monotonic()
        for piece in self._left:
            self._pieces.append(piece)
            if time.monotonic() - start >= seconds:
                break
        else:
            self.checkpoint = self._store.owner.checkpoint(self._header, self._pieces)
            self._messages = self._store.messages(self._number, self.checkpoint)
            self._next = next(self._messages, None)
            self.took = time.monotonic() - self.at

    def messages(self, most: float) -> list[Outgoing]:
        """The next messages to write, once all is saved."""
        taken: list[Outgoing] = []
        while self._next is not None and len(taken) < most:
            taken.append(self._next)
            self._next = next(self._messages, None)
        return taken
