"""Migration of detectors between engines.

A detector is migrated with everything that it needs: its state, its buffered and deferred events, its watermark, the
delays and publishers of its inputs, its back-dating, and its early results that are not final. For each input, the
target keeps the delay statistics that rest on more observations, its own or those of the source. Where sensor types
enter at several engines, progress updates carry everything that is known of them, and no statistics are migrated.

A state that is large is copied while the detector runs (``running.state_copy``): then :class:`Detached` has what the
copy lacks, and :class:`Receiver` puts both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from slackline.core import codec
from slackline.core.check import whole_number
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, StateError
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.engine.progress import checked_unsent, checked_update
from slackline.engine.scalar import AttachedOperator
from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.shared_rows import SharedRows
from slackline.running.operator import Operator
from slackline.running.state_copy import StateCopy
from slackline.speculation.runner import SpeculativeRunner

if TYPE_CHECKING:
    from slackline.engine.engine import Engine

KIND, VERSION = "detector", 2


def extend(engine: Engine, detector: Detector) -> None:
    """Add a new detector to the hierarchy, and run it here."""
    topology = engine._topology
    hierarchy = topology.hierarchy.extended(detector)
    name = next(name for name in hierarchy.names if name not in topology.hierarchy.names)
    topology.extend(hierarchy)
    operator = topology.make(engine._runner(name, detector))
    operator.buffer.join(engine._intake.position)
    topology.add(operator)


class Detached:
    """A detector that was detached while a copy of its state was being made."""

    def __init__(self, engine: Engine, name: str, copied: StateCopy) -> None:
        operator = operator_of(engine, name)
        #: What the copy lacks, and the state beside it.
        self.rest = copied.rest()
        copied.end()
        self._runner, self._head = operator.runner, _head(engine, operator)
        self.beside = _dumped(self._head, self._runner.state_beside(copied))

    def whole(self) -> bytes:
        """The complete state, as :func:`packed` gives it."""
        return _dumped(self._head, self._runner.state())


class Receiver:
    """Receives the copy of a detector's state, for :func:`unpack`."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.runner = engine._runner(name, engine._topology.hierarchy.fresh(name))
        self._received = self.runner.receive()
        #: Add a piece of the copy; decode what has arrived.
        self.add, self.prepare = self._received.add, self._received.prepare

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the runner from what was received and the state beside it."""
        self.runner.restore(state, self._received)


def packed(engine: Engine, name: str) -> bytes:
    """The complete state of a detector. Changes nothing."""
    operator = operator_of(engine, name)
    return _dumped(_head(engine, operator), operator.runner.state())


def _dumped(head: dict[str, Any], runner: dict[str, Any]) -> bytes:
    return codec.dump(KIND, VERSION, {**head, "runner": runner}, where=head["name"])


def operator_of(engine: Engine, name: str) -> Operator:
    operator = engine._topology.operator(name)
    if operator is None:
        running = [each.name for each in engine._topology.operators]
        raise ConfigError(f"detector {name!r} does not run in this engine; {running} do.")
    return operator


def _head(engine: Engine, operator: Operator) -> dict[str, Any]:
    """The state of an operator, without that of its runner."""
    name = operator.name
    inputs = operator.buffer.inputs if engine._topology.named is None else ()
    return {
        "name": name,
        "buffer": operator.buffer.state(operator.buffer.row_entries()),
        "deferred": operator.deferred.state(),
        "early": engine._speculator.state_of(name) if isinstance(operator.runner, SpeculativeRunner) else None,
        "inputs": {input.name: _statistics(input) for input in inputs},
        "publishes": {input.name: _statistics(input) for input in operator.publishes},
        "unsent": engine._progress.unsent([input.name for input in operator.publishes]),
        "clk": engine._intake.clk,
        "arrivals": engine._intake.position,
    }


def _statistics(input: Input) -> dict[str, Any]:
    """The state of an input, without buffered rows."""
    return {name: value for name, value in input.state().items() if name not in ("rows", "remote_watermark", "late")}


def unpack(
    engine: Engine,
    data: bytes,
    missed: Iterable[ProgressUpdate],
    delays: Mapping[str, int],
    receiver: Receiver | None = None,
) -> tuple[list[ProgressUpdate], int, AttachedOperator | None]:
    """Add a migrated detector. Raises before anything changed.

    The caller processes what is returned: progress updates of what the detector published and the source did not
    export, stream time of the source, and the operator with the events that it missed.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigError(f"attach() takes the bytes of detach(), or a detector; got a {type(data).__name__}.")
    state = codec.load(KIND, VERSION, data)
    topology, speculator, intake = engine._topology, engine._speculator, engine._intake
    try:
        operator = _restored(engine, state, receiver)
        events = _missed(topology, operator, missed)
        known_delays = _delays(operator, delays)
        inputs = state["inputs"].items() if topology.named is None else ()
        statistics = [*inputs, *state["publishes"].items()]
        adopted = [(input, known) for name, known in statistics if (input := _inferior(topology, name, known))]
        early = speculator.restored_of(state["early"]) if state["early"] is not None else None
        unsent = checked_unsent(state["unsent"], [input.name for input in operator.publishes])
        clk = checked.number(state, "detector", "clk", NEVER, MAX_TS)
        backs = {
            kind: checked.number(known, kind, "back", 0, FOREVER + 1) for kind, known in state["publishes"].items()
        }
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StateError(f"the bytes are not the state of a detector of this hierarchy ({error!r}).") from error
    if any(isinstance(input, SensorInput) and len(input.shared_rows) for input, _ in adopted):
        topology.rows_to_heaps()  # the rows refer to sources as they are known here
    for input, known in adopted:
        _adopt(input, known)
    for input in operator.publishes:
        input.assume_back(backs[input.name])
    for input, delay in known_delays:
        input.assume_delay(delay)
    operator.buffer.renumber(max(0, intake.position - 1))
    operator.buffer.join(intake.position)
    topology.add(operator)
    if early is not None:
        speculator.adopt(operator.name, *early)
    watermark, back = operator.watermark, {kind: topology.derived[kind].back for kind in unsent}
    updates = [ProgressUpdate(kind, tuple(e), tuple(w), watermark, back[kind], clk) for kind, (e, w) in unsent.items()]
    if topology.named is None and not events:
        return updates, clk, None
    operator.hold_until_after(intake.clk)  # its watermark must not advance before the missed events are processed
    return updates, clk, AttachedOperator(operator, events)


