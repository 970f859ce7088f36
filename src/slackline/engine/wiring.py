"""The parts of one engine and how they are connected: clock, channels, units, runners, and what was set aside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from slackline.core.codec import class_finder, decode
from slackline.core.detector import Detector
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Late, Output, Quarantined
from slackline.core.types import type_names
from slackline.engine.ahead import SpeculativeRunner
from slackline.engine.runner import Runner
from slackline.ordering.channel import Channel, DerivedChannel, Evidence, SensorChannel
from slackline.ordering.clock import CLK, Clock
from slackline.ordering.constants import NEVER
from slackline.ordering.unit import Unit
from slackline.speculation.config import Speculation

UNKNOWN_SOURCE = "unknown source: {!r} is none of those the event type names"
NOT_FINITE = "a declared number is missing or not finite"


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine was asked for."""

    evidence: Evidence
    max_jump: int
    deliver_late: bool
    quarantine_errors: bool
    max_buffered: int
    release_overflow: bool
    speculation: dict[str, Speculation] = field(default_factory=dict)  # by detector; who is not in it does not


class Wiring:
    """Channels by type, units and runners in the order of the hierarchy, readers of each channel."""

    def __init__(self, hierarchy: Hierarchy, settings: Settings) -> None:
        self.hierarchy = hierarchy
        self.settings = settings
        self.clock = Clock(settings.max_jump)
        self.clock_types = frozenset(hierarchy.clock)
        types = hierarchy.types
        #: Sensor types that say which sources or numbers they take.
        self.demanding = frozenset(n for n, kind in types.items() if kind.sources is not None or kind.finite)
        detectors = hierarchy.take_detectors()
        ranked = {name: rank for rank, name in enumerate(sorted({*hierarchy.sensor_types, *hierarchy.publisher}))}
        self.sensors = {
            n: SensorChannel(n, ranked[n], settings.evidence, n in hierarchy.clock) for n in hierarchy.sensor_types
        }
        self.derived = {n: DerivedChannel(n, ranked[n], settings.evidence) for n in hierarchy.publisher}
        self.units: list[Unit] = []
        self.runners: list[Runner] = []
        self.readers: dict[str, list[int]] = {name: [] for name in ranked}
        self.channels: list[list[DerivedChannel]] = []  # what each detector publishes
        for index, (name, detector) in enumerate(zip(hierarchy.names, detectors, strict=True)):
            self._connect(index, name, detector)
        self.position = 0
        self.last_advance = 0  # arrivals up to the one that last moved the clock
        self.found: list[tuple[int, int, Output]] = []  # with position and detector, to sort by
        self.late: list[tuple[int, int, Late]] = []
        self.quarantined: list[tuple[int, Quarantined]] = []
        self.reasons: Counter[str] = Counter()

    def _connect(self, index: int, name: str, detector: Detector) -> None:
        inputs: list[Channel] = []
        for kind in dict.fromkeys(type_names(detector.listens)):
            inputs.append(self.sensors[kind] if kind in self.sensors else self.derived[kind])
            self.readers[kind].append(index)
        inputs.sort(key=lambda channel: channel.rank)
        self.units.append(Unit(name, inputs, frozenset(type_names(detector.unsorted))))
        guarded, speculation = self.settings.quarantine_errors, self.settings.speculation.get(name)
        self.runners.append(
            SpeculativeRunner(detector, name, guarded, speculation) if speculation else Runner(detector, name, guarded)
        )
        self.channels.append([self.derived[kind] for kind in dict.fromkeys(type_names(detector.publishes))])
        for channel in self.channels[-1]:
            channel.back = detector.sets_back

    def clk(self) -> int:
        """Stream time as the compiled loops have it: NEVER before the first clock event."""
        return int(self.clock.ints[CLK])

    def objection(self, event: Event) -> str | None:
        """Why an event of a demanding type cannot be taken, if so."""
        kind = self.hierarchy.types[event.type]
        if kind.sources is not None and event.source not in kind.sources:
            return UNKNOWN_SOURCE.format(event.source)
        field = kind.lacks(event.payload)
        return None if field is None else NOT_FINITE

    # What happens to events, whichever way they came.

    def publish(self, index: int, event: Event, trigger_ts: int, position: int, clk: int) -> DerivedChannel:
        """A detector found something: an output, and news of how far it sets events back."""
        channel = self.derived[event.type]
        channel.events += 1
        channel.back = max(channel.back, trigger_ts - event.ts)
        name = self.units[index].name
        detected_at = event.ts if clk == NEVER else clk
        output = Output("insert", f"{event.type}:{name}:{event.seq}", event, True, detected_at, name)
        self.found.append((position, index, output))
        return channel

    def divert(self, index: int, event: Event, horizon: int, position: int) -> None:
        """A late event goes to the late output."""
        late = Late(event, horizon - event.ts, self.units[index].name, position)
        self.late.append((position, index, late))

    def quarantine(self, event: Event, detail: str, position: int, detector: str | None = None) -> None:
        """An event that cannot be taken is set aside with the reason."""
        reason = detail.split(":")[0].split(" (")[0]
        self.quarantined.append((position, Quarantined(event, reason, detail, detector, position)))
        self.reasons[reason] += 1

    def note_failures(self, index: int, positions: Any) -> None:
        """Set aside the events on which a detector raised; ``positions`` are those of what it was fed."""
        runner = self.runners[index]
        for failure in runner.failures[runner.noted :]:
            reason = f"detector {runner.name} raised: {type(failure.cause).__name__}: {failure.cause}"
            self.quarantine(failure.event, reason, int(positions[failure.row]), runner.name)
        runner.noted = len(runner.failures)

    def rows_to_objects(self) -> None:
        """Let the rows that wait as columns wait as events, since events are about to come one by one."""
        for unit in self.units:
            for channel, waiting in unit.stored():
                if waiting:
                    store = channel.store
                    rows = channel.batch(len(store) - waiting, len(store))
                    for event, position in zip(rows, store.positions[-waiting:].tolist(), strict=True):
                        unit.wait(unit.entry(event, position))
        for sensor in self.sensors.values():
            sensor.store.clear()

    @property
    def buffered(self) -> int:
        """How many events wait in front of the detector with the most; events are shared by those who wait."""
        if any(len(sensor.store) for sensor in self.sensors.values()):
            return max(unit.buffered for unit in self.units)
        return max([len(unit.heap) + len(unit.overdue) for unit in self.units])

    def state(self) -> dict[str, Any]:
        return {
            "clock": self.clock.state(),
            "sensors": {name: channel.state() for name, channel in self.sensors.items()},
            "derived": {name: channel.state() for name, channel in self.derived.items()},
            "units": {unit.name: unit.state() for unit in self.units},
            "runners": {runner.name: runner.state() for runner in self.runners},
            "position": self.position,
            "last_advance": self.last_advance,
            "late": [(p, i, tuple(late)) for p, i, late in self.late],
            "quarantined": [(p, tuple(item)) for p, item in self.quarantined],
            "reasons": dict(self.reasons),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.position, self.last_advance = state["position"], state["last_advance"]
        self.clock.restore(state["clock"])
        for name, sensor in self.sensors.items():
            sensor.restore(state["sensors"][name], self.position)
        for name, derived in self.derived.items():
            derived.restore(state["derived"][name], self.position)
        for unit, runner in zip(self.units, self.runners, strict=True):
            unit.restore(state["units"][unit.name], self.position)
            saved = state["runners"][runner.name]
            detector_state = decode(saved["detector"], class_finder(runner.detector), runner.name)
            runner.restore(saved, detector_state)
        self.late = [(p, i, Late(*late)) for p, i, late in state["late"]]
        self.quarantined = [(p, Quarantined(*item)) for p, item in state["quarantined"]]
        self.reasons = Counter(state["reasons"])
