"""Semi-configured delay estimation: Algorithm 3 of [Order, III-B] (Algorithm 3.3 of [Thesis, 3.5.2]).

A delay is a sum: the time that a detector's input waits (*ordering*), *processing*, *back*dating, and the *network*
between the detector and its subscribers. Processing and backdating belong to the detector and stay what they were in
the old configuration. So the delays of a new one follow without a recording: of the sensors they are measured, or those
of the old one; then, from the lowest level up, each detector whose inputs are all known sends a pseudo event for each
type it publishes, with an event time as far back as a real one would have. Its receiver knows the delay from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from slackline.calibration.iteration import awaited
from slackline.core.calibration import Calibration, TypeDelay
from slackline.core.check import one_of, whole_number
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import MAX_TS

#: What can be measured: of a sensor type its jitter, of one that is published the parts of its delay.
JITTER, PARTS = "jitter", ("processing", "back", "network")

SubDelays = Mapping[str, Mapping[str, int]]


class PseudoEvent(NamedTuple):
    """An event that no detector processes: its type, its event time, and stream time when it is received."""

    type: str
    ts: int
    received: int


def estimate(old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays | None = None) -> Calibration:
    """The calibration of a hierarchy, from that of an older one and from what was measured since.

    ``sub_delays`` has what is new, by type: of sensors their ``jitter``, of what is published ``processing``, ``back``
    and ``network``, as in ``{"position": {"jitter": 40}, "hit": {"network": 5}}``. What it does not have is as it was;
    where no network is given there is none.
    """
    known = _sensors(old, hierarchy, _checked(hierarchy, sub_delays or {}))
    for event, parts in _propagated(old, hierarchy, sub_delays or {}, dict(known), clk=0):
        known[event.type] = TypeDelay(event.received - event.ts, **parts)
    return Calibration.made(hierarchy, known)


def propagate(
    old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays | None = None, clk: int = 0
) -> list[PseudoEvent]:
    """The pseudo events by which :func:`estimate` finds its delays, in the order in which they are sent, at ``clk``."""
    known = _sensors(old, hierarchy, _checked(hierarchy, sub_delays or {}))
    return [event for event, _ in _propagated(old, hierarchy, sub_delays or {}, known, clk)]


def _propagated(
    old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays, known: dict[str, TypeDelay], clk: int
) -> Iterator[tuple[PseudoEvent, dict[str, int]]]:
    # The order of the names is from the lowest level up, so that all inputs of a detector are known before its turn.
    for name in hierarchy.names:
        ordering = max(known[kind].delay for kind in awaited(hierarchy, name))
        for kind in hierarchy.published(name):
            parts = _parts(old, hierarchy, name, kind, sub_delays.get(kind, {}))
            event = PseudoEvent(kind, clk - ordering - parts["processing"] - parts["back"], clk + parts["network"])
            if event.received - event.ts > MAX_TS:
                raise ConfigError(f"the delay of {kind!r} would be {event.received - event.ts}, more than all time.")
            known[kind] = TypeDelay(event.received - event.ts)
            yield event, parts


def _parts(old: Calibration, hierarchy: Hierarchy, name: str, kind: str, measured: Mapping[str, int]) -> dict[str, int]:
    was = old.types.get(kind) if any(kind in wiring.publishes for wiring in old.detectors.values()) else None
    missing = [part for part in ("processing", "back") if part not in measured]
    if was is None and missing:
        raise ConfigError(
            f"the old calibration does not know the type {kind!r}, which {name!r} publishes; give its "
            f"{' and '.join(missing)} delay as measured, or calibrate from a recording."
        )
    back = measured.get("back", was.back if was else 0)
    return {
        "processing": measured.get("processing", was.processing if was else 0),
        "back": max(back, hierarchy.max_backdate[name]),
        "network": measured.get("network", 0),
    }


def _sensors(old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays) -> dict[str, TypeDelay]:
    known = {}
    for kind in hierarchy.sensor_types:
        if JITTER in sub_delays.get(kind, {}):
            known[kind] = TypeDelay(sub_delays[kind][JITTER])
        elif kind in old.types:
            known[kind] = TypeDelay(old.types[kind].delay)
        else:
            raise ConfigError(
                f"the old calibration does not know the sensor type {kind!r}; it has {sorted(old.types)}. Give its "
                f"jitter as measured, or calibrate from a recording."
            )
    return known


def _checked(hierarchy: Hierarchy, sub_delays: SubDelays) -> SubDelays:
    for kind, measured in sub_delays.items():
        if kind not in hierarchy.sensor_types and kind not in hierarchy.publisher:
            known = [*hierarchy.sensor_types, *sorted(hierarchy.publisher)]
            raise ConfigError(
                f"a sub-delay is given of type {kind!r}, which the hierarchy does not have; it has {known}."
            )
        for part, value in measured.items():
            one_of(f"the sub-delay of {kind!r}", part, PARTS if kind in hierarchy.publisher else (JITTER,))
            whole_number(f"{part} of {kind!r}", value, 0, MAX_TS)
    return sub_delays
