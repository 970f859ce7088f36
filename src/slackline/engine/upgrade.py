"""Upgrades: a saved state for a hierarchy that has changed since, as savepoints do it.

What matches by name is kept: detectors with their state and buffered events, types with their delays and sources. What
is new starts empty: a new detector processes what arrives from now on. What is gone is dropped, with the events that
were buffered for it. All of it is counted. A detector whose attributes have changed converts its own state
(:meth:`~slackline.Detector.upgrade`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from slackline.core.errors import StateError
from slackline.core.hierarchy import Hierarchy
from slackline.ordering import checked


@dataclass(frozen=True, slots=True)
class Upgrade:
    """How a hierarchy differs from that of a saved state: names of detectors and types, in order.

    ``dropped_events`` were buffered for detectors that are gone, or are of types that a detector no longer listens to.
    """

    kept: tuple[str, ...]
    new: tuple[str, ...]
    dropped: tuple[str, ...]
    new_types: tuple[str, ...]
    dropped_types: tuple[str, ...]
    dropped_events: int = 0

    @classmethod
    def of(cls, state: Mapping[str, Any], hierarchy: Hierarchy) -> Upgrade | None:
        """What has changed since a state was saved; None if nothing has."""
        names, topology = checked.items(state, "engine", "hierarchy"), state["topology"]
        types = {"sensor": set(topology["sensors"]), "derived": set(topology["derived"])}
        now = {"sensor": set(hierarchy.sensor_types), "derived": set(hierarchy.publisher)}
        if names == list(hierarchy.names) and types == now:
            return None
        kinds = {(kind, name) for kind in now for name in now[kind]}
        saved = {(kind, name) for kind in types for name in types[kind]}
        return cls(
            kept=tuple(name for name in hierarchy.names if name in names),
            new=tuple(name for name in hierarchy.names if name not in names),
            dropped=tuple(name for name in names if name not in hierarchy.names),
            new_types=tuple(sorted(name for _, name in kinds - saved)),
            dropped_types=tuple(sorted(name for _, name in saved - kinds)),
            dropped_events=_dropped_events(topology, hierarchy),
        )

    def plain(self) -> dict[str, Any]:
        """For statistics."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        parts = [("detectors kept", self.kept), ("new", self.new), ("dropped", self.dropped)]
        parts += [("new types", self.new_types), ("dropped types", self.dropped_types)]
        shown = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
        return f"{shown}; {self.dropped_events:,} buffered event{'' if self.dropped_events == 1 else 's'} dropped"


def _dropped_events(topology: Mapping[str, Any], hierarchy: Hierarchy) -> int:
    """Buffered events that no detector will process."""
    dropped = 0
    for name, saved in topology["buffers"].items():
        listens = hierarchy.listens.get(name, ())
        for item in (*checked.items(saved, name, "heap"), *checked.items(saved, name, "overdue")):
            dropped += item[2].type not in listens
    wanted = {kind for name in topology["buffers"] for kind in hierarchy.listens.get(name, ())}
    for name, saved in topology["sensors"].items():
        if name not in wanted or name not in hierarchy.sensor_types:
            dropped += buffered_rows(saved)
    return dropped


def buffered_rows(sensor: Mapping[str, Any]) -> int:
    """Number of rows in the saved state of a sensor type."""
    return len(sensor["rows"]["ts"]) if sensor["rows"] else 0


def fitting(state: dict[str, Any], hierarchy: Hierarchy) -> dict[str, Any]:
    """The parts of a saved state that fit the hierarchy."""
    saved = state["topology"]
    running = list(saved["buffers"])
    if state["sensors"] is not None or running != checked.items(state, "engine", "hierarchy"):
        raise StateError(
            "the checkpoint is of one of several engines that share a hierarchy, and the hierarchy has changed; there "
            "detectors cannot be added or removed while state is kept. Load it with the hierarchy it was saved with."
        )
    buffers = {
        name: _fitting_buffer(buffer, hierarchy.listens[name])
        for name, buffer in saved["buffers"].items()
        if name in hierarchy.names
    }
    topology = {
        **saved,
        "buffers": buffers,
        "sensors": {name: each for name, each in saved["sensors"].items() if name in hierarchy.sensor_types},
        "derived": {name: each for name, each in saved["derived"].items() if name in hierarchy.publisher},
        "deferred": {name: each for name, each in saved.get("deferred", {}).items() if name in hierarchy.names},
    }
    early = state["speculator"]
    detectors = {name: each for name, each in early["detectors"].items() if name in hierarchy.names}
    intake = state["intake"]
    if set(saved["sensors"]) != set(hierarchy.sensor_types):
        intake = {**intake, "skew": None}  # the clocks of sources are compared across all types: measured anew
    return {**state, "topology": topology, "intake": intake, "speculator": {**early, "detectors": detectors}}


def _fitting_buffer(buffer: dict[str, Any], listens: Iterable[str]) -> dict[str, Any]:
    kept = set(listens)
    return {
        **buffer,
        **{name: [item for item in buffer[name] if item[2].type in kept] for name in ("heap", "overdue")},
    }
