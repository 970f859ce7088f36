"""Deferral: rows that are due to a detector but not processed yet because of overload, in a queue that spills to disk.

Rows are queued in the order in which the detector processes them, so deferral changes when a detector runs and never
what it sees.
"""

from __future__ import annotations

import logging
import struct
import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from slackline.core.batch import Batch, Rows
from slackline.core.check import positive, text, whole_number
from slackline.core.codec import decode, encode
from slackline.core.errors import ConfigError, UnsupportedStateError
from slackline.core.event import Event, Source
from slackline.core.merged_batch import MergedBatch
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked
from slackline.ordering.shared_rows import restored_rows, saved_rows
from slackline.running.segments import Piece, sliced

#: No limit on the number of rows.
UNLIMITED = 2**62

_LENGTH = struct.Struct(">Q")

_LOGGER = logging.getLogger("slackline")


@dataclass(frozen=True, slots=True)
class Pause:
    """Overload control: defer the least urgent detectors so that the others keep up [Thesis, 7.3].

    ``share``   CPU share of the engine, less than 1; above it detectors are deferred. Default 0.9.
    ``memory``  deferred events per detector that are kept in memory; the rest spills to disk.
    ``keep``    maximum number of deferred events per detector; a detector that exceeds it runs again.
    ``folder``  directory of the spill file; default: the system's directory for temporary files.
    """

    share: float = 0.9
    memory: int = 100_000
    keep: int = 10_000_000
    folder: str | None = None

    def __post_init__(self) -> None:
        positive("share", self.share, 1)
        if self.share == 1:
            raise ConfigError("share=1 is not valid; it must be less than 1 (with 1 nothing is deferred). Try 0.9.")
        whole_number("memory", self.memory, 0)
        whole_number("keep", self.keep, 1)
        if self.folder is not None:
            text("folder", self.folder)


@dataclass(frozen=True, slots=True)
class DeferredRows(Piece):
    """Rows that became due at stream time ``clk``.

    For rows that are not in order (unsorted or late), ``least`` is the first time stamp above the watermark of that
    moment.
    """

    least: int
    clk: int

    def slice(self, start: int, stop: int) -> DeferredRows:
        """The rows from ``start`` to ``stop``."""
        return DeferredRows(*sliced(self.rows, self.positions, start, stop), self.least, self.clk)

    def own(self) -> DeferredRows:
        """A copy of the rows that does not reference the columns of the whole chunk."""
        if not isinstance(self.rows, Batch):
            return self
        positions = None if self.positions is None else self.positions.copy()
        return DeferredRows(self.rows.take(np.arange(len(self))), positions, self.least, self.clk)


def ts_of(rows: Rows, row: int) -> int:
    """The event time of a row."""
    return int(rows.ts[row]) if isinstance(rows, Batch) else rows[row].ts


