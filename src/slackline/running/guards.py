"""Guards: when a detector raises, its state is restored from a copy, and the calls since are repeated."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from slackline.core.detector import Detector
from slackline.core.event import Source
from slackline.core.state_tree import PLAIN
from slackline.running.found import iterable

#: Copies are renewed after so many calls: what came since is held in memory, to be fed again. So many rows of a batch
#: count as a call.
CALLS = ROWS = 256


class Guard(NamedTuple):
    """A copy of a state, and the calls since."""

    state: Any
    calls: list[tuple[str, Any]]


class Guards:
    """Guards of the instances of a detector, by key (None: of a detector without keys)."""

    __slots__ = ("_by_key", "_calls")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all copies: they do not cover what follows."""
        self._by_key: dict[Source, Guard] = {}
        self._calls = 0  # since the copies were renewed

    def drop(self, key: Source) -> None:
        """Drop the copy of a key."""
        self._by_key.pop(key, None)

    def before(self, key: Source, detector: Detector, rows: int = 1) -> None:
        """A call with so many rows follows: have a copy of the state."""
        if self._calls >= CALLS:
            self.clear()
        self._calls += 1 + rows // ROWS
        if key not in self._by_key:
            self._by_key[key] = Guard(_copied(detector.snapshot()), [])

    def after(self, key: Source, method: str, given: Any) -> None:
        """The call has succeeded."""
        self._by_key[key].calls.append((method, given))

    def restore(self, key: Source, detector: Detector) -> None:
        """The call has failed: restore the state before it, if there is a copy. The next call makes a new one."""
        guard = self._by_key.pop(key, None)
        if guard is not None:
            detector.restore(guard.state)
            for method, given in guard.calls:
                for _ in iterable(getattr(detector, method)(given), method):
                    pass


def _copied(state: Any) -> Any:
    """A copy of a state; plain values are shared."""
    if type(state) is dict and PLAIN.issuperset(map(type, state.values())):
        return dict(state)
    return copy.deepcopy(state)
