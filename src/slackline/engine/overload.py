"""Who works now, and who is held up, when there is more to do than time [Thesis, 7.3].

The engine may work for a share of the time. ``busy`` is how long it has worked without the rest that belongs to it:
work adds to it, and a rest makes up for as much work as the share allows. When it has grown beyond an ordinary push or
two, more comes than can be done. Then, one after the other, until it rests again:

- where α is set from load, it is 1 until the engine is rested;
- detectors are held up, the least urgent first, among equals those whose answers wait longest above anyway, until half
  of the work is left; then half of that, and so on. How much too much comes nobody can know, since it waits outside.

The most urgent are never held up, nor all of them. What is due to the others waits in their backlogs, and their
progress stands still. When the engine is rested, they go on, the most urgent first, for as long as an ordinary push
takes, and for as long as the rest would have allowed. So who is urgent waits for an ordinary push at most, if the host
pushes what has arrived first, and ``push([])`` in between.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.running.backlog import UNLIMITED
from slackline.running.operator import Operator
from slackline.running.pause import Pause
from slackline.speculation.lookahead import LookAhead

#: How long it may work without a rest before anybody is held up: in ordinary pushes, so the second in succession is the
#: last, and in seconds at least. Urgent events wait meanwhile; a false alarm costs little, as a rest ends it.
PUSHES, LEAST = 1.5, 0.02

#: An ordinary push is the median of so many.
MEMORY = 16

#: Seconds over which it is measured at least how much each detector has to do.
INTERVAL = 0.5


@dataclass(slots=True)
class Effort:
    """What a detector had to do: rows that were due, rows that it has processed, and the time that these took."""

    due: int
    done: int
    spent: float

    @classmethod
    def of(cls, part: Operator) -> Effort:
        due = part.buffer.delivered
        return cls(due, due - len(part.backlog), part.spent)

    def load_since(self, before: Effort | None) -> float:
        """The time that it takes to do what has become due since then."""
        due, done, spent = self.due, self.done, self.spent
        if before is not None and before.done < done:
            done, spent = done - before.done, spent - before.spent
        return (due - (before.due if before else 0)) * spent / max(1, done)


class OverloadController:
    """Decides before each piece of work how far each detector may go."""

    def __init__(self, pause: Pause, topology: Topology, lookahead: LookAhead, most: int) -> None:
        self.pause = pause
        self.topology = topology
        self.lookahead = lookahead
        self._most = most // 2  # events that may wait for those who are not held up, and starve
        #: Seconds of work without the rest that belongs to it; those that an ordinary push takes; and those during
        #: which somebody was held up.
        self.busy = self.usual = self.held_for = 0.0
        self._pushes: deque[float] = deque(maxlen=MEMORY)
        self._stopped: float | None = None
        self._rest = 0.0  # the last one
        self._done: dict[str, int] = {}  # rows processed, by part, at the last end
        self._measured = float("-inf")
        self._before: dict[str, Effort] = {}  # what had been done one to two intervals ago
        self._lately: dict[str, Effort] = {}
        self._is_open = False

    @property
    def held(self) -> list[Operator]:
        """Those who are held up, or still behind."""
        return [part for part in self.topology.parts if part.holds]

    # Around each piece of work.

    def begin(self, now: float) -> None:
        """Work begins: say who may do how much."""
        self._wake(now)
        self._decide(self.busy == 0)

    def end(self, start: float, stop: float) -> None:
        """Work has gone on from start to stop."""
        took, self._stopped = max(0.0, stop - start), stop
        self.busy += took
        done = {part.name: Effort.of(part).done for part in self.topology.parts}
        worked = done != self._done
        self._done = done
        if self.held:
            self.held_for += took
        elif worked:
            self._pushes.append(took)
            self.usual = sorted(self._pushes)[len(self._pushes) // 2]

    def worked(self, start: float, stop: float) -> None:
        """For a host that measures by itself: work has gone on; say who may do how much next time.

        Nobody knows which detector took how long, so each row counts the same.
        """
        before = self._done
        self._wake(start)
        is_rested = self.busy == 0
        self.end(start, stop)
        rows = {name: max(0, done - before.get(name, 0)) for name, done in self._done.items()}
        for part in self.topology.parts:
            part.spent += (stop - start) * rows[part.name] / max(1, sum(rows.values()))
        self._decide(is_rested)

    def let_go(self, for_good: bool = False) -> None:
        """Nobody is held up in what comes next; ``for_good`` if the stream ends."""
        self._is_open |= for_good
        for part in self.topology.parts:
            part.allowed = UNLIMITED

    def join(self, part: Operator) -> None:
        """A part may be held up from now on."""
        part.backlog.memory, part.backlog.folder = self.pause.memory, self.pause.folder

    def _wake(self, now: float) -> None:
        self._rest = 0.0 if self._stopped is None else max(0.0, now - self._stopped)
        self.busy = max(0.0, self.busy - self._rest * self.pause.share / (1 - self.pause.share))
        if self.held:
            self.held_for += self._rest
        if not now - self._measured < INTERVAL:
            efforts = {part.name: Effort.of(part) for part in self.topology.parts}
            self._before, self._lately, self._measured = self._lately, efforts, now

    # Who may do how much.

    def _decide(self, is_rested: bool) -> None:
        if self._is_open:
            return
        held = self.held
        for part in held:
            part.allowed = 0
        if self.busy > max(PUSHES * self.usual, LEAST):
            self.busy = 0.0
            if not self.lookahead.rein_in():
                self._hold(held)
        elif is_rested and held:
            self._catch_up(held)
        elif is_rested:
            self.lookahead.is_reined = False
        if held:
            self._make_room(held)

    def _hold(self, held: list[Operator]) -> None:
        """Hold up the least important of those who work, until half of the work is left."""
        parts, urgency = self.topology.parts, self.topology.hierarchy.urgency
        highest = max([urgency[part.name] for part in parts], default=0)
        equal = all(urgency[part.name] == highest for part in parts)
        loads = self._loads()
        idle = self.topology.with_above(held)
        left = sum(loads[part] for part in parts if part not in idle)
        half = left / 2
        for part in self._least_important_first(loads):
            also = self.topology.with_above([part]) - idle
            saved = sum(loads[other] for other in also)
            may_wait = part in also and (equal or urgency[part.name] < highest) and len(idle | also) < len(parts)
            if left > half and saved > 0 and may_wait:
                part.allowed = 0
                idle |= also
                left -= saved

    def _catch_up(self, held: list[Operator]) -> None:
        """Let those who are behind go on, the most important first."""
        left = self.usual + self.pause.share * self._rest
        for part in reversed(self._least_important_first(self._loads())):
            if part in held and left > 0:
                rows, done = len(part.backlog), Effort.of(part).done
                # A row of this one leads to work above. If nobody knows what it costs, try one.
                cost = sum(other.spent for other in self.topology.with_above([part])) / done if done else left
                part.allowed = min(rows, max(1, int(left / cost))) if cost else rows
                left -= cost * part.allowed
                if part.allowed == rows and left >= 0:
                    part.allowed = UNLIMITED

    def _make_room(self, held: list[Operator]) -> None:
        """Who has more to wait for it than may be kept goes on, and so do those for whom too much waits above."""
        full = [part.name for part in self.topology.parts if part.buffer.buffered > self._most]
        starving = {name for part in full for name in self.topology.hierarchy.below[part]}
        for part in held:
            on_disk = part.backlog.memory <= self.pause.memory  # else there is none that takes anything
            keep = 0 if part.name in starving else self.pause.keep if on_disk else self.pause.memory
            part.allowed = max(part.allowed, len(part.backlog) - keep)

    def _loads(self) -> dict[Operator, float]:
        return {part: Effort.of(part).load_since(self._before.get(part.name)) for part in self.topology.parts}

    def _least_important_first(self, loads: dict[Operator, float]) -> list[Operator]:
        def importance(part: Operator) -> tuple[float, int, float]:
            saved = sum(loads[other] for other in self.topology.with_above([part]))
            return self.topology.hierarchy.urgency[part.name], -self._waits_above(part), -saved

        return sorted(self.topology.parts, key=importance)

    def _waits_above(self, part: Operator) -> int:
        """How far those who listen to a part are behind it, for want of something else: for so long it can wait."""
        behind = [
            input.watermark - reader.buffer.watermark
            for input in part.publishes
            for reader in self.topology.readers[input.name]
        ]
        return max(0, min(behind, default=0))

    # What is known, and checkpoints.

    def stats(self) -> dict[str, Any]:
        return {"held": [part.name for part in self.held], "seconds": self.held_for}

    def state(self) -> dict[str, Any]:
        allowed = {part.name: part.allowed for part in self.topology.parts if part.allowed < UNLIMITED}
        stopped = [] if self._stopped is None else [self._stopped]
        reined = self.lookahead.is_reined
        return {
            "allowed": allowed,
            "reined": reined,
            "seconds": np.array([self.busy, self.usual, self.held_for, *stopped]),
        }

    def restore(self, state: dict[str, Any], keeps_time: bool) -> None:
        """Go on from what ``state`` gave; seconds are those of the same clock if it ``keeps_time``."""
        what = "pause"
        seconds = checked.floats(state, what, "seconds", 3 + (len(state["seconds"]) > 3)).tolist()
        self.busy, self.usual, self.held_for = seconds[:3]
        self._pushes.append(self.usual)
        if keeps_time:
            self._stopped = seconds[3] if len(seconds) > 3 else None
        else:
            self.busy = 0.0
        self.lookahead.is_reined = state["reined"] is True
        allowed = checked.mapping(checked.entry(state, what, "allowed"), what)
        for part in self.topology.parts:
            if part.name in allowed:
                part.allowed = checked.number(allowed, what, part.name, 0, UNLIMITED)
        self._done = {part.name: Effort.of(part).done for part in self.topology.parts}
