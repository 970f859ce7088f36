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
from slackline.core.time import MAX_TS
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.progress import good
from slackline.engine.scalar import Joining
from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.ordering.constants import FOREVER, NEVER
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.store import ColumnStore
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
    inputs = part.unit.inputs if topology.named is None else ()
    state = {
        "name": name,
        "unit": part.unit.state(part.unit.row_entries()),
        "runner": part.runner.state(),
        "backlog": part.backlog.state(),
        "early": lookahead.state_of(name) if isinstance(part.runner, SpeculativeRunner) else None,
        "inputs": {channel.name: _knowledge(channel) for channel in inputs},
        "publishes": {channel.name: _knowledge(channel) for channel in part.publishes},
        "unsent": outbox.unsent([channel.name for channel in part.publishes]),
        "clk": intake.clk,
        "arrivals": intake.position,
    }
    return codec.dump(KIND, VERSION, state, where=name)


def _knowledge(channel: Input) -> dict[str, Any]:
    """What is known of a type, without the rows that wait for others."""
    return {name: value for name, value in channel.state().items() if name not in ("store", "told", "late")}


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
        taken = [(channel, known) for name, known in knowledge if (channel := _learns(topology, name, known))]
        early = lookahead.restored_of(state["early"]) if state["early"] is not None else None
        unsent = outbox.checked_unsent(state["unsent"], [channel.name for channel in part.publishes])
        clk = checked.number(state, "detector", "clk", NEVER, MAX_TS)
        backs = {
            kind: checked.number(known, kind, "back", 0, FOREVER + 1) for kind, known in state["publishes"].items()
        }
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StateError(f"these bytes do not hold a detector of this hierarchy ({error!r}).") from error
    topology.rows_to_objects()
    for channel, known in taken:
        _learn(channel, known)
    for channel in part.publishes:
        channel.back = max(channel.back, backs[channel.name])
    for channel, delay in known_delays:
        channel.suppose(delay)
    part.unit.renumber(max(0, intake.position - 1))
    topology.add(part)
    if early is not None:
        lookahead.early[part.name], lookahead.accounts[part.name] = early
    watermark, back = part.watermark, {kind: topology.derived[kind].back for kind in unsent}
    updates = [ProgressUpdate(kind, tuple(e), tuple(w), watermark, back[kind], clk) for kind, (e, w) in unsent.items()]
    if topology.named is None and not events:
        return updates, clk, None
    part.as_of = intake.clk  # its watermark moves when it is looked at, not before
    return updates, clk, Joining(part, events)


def _missed(topology: Topology, part: Operator, missed: Iterable[ProgressUpdate]) -> list[Event]:
    """The events of news that has come while a detector was on its way."""
    events: list[Event] = []
    inputs = {channel.name for channel in part.unit.inputs}
    for item in missed:
        rows, item = good(topology, item)
        if item.type not in inputs:
            raise ConfigError(
                f"missed={item.type!r}, but detector {part.name!r} does not listen to it, only to {sorted(inputs)}."
            )
        events += item.events if rows is None else rows
    return events


def _delays(part: Operator, delays: Mapping[str, int]) -> list[tuple[Input, int]]:
    """Delays to start from, by channel."""
    inputs = {channel.name: channel for channel in part.unit.inputs}
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
    part.unit.restore(state["unit"], checked.number(state, "detector", "arrivals"))
    part.runner.restore(state["runner"])
    part.restore_backlog(state.get("backlog", []))
    return part


def _learns(topology: Topology, name: str, known: dict[str, Any]) -> Input | None:
    """The channel of a type, if there is something to learn of it; what is known is tried out on another one."""
    ours = topology.channel(name)
    if isinstance(ours, SensorInput):
        other: Input = SensorInput(name, ours.rank, ours.evidence, ours.is_clock, ours.hearing)
    else:
        other = DerivedInput(name, ours.rank, ours.evidence)
    _learn(other, known)
    return ours if other.experience > ours.experience else None


def _learn(channel: Input, known: dict[str, Any]) -> None:
    if isinstance(channel, SensorInput):
        known = {**known, "store": ColumnStore().state(), "told": channel.told, "late": channel.late}
    channel.restore(known, arrivals=0)
