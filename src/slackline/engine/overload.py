"""The overload controller: which detectors are deferred when the CPU does not suffice [Thesis, 7.3].

The engine may use a share of the CPU. ``busy`` is the work time not yet compensated by idle time: work increases it,
idle time decreases it as far as the share allows. When ``busy`` exceeds one or two typical pushes, the engine is
overloaded. The controller then takes these steps, one at a time, until the engine has idle time again:

- where α is adaptive, it is set to 1 (no speculation);
- detectors are deferred, the least urgent first, among equals those whose outputs wait longest at the next level, until
  half of the work is left; then half of that, and so on. The input rate is unknown, since input queues outside.

The most urgent detectors are never deferred, nor are all detectors. Rows that are due to a deferred detector are queued
(:class:`~slackline.running.deferral.DeferredQueue`), and its watermark stands still. When the engine has idle time,
deferred detectors resume, the most urgent first, for the time of a typical push plus the unused share of the idle time.
So an urgent event waits for at most one typical push, if the host pushes new arrivals first and ``push([])`` in
between.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.running.deferral import UNLIMITED, Pause
from slackline.running.operator import Operator
from slackline.speculation.speculator import Speculator

#: Uncompensated work time at which deferral starts: in typical pushes, and at least in seconds. A false alarm costs
#: little, since idle time ends it.
PUSHES, LEAST = 1.5, 0.02

#: A typical push is the median of this many.
MEMORY = 16

#: Minimum interval in seconds over which the load of each detector is measured.
INTERVAL = 0.5


@dataclass(slots=True)
class Work:
    """Cumulative work of a detector: rows that were due, rows processed, and the seconds that these took."""

    due: int
    done: int
    spent: float

    @classmethod
    def of(cls, operator: Operator) -> Work:
        due = operator.buffer.delivered
        return cls(due, due - len(operator.deferred), operator.spent)

    def load_since(self, before: Work | None) -> float:
        """Estimated seconds to process the rows that became due since then."""
        due, done, spent = self.due, self.done, self.spent
        if before is not None and before.done < done:
            done, spent = done - before.done, spent - before.spent
        return (due - (before.due if before else 0)) * spent / max(1, done)


class OverloadController:
    """Sets, before each push, how many rows each detector may process (``Operator.allow``)."""

    def __init__(self, pause: Pause, topology: Topology, speculator: Speculator, most: int) -> None:
        self.pause = pause
        self.topology = topology
        self.speculator = speculator
        self._most = most // 2  # buffered events of a detector at which the deferred detectors below it resume
        #: Seconds: uncompensated work time; a typical push; total time during which any detector was deferred.
        self.busy = self.usual = self.deferred_seconds = 0.0
        self._pushes: deque[float] = deque(maxlen=MEMORY)
        self._stopped: float | None = None
        self._idle = 0.0  # seconds between the last two pushes
        self._done: dict[str, int] = {}  # rows processed by each detector at the last end
        self._measured = float("-inf")
        self._before: dict[str, Work] = {}  # one to two intervals ago
        self._lately: dict[str, Work] = {}
        self._is_off = False

    @property
    def deferred(self) -> list[Operator]:
        """The operators that are deferred or still have deferred rows."""
        return [operator for operator in self.topology.operators if operator.defers]

    # Around each push.

    def begin(self, now: float) -> None:
        """A push begins: set how many rows each detector may process."""
        self._account_idle_time(now)
        self._decide(self.busy == 0)

    def end(self, start: float, stop: float) -> None:
        """A push ran from ``start`` to ``stop``."""
        took, self._stopped = max(0.0, stop - start), stop
        self.busy += took
        done = {operator.name: Work.of(operator).done for operator in self.topology.operators}
        worked = done != self._done
        self._done = done
        if self.deferred:
            self.deferred_seconds += took
        elif worked:
            self._pushes.append(took)
            self.usual = sorted(self._pushes)[len(self._pushes) // 2]

    def worked(self, start: float, stop: float) -> None:
        """The host measured work from ``start`` to ``stop``: set how many rows each detector may process next.

        CPU time per detector is not known here, so it is distributed by rows processed.
        """
        before = self._done
        self._account_idle_time(start)
        is_idle = self.busy == 0
        self.end(start, stop)
        rows = {name: max(0, done - before.get(name, 0)) for name, done in self._done.items()}
        for operator in self.topology.operators:
            operator.charge((stop - start) * rows[operator.name] / max(1, sum(rows.values())))
        self._decide(is_idle)

    def resume_all(self, for_good: bool = False) -> None:
        """Defer nothing in the next push; never again if ``for_good`` (end of the stream)."""
        self._is_off |= for_good
        for operator in self.topology.operators:
            operator.allow(UNLIMITED)

    def register(self, operator: Operator) -> None:
        """The operator may be deferred from now on."""
        operator.deferred.spill(self.pause.memory, self.pause.folder)

    def _account_idle_time(self, now: float) -> None:
        self._idle = 0.0 if self._stopped is None else max(0.0, now - self._stopped)
        self.busy = max(0.0, self.busy - self._idle * self.pause.share / (1 - self.pause.share))
        if self.deferred:
            self.deferred_seconds += self._idle
        if not now - self._measured < INTERVAL:
            done = {operator.name: Work.of(operator) for operator in self.topology.operators}
            self._before, self._lately, self._measured = self._lately, done, now

    # Decisions.

    def _decide(self, is_idle: bool) -> None:
        if self._is_off:
            return
        deferred = self.deferred
        for operator in deferred:
            operator.allow(0)
        if self.busy > max(PUSHES * self.usual, LEAST):
            self.busy = 0.0
            if not self.speculator.suspend():
                self._defer(deferred)
        elif is_idle and deferred:
            self._resume(deferred)
        elif is_idle:
            self.speculator.resume()
        if deferred:
            self._enforce_limits(deferred)

    def _defer(self, deferred: list[Operator]) -> None:
        """Defer the least important running detectors until half of the work is left."""
        operators, urgency = self.topology.operators, self.topology.hierarchy.urgency
        highest = max([urgency[operator.name] for operator in operators], default=0)
        equal = all(urgency[operator.name] == highest for operator in operators)
        loads = self._loads()
        idle = self.topology.with_above(deferred)
        left = sum(loads[operator] for operator in operators if operator not in idle)
        half = left / 2
        for operator in self._by_importance(loads):
            also = self.topology.with_above([operator]) - idle
            saved = sum(loads[other] for other in also)
            may_defer = (
                operator in also and (equal or urgency[operator.name] < highest) and len(idle | also) < len(operators)
            )
            if left > half and saved > 0 and may_defer:
                operator.allow(0)
                idle |= also
                left -= saved

    def _resume(self, deferred: list[Operator]) -> None:
        """Let deferred detectors process rows, the most important first."""
        left = self.usual + self.pause.share * self._idle
        for operator in reversed(self._by_importance(self._loads())):
            if operator in deferred and left > 0:
                rows, done = len(operator.deferred), Work.of(operator).done
                # A row causes work at higher levels too. While its cost is unknown, process one.
                cost = sum(other.spent for other in self.topology.with_above([operator])) / done if done else left
                operator.allow(min(rows, max(1, int(left / cost))) if cost else rows)
                left -= cost * operator.allowed
                if operator.allowed == rows and left >= 0:
                    operator.allow(UNLIMITED)

    def _enforce_limits(self, deferred: list[Operator]) -> None:
        """Detectors with more deferred rows than allowed run, and so do those for which too much is buffered above."""
        full = [operator.name for operator in self.topology.operators if operator.buffer.buffered > self._most]
        starving = {name for operator in full for name in self.topology.hierarchy.below[operator]}
        for operator in deferred:
            on_disk = operator.deferred.memory <= self.pause.memory  # False after spilling has failed
            keep = 0 if operator.name in starving else self.pause.keep if on_disk else self.pause.memory
            operator.allow(max(operator.allowed, len(operator.deferred) - keep))

    def _loads(self) -> dict[Operator, float]:
        return {
            operator: Work.of(operator).load_since(self._before.get(operator.name))
            for operator in self.topology.operators
        }

    def _by_importance(self, loads: dict[Operator, float]) -> list[Operator]:
        def importance(operator: Operator) -> tuple[float, int, float]:
            saved = sum(loads[other] for other in self.topology.with_above([operator]))
            return self.topology.hierarchy.urgency[operator.name], -self._wait_above(operator), -saved

        return sorted(self.topology.operators, key=importance)

    def _wait_above(self, operator: Operator) -> int:
        """By how much the watermarks of the operator's readers are behind it because of other inputs."""
        behind = [
            input.watermark - reader.buffer.watermark
            for input in operator.publishes
            for reader in self.topology.readers[input.name]
        ]
        return max(0, min(behind, default=0))

    # Metrics and checkpoints.

    def stats(self) -> dict[str, Any]:
        return {"deferred": [operator.name for operator in self.deferred], "seconds": self.deferred_seconds}

    def state(self) -> dict[str, Any]:
        allowed = {
            operator.name: operator.allowed for operator in self.topology.operators if operator.allowed < UNLIMITED
        }
        stopped = [] if self._stopped is None else [self._stopped]
        return {
            "allowed": allowed,
            "speculation_suspended": self.speculator.is_suspended,
            "seconds": np.array([self.busy, self.usual, self.deferred_seconds, *stopped]),
        }

    def restore(self, state: dict[str, Any], same_clock: bool) -> None:
        """Restore what :meth:`state` returned; ``same_clock`` if its seconds are those of the host's clock now."""
        what = "pause"
        seconds = checked.floats(state, what, "seconds", 3 + (len(state["seconds"]) > 3)).tolist()
        self.busy, self.usual, self.deferred_seconds = seconds[:3]
        self._pushes.append(self.usual)
        if same_clock:
            self._stopped = seconds[3] if len(seconds) > 3 else None
        else:
            self.busy = 0.0
        self.speculator.restore_suspended(state["speculation_suspended"] is True)
        allowed = checked.mapping(checked.entry(state, what, "allowed"), what)
        for operator in self.topology.operators:
            if operator.name in allowed:
                operator.allow(checked.number(allowed, what, operator.name, 0, UNLIMITED))
        self._done = {operator.name: Work.of(operator).done for operator in self.topology.operators}
