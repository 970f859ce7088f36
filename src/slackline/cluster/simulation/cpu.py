"""The processor of a simulated host: work takes virtual time.

A detector of a scenario says what it costs (:meth:`Cpu.work`), on the processor of the host where it runs; each host's
hierarchy is made with its own. The network lets what a node sends and finds leave when the work is done, and lets what
comes in the meantime wait. It is the clock of the node's engine, too (``now=cpu.now``), so that nodes measure what each
detector takes, as they do by the processor's time on a real host.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from slackline.core.errors import ConfigError

#: A node's share of busy time is measured over so many seconds.
INTERVAL = 1.0


class Spell(NamedTuple):
    """A host worked from one virtual time to another."""

    start: float
    stop: float


class Cpu:
    """One core. ``speed``: how many times as fast as what detectors say; infinite for ample CPU.

    >>> cpu = Cpu(speed=2.0)
    >>> cpu.work(0.5), cpu.now()
    (None, 0.25)
    >>> cpu.begin(at=1.0), cpu.loads(until=2.0, every=0.5)
    (Spell(start=1.0, stop=1.25), [0.0, 0.0, 0.5, 0.0])
    """

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ConfigError(f"speed={speed} is not valid; it must be more than 0, 1 for what detectors say.")
        self.speed = speed
        #: When it worked, in order; no two overlap.
        self.spells: list[Spell] = []
        self._worked = self._begun = 0.0
        # What was worked when the share was last measured, and when that was.
        self._measured, self._since = 0.0, 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Cpu:
        """Hierarchies copy their detectors; the host is one all the same."""
        return self

    def work(self, seconds: float) -> None:
        """What a detector does takes so long at speed 1."""
        self._worked += seconds / self.speed

    def now(self) -> float:
        """Seconds that were worked so far: what a process calls its CPU time."""
        return self._worked

    def begin(self, at: float) -> Spell:
        """What was to be worked since the last call is done from now on, one after the other."""
        spell = Spell(at, at + self._worked - self._begun)
        self._begun = self._worked
        if spell.stop > spell.start:
            self.spells.append(spell)
        return spell

    def share(self, now: float) -> float | None:
        """The share of time that was worked since it was last told; None before an interval has passed."""
        if now - self._since < INTERVAL:
            return None
        share = (self._begun - self._measured) / (now - self._since)
        self._measured, self._since = self._begun, now
        return share

    def loads(self, until: float, every: float = INTERVAL) -> list[float]:
        """The share of each interval that was worked, from virtual time 0 on."""
        loads = [0.0] * math.ceil(until / every)
        for start, stop in self.spells:
            for nth in range(int(start / every), min(len(loads), math.ceil(stop / every))):
                loads[nth] += max(0.0, min(stop, (nth + 1) * every) - max(start, nth * every)) / every
        return loads
