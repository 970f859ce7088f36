"""Detectors that leave an engine and join another, and what engines tell each other.

A detector travels with everything that it needs elsewhere: its state, the events that wait for it, its horizon, what is
known of the delays and the publishers of its inputs, how far it sets events back, and the early answers that are not
settled. Who takes it over knows at least as much of its inputs as the one who gave it away: of each type, the knowledge
that rests on more experience is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from slackline.core import codec
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, StateError
from slackline.core.outcome import News
from slackline.core.time import MAX_TS
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.topology import Topology
from slackline.ordering import checked
from slackline.ordering.channel import Channel, DerivedChannel, SensorChannel
from slackline.ordering.constants import NEVER
from slackline.ordering.store import ColumnStore
from slackline.running.part import Part
from slackline.running.runner import Runner
from slackline.speculation.ahead import SpeculativeRunner
from slackline.speculation.lookahead import LookAhead

KIND, VERSION = "detector", 1


def news(topology: Topology, outbox: Outbox, clk: int) -> list[News]:
    """What to tell of the types that are listened to elsewhere."""
    told = []
    for part in topology.parts:
        for channel in part.publishes:
            if channel.name in outbox.exported:
                events, warnings = outbox.take_news(channel.name)
                told.append(News(channel.name, events, warnings, part.unit.horizon, channel.back, clk))
    return told


def checked_news(topology: Topology, items: Iterable[News]) -> list[News]:
    """The news, if it is of types that detectors elsewhere publish."""
    taken = list(items)
    here = {channel.name: part.name for part in topology.parts for channel in part.publishes}
    for item in taken:
        if not isinstance(item, News):
            raise ConfigError(f"receive() takes what news() of another engine gave; got a {type(item).__name__}.")
        if item.type in here:
            raise ConfigError(f"news of type {item.type!r}, but its detector {here[item.type]!r} runs in this engine.")
        if item.type not in topology.derived:
            raise ConfigError(
                f"news of type {item.type!r}, which no detector of the hierarchy publishes; those published are "
                f"{sorted(topology.derived)}."
            )
    return taken


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
    state = {
        "name": name,
        "unit": part.unit.state(part.unit.row_entries()),
        "runner": part.runner.state(),
        "early": lookahead.state_of(name) if isinstance(part.runner, SpeculativeRunner) else None,
        "inputs": {channel.name: _knowledge(channel) for channel in part.unit.inputs},
        "publishes": {channel.name: _knowledge(channel) for channel in part.publishes},
        "unsent": outbox.unsent([channel.name for channel in part.publishes]),
        "clk": intake.clk,
        "arrivals": intake.position,
    }
    return codec.dump(KIND, VERSION, state, where=name)


def _knowledge(channel: Channel) -> dict[str, Any]:
    """What is known of a type, without the rows that wait for others."""
    return {name: value for name, value in channel.state().items() if name != "store"}


def unpack(
    topology: Topology,
    outbox: Outbox,
    lookahead: LookAhead,
    intake: Intake,
    data: bytes,
    runner_of: Callable[[str, Detector], Runner],
) -> tuple[list[News], int]:
    """Let a detector go on here. Raises before anything changed.

    What is left to do: news of what it has published and nobody heard of, and to follow the clock it comes from.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigError(f"attach() takes the bytes of detach(), or a detector; got a {type(data).__name__}.")
    state = codec.load(KIND, VERSION, data)
    try:
        part = _part(topology, state, runner_of)
        knowledge = [*state["inputs"].items(), *state["publishes"].items()]
        taken = [(channel, known) for name, known in knowledge if (channel := _learns(topology, name, known))]
        early = lookahead.restored_of(state["early"]) if state["early"] is not None else None
        unsent = outbox.checked_unsent(state["unsent"], [channel.name for channel in part.publishes])
        clk = checked.number(state, "detector", "clk", NEVER, MAX_TS)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StateError(f"these bytes do not hold a detector of this hierarchy ({error!r}).") from error
    topology.rows_to_objects()
    for channel, known in taken:
        _learn(channel, known)
    part.unit.renumber(max(0, intake.position - 1))
    topology.add(part)
    if early is not None:
        lookahead.early[part.name], lookahead.accounts[part.name] = early
    horizon, back = part.unit.horizon, {kind: topology.derived[kind].back for kind in unsent}
    news = [News(kind, tuple(e), tuple(w), horizon, back[kind], clk) for kind, (e, w) in unsent.items()]
    return news, clk


def _part(topology: Topology, state: dict[str, Any], runner_of: Callable[[str, Detector], Runner]) -> Part:
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
    return part


def _learns(topology: Topology, name: str, known: dict[str, Any]) -> Channel | None:
    """The channel of a type, if there is something to learn of it; what is known is tried out on another one."""
    ours = topology.channel(name)
    if isinstance(ours, SensorChannel):
        other: Channel = SensorChannel(name, ours.rank, ours.evidence, ours.is_clock, ours.hearing)
    else:
        other = DerivedChannel(name, ours.rank, ours.evidence)
    _learn(other, known)
    return ours if other.experience > ours.experience else None


def _learn(channel: Channel, known: dict[str, Any]) -> None:
    known = {**known, "store": ColumnStore().state()} if isinstance(channel, SensorChannel) else known
    channel.restore(known, arrivals=0)
