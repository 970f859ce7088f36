"""The speculator: after each push it runs detectors on events that are probably complete [Speculation, 4].

The early watermark of an operator is ``clk - α·(clk - watermark)``: under slack, where the watermark is ``clk - K``,
this is the published ``ts + α·K <= clk``; under input watermarks, α of the wait for sources that are behind. Level by
level, from the lowest up, the detector processes the buffered events up to the early watermark, together with the early
results of the levels below. The difference to the early results emitted before is emitted as *retract* and *insert*.
When the watermark itself passes, the result is emitted again as *final*.

This happens at the end of a push, so no early result is emitted that the same push already contradicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Output, id_of
from slackline.core.time import NEVER
from slackline.ordering import checked
from slackline.ordering.input import SensorInput
from slackline.ordering.reorder_buffer import Entry, ReorderBuffer
from slackline.running.operator import Operator
from slackline.running.segments import IN_ORDER, Piece, Segment, merged, segment_of
from slackline.speculation.alpha import Controller, CostBenefit, Load, assign_shares
from slackline.speculation.runner import SpeculativeRunner


class EarlyResult(NamedTuple):
    """An event that was emitted and is not final yet, and stream time at its emission."""

    event: Event
    at: int


class Speculator:
    """Emits early results, and decides how far each detector may run ahead of its watermark."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        #: Per detector, by id: early results that are not final yet.
        self.early: dict[str, dict[str, EarlyResult]] = {}
        self.cost_benefit: dict[str, CostBenefit] = {}
        self._adaptive: set[str] = set()  # the detectors whose α adapts to load
        #: Whether adaptive speculation is suspended because of overload.
        self.is_suspended = False
        self.controller = Controller()
        self.load = Load()

    def extend(self, hierarchy: Hierarchy) -> None:
        """The hierarchy was extended."""
        self.hierarchy = hierarchy

    def register(self, operator: Operator) -> None:
        """The operator may speculate from now on."""
        if isinstance(operator.runner, SpeculativeRunner):
            self.early.setdefault(operator.name, {})
            if isinstance(operator.runner.options.alpha, str):
                self._adaptive.add(operator.name)
            self.cost_benefit.setdefault(operator.name, CostBenefit())
            above = sum(operator.name in below for below in self.hierarchy.below.values())
            operator.runner.retraction.set_above(above)

    def suspend(self) -> bool:
        """Overload: use α = 1 where α is adaptive, until :meth:`resume`. Returns False if that changes nothing."""
        if not self._adaptive or self.is_suspended or self.controller.alpha >= 1:
            return False
        self.is_suspended = True
        return True

    def resume(self) -> None:
        """The overload is over."""
        self.is_suspended = False

    def restore_suspended(self, is_suspended: bool) -> None:
        """Whether it was suspended when it was saved."""
        self.is_suspended = is_suspended

    def unregister(self, name: str) -> None:
        """The detector does not run here any more."""
        self._adaptive.discard(name)
        self.early.pop(name, None)
        self.cost_benefit.pop(name, None)

    def adopt(self, name: str, early: dict[str, EarlyResult], cost_benefit: CostBenefit) -> None:
        """Continue with the early results and the costs of a migrated detector."""
        self.early[name], self.cost_benefit[name] = early, cost_benefit

    def alpha(self, operator: Operator) -> float:
        if not isinstance(operator.runner, SpeculativeRunner):
            return 1.0
        alpha = operator.runner.options.alpha
        if not isinstance(alpha, str):
            return float(alpha)
        return 1.0 if self.is_suspended else self.cost_benefit[operator.name].alpha(self.controller.alpha)

    def stats(self, operators: Sequence[Operator]) -> dict[str, Any]:
        """The metrics of each detector."""
        stats = {}
        for operator in operators:
            stats[operator.name] = {"level": self.hierarchy.levels[operator.name], **operator.stats()}
            if isinstance(operator.runner, SpeculativeRunner):
                stats[operator.name]["alpha"] = self.alpha(operator)
        return stats

    def early_watermark(self, operator: Operator, clk: int) -> int:
        """The event time up to which the detector may process buffered events."""
        buffer, alpha = operator.buffer, self.alpha(operator)
        if clk == NEVER or alpha >= 1:
            return buffer.watermark
        # During warm-up, before the first watermark: the one that K would give.
        plain = clk - buffer.largest_slack() if buffer.watermark == NEVER else buffer.watermark
        return max(buffer.watermark, clk - math.ceil(alpha * max(clk - plain, 0)))

    def run(self, operators: Sequence[Operator], finals: list[Output], clk: int, position: int) -> list[Output]:
        """Speculate after a push with the final outputs ``finals``; returns all outputs of the push."""
        if not self.early:
            return finals
        certain: dict[str, list[Output]] = {}
        for output in finals:
            certain.setdefault(output.detector, []).append(output)
        retracted_ids: frozenset[str] = frozenset()
        tentative: dict[str, list[Event]] = {}
        changes = _Changes(clk)
        for operator in operators:
            if operator.name not in self.early:
                continue
            runner, mine = operator.runner, certain.get(operator.name, [])
            early: list[Event] = []
            gone: frozenset[str] = frozenset()
            if isinstance(runner, SpeculativeRunner):  # else speculation was switched off: settle its early results
                if not operator.defers:  # else it has not even reached its watermark
                    limit = self.early_watermark(operator, clk)
                    pieces = _pending(operator.buffer, limit, tentative, position)
                    operator.timed(partial(runner.run_ahead, pieces, retracted_ids, limit))
                gone = runner.finish_replay([output.event for output in mine])
                early = runner.tentative()
            for event in early:
                tentative.setdefault(event.type, []).append(event)
            retracted_ids |= gone
            before, costs = self.early[operator.name], self.cost_benefit[operator.name]
            self.early[operator.name] = changes.of(operator.name, before, early, mine, gone, costs)
        return changes.outputs(finals)

    # CPU load.

    def worked(self, operators: Sequence[Operator], start: float, stop: float, is_deferring: bool) -> float | None:
        """A push ran from ``start`` to ``stop``: adapt α if an interval has passed; returns its busy factor then.

        While detectors are deferred, α does not adapt.
        """
        busy = self.load.worked(start, stop)
        if busy is not None and not is_deferring:
            self.controller.adapt(busy)
            for operator in operators:
                if isinstance(operator.runner, SpeculativeRunner):
                    self.cost_benefit[operator.name].spend(operator.runner.processed)
            assign_shares(self.cost_benefit, self.hierarchy.below)
        return busy

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        controller, load = self.controller, self.load
        return {
            "detectors": {name: self.state_of(name) for name in self.early},
            "alpha": controller.alpha,
            "last_minimum": controller.last_minimum,
            "slow": controller.slow,
            "load": {"since": load.since, "busy": load.busy},
        }

    def state_of(self, name: str) -> dict[str, Any]:
        """The state of one detector: its early results that are not final, and its cost and benefit."""
        early = [(id, *early) for id, early in self.early[name].items()]
        return {"early": early, "cost_benefit": asdict(self.cost_benefit[name])}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, saved in state["detectors"].items():
            self.adopt(name, *self.restored_of(saved))
        numbers = (state["alpha"], state["last_minimum"])
        if not all(type(number) in (int, float) and 0 <= number <= 1 for number in numbers):
            raise checked.wrong("speculator.alpha", f"is {numbers!r}")
        self.controller = Controller(*numbers, bool(state["slow"]))
        self.load = Load.restored(state["load"])

    @staticmethod
    def restored_of(state: Mapping[str, Any]) -> tuple[dict[str, EarlyResult], CostBenefit]:
        """What :meth:`state_of` returned for one detector."""
        early = {id: EarlyResult(event, at) for id, event, at in state["early"]}
        for id, (event, at) in early.items():
            if type(event) is not Event or type(at) is not int or id_of(event) != id:
                raise checked.wrong("speculator", "contains an entry that is not an early result")
        return early, CostBenefit.restored(state["cost_benefit"])

    def reset_load(self) -> None:
        """Forget the measured load: the wall clock is another one from now on."""
        self.load = Load()


