"""Overlaps: which occurrences shared time with the one that ends now, and which of them shared most.

Asked is: of n occurrences, the k that share most time with X, when X ends; and how many share any. Going through all
devices for every event is avoided:

- Of the occurrences still open, those that began earliest share most. They are kept in the order of their start, so
  the first k are enough.
- Of those that have ended, Y is forgotten once k others ended after it that lasted as long: whatever Y shares with an
  occurrence that is still open, they share as much or more. If durations come in no particular order, about
  k ln(n/k) are left; and none that ended before the oldest open one began.
- If durations shrink, that forgets nobody. So when more than 2k per device are left, all go that are not among the k
  that share most with some occurrence still open. Nothing that will be asked for is lost: the answers stay exact.
- The number of all is a difference of two counts, taken at the start and at the end of X.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice

State = str | int | float | bool
Device = str | int


@dataclass(slots=True)
class Open:
    """A state that holds: since when, and how many occurrences had ended by then."""

    device: Device
    state: State
    start: int
    ended_before: int = 0


@dataclass(slots=True)
class Ended:
    """An occurrence that has ended, and how many lasted as long and ended after it."""

    device: Device
    state: State
    start: int
    end: int
    outlasted: int = 0


@dataclass(frozen=True, slots=True)
class Overlap:
    """Another occurrence, and how much time it shared."""

    device: Device
    state: State
    shared: int


@dataclass(slots=True)
class Overlaps:
    """The open occurrences and what is needed of the ended ones. Time never runs back; ``most`` is k.

    >>> overlaps = Overlaps(most=3)
    >>> for start, device in [(0, "lamp"), (5, "door"), (7, "lift")]:
    ...     overlaps.move(start)
    ...     overlaps.begin(device, "on")
    >>> overlaps.move(9)
    >>> overlaps.end("door")[1:]
    ([Overlap(device='lamp', state='on', shared=4), Overlap(device='lift', state='on', shared=2)], 2)
    """

    most: int
    now: int = 0
    open: OrderedDict[Device, Open] = field(default_factory=OrderedDict)  # in the order of start
    kept: list[Ended] = field(default_factory=list)  # in the order of end
    ended: int = 0  # all that lasted some time
    fresh: set[Device] = field(default_factory=set)  # whose open occurrence began just now

    def move(self, now: int) -> None:
        """Let time pass. What ended up to the start of an occurrence does not overlap with it."""
        if now > self.now:
            for device in self.fresh:
                self.open[device].ended_before = self.ended
            self.fresh.clear()
            self.now = now

    def begin(self, device: Device, state: State) -> None:
        """A device, which has no open occurrence, is in this state from now on."""
        self.open[device] = Open(device, state, self.now)
        self.fresh.add(device)

    def end(self, device: Device) -> tuple[Open, list[Overlap], int]:
        """The device's occurrence ends now: what it was, those that it shared most time with, and how many in all."""
        this = self.open.pop(device)
        if device in self.fresh:  # no time, nothing to share
            self.fresh.discard(device)
            return this, [], 0
        found = nlargest(self.most, self._shared(this.start), key=_shared)
        number = self.ended - this.ended_before + len(self.open) - len(self.fresh)
        self._keep(this)
        return this, found, number

    def _shared(self, start: int) -> list[Overlap]:
        """Candidates for what shared most time with an occurrence from ``start`` to now; none is of its own device."""
        found = [
            Overlap(other.device, other.state, self.now - max(start, other.start))
            for other in islice(self.open.values(), self.most)
            if other.start < self.now
        ]
        for past in reversed(self.kept):
            if past.end <= start:
                break
            found.append(Overlap(past.device, past.state, past.end - max(start, past.start)))
        return found

    def _keep(self, this: Open) -> None:
        duration = self.now - this.start
        for past in self.kept:
            past.outlasted += past.end - past.start <= duration
        oldest = next(iter(self.open.values())).start if self.open else self.now
        self.kept = [past for past in self.kept if past.outlasted < self.most and past.end > oldest]
        if self.most:
            self.kept.append(Ended(this.device, this.state, this.start, self.now))
        if len(self.kept) > 2 * self.most * (len(self.open) + 1):
            self._thin_out()
        self.ended += 1

    def _thin_out(self) -> None:
        """Keep what is among the most of an open occurrence: k of each. Half go at least, so it is seldom done."""
        needed: set[int] = set()
        for one in self.open.values():
            numbered = [(n, past) for n, past in enumerate(self.kept) if past.end > one.start]
            # Of equals the latest, as in an answer.
            best = nlargest(
                self.most, numbered, key=lambda item: (item[1].end - max(one.start, item[1].start), item[0])
            )
            needed.update(n for n, _ in best)
        self.kept = [past for n, past in enumerate(self.kept) if n in needed]


def _shared(overlap: Overlap) -> int:
    return overlap.shared
