"""Detectors that leave an engine and join another.

A detector travels with everything that it needs elsewhere: its state, the events that wait for it, its watermark, what is
known of the delays and the publishers of its inputs, how far it sets events back, and the early answers that are not
settled. Who takes it over knows at least as much of its inputs as the one who gave it away: of each type, the knowledge
that rests on more experience is kept. Where sensor types enter at several engines, all knowledge comes by news, and
nothing of its inputs is learnt from another engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slackline.core import codec
from slackline.core.check import whole_number
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, StateError
from slackline.core.event import Event
from slackline.core.outcome import ProgressUpdate
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.progress import good
from slackline.engine.scalar import Joining
from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.shared_rows import SharedRows
from slackline.running.operator import Operator
from slackline.running.runner import Runner
from slackline.speculation.ahead import SpeculativeRunner
from slackline.speculation.lookahead import LookAhead

KIND, VERSION = "detector", 1


def join(topology: Topology, detector: Detector, runner_of: Callable[[str, Detector], Runner]) -> None:
    """Let a new detector join the hierarchy, and run here."""
    hierarchy = topology.hierarchy.extended(detector)
    name = next(name for name in hierarchy.names if name not in topology.hierarchy.names)
    topology.extend(hierarchy)
    topology.add(topology.make(runner_of(name, detector)))


def packed(topology: Topology, outbox: Outbox, lookahead: LookAhead, intake: Intake, name: str) -> bytes:
    """A detector and all that it needs elsewhere. Nothing changes here."""
    part = topology.part(name)
    if part is None:
        raise ConfigError(f"detector {name!r} does not run here; these do: {[each.name for each in topology.parts]}.")
    inputs = part.buffer.inputs if topology.named is None else ()
    state = {
        "name": name,
        "buffer": part.buffer.state(part.buffer.row_entries()),
        "runner": part.runner.state(),
        "backlog": part.backlog.state(),
        "early": lookahead.state_of(name) if isinstance(part.runner, SpeculativeRunner) else None,
        "inputs": {input.name: _knowledge(input) for input in inputs},
        "publishes": {input.name: _knowledge(input) for input in part.publishes},
        "unsent": outbox.unsent([input.name for input in part.publishes]),
        "clk": intake.clk,
        "arrivals": intake.position,
    }
    return codec.dump(KIND, VERSION, state, where=name)


def _knowledge(input: Input) -> dict[str, Any]:
    """What is known of a type, without the rows that wait for others."""
    return {name: value for name, value in input.state().items() if name not in ("rows", "remote_watermark", "late")}


def unpack(
    topology: Topology,
    outbox: Outbox,
    lookahead: LookAhead,
    intake: Intake,
    data: bytes,
    runner_of: Callable[[str, Detector], Runner],
    missed: Iterable[ProgressUpdate] = (),
    delays: Mapping[str, int] | None = None,
) -> tuple[list[ProgressUpdate], int, Joining | None]:
    """Let a detector go on here. Raises before anything changed.

    What is left to do: news of what it has published and nobody heard of, to follow the clock it comes from, and what
    it has missed on its way.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigError(f"attach() takes the bytes of detach(), or a detector; got a {type(data).__name__}.")
    state = codec.load(KIND, VERSION, data)
    try:
        part = _part(topology, state, runner_of)
        events = _missed(topology, part, missed)
        known_delays = _delays(part, delays or {})
        inputs = state["inputs"].items() if topology.named is None else ()
        knowledge = [*inputs, *state["publishes"].items()]
        taken = [(input, known) for name, known in knowledge if (input := _learns(topology, name, known))]
        early = lookahead.restored_of(state["early"]) if state["early"] is not None else None
        unsent = outbox.checked_unsent(state["unsent"], [input.name for input in part.publishes])
        clk = checked.number(state, "detector", "clk", NEVER, MAX_TS)
        backs = {
            kind: checked.number(known, kind, "back", 0, FOREVER + 1) for kind, known in state["publishes"].items()
        }
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StateError(f"these bytes do not hold a detector of this hierarchy ({error!r}).") from error
    topology.rows_to_objects()
    for input, known in taken:
        _learn(input, known)
    for input in part.publishes:
        input.back = max(input.back, backs[input.name])
    for input, delay in known_delays:
        input.assume_delay(delay)
    part.buffer.renumber(max(0, intake.position - 1))
    topology.add(part)
    if early is not None:
        lookahead.early[part.name], lookahead.accounts[part.name] = early
    watermark, back = part.watermark, {kind: topology.derived[kind].back for kind in unsent}
    updates = [ProgressUpdate(kind, tuple(e), tuple(w), watermark, back[kind], clk) for kind, (e, w) in unsent.items()]
    if topology.named is None and not events:
        return updates, clk, None
    part.evaluated_at = intake.clk  # its watermark moves when it is looked at, not before
    return updates, clk, Joining(part, events)


def _missed(topology: Topology, part: Operator, missed: Iterable[ProgressUpdate]) -> list[Event]:
    """The events of news that has come while a detector was on its way."""
    events: list[Event] = []
    inputs = {input.name for input in part.buffer.inputs}
    for item in missed:
        rows, item = good(topology, item)
        if item.type not in inputs:
            raise ConfigError(
                f"missed={item.type!r}, but detector {part.name!r} does not listen to it, only to {sorted(inputs)}."
            )
        events += item.events if rows is None else rows
    return events


def _delays(part: Operator, delays: Mapping[str, int]) -> list[tuple[Input, int]]:
    """Delays to start from, by input."""
    inputs = {input.name: input for input in part.buffer.inputs}
    strange = sorted(set(delays) - set(inputs))
    if strange:
        raise ConfigError(
            f"delays={strange}, but detector {part.name!r} does not listen to these; it does to {sorted(inputs)}."
        )
    return [(inputs[kind], whole_number(f"delays[{kind!r}]", K, 0, FOREVER)) for kind, K in delays.items()]


def _part(topology: Topology, state: dict[str, Any], runner_of: Callable[[str, Detector], Runner]) -> Operator:
    name = state["name"]
    if name not in topology.hierarchy.names:
        raise ConfigError(
            f"detector {name!r} is not in this engine's hierarchy, which has {list(topology.hierarchy.names)}."
        )
    if topology.part(name) is not None:
        raise ConfigError(f"detector {name!r} runs in this engine already.")
    part = topology.make(runner_of(name, topology.hierarchy.fresh(name)))
    part.buffer.restore(state["buffer"], checked.number(state, "detector", "arrivals"))
    part.runner.restore(state["runner"])
    part.restore_backlog(state.get("backlog", []))
    return part


def _learns(topology: Topology, name: str, known: dict[str, Any]) -> Input | None:
    """The input of a type, if there is something to learn of it; what is known is tried out on another one."""
    ours = topology.input(name)
    if isinstance(ours, SensorInput):
        other: Input = SensorInput(name, ours.rank, ours.evidence, ours.is_clock, ours.startup)
    else:
        other = DerivedInput(name, ours.rank, ours.evidence)
    _learn(other, known)
    return ours if other.observations > ours.observations else None


def _learn(input: Input, known: dict[str, Any]) -> None:
    if isinstance(input, SensorInput):
        known = {**known, "rows": SharedRows().state(), "remote_watermark": input.remote_watermark, "late": input.late}
    input.restore(known, arrivals=0)
