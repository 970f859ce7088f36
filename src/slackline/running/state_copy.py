"""Copies of a detector's state that are made piece by piece while it runs (pre-copy), and received elsewhere.

A :class:`StateCopy` gives the state in *entries*: one for each key of a keyed detector, otherwise one for each
attribute. An entry is encoded when its turn comes, so no instant has to be frozen, and nothing is copied in advance.
What changes after its turn is given again:

- the instances of a keyed detector record the keys that rows and timers touch. The copy goes round again over these
  until a round has more than half as many as the one before, when further rounds gain little;
- changes within an attribute are not recorded. At the end each attribute is encoded again, compared with what was
  given, and given where blocks differ.

:meth:`StateCopy.rest` ends the copy with all that is missing, when the detector has stopped: usually little. A
:class:`ReceivedState` decodes each entry when it arrives, so that little is left to be done at the end, too. Both
compute a digest of all pieces; a state whose digests differ is not used.

A detector that speculates has a state at its watermark and another one ahead of it, so its state is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from slackline.core import codec
from slackline.core.errors import StateError
from slackline.core.event import Source
from slackline.running.instances import Captured, Instances, restored_timers

#: Attributes are compared in blocks of so many bytes.
BLOCK = 4096


class Part(NamedTuple):
    """Bytes of an encoded attribute (None: of a state without attributes), which has ``size`` bytes in all."""

    name: str | None
    size: int
    offset: int
    data: bytes


class _Keys:
    """The entries of a keyed detector."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._left = instances.track()
        self._round = len(self._left)

    def some(self, size: int) -> list[Any]:
        """Entries of ``size`` bytes in all, or few more; none when no further round is worth it."""
        entries: list[Any] = []
        while size > 0:
            if not self._left:
                changed = self._instances.changed
                if not changed or 2 * len(changed) > self._round:
                    break
                self._left, self._round = changed, len(changed)
            size -= self._add(self._left.pop(), entries)
        return entries

    def rest(self) -> list[Any]:
        entries: list[Any] = []
        for key in dict.fromkeys([*self._left, *self._instances.changed]):
            self._add(key, entries)
        return entries

    def _add(self, key: Source, entries: list[Any]) -> int:
        one = self._instances.take(key)
        entries.append([key, None] if one is None else [key, one.state, list(one.timers), one.last])
        return 64 if one is None else 64 + len(one.state)

    def end(self) -> None:
        self._instances.untrack()


class _Attributes:
    """The entries of a detector without keys; ``encoded`` gives them one after the other, by name."""

    def __init__(self, encoded: Callable[[], Iterator[tuple[str | None, bytes]]]) -> None:
        self._encoded = encoded
        self._given: dict[str | None, bytes] = {}
        self._left = encoded()

    def some(self, size: int) -> list[Any]:
        entries: list[Any] = []
        while size > 0 and (found := next(self._left, None)) is not None:
            name, data = found
            self._given[name] = data
            entries.append(list(Part(name, len(data), 0, data)))
            size -= len(data)
        return entries

    def rest(self) -> list[Any]:
        entries: list[Any] = []
        for name, data in self._encoded():
            given = self._given.pop(name, None)
            entries += [list(part) for part in differences(name, given, data)]
        return entries + [[name, -1, 0, b""] for name in self._given]

    def end(self) -> None:
        self._left = iter(())


