"""Looking ahead: after each push, let the detectors run on what is probably complete (seed 001; DESIGN.md section 6).

The early horizon of a unit is ``clk - α·(clk - horizon)``: under slack, where the horizon is ``clk - K``, the paper's
``ts + α·K <= clk``; under frontiers, α of the wait for those who owe. Unit after unit, from the lowest level up, what
waits up to there is handed to the detector, together with what the levels below have published ahead. What comes out
is compared with what was said before, and the difference is told: *retract* and *insert*. When the horizon itself gets
there, it is told again as *final*.

This happens at the end of a push, so nothing is said that the same push already contradicts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from slackline.core.event import Event
from slackline.core.outcome import Output
from slackline.engine.ahead import SpeculativeRunner
from slackline.engine.columnar import IN_ORDER, Segment, merged, segment_of
from slackline.engine.wiring import Wiring
from slackline.ordering.channel import SensorChannel
from slackline.ordering.constants import NEVER
from slackline.ordering.unit import Entry, Unit
from slackline.speculation.alpha import Controller, Load
from slackline.speculation.config import Speculation
from slackline.speculation.shares import Shares
from slackline.speculation.tail import Name, Piece, name_of


class Said(NamedTuple):
    """An event that was told and is not final yet: when, and how much earlier than plain buffering would have."""

    event: Event
    at: int
    k_plus: int


class LookAhead:
    """What has been said ahead of the horizons, and how far to look."""

    def __init__(self, wiring: Wiring, options: dict[str, Speculation]) -> None:
        self.wiring = wiring
        self.options = options
        self.said: list[dict[str, Said]] = [{} for _ in wiring.units]  # per detector, by id: told and not final yet
        self.controller = Controller()
        self.load = Load()
        self.shares = Shares.of(wiring.hierarchy)
        for index, runner in enumerate(wiring.runners):
            if isinstance(runner, SpeculativeRunner):
                runner.choice.above = sum(index in below for below in self.shares.below)
        self.busy: float | None = None  # the last busy factor

    def alpha(self, index: int) -> float:
        options = self.options.get(self.wiring.units[index].name)
        if options is None:
            return 1.0
        if not isinstance(options.alpha, str):
            return float(options.alpha)
        return self.shares.alpha(index, self.controller.alpha)

    def early_horizon(self, index: int) -> int:
        """Up to where the detector may look."""
        unit, clk, alpha = self.wiring.units[index], self.wiring.clk(), self.alpha(index)
        if clk == NEVER or alpha >= 1:
            return unit.horizon
        wait = max(clk - self._plain_horizon(unit), 0)
        return max(unit.horizon, clk - math.ceil(alpha * wait))

    def k_plus(self, index: int) -> int:
        """How much earlier than plain buffering the detector gets to see events: the K⁺ of what it publishes.

        The levels above take delays from what is final, so they know K as if nobody had looked ahead. Whoever sees
        only the early event adds K⁺ to its delay (seed 001, 4.1).
        """
        return self.early_horizon(index) - self._plain_horizon(self.wiring.units[index])

    def _plain_horizon(self, unit: Unit) -> int:
        """Up to where plain buffering has got; while it does not dare to begin, where K would put it."""
        return self.wiring.clk() - unit.largest_slack() if unit.horizon == NEVER else unit.horizon

    def run(self, finals: list[Output]) -> list[Output]:
        """Look ahead after a push that made ``finals`` certain; returns everything that is to be told."""
        certain: dict[str, list[Event]] = {}
        for output in finals:
            certain.setdefault(output.detector, []).append(output.event)
        taken_back: frozenset[Name] = frozenset()
        tentative: dict[str, list[Event]] = {}
        changed = []
        for index, runner in enumerate(self.wiring.runners):
            ahead: list[Event] = []
            gone: frozenset[Name] = frozenset()
            if isinstance(runner, SpeculativeRunner):
                runner.ahead(self._pending(index, tentative), taken_back)
                gone = runner.settle(certain.get(runner.name, []))
                ahead = runner.tentative()
            for event in ahead:
                tentative.setdefault(event.type, []).append(event)
            taken_back |= gone
            changed.append((ahead, gone))
        return self._told(finals, changed)

    # What waits.

    def _pending(self, index: int, tentative: dict[str, list[Event]]) -> list[Piece]:
        """All that waits up to the early horizon, in order."""
        unit, limit = self.wiring.units[index], self.early_horizon(index)
        if limit <= unit.horizon:
            return []
        entries: list[Entry] = [entry for entry in unit.heap if entry.ts <= limit]
        segments: list[Segment] = []
        for channel in unit.inputs:
            if not unit.sorts(channel):
                continue
            for event in tentative.get(channel.name, ()):
                if unit.horizon < event.ts <= limit:
                    entries.append(unit.entry(event, self.wiring.position))
            if isinstance(channel, SensorChannel) and len(channel.store):
                self._stored(unit, channel, limit, entries, segments)
        entries.sort()
        if not segments:
            return [Piece([entry.event for entry in entries])] if entries else []
        if entries:
            ts = np.array([entry.ts for entry in entries], dtype=np.int64)
            ranks = np.array(unit.ranks_of(entries), dtype=np.int64)
            events = [entry.event for entry in entries]
            segments.append(Segment(IN_ORDER, events, ts, np.zeros_like(ts), ranks, ts, None))
        return [Piece(s.rows, s.keys).part(start, stop) for s, start, stop in merged(segments)]

    @staticmethod
    def _stored(unit: Unit, channel: SensorChannel, limit: int, entries: list[Entry], segments: list[Segment]) -> None:
        store = channel.store
        start, stop = np.searchsorted(store.ts, (unit.horizon, limit), side="right").tolist()
        if start == stop:
            return
        batch, positions = channel.batch(start, stop), store.positions[start:stop]
        if any(entry.type == channel.name for entry in unit.heap):  # the same type also waits as objects
            entries += [unit.entry(event, at) for event, at in zip(batch, positions.tolist(), strict=True)]
            return
        ts = batch.ts
        segments.append(segment_of(IN_ORDER, batch, channel.rank, ts, np.zeros_like(ts), positions.copy()))

    # What to tell.

    def _told(self, finals: list[Output], changed: list[tuple[list[Event], frozenset[Name]]]) -> list[Output]:
        """The changelog of a push: first what is taken back, then what is certain, then what is new and is not."""
        retracted: list[Output] = []
        inserted: list[Output] = []
        certain: list[dict[str, Event]] = [{} for _ in changed]
        index_of = {unit.name: index for index, unit in enumerate(self.wiring.units)}
        for output in finals:
            certain[index_of[output.detector]][output.id] = output.event
        confirmed: set[str] = set()
        for index, (ahead, gone) in enumerate(changed):
            now = {_id(event): event for event in ahead}
            taken = {_name_id(name) for name in gone}
            said = self._keep(index, now, certain[index], taken, retracted, confirmed)
            self._add(index, now, said, inserted)
        told = [output._replace(op="final") if output.id in confirmed else output for output in finals]
        return retracted + told + inserted

    def _keep(
        self,
        index: int,
        now: dict[str, Event],
        final: dict[str, Event],
        taken: set[str],
        retracted: list[Output],
        confirmed: set[str],
    ) -> dict[str, Said]:
        """Of what was said before: what still stands. The rest became certain, or is taken back."""
        name, clk = self.wiring.units[index].name, self.wiring.clk()
        still: dict[str, Said] = {}
        for id, said in self.said[index].items():
            if id not in taken and final.get(id) == said.event:
                confirmed.add(id)
                self.shares.gain(index, clk - said.at)
            elif id not in taken and id not in final and now.get(id) == said.event:
                still[id] = said
            else:
                retracted.append(Output("retract", id, said.event, False, clk, name))
        return still

    def _add(self, index: int, now: dict[str, Event], said: dict[str, Said], inserted: list[Output]) -> None:
        name, clk = self.wiring.units[index].name, self.wiring.clk()
        self.said[index] = {}
        for id, event in now.items():
            if id not in said:
                inserted.append(Output("insert", id, event, False, clk, name))
            self.said[index][id] = said.get(id) or Said(event, clk, self.k_plus(index))

    # How busy we are.

    def worked(self, start: float, stop: float) -> None:
        """A push took from ``start`` to ``stop``: adapt α when it is time."""
        busy = self.load.worked(start, stop)
        if busy is None:
            return
        self.busy = busy
        self.controller.adapt(busy)
        for index, runner in enumerate(self.wiring.runners):
            if isinstance(runner, SpeculativeRunner):
                self.shares.spend(index, runner.processed)
        self.shares.weigh()

    def stats(self, index: int) -> dict[str, Any]:
        runner = self.wiring.runners[index]
        if not isinstance(runner, SpeculativeRunner):
            return {}
        return {
            "alpha": self.alpha(index),
            "ahead": len(runner.tail),
            "replays": runner.replays,
            "replayed": runner.replayed,
            "snapshots": runner.snapshots,
            "snapshot_bytes": runner.tail.bytes,
            "stumbles": runner.stumbles,
            "touched": runner.choice.touched,
            "retraction": "on_demand" if runner.choice.on_demand else "full",
            "retraction_cost": {
                "spent": runner.choice.spent,
                "full": runner.choice.spent_full,
                "on_demand": runner.choice.spent_on_demand,
            },
        }

    def state(self) -> dict[str, Any]:
        controller = self.controller
        return {
            "said": [[(id, *said) for id, said in those.items()] for those in self.said],
            "alpha": controller.alpha,
            "last_minimum": controller.last_minimum,
            "slow": controller.slow,
            "load": self.load.state(),
            "shares": self.shares.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.said = [{id: Said(*said) for id, *said in those} for those in state["said"]]
        self.shares.restore(state["shares"])
        self.controller = Controller(state["alpha"], state["last_minimum"], state["slow"])
        self.load = Load(**state["load"])


def _id(event: Event) -> str:
    return _name_id(name_of(event))


def _name_id(name: Name) -> str:
    return f"{name[0]}:{name[1]}:{name[2]}"