class _Changes:
    """The changelog of a push: retractions, then final results, then new early results."""

    def __init__(self, clk: int) -> None:
        self.clk = clk
        self.retracted: list[Output] = []
        self.inserted: list[Output] = []
        self.confirmed: set[str] = set()

    def of(
        self,
        name: str,
        before: dict[str, EarlyResult],
        early: Sequence[Event],
        certain: Sequence[Output],
        gone: frozenset[str],
        costs: CostBenefit,
    ) -> dict[str, EarlyResult]:
        """Compare the early results of one detector with those emitted before; returns the ones that are not final."""
        now = {id_of(event): event for event in early}
        final = {output.id: output.event for output in certain}
        still: dict[str, EarlyResult] = {}
        for id, emitted in before.items():
            if id not in gone and final.get(id) == emitted.event:
                self.confirmed.add(id)
                costs.gain(self.clk - emitted.at)
            elif id not in gone and id not in final and now.get(id) == emitted.event:
                still[id] = emitted
            else:
                self.retracted.append(Output("retract", id, emitted.event, False, self.clk, name))
        for id, event in now.items():
            if id not in still:
                self.inserted.append(Output("insert", id, event, False, self.clk, name))
        return {id: still.get(id) or EarlyResult(event, self.clk) for id, event in now.items()}

    def outputs(self, finals: Sequence[Output]) -> list[Output]:
        certain = [output._replace(op="final") if output.id in self.confirmed else output for output in finals]
        return self.retracted + certain + self.inserted


def _pending(buffer: ReorderBuffer, limit: int, tentative: Mapping[str, Sequence[Event]], position: int) -> list[Piece]:
    """The buffered events up to the early watermark, in order."""
    if limit <= buffer.watermark:
        return []
    entries: list[Entry] = [entry for entry in buffer.heap if entry.ts <= limit]
    segments: list[Segment] = []
    for input in buffer.inputs:
        if not buffer.sorts(input):
            continue
        for event in tentative.get(input.name, ()):
            if buffer.watermark < event.ts <= limit:
                entries.append(buffer.entry(event, position))
        if isinstance(input, SensorInput) and len(input.shared_rows):
            _stored(buffer, input, limit, entries, segments)
    entries.sort()
    if not segments:
        return [Piece([entry.event for entry in entries], None)] if entries else []
    if entries:
        ts = np.array([entry.ts for entry in entries], dtype=np.int64)
        ranks = np.array(buffer.ranks_of(entries), dtype=np.int64)
        events = [entry.event for entry in entries]
        segments.append(Segment(IN_ORDER, events, ts, np.zeros_like(ts), ranks, ts, None))
    return list(merged(segments).pieces)


def _stored(
    buffer: ReorderBuffer, input: SensorInput, limit: int, entries: list[Entry], segments: list[Segment]
) -> None:
    rows, ts, positions = buffer.rows_between(input, buffer.watermark, limit)
    if not len(ts):
        return
    if any(entry.type == input.event_type for entry in buffer.heap):  # the heap holds events of the same type
        entries += [buffer.entry(event, at) for event, at in zip(rows, positions.tolist(), strict=True)]
        return
    segments.append(segment_of(IN_ORDER, rows, input.rank, ts, np.zeros_like(ts), positions.copy()))
