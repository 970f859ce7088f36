"""The topology: inputs and operators of this engine, and how they are connected.

The hierarchy defines how the detectors of an application are connected; the topology, which of them run in this engine,
with an input for each event type. Operators are added and removed at run time (:meth:`Topology.add`,
:meth:`Topology.remove`). A type that enters or is published in another engine has an input here too; its progress is
received from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from slackline.core.calibration import Calibration
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, Now
from slackline.core.types import EventType, type_names
from slackline.ordering.clock import AIDS, NO_CLOCK, SETS
from slackline.ordering.input import DerivedInput, Evidence, Input, SensorInput
from slackline.ordering.startup import STARTING, StartupEstimator
from slackline.ordering.watermark import LATE_TARGET, ORDERED, SLACK
from slackline.running.operator import Operator
from slackline.running.runner import Runner

#: An event type that is not declared.
UNDECLARED = EventType("undeclared")


class Topology:
    """Inputs by type, operators in the order of the hierarchy, and the readers of each type."""

    def __init__(
        self,
        hierarchy: Hierarchy,
        evidence: Evidence,
        targets: Mapping[str, float],
        sensors: Collection[str] | None,
        now: Now | None,
        alone: bool,
    ) -> None:
        self.evidence = evidence
        self._now = now
        #: The late target of each detector, where they differ.
        self.targets = targets
        #: Decides, over all types, when delays are known well enough.
        self.startup = StartupEstimator(evidence.warmup)
        self.sensors: dict[str, SensorInput] = {}
        #: The sensor types that enter here, if named (None: all); the others are received as progress updates.
        self.named = sensors
        self.entering = self.sensors if sensors is None else {}
        #: Whether this is the only engine although sensor types are named, so that lateness is decided per type.
        self.alone = alone
        #: The entering types that have ended.
        self.ended: set[str] = set()
        self.derived: dict[str, DerivedInput] = {}
        self.operators: list[Operator] = []
        #: By type: the operators that listen to it; and those that depend on it, directly or indirectly.
        self.readers: dict[str, list[Operator]] = {}
        self.above: dict[str, tuple[Operator, ...]] = {}
        #: By type of events that enter: its input, whether events are checked against a declaration and, where only
        #: one operator depends on it, which depends on sensor types in their order alone, that operator.
        self.entries: dict[str, tuple[SensorInput, bool, Operator | None]] = {}
        self.extend(hierarchy)

    def extend(self, hierarchy: Hierarchy) -> None:
        """Add the new types of an extended hierarchy; operators are added afterwards."""
        self.hierarchy = hierarchy
        kinds = sorted({*hierarchy.entering, *hierarchy.publisher})
        ranks = {kind: rank for rank, kind in enumerate(kinds)}  # parts of a type are ordered as one
        for name in sorted({*hierarchy.sensor_types, *hierarchy.publisher}):
            kind = hierarchy.event_type(name)
            rank = ranks[kind]
            input: Input | None = self.sensors.get(name) or self.derived.get(name)
            if input is not None:
                input.set_rank(rank)
            elif name in hierarchy.publisher:
                self.derived[name] = DerivedInput(name, rank, self.evidence)
                self.derived[name].assume_back(hierarchy.max_backdate[hierarchy.publisher[name]])
            else:
                is_clock = name in hierarchy.clock
                evidence = self._evidence(name)
                is_declared = name in hierarchy.types and kind == name  # of a part's sources nothing is declared
                declared = len(hierarchy.types[name].sources or ()) if is_declared else 0
                sensor = SensorInput(name, rank, evidence, is_clock, self.startup, declared, kind)
                self.sensors[name] = sensor
                if name in hierarchy.clock_aids:
                    sensor.assign_role(AIDS + hierarchy.clock_aids.index(name))
                if self.alone:
                    self.named = sorted({*(self.named or ()), name})
                if self.named is not None:
                    self._assign_watermark(sensor, name in self.named)

    def _assign_watermark(self, sensor: SensorInput, enters: bool) -> None:
        """With several engines, an input watermark is computed where the type enters; under ``slack`` in each one."""
        if enters:
            self.entering[sensor.name] = sensor
        if self.evidence.policy != SLACK:
            sensor.assign_watermark(enters)
        if enters and self.own_time and not set(self.hierarchy.clock) <= set(self.named or ()):
            sensor.assign_role(SETS)

    @property
    def exports_all(self) -> bool:
        """Whether progress of all types that enter or are published here is exported to other engines."""
        return self.named is not None and not self.alone

    @property
    def own_time(self) -> bool:
        """Whether stream time is local: input is in order here, but not relative to that of other engines.

        If a clock type enters elsewhere, all types that enter here advance stream time.
        """
        return self.evidence.policy == ORDERED and bool(self.named)

    @property
    def has_clock(self) -> bool:
        """Whether all clock types enter here, or a part of each.

        Then stream time of other engines is ignored: after a crash they may be ahead of this engine, and events that
        are replayed here would be late.
        """
        types, clock = self.hierarchy.event_types, (*self.hierarchy.clock, *self.hierarchy.clock_aids)
        return self.named is not None and {*types(clock)} <= {*types(self.named)}

    def _evidence(self, name: str) -> Evidence:
        """How the input watermark of a type is computed: by the smallest late target of the dependent detectors."""
        if not self.targets:
            return self.evidence
        listeners = {detector for detector, listens in self.hierarchy.listens.items() if name in listens}
        depend = [each for each, below in self.hierarchy.below.items() if each in listeners or below & listeners]
        accepted = [self.targets.get(detector, LATE_TARGET) for detector in depend]
        return replace(self.evidence, late_target=float(min(accepted, default=LATE_TARGET)))

    def start_from(self, calibration: Calibration | None) -> None:
        """Start with calibrated delays, if given."""
        known = calibration.types if calibration else {}
        for input in (*self.sensors.values(), *self.derived.values()):
            if input.event_type in known:
                input.start_from(known[input.event_type].delay)
        for name in known.keys() & self.derived.keys():
            self.derived[name].assume_back(known[name].back)
        for operator in self.operators:
            operator.buffer.set_slack(operator.buffer.largest_slack())  # no warning: readers start from it too

    def input(self, name: str) -> Input:
        return self.sensors[name] if name in self.sensors else self.derived[name]

    def operator(self, name: str) -> Operator | None:
        """The operator of a detector, if it runs here."""
        return next((operator for operator in self.operators if operator.name == name), None)

    def make(self, runner: Runner) -> Operator:
        """Create the operator of a detector of the hierarchy, without adding it."""
        detector = runner.detector
        inputs = [self.input(kind) for kind in dict.fromkeys(self.hierarchy.listens[runner.name])]
        inputs.sort(key=lambda input: input.rank)
        publishes = [self.derived[kind] for kind in dict.fromkeys(type_names(detector.publishes))]
        return Operator(runner, inputs, publishes, self._now, self.startup)

    def add(self, *operators: Operator) -> None:
        """Add operators."""
        self.operators += operators
        self._connect()

    def remove(self, name: str) -> None:
        """Remove the operator of a detector."""
        self.operators = [operator for operator in self.operators if operator.name != name]
        self._connect()

    def _connect(self) -> None:
        place = {name: rank for rank, name in enumerate(self.hierarchy.names)}
        for operator in self.operators:
            operator.set_rank(place[operator.name])
            operator.buffer.inputs.sort(key=lambda input: input.rank)
        self.operators.sort()
        publisher = {input.name: operator for operator in self.operators for input in operator.publishes}
        self.readers = {name: [] for name in (*self.sensors, *self.derived)}
        for operator in self.operators:
            for input in operator.buffer.inputs:
                self.readers[input.name].append(operator)
        for operator in self.operators:
            operator.connect(publisher, self.readers)
        above: dict[str, tuple[Operator, ...]] = {}
        for name in (*self.sensors, *self.derived):
            self._listeners(name, above)
        self.above = above
        self.entries = {
            input.event_type: (input, self.kind(name).demanding, self._alone_above(name))
            for name, input in self.entering.items()
        }
        # Operators that depend on all clock types are evaluated at each advance of stream time; others are scheduled.
        clock_readers = [set(above[name]) for name, sensor in self.entering.items() if sensor.role != NO_CLOCK]
        always = set.intersection(*clock_readers) if clock_readers else set()
        for operator in self.operators:
            operator.evaluate_always(operator in always)

    def kind(self, name: str) -> EventType:
        """The declaration of a type."""
        return self.hierarchy.types.get(name, UNDECLARED)

    def _alone_above(self, name: str) -> Operator | None:
        above = self.above[name]
        return above[0] if len(above) == 1 and above[0].reads_sensors_in_order else None

    def _listeners(self, name: str, above: dict[str, tuple[Operator, ...]]) -> tuple[Operator, ...]:
        if name not in above:
            found = set(self.readers[name])
            for operator in self.readers[name]:
                for input in operator.publishes:
                    found.update(self._listeners(input.name, above))
            above[name] = tuple(sorted(found))
        return above[name]

    def with_above(self, operators: Iterable[Operator]) -> set[Operator]:
        """The operators, and those that depend on them directly or indirectly."""
        operators = list(operators)
        return {*operators, *(above for p in operators for input in p.publishes for above in self.above[input.name])}

    def exported_types(self) -> list[str]:
        """The types published here that detectors in other engines listen to; all, where sensor types are named."""
        if self.exports_all:
            return [input.name for operator in self.operators for input in operator.publishes]
        here = {operator.name for operator in self.operators}
        wanted = {kind for name, kinds in self.hierarchy.listens.items() if name not in here for kind in kinds}
        return [input.name for operator in self.operators for input in operator.publishes if input.name in wanted]

    def adopt_default_slack(self, updates: Iterable[ProgressUpdate], clk: int) -> bool:
        """Adopt the default slack of other engines while too few delays are known here; whether anything changed."""
        default_slack = max([item.default_slack for item in updates], default=STARTING)
        if self.evidence.late_target is None or not self.startup.adopt_default_slack(default_slack, clk):
            return False
        self.invalidate()
        return True

    # All inputs and operators.

    @property
    def has_rows(self) -> bool:
        """Whether any shared rows are buffered."""
        return any(len(sensor.shared_rows) for sensor in self.sensors.values())

    def drop_rows(self, lazily: bool = False) -> None:
        """Drop the shared rows that all reorder buffers have released."""
        for input in self.sensors.values():
            buffers = [operator.buffer for operator in self.readers[input.name]]
            passed = min((buffer.watermark for buffer in buffers if buffer.sorts(input)), default=FOREVER)
            input.shared_rows.drop_through(passed, lazily)

    def rows_to_heaps(self) -> None:
        """Move shared rows into the heaps of the reorder buffers, so that an operator added now does not read them."""
        if self.has_rows:
            for operator in self.operators:
                operator.buffer.rows_to_heap()
            for sensor in self.sensors.values():
                sensor.shared_rows.clear()

    def invalidate(self) -> None:
        """All watermarks have changed at the present stream time."""
        for sensor in self.sensors.values():
            sensor.invalidate()
        for operator in self.operators:
            operator.invalidate()

    def advance(self, position: int, clk: int) -> None:
        """Evaluate all watermarks at stream time ``clk``."""
        for operator in self.operators:
            operator.advance(position, clk)
        for sensor in self.sensors.values():
            sensor.advance(position, clk)

    @property
    def buffered(self) -> int:
        """Number of events buffered for the detector that has most; the events are shared by detectors."""
        return max([operator.buffer.buffered for operator in self.operators], default=0)

    def state(self) -> dict[str, Any]:
        return {
            "sensors": {name: input.state() for name, input in self.sensors.items()},
            "derived": {name: self._derived_state(input) for name, input in self.derived.items()},
            "buffers": {operator.name: operator.buffer.state() for operator in self.operators},
            "runners": {operator.name: operator.runner.state() for operator in self.operators},
            "startup": self.startup.state(),
            "deferred": {operator.name: operator.deferred.state() for operator in self.operators if operator.deferred},
        }

    def _derived_state(self, input: DerivedInput) -> dict[str, Any] | None:
        """None for one that is as it was made: of a large application, an engine uses few types."""
        publisher = self.hierarchy.publisher[input.name]
        return None if input.is_as_made(self.hierarchy.max_backdate[publisher]) else input.state()

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        """Restore what the state has; types and detectors that are new to it start empty."""
        self.startup.restore(state["startup"])
        for name, sensor in self.sensors.items():
            if name not in state["sensors"]:
                continue
            sensor.restore(state["sensors"][name], arrivals)
            if name in self.entering and sensor.has_ended:
                self.ended.add(name)
        for name, derived in self.derived.items():
            if state["derived"].get(name) is not None:
                derived.restore(state["derived"][name], arrivals)
        kept = [operator for operator in self.operators if operator.name in state["buffers"]]
        for operator in kept:
            operator.buffer.restore(state["buffers"][operator.name], arrivals)
            operator.runner.restore(state["runners"][operator.name])
            operator.restore_deferred(state.get("deferred", {}).get(operator.name, []))
        for operator in self.operators:
            if operator not in kept:  # it does not read the rows that arrived before
                operator.buffer.join(arrivals)

    def check_invariants(self) -> None:
        """Assert what must hold between two pushes; for tests."""
        for operator in self.operators:
            operator.buffer.check_invariants()
            assert all(lower.rank < operator.rank for lower in operator.below), (
                f"{operator.name} runs before its inputs"
            )
        for input in self.derived.values():
            assert input.back >= 0, f"{input.name}: negative back-dating"
