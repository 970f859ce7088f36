"""What a detector is due and has not been given yet, because it is held up: a queue that goes on on disk.

The rows are in the order in which the detector will see them. So whatever waits here, it sees what it would have seen.
"""

from __future__ import annotations

import logging
import struct
import tempfile
from collections import deque
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from slackline.core.batch import Batch
from slackline.core.codec import decode, encode
from slackline.core.errors import UnsupportedStateError
from slackline.core.event import Event, Source
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import checked
from slackline.ordering.shared_rows import restored_rows, saved_rows
from slackline.running.segments import Piece, Rows, sliced

#: More rows than anybody has.
UNLIMITED = 2**62

_LENGTH = struct.Struct(">Q")

_LOGGER = logging.getLogger("slackline")


@dataclass(frozen=True, slots=True)
class Due(Piece):
    """Rows that were due at stream time ``clk``.

    For rows that are not in order, unsorted or late ones, ``least`` is the first time stamp beyond the watermark then.
    """

    least: int
    clk: int

    def part(self, start: int, stop: int) -> Due:
        """Some of the rows."""
        return Due(*sliced(self.rows, self.keys, start, stop), self.least, self.clk)

    def own(self) -> Due:
        """The same rows, in memory of their own: the columns they came from may be much longer."""
        if not isinstance(self.rows, Batch):
            return self
        keys = None if self.keys is None else self.keys.copy()
        return Due(self.rows.take(np.arange(len(self))), keys, self.least, self.clk)


def ts_of(rows: Rows, row: int) -> int:
    """The time stamp of a row."""
    return int(rows.ts[row]) if isinstance(rows, Batch) else rows[row].ts


