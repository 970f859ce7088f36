"""Looking ahead: after each push, let the detectors run on what is probably complete [Speculation, 4].

The early watermark of a buffer is ``clk - α·(clk - watermark)``: under slack, where the watermark is ``clk - K``, the
published ``ts + α·K <= clk``; under input watermarks, α of the wait for sources that are behind. Part after part, from the
lowest level up, what waits up to there is handed to the detector, together with what the levels below have published
ahead. What comes out is compared with what was announced before, and the difference comes out: *retract* and *insert*.
When the watermark itself gets there, it is announced again as *final*.

This happens at the end of a push, so nothing is announced that the same push already contradicts.
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
from slackline.speculation.ahead import SpeculativeRunner
from slackline.speculation.alpha import Controller, Load
from slackline.speculation.shares import Account, weigh


class Early(NamedTuple):
    """An event that was announced and is not final yet, and stream time then."""

    event: Event
    at: int


class LookAhead:
    """What has been announced ahead of the watermarks, and how far to look."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        #: Per detector, by id: what was announced and is not final yet.
        self.early: dict[str, dict[str, Early]] = {}
        self.accounts: dict[str, Account] = {}
        self._adaptive: set[str] = set()  # those whose α is set from load
        #: Whether there is too much to do just now to look further than what is certain, where α is set from load.
        self.is_reined = False
        self.controller = Controller()
        self.load = Load()

    def join(self, part: Operator) -> None:
        """A part may look ahead from now on."""
        if isinstance(part.runner, SpeculativeRunner):
            self.early.setdefault(part.name, {})
            if isinstance(part.runner.options.alpha, str):
                self._adaptive.add(part.name)
            self.accounts.setdefault(part.name, Account())
            part.runner.retraction.above = sum(part.name in below for below in self.hierarchy.below.values())

    def rein_in(self) -> bool:
        """There is too much to do: where α is set from load, it is 1 for now.

        Whether that is new; if not, it does not help.
        """
        if not self._adaptive or self.is_reined or self.controller.alpha >= 1:
            return False
        self.is_reined = True
        return True

    def leave(self, name: str) -> None:
        """A part has gone."""
        self._adaptive.discard(name)
        self.early.pop(name, None)
        self.accounts.pop(name, None)

    def alpha(self, part: Operator) -> float:
        if not isinstance(part.runner, SpeculativeRunner):
            return 1.0
        alpha = part.runner.options.alpha
        if not isinstance(alpha, str):
            return float(alpha)
        return 1.0 if self.is_reined else self.accounts[part.name].alpha(self.controller.alpha)

    def stats(self, parts: Sequence[Operator]) -> dict[str, Any]:
        """What users may want to know of each detector."""
        found = {part.name: {"level": self.hierarchy.levels[part.name], **part.stats()} for part in parts}
        for part in parts:
            if isinstance(part.runner, SpeculativeRunner):
                found[part.name]["alpha"] = self.alpha(part)
        return found

    def early_watermark(self, part: Operator, clk: int) -> int:
        """Up to where the detector may look."""
        buffer, alpha = part.buffer, self.alpha(part)
        if clk == NEVER or alpha >= 1:
            return buffer.watermark
        # While plain buffering does not dare to begin, its watermark is where K would put it.
        plain = clk - buffer.largest_slack() if buffer.watermark == NEVER else buffer.watermark
        return max(buffer.watermark, clk - math.ceil(alpha * max(clk - plain, 0)))

    def run(self, parts: Sequence[Operator], finals: list[Output], clk: int, position: int) -> list[Output]:
        """Look ahead after a push that made ``finals`` certain; returns everything that comes out of the push."""
        if not self.early:
            return finals
        certain: dict[str, list[Output]] = {}
        for output in finals:
            certain.setdefault(output.detector, []).append(output)
        taken_back: frozenset[str] = frozenset()
        tentative: dict[str, list[Event]] = {}
        changes = _Changes(clk)
        for part in parts:
            if part.name not in self.early:
                continue
            runner, mine = part.runner, certain.get(part.name, [])
            ahead: list[Event] = []
            gone: frozenset[str] = frozenset()
            if isinstance(runner, SpeculativeRunner):  # else it did once, and what it announced then is settled
                if not part.holds:  # else it is not even where its watermark is
                    pieces = _pending(part.buffer, self.early_watermark(part, clk), tentative, position)
                    part.timed(partial(runner.ahead, pieces, taken_back))
                gone = runner.settle([output.event for output in mine])
                ahead = runner.tentative()
            for event in ahead:
                tentative.setdefault(event.type, []).append(event)
            taken_back |= gone
            account = self.accounts[part.name]
            self.early[part.name] = changes.of(part.name, self.early[part.name], ahead, mine, gone, account)
        return changes.outputs(finals)

    # How busy we are.

    def worked(self, parts: Sequence[Operator], start: float, stop: float, some_wait: bool = False) -> float | None:
        """A push took from ``start`` to ``stop``: adapt α when it is time. The busy factor, if it was.

        While ``some_wait``, held up because there is too much to do, there is no time to look ahead.
        """
        busy = self.load.worked(start, stop)
        if busy is not None and not some_wait:
            self.controller.adapt(busy)
            for part in parts:
                if isinstance(part.runner, SpeculativeRunner):
                    self.accounts[part.name].spend(part.runner.processed)
            weigh(self.accounts, self.hierarchy.below)
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
        """What is known of one detector: the early answers that are not settled, and its account."""
        early = [(id, *early) for id, early in self.early[name].items()]
        return {"early": early, "account": asdict(self.accounts[name])}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, saved in state["detectors"].items():
            self.early[name], self.accounts[name] = self.restored_of(saved)
        numbers = (state["alpha"], state["last_minimum"])
        if not all(type(number) in (int, float) and 0 <= number <= 1 for number in numbers):
            raise checked.wrong("lookahead.alpha", f"is {numbers!r}")
        self.controller = Controller(*numbers, bool(state["slow"]))
        self.load = Load.restored(state["load"])

    @staticmethod
    def restored_of(state: Mapping[str, Any]) -> tuple[dict[str, Early], Account]:
        """What ``state_of`` gave of one detector."""
        early = {id: Early(event, at) for id, event, at in state["early"]}
        for id, (event, at) in early.items():
            if type(event) is not Event or type(at) is not int or id_of(event) != id:
                raise checked.wrong("lookahead", "holds what is no early answer")
        return early, Account.restored(state["account"])

    def forget_time(self) -> None:
        """Seconds are those of another clock from now on."""
        self.load = Load()