def differences(name: str | None, before: bytes | None, after: bytes) -> Iterator[Part]:
    """The parts that turn one encoded attribute into another; None: it is not known yet.

    >>> [(part.offset, len(part.data)) for part in differences("a", bytes(10_000), bytes(5_000) + b"x" + bytes(5_000))]
    [(4096, 4096), (8192, 1809)]
    """
    if before == after:
        return
    whole = 0 if before is None else min(len(before), len(after)) // BLOCK
    if before is not None and whole:
        old, new = (np.frombuffer(data, np.uint64, whole * BLOCK // 8).reshape(whole, -1) for data in (before, after))
        changed = np.flatnonzero((old != new).any(axis=1))
        for run in np.split(changed, np.flatnonzero(np.diff(changed) > 1) + 1) if len(changed) else ():
            start = int(run[0]) * BLOCK
            yield Part(name, len(after), start, after[start : (int(run[-1]) + 1) * BLOCK])
    yield Part(name, len(after), whole * BLOCK, after[whole * BLOCK :])


class StateCopy:
    """A copy of the state of one detector; the runner makes it."""

    def __init__(self, entries: _Keys | _Attributes) -> None:
        self._entries = entries
        self._digest = blake2b(digest_size=16)
        self.is_complete = False

    @classmethod
    def of_keys(cls, instances: Instances) -> StateCopy:
        """A copy of a keyed detector."""
        return cls(_Keys(instances))

    @classmethod
    def of_attributes(cls, encoded: Callable[[], Iterator[tuple[str | None, bytes]]]) -> StateCopy:
        """A copy of any other detector."""
        return cls(_Attributes(encoded))

    def next(self, size: int) -> bytes:
        """The next piece, of about ``size`` bytes unless an entry has more; empty: only the rest is missing."""
        entries = [] if self.is_complete else self._entries.some(size)
        self.is_complete = not entries
        return self._piece(entries) if entries else b""

    def rest(self) -> bytes:
        """The last piece: all that is missing. The detector has stopped."""
        return self._piece(self._entries.rest())

    def _piece(self, entries: list[Any]) -> bytes:
        piece = codec.encode(entries)
        self._digest.update(piece)
        return piece

    def digest(self) -> bytes:
        """The digest of all pieces."""
        return self._digest.digest()

    def end(self) -> None:
        """Record no more changes."""
        self._entries.end()


class ReceivedState:
    """A state that arrives in the pieces of a :class:`StateCopy`. A StateError if they are none.

    ``instances`` are those of a keyed detector, ``decode`` reads an attribute.
    """

    def __init__(self, instances: Instances | None, decode: Callable[[codec.Buffer], Any], what: str) -> None:
        self._instances, self._decode, self._what = instances, decode, what
        self._parts: dict[str | None, bytearray] = {}
        self._values: dict[str | None, Any] = {}
        self._digest = blake2b(digest_size=16)

    def add(self, piece: bytes) -> None:
        """Receive a piece."""
        self._digest.update(piece)
        try:
            for entry in codec.decode(piece, where=self._what):
                if self._instances is None:
                    self._write(Part(*entry))
                else:
                    self._put(*entry)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise StateError(f"{self._what} does not arrive as pieces of its state ({error!r}).") from error

    def _put(self, key: Source, state: bytes | None, timers: Any = (), last: int = 0) -> None:
        assert self._instances is not None
        if type(key) not in (str, int) or type(last) is not int:
            raise ValueError(f"the key {key!r}, the time {last!r}")
        one = None if state is None else Captured(state, tuple(restored_timers(timers, self._what)), last)
        self._instances.put(key, one)

    def _write(self, part: Part) -> None:
        name, size, offset, data = part
        self._values.pop(name, None)
        if size < 0:
            del self._parts[name]
            return
        known = self._parts.setdefault(name, bytearray())
        del known[size:]
        if offset > len(known) or offset + len(data) > size:
            raise ValueError(f"{len(data)} bytes at {offset}, where {len(known)} of {size} are known")
        known[offset : offset + len(data)] = data

    def prepare(self) -> None:
        """Decode what has arrived so far: when the detector has stopped, only what has changed since is decoded."""
        for name, data in self._parts.items():
            if name not in self._values:
                self._values[name] = self._decode(data)

    def check(self, digest: bytes) -> None:
        """A StateError if pieces are missing, or others than were sent."""
        if self._digest.digest() != digest:
            raise StateError(f"{self._what} has not arrived as it was sent: the digests of its state differ.")

    def value(self, names: list[str | None]) -> Any:
        """The state of a detector without keys, whose attributes have this order."""
        self.prepare()
        if set(names) != set(self._values):
            raise StateError(f"{self._what} has arrived with other attributes than it has.")
        return self._values[None] if names == [None] else {name: self._values[name] for name in names}