class Backlog:
    """A queue of rows. Beyond ``memory`` of them they are kept on disk, in a file that has no name.

    Where that cannot be, on a full disk or for a payload that is no data, they stay in memory, and nothing is lost.

    >>> backlog = Backlog()
    >>> backlog.put(Due([Event("a", ts=4), Event("a", ts=6)], None, NEVER, 9))
    >>> backlog.reached(8), [due.rows for due in backlog.take(1)], backlog.reached(8), len(backlog)
    (3, [[Event('a', ts=4)]], 5, 1)
    """

    __slots__ = ("_ahead", "_at", "_file", "_first", "_in_memory", "_last", "_rows", "_written", "folder", "memory")

    def __init__(self) -> None:
        self.memory = UNLIMITED
        self.folder: str | None = None
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        # First the one of which some rows were taken, up to ``_at``; then what is on disk; then the last ones.
        self._first: deque[Due] = deque()
        self._at = 0
        self._file: IO[bytes] | None = None
        self._ahead = self._written = 0  # where the next on disk begins, and where it ends there
        self._last: deque[Due] = deque()
        self._rows = self._in_memory = 0

    def __len__(self) -> int:
        return self._rows

    def put(self, due: Due) -> None:
        """Let rows wait, after all that waits."""
        if not len(due):
            return
        self._last.append(due.own())
        self._rows += len(due)
        self._in_memory += len(due)
        if self._in_memory > self.memory:
            self._write()

    def take(self, rows: int) -> list[Due]:
        """The next rows, so many at most."""
        taken: list[Due] = []
        while rows > 0 and self._rows:
            due = self._next()
            n = min(rows, len(due) - self._at)
            taken.append(due.part(self._at, self._at + n))
            self._at, self._rows, self._in_memory, rows = self._at + n, self._rows - n, self._in_memory - n, rows - n
            if self._at == len(due):
                self._first.popleft()
                self._at = 0
        return taken

    def reached(self, otherwise: int) -> int:
        """Up to where everything in order has been taken; ``otherwise`` if nothing waits."""
        if not self._rows:
            return otherwise
        due = self._next()
        return (ts_of(due.rows, self._at) if due.least == NEVER else due.least) - 1

    def _next(self) -> Due:
        if not self._first and self._ahead < self._written:
            self._first.append(self._read())
        elif not self._first:
            self._first, self._last = self._last, self._first
        return self._first[0]

    # On disk.

    def _write(self) -> None:
        """Bring the last ones to disk."""
        try:
            if self._file is None:
                # Unbuffered: what could not be written is known at once.
                self._file = tempfile.TemporaryFile(buffering=0, dir=self.folder)  # noqa: SIM115
            self._file.seek(self._written)
            while self._last:
                data = encode(_plain(self._last[0]), "backlog")
                data = _LENGTH.pack(len(data)) + data
                if self._file.write(data) < len(data):
                    raise OSError("the disk is full")
                self._written += len(data)
                self._in_memory -= len(self._last.popleft())
        except (OSError, UnsupportedStateError) as error:
            self.memory = UNLIMITED
            _LOGGER.warning("what detectors that are held up are behind with stays in memory: %s", error)

    def _read(self) -> Due:
        assert self._file is not None
        self._file.seek(self._ahead)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        due = _restored(decode(self._file.read(length)), None)
        self._ahead = self._file.tell()
        self._in_memory += len(due)
        if self._ahead == self._written:
            self._file.close()
            self._file = None
            self._ahead = self._written = 0
        return due

    # Checkpoints.

    def state(self) -> list[Any]:
        """What waits, as plain values; reading it changes nothing."""
        waiting = [due if nth else due.part(self._at, len(due)) for nth, due in enumerate(self._first)]
        plain = [_plain(due) for due in waiting]
        at = self._ahead
        while at < self._written:
            assert self._file is not None
            self._file.seek(at)
            (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            plain.append(decode(self._file.read(length)))
            at = self._file.tell()
        return plain + [_plain(due) for due in self._last]

    def restore(self, state: Any, types: frozenset[str]) -> None:
        """Go on from what ``state`` gave."""
        self.clear()
        if type(state) is not list:
            raise checked.wrong("backlog", "is none")
        for plain in state:
            self.put(_restored(plain, types))


def _plain(due: Due) -> dict[str, Any]:
    rows: Any = due.rows
    if isinstance(rows, Batch):
        used, slots = np.unique(rows.sources[0], return_inverse=True)
        names = [rows.sources[1][slot] for slot in used.tolist()]
        columns = {field: rows[field] for field in rows.fields}
        rows = {"type": rows.type, "names": names, **saved_rows(rows.ts, slots, rows.seq, columns)}
    else:
        rows = list(rows)
    return {"rows": rows, "keys": due.keys, "least": due.least, "clk": due.clk}


def _restored(plain: Any, types: frozenset[str] | None) -> Due:
    """Rows from their plain values; ``types`` are those that can be, if that is to be looked at."""
    what = "backlog"
    least, clk = (checked.number(plain, what, name, NEVER, FOREVER + 1) for name in ("least", "clk"))
    saved, keys = checked.entry(plain, what, "rows"), checked.entry(plain, what, "keys")
    rows: Batch | list[Event]
    if isinstance(saved, dict):
        names = checked.items(saved, what, "names")
        if not all(isinstance(name, Source) for name in names):
            raise checked.wrong(what, "holds a source that cannot be")
        kind = checked.entry(saved, what, "type")
        rows = Batch(kind, *restored_rows(saved, what, len(names)), names)
        kinds = {kind}
        if keys is not None:
            keys = checked.ints(plain, what, "keys", (len(rows),), 0, 2**63 - 1)
    else:
        rows = list(checked.items(plain, what, "rows"))
        if keys is not None or not all(type(event) is Event and type(event.ts) is int for event in rows):
            raise checked.wrong(what, "holds what is no event")
        kinds = {event.type for event in rows}
    if types is not None and not kinds <= types:
        raise checked.wrong(what, f"holds events of {sorted(map(str, kinds - types))}, which are not listened to")
    return Due(rows, keys, least, clk)