def _missed(topology: Topology, operator: Operator, missed: Iterable[ProgressUpdate]) -> list[tuple[Input, Event]]:
    """The events of progress updates that arrived during the migration, with their inputs."""
    events: list[tuple[Input, Event]] = []
    inputs = {input.name: input for input in operator.buffer.inputs}
    for item in missed:
        rows, item = checked_update(topology, item)
        if item.type not in inputs:
            raise ConfigError(
                f"missed={item.type!r}, but detector {operator.name!r} does not listen to it, only to {sorted(inputs)}."
            )
        events += [(inputs[item.type], event) for event in (item.events if rows is None else rows)]
    return events


def _delays(operator: Operator, delays: Mapping[str, int]) -> list[tuple[Input, int]]:
    """Initial delays, by input."""
    inputs = {input.name: input for input in operator.buffer.inputs}
    unknown = sorted(set(delays) - set(inputs))
    if unknown:
        raise ConfigError(
            f"delays={unknown}, but detector {operator.name!r} does not listen to these, only to {sorted(inputs)}."
        )
    return [(inputs[kind], whole_number(f"delays[{kind!r}]", K, 0, FOREVER)) for kind, K in delays.items()]


def _restored(engine: Engine, state: dict[str, Any], receiver: Receiver | None) -> Operator:
    topology, name = engine._topology, state["name"]
    if name not in topology.hierarchy.names:
        raise ConfigError(
            f"detector {name!r} is not in this engine's hierarchy, which has {list(topology.hierarchy.names)}."
        )
    if topology.operator(name) is not None:
        raise ConfigError(f"detector {name!r} runs in this engine already.")
    runner = engine._runner(name, topology.hierarchy.fresh(name)) if receiver is None else receiver.runner
    operator = topology.make(runner)
    operator.buffer.restore(state["buffer"], checked.number(state, "detector", "arrivals"))
    if receiver is None:
        runner.restore(state["runner"])
    else:
        receiver.restore(state["runner"])
    operator.restore_deferred(state.get("deferred", []))
    return operator


def _inferior(topology: Topology, name: str, known: dict[str, Any]) -> Input | None:
    """The input of a type, if the given statistics rest on more observations; they are validated on a copy of it."""
    ours = topology.input(name)
    if isinstance(ours, SensorInput):
        other: Input = SensorInput(
            name, ours.rank, ours.evidence, ours.is_clock, ours.startup, event_type=ours.event_type
        )
    else:
        other = DerivedInput(name, ours.rank, ours.evidence)
    _adopt(other, known)
    return ours if other.observations > ours.observations else None


def _adopt(input: Input, known: dict[str, Any]) -> None:
    if isinstance(input, SensorInput):
        known = {**known, "rows": SharedRows().state(), "remote_watermark": input.remote_watermark, "late": input.late}
    input.restore(known, arrivals=0)
