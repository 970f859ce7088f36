"""Who listens to whom, of the detectors that run here.

The hierarchy says how an application's detectors are connected; the topology, which of them run in this engine, and
what is known here of each event type. Parts come and go (:meth:`Topology.add`, :meth:`Topology.remove`). A type whose
publisher runs elsewhere, or which enters elsewhere, has an input all the same: what it needs to know comes from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from slackline.core.calibration import Calibration
from slackline.core.errors import StateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import NEVER, Now
from slackline.core.types import type_names
from slackline.ordering.clock import AIDS, NO_CLOCK, SETS
from slackline.ordering.input import DerivedInput, Evidence, Input, SensorInput
from slackline.ordering.startup import STARTING, StartupEstimator
from slackline.ordering.watermark import LATE_TARGET, ORDERED, SLACK
from slackline.running.operator import Operator
from slackline.running.runner import Runner


class Topology:
    """Inputs by type, parts in the order of the hierarchy, and who reads what."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        evidence: Evidence,
        targets: Mapping[str, float] | None = None,
        sensors: Collection[str] | None = None,
        now: Now | None = None,
        alone: bool = False,
    ) -> None:
        self.evidence = evidence
        self._now = now
        #: The share of late events that each detector accepts, where they differ.
        self.targets = targets or {}
        #: What was heard of the delays of all types.
        self.startup = StartupEstimator(evidence.warmup)
        self.sensors: dict[str, SensorInput] = {}
        #: Which of them enter here: all, unless some are named; others come as news.
        self.named = sensors
        self.entering = self.sensors if sensors is None else {}
        #: Whether all sensor types enter here, though they are named, so that what is late is late for all detectors.
        self.alone = alone
        #: Which of those have ended.
        self.ended: set[str] = set()
        self.derived: dict[str, DerivedInput] = {}
        self.parts: list[Operator] = []
        #: By type: the parts that listen to it; and those that may hear of it, through others too.
        self.readers: dict[str, list[Operator]] = {}
        self.above: dict[str, tuple[Operator, ...]] = {}
        self.extend(hierarchy)

    def extend(self, hierarchy: Hierarchy) -> None:
        """Take the types of a hierarchy, which has at least those there were; then parts are added."""
        self.hierarchy = hierarchy
        names = sorted({*hierarchy.sensor_types, *hierarchy.publisher})
        for rank, name in enumerate(names):
            input: Input | None = self.sensors.get(name) or self.derived.get(name)
            if input is not None:
                input.rank = rank
            elif name in hierarchy.publisher:
                self.derived[name] = DerivedInput(name, rank, self.evidence)
                self.derived[name].back = hierarchy.max_backdate[hierarchy.publisher[name]]
            else:
                is_clock = name in hierarchy.clock
                evidence = self._evidence(name)
                sensor = self.sensors[name] = SensorInput(name, rank, evidence, is_clock, self.startup)
                if name in hierarchy.clock_aids:
                    sensor.role = AIDS + hierarchy.clock_aids.index(name)
                if self.alone:
                    self.named = sorted({*(self.named or ()), name})
                if self.named is not None:
                    self._find_watermark_once(sensor, name in self.named)

    def _find_watermark_once(self, sensor: SensorInput, enters: bool) -> None:
        """Where types enter at several engines, each finds the input watermarks of its own; by slack alone, everybody does."""
        if enters:
            self.entering[sensor.name] = sensor
        if self.evidence.policy != SLACK:
            sensor.owns_watermark = enters
            sensor.remote_watermark = None if enters else NEVER
        if enters and self.own_time and not set(self.hierarchy.clock) <= set(self.named or ()):
            sensor.role = SETS

    @property
    def tells(self) -> bool:
        """Whether other engines are to be told of all that enters or is published here."""
        return self.named is not None and not self.alone

    @property
    def own_time(self) -> bool:
        """Whether stream time is made here alone: what enters is in order, but not with what enters elsewhere.

        If some clock type enters elsewhere, all that enters here sets the clock.
        """
        return self.evidence.policy == ORDERED and bool(self.named)

    @property
    def has_clock(self) -> bool:
        """Whether all that moves the clock enters here.

        Then nobody knows the time better. After a crash others may have heard more of it than there is here again; to
        go by that would make late what is only coming once more.
        """
        return self.named is not None and {*self.hierarchy.clock, *self.hierarchy.clock_aids} <= {*self.named}

    def _evidence(self, name: str) -> Evidence:
        """How the input watermark of a type is found: so that everybody who hears of it has no more late than it accepts."""
        if not self.targets:
            return self.evidence
        listeners = {detector for detector, listens in self.hierarchy.listens.items() if name in listens}
        heard = [each for each, below in self.hierarchy.below.items() if each in listeners or below & listeners]
        accepted = [self.targets.get(detector, LATE_TARGET) for detector in heard]
        return replace(self.evidence, late_target=float(min(accepted, default=LATE_TARGET)))

    def start_from(self, calibration: Calibration | None) -> None:
        """Begin with known delays, if there are any."""
        for name, known in calibration.types.items() if calibration else ():
            self.input(name).start_from(known.delay)
            if name in self.derived:
                self.derived[name].back = max(self.derived[name].back, known.back)
        for part in self.parts:
            part.buffer.K = part.buffer.largest_slack()  # who listens to it knows that already

    def input(self, name: str) -> Input:
        return self.sensors[name] if name in self.sensors else self.derived[name]

    def part(self, name: str) -> Operator | None:
        """The part of a detector, if it runs here."""
        return next((part for part in self.parts if part.name == name), None)

    def make(self, runner: Runner) -> Operator:
        """A part for a detector of the hierarchy, which does not run here yet."""
        detector = runner.detector
        inputs = [self.input(kind) for kind in dict.fromkeys(type_names(detector.listens))]
        inputs.sort(key=lambda input: input.rank)
        publishes = [self.derived[kind] for kind in dict.fromkeys(type_names(detector.publishes))]
        return Operator(runner, inputs, publishes, self._now)

    def add(self, *parts: Operator) -> None:
        """Let parts run here."""
        self.parts += parts
        self._connect()

    def remove(self, name: str) -> None:
        """Let a detector run here no longer."""
        self.parts = [part for part in self.parts if part.name != name]
        self._connect()

    def _connect(self) -> None:
        place = {name: rank for rank, name in enumerate(self.hierarchy.names)}
        for part in self.parts:
            part.rank = place[part.name]
            part.buffer.inputs.sort(key=lambda input: input.rank)
        self.parts.sort()
        publisher = {input.name: part for part in self.parts for input in part.publishes}
        self.readers = {name: [] for name in (*self.sensors, *self.derived)}
        for part in self.parts:
            for input in part.buffer.inputs:
                self.readers[input.name].append(part)
            part.connect(publisher)
        above: dict[str, tuple[Operator, ...]] = {}
        for name in (*self.sensors, *self.derived):
            self._listeners(name, above)
        self.above = above
        # Whoever hears of all that moves the clock is looked at whenever it does so; the others need an alarm.
        moving = [set(above[name]) for name, sensor in self.entering.items() if sensor.role != NO_CLOCK]
        always = set.intersection(*moving) if moving else set()
        for part in self.parts:
            part.always_evaluated = part in always

    def _listeners(self, name: str, above: dict[str, tuple[Operator, ...]]) -> tuple[Operator, ...]:
        if name not in above:
            found = set(self.readers[name])
            for part in self.readers[name]:
                for input in part.publishes:
                    found.update(self._listeners(input.name, above))
            above[name] = tuple(sorted(found))
        return above[name]

    def with_above(self, parts: Iterable[Operator]) -> set[Operator]:
        """The parts, and those that hear of what they publish, through others too."""
        parts = list(parts)
        return {*parts, *(above for p in parts for input in p.publishes for above in self.above[input.name])}

    def told_elsewhere(self) -> list[str]:
        """The types published here to which detectors listen that run elsewhere; all, where sensor types are named."""
        if self.tells:
            return [input.name for part in self.parts for input in part.publishes]
        here = {part.name for part in self.parts}
        wanted = {kind for name, kinds in self.hierarchy.listens.items() if name not in here for kind in kinds}
        return [input.name for part in self.parts for input in part.publishes if input.name in wanted]

    def adopt_default_slack(self, updates: Iterable[ProgressUpdate], clk: int) -> bool:
        """Take over what was heard of delays elsewhere, where too little was here; whether that changes anything."""
        default_slack = max([item.default_slack for item in updates], default=STARTING)
        if self.evidence.late_target is None or not self.startup.adopt_default_slack(default_slack, clk):
            return False
        for sensor in self.sensors.values():
            sensor.evaluated_at = NEVER
        return True

    # What is asked of all.

    @property
    def has_rows(self) -> bool:
        """Whether anything waits as columns."""
        return any(len(sensor.shared_rows) for sensor in self.sensors.values())

    def rows_to_objects(self) -> None:
        """Let the rows that wait as columns wait as events, since events are about to come one by one."""
        if self.has_rows:
            for part in self.parts:
                for entry in part.buffer.row_entries():
                    part.buffer.wait(entry)
            for sensor in self.sensors.values():
                sensor.shared_rows.clear()

    def advance(self, position: int, clk: int) -> None:
        """Let all watermarks follow the clock."""
        for part in self.parts:
            part.advance(position, clk)
        for sensor in self.sensors.values():
            sensor.advance(position, clk)

    @property
    def buffered(self) -> int:
        """How many events wait in front of the detector with the most; events are shared by those who wait."""
        return max([part.buffer.buffered for part in self.parts], default=0)

    def state(self) -> dict[str, Any]:
        return {
            "sensors": {name: input.state() for name, input in self.sensors.items()},
            "derived": {name: input.state() for name, input in self.derived.items()},
            "buffers": {part.name: part.buffer.state() for part in self.parts},
            "runners": {part.name: part.runner.state() for part in self.parts},
            "startup": self.startup.state(),
            "backlogs": {part.name: part.backlog.state() for part in self.parts if part.backlog},
        }

    def check_types(self, state: dict[str, Any]) -> None:
        """Refuse the state of another hierarchy."""
        saved, here = sorted({*state["sensors"], *state["derived"]}), sorted(self.readers)
        if saved != here:
            raise StateError(
                f"the state was saved with the event types {saved}, the hierarchy given has {here}; load it with the "
                f"hierarchy it was saved with, or start anew."
            )

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        self.startup.restore(state["startup"])
        for name, sensor in self.sensors.items():
            sensor.restore(state["sensors"][name], arrivals)
            if name in self.entering and sensor.has_ended:
                self.ended.add(name)
        for name, derived in self.derived.items():
            derived.restore(state["derived"][name], arrivals)
        for part in self.parts:
            part.buffer.restore(state["buffers"][part.name], arrivals)
            part.runner.restore(state["runners"][part.name])
            part.restore_backlog(state.get("backlogs", {}).get(part.name, []))

    def check_invariants(self) -> None:
        """What must hold between any two pushes; tests call it."""
        for part in self.parts:
            part.buffer.check_invariants()
            assert all(lower.rank < part.rank for lower in part.below), f"{part.name} runs before what it listens to"
        for input in self.derived.values():
            assert input.back >= 0, f"{input.name}: set back by less than nothing"