class DeferredQueue:
    """A FIFO queue of rows. Beyond ``memory`` rows it spills to an unnamed temporary file.

    If spilling fails (full disk, payload that cannot be encoded), rows stay in memory; nothing is lost.

    >>> queue = DeferredQueue()
    >>> queue.put(DeferredRows([Event("a", ts=4), Event("a", ts=6)], None, NEVER, 9))
    >>> queue.reached(8), [due.rows for due in queue.pop(1)], queue.reached(8), len(queue)
    (3, [[Event('a', ts=4)]], 5, 1)
    """

    __slots__ = ("_at", "_file", "_first", "_in_memory", "_last", "_rows", "_unread", "_written", "folder", "memory")

    def __init__(self) -> None:
        self.memory = UNLIMITED
        self.folder: str | None = None
        self.clear()

    def clear(self) -> None:
        """Remove all rows."""
        # Order of the queue: _first (its head, at the end of the list, is consumed up to row _at), then the file, then
        # _last.
        self._first: list[DeferredRows] = []
        self._at = 0
        self._file: IO[bytes] | None = None
        self._unread = self._written = 0  # file offsets: begin of the next rows, end of all rows
        self._last: list[DeferredRows] = []
        self._rows = self._in_memory = 0

    def spill(self, memory: int, folder: str | None) -> None:
        """Keep so many rows in memory, and the rest in a file in this folder."""
        self.memory, self.folder = memory, folder

    def __len__(self) -> int:
        return self._rows

    def put(self, due: DeferredRows) -> None:
        """Append rows."""
        if not len(due):
            return
        self._last.append(due.own())
        self._rows += len(due)
        self._in_memory += len(due)
        if self._in_memory > self.memory:
            self._write()

    def pop(self, rows: int) -> list[DeferredRows]:
        """Remove and return the next rows, at most ``rows`` of them."""
        taken: list[DeferredRows] = []
        while rows > 0 and self._rows:
            due = self._next()
            n = min(rows, len(due) - self._at)
            taken.append(due.slice(self._at, self._at + n))
            self._at, self._rows, self._in_memory, rows = self._at + n, self._rows - n, self._in_memory - n, rows - n
            if self._at == len(due):
                self._first.pop()
                self._at = 0
        return taken

    def reached(self, otherwise: int) -> int:
        """The time stamp up to which all rows in order were popped; ``otherwise`` if the queue is empty."""
        if not self._rows:
            return otherwise
        due = self._next()
        return (ts_of(due.rows, self._at) if due.least == NEVER else due.least) - 1

    def _next(self) -> DeferredRows:
        if not self._first and self._unread < self._written:
            self._first.append(self._read())
        elif not self._first:
            self._first, self._last = self._last[::-1], []
        return self._first[-1]

    # On disk.

    def _write(self) -> None:
        """Spill ``_last`` to disk."""
        self._last.reverse()
        try:
            if self._file is None:
                # Unbuffered, so that a failed write raises here.
                self._file = tempfile.TemporaryFile(buffering=0, dir=self.folder)  # noqa: SIM115
            self._file.seek(self._written)
            while self._last:
                data = encode(_plain(self._last[-1]), "deferred events")
                data = _LENGTH.pack(len(data)) + data
                if self._file.write(data) < len(data):
                    raise OSError("the disk is full")
                self._written += len(data)
                self._in_memory -= len(self._last.pop())
        except (OSError, UnsupportedStateError) as error:
            self.memory = UNLIMITED
            _LOGGER.warning("deferred events cannot be spilled to disk and stay in memory: %s", error)
        self._last.reverse()

    def _read(self) -> DeferredRows:
        assert self._file is not None
        self._file.seek(self._unread)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        due = _restored(decode(self._file.read(length)), None)
        self._unread = self._file.tell()
        self._in_memory += len(due)
        if self._unread == self._written:
            self._file.close()
            self._file = None
            self._unread = self._written = 0
        return due

    # Checkpoints.

    def state(self) -> list[Any]:
        """The queue as plain values; changes nothing."""
        waiting = [due if nth else due.slice(self._at, len(due)) for nth, due in enumerate(self._first[::-1])]
        plain = [_plain(due) for due in waiting]
        at = self._unread
        while at < self._written:
            assert self._file is not None
            self._file.seek(at)
            (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            plain.append(decode(self._file.read(length)))
            at = self._file.tell()
        return plain + [_plain(due) for due in self._last]

    def restore(self, state: Any, types: frozenset[str]) -> None:
        """Restore what :meth:`state` returned."""
        self.clear()
        if type(state) is not list:
            raise checked.wrong("deferred events", "are not a list")
        for plain in state:
            self.put(_restored(plain, types))


def _plain(due: DeferredRows) -> dict[str, Any]:
    rows: Any = due.rows
    if isinstance(rows, Batch) and not isinstance(rows, MergedBatch):
        used, slots = np.unique(rows.sources[0], return_inverse=True)
        names = [rows.sources[1][slot] for slot in used.tolist()]
        columns = {field: rows[field] for field in rows.fields}
        rows = {"type": rows.type, "names": names, **saved_rows(rows.ts, slots, rows.seq, columns)}
    else:
        rows = list(rows)
    return {"rows": rows, "positions": due.positions, "least": due.least, "clk": due.clk}


def _restored(plain: Any, types: frozenset[str] | None) -> DeferredRows:
    """Rows from their plain values; their types must be among ``types``, if given."""
    what = "deferred events"
    least, clk = (checked.number(plain, what, name, NEVER, FOREVER + 1) for name in ("least", "clk"))
    saved, positions = checked.entry(plain, what, "rows"), checked.entry(plain, what, "positions")
    rows: Batch | list[Event]
    if isinstance(saved, dict):
        names = checked.items(saved, what, "names")
        if not all(isinstance(name, Source) for name in names):
            raise checked.wrong(what, "contain a source that is neither a string nor an integer")
        kind = checked.entry(saved, what, "type")
        rows = Batch(kind, *restored_rows(saved, what, len(names)), names)
        kinds = {kind}
        if positions is not None:
            positions = checked.ints(plain, what, "positions", (len(rows),), 0, 2**63 - 1)
    else:
        rows = list(checked.items(plain, what, "rows"))
        if positions is not None or not all(type(event) is Event and type(event.ts) is int for event in rows):
            raise checked.wrong(what, "contain an entry that is not an event")
        kinds = {event.type for event in rows}
    if types is not None and not kinds <= types:
        raise checked.wrong(
            what, f"contain events of types {sorted(map(str, kinds - types))}, which the detector does not listen to"
        )
    return DeferredRows(rows, positions, least, clk)