class _Changes:
    """The changelog of a push: first what is taken back, then what is certain, then what is new and is not."""

    def __init__(self, clk: int) -> None:
        self.clk = clk
        self.retracted: list[Output] = []
        self.inserted: list[Output] = []
        self.confirmed: set[str] = set()

    def of(
        self,
        name: str,
        before: dict[str, Early],
        ahead: Sequence[Event],
        certain: Sequence[Output],
        gone: frozenset[str],
        account: Account,
    ) -> dict[str, Early]:
        """Compare what one detector has announced with what it says now; what is announced and not final then."""
        now = {id_of(event): event for event in ahead}
        final = {output.id: output.event for output in certain}
        still: dict[str, Early] = {}
        for id, early in before.items():
            if id not in gone and final.get(id) == early.event:
                self.confirmed.add(id)
                account.gain(self.clk - early.at)
            elif id not in gone and id not in final and now.get(id) == early.event:
                still[id] = early
            else:
                self.retracted.append(Output("retract", id, early.event, False, self.clk, name))
        for id, event in now.items():
            if id not in still:
                self.inserted.append(Output("insert", id, event, False, self.clk, name))
        return {id: still.get(id) or Early(event, self.clk) for id, event in now.items()}

    def outputs(self, finals: Sequence[Output]) -> list[Output]:
        certain = [output._replace(op="final") if output.id in self.confirmed else output for output in finals]
        return self.retracted + certain + self.inserted


def _pending(buffer: ReorderBuffer, limit: int, tentative: Mapping[str, Sequence[Event]], position: int) -> list[Piece]:
    """All that waits up to the early watermark, in order."""
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
    return [Piece(*segment.part(start, stop)) for segment, start, stop in merged(segments)]


def _stored(
    buffer: ReorderBuffer, input: SensorInput, limit: int, entries: list[Entry], segments: list[Segment]
) -> None:
    store = input.shared_rows
    start, stop = np.searchsorted(store.ts, (buffer.watermark, limit), side="right").tolist()
    if start == stop:
        return
    batch, positions = input.batch(start, stop), store.positions[start:stop]
    if any(entry.type == input.name for entry in buffer.heap):  # the same type also waits as objects
        entries += [buffer.entry(event, at) for event, at in zip(batch, positions.tolist(), strict=True)]
        return
    ts = batch.ts
    segments.append(segment_of(IN_ORDER, batch, input.rank, ts, np.zeros_like(ts), positions.copy()))
