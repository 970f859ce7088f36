"""Who works now, and who is held up, when there is more to do than time [Thesis, 7.3].

The engine may work for a share of the time. What it has not used is its credit, at most ``BURST`` seconds of work.
While there is credit, everybody works. When it is used up, α goes to 1 first, where it is set from load; if that does
not help, detectors are held up: the least urgent first, among equals those whose answers wait longest above anyway, and
so many that what the others need fits into the share. What they are due waits in their backlogs, and their progress
stands still. As soon as there is credit again, the most urgent of those who are behind goes on while the credit lasts.

So, by construction: whoever is never held up waits for one push of the others and ``BURST`` at most; and all together
work for no longer than the share of the time and ``BURST``, as far as holding up can do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slackline.engine.topology import Topology
from slackline.running.backlog import UNLIMITED
from slackline.running.part import Part
from slackline.running.pause import Pause
from slackline.speculation.lookahead import LookAhead

#: Seconds of work that may come at once: less than anybody notices, more than one push of a live stream takes.
BURST = 0.1

#: Seconds over which it is measured how much each detector has to do.
INTERVAL = 0.5


@dataclass(slots=True)
class Effort:
    """What a detector had to do: rows that were due, rows that it has processed, and the time that these took."""

    due: int = 0
    done: int = 0
    spent: float = 0.0

    def since(self, before: Effort) -> Effort:
        return Effort(self.due - before.due, self.done - before.done, self.spent - before.spent)


class Governor:
    """Decides before each piece of work, by wall time, how far each detector may go."""

    def __init__(self, pause: Pause, topology: Topology, lookahead: LookAhead, most: int) -> None:
        self.pause = pause
        self.topology = topology
        self.lookahead = lookahead
        self._most = most // 2  # events that may wait for those who are not held up, and starve
        self.credit = BURST
        #: Seconds during which somebody was held up.
        self.held_for = 0.0
        self._is_open = False
        self._began: float | None = None
        self._measured: float | None = None
        self._before: dict[str, Effort] = {}
        self._loads: dict[str, float] = {}

    # Around each piece of work.

    def begin(self, now: float) -> None:
        """Work begins: say who may do how much."""
        elapsed = 0.0 if self._began is None else max(0.0, now - self._began)
        self._began = now
        self.credit = min(BURST, self.credit + self.pause.share * elapsed)
        behind = [part for part in self.topology.parts if part.holds]
        if behind:
            self.held_for += elapsed
        self._measure(now)
        if self._is_open or (self.credit >= 0 and not behind):
            self._let_go()
        elif self.credit >= 0:
            self._catch_up(behind)
        elif not self.lookahead.rein_in():
            self._hold()
        else:
            self.credit = 0.0  # looking ahead less may be enough

    def end(self, start: float, stop: float) -> None:
        """Work has taken so long."""
        self.credit = max(self.credit - max(0.0, stop - start), -BURST)

    def open(self) -> None:
        """The stream ends: nobody is held up any more."""
        self._is_open = True
        self._let_go()

    def _let_go(self) -> None:
        for part in self.topology.parts:
            part.allowed = UNLIMITED

    def join(self, part: Part) -> None:
        """A part may be held up from now on."""
        part.backlog.memory, part.backlog.folder = self.pause.memory, self.pause.folder

    # How much there is to do.

    def _measure(self, now: float) -> None:
        if self._measured is not None and now - self._measured < INTERVAL:
            return
        work = {part.name: _work(part) for part in self.topology.parts}
        if self._measured is not None:
            seconds = now - self._measured
            for name, each in work.items():
                lately = each.since(self._before.get(name, Effort()))
                cost = lately.spent / lately.done if lately.done else each.spent / max(1, each.done)
                self._loads[name] = cost * lately.due / seconds
        self._before, self._measured = work, now

    def _hold(self) -> None:
        """Hold up the least important parts, until what the others need fits into the share."""
        parts = self.topology.parts
        self._let_go()
        if any(len(part.backlog) > self.pause.keep or part.unit.buffered > self._most for part in parts):
            return  # to hold up more would take too much memory
        *order, first = self._least_important_first()
        needed = self.topology.hierarchy.below[first.name]
        idle: set[Part] = set()
        for part in [part for part in parts if part.backlog] + [part for part in order if part.name not in needed]:
            left = sum(self._loads.get(other.name, 0.0) for other in parts if other not in idle)
            if not part.backlog and (part in idle or (self._loads and left <= self.pause.share)):
                continue
            part.allowed = 0
            idle |= {part, *self._above(part)}

    def _catch_up(self, behind: list[Part]) -> None:
        """Let those who are behind go on while the credit lasts, the most important first."""
        left = self.credit
        for part in reversed(self._least_important_first()):
            if part not in behind:
                continue
            rows, done = len(part.backlog), _work(part).done
            # A row of this one leads to work above.
            cost = (part.spent + sum(above.spent for above in self._above(part))) / max(1, done)
            if not done:
                rows = min(rows, 1)  # nobody knows what it costs
            part.allowed = rows if cost * rows <= left else max(int(left / cost), int(left >= BURST))
            left -= cost * part.allowed
            if part.allowed >= len(part.backlog) and left > 0:
                part.allowed = UNLIMITED

    def _above(self, part: Part) -> set[Part]:
        return {above for channel in part.publishes for above in self.topology.above[channel.name]}

    def _least_important_first(self) -> list[Part]:
        urgency = self.topology.hierarchy.urgency

        def importance(part: Part) -> tuple[float, int, float]:
            return urgency[part.name], -self._waits_above(part), -self._loads.get(part.name, 0.0)

        return sorted(self.topology.parts, key=importance)

    def _waits_above(self, part: Part) -> int:
        """How far those who listen to a part are behind it, for want of something else: for so long it can wait."""
        behind = [
            channel.frontier - reader.unit.horizon
            for channel in part.publishes
            for reader in self.topology.readers[channel.name]
        ]
        return max(0, min(behind, default=0))

    def stats(self) -> dict[str, Any]:
        return {
            "credit": self.credit,
            "seconds": self.held_for,
            "held": [p.name for p in self.topology.parts if p.holds],
        }


def _work(part: Part) -> Effort:
    return Effort(part.unit.delivered, part.unit.delivered - len(part.backlog), part.spent)
