"""Start well: the delays of a hierarchy before it runs, from a recording or from another hierarchy's [Order, III].

>>> from slackline import Detector, Event, Hierarchy
>>> class Order(Detector):
...     listens = ("A", "B")
...     def on_event(self, event):
...         return []
>>> recording = [Event("A", 0), Event("A", 2), Event("B", 1), Event("A", 4)]
>>> calibrate(Hierarchy([Order()], clock="A"), recording).types["B"].delay
3

**Iterative calculation** (Algorithm 2 of [Order, III-A], Algorithm 3.2 of [Thesis, 3.5.1]). The recording is run under
``slack`` once per level. A run measures the delays of everything; those of the inputs of the lowest level are right at
once, as they come from sensors. Each further run starts from the delays that are final, so that one more level is
ordered and the delays of its events are measured. The last run is the one of the highest level, or the first that
changes nothing. Where each key has an engine of its own, the recording is one per key: all keys are run, and the delay
of a type is the largest of any key.

What is measured is the largest delay of the whole recording, without a margin: the engine that starts from it adds its
own. A published event is delayed by the wait of its detector's input and by its backdating: where a recording has no
event of a type, or none that shows this, that sum is used, as a pseudo event would give it. A sensor type that the
recording does not have gets the largest delay of the others.

**Semi-configured estimation** (Algorithm 3 of [Order, III-B], Algorithm 3.3 of [Thesis, 3.5.2]). A delay is a sum: the
time that a detector's input waits (*ordering*), *processing*, *back*dating, and the *network* between the detector and
its subscribers. Processing and backdating belong to the detector and stay what they were in the old configuration. So
the delays of a new one follow without a recording: of the sensors they are measured, or those of the old one; then,
from the lowest level up, each detector whose inputs are all known sends a pseudo event for each type it publishes,
with an event time as far back as a real one would have. Its receiver knows the delay from it.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from slackline.core.batch import Batch
from slackline.core.calibration import Calibration, TypeDelay
from slackline.core.check import one_of, whole_number
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import MAX_TS
from slackline.engine import Engine
from slackline.ordering.policy import Slack

__all__ = [
    "Calibration", "PseudoEvent", "Recording", "TypeDelay", "calibrate", "configurations", "estimate", "propagate",
    "sensor_delays",
]  # fmt: skip

#: Arrivals in their order: a table, events, or a function that gives such pieces from the start whenever it is called.
OneRecording: TypeAlias = pa.Table | Iterable[Event] | Callable[[], Iterable[pa.Table | Iterable[Event]]]
#: A recording, or one for each key.
Recording: TypeAlias = OneRecording | Mapping[Any, OneRecording]
#: Called with the number of the run and the arrivals of it so far.
Progress = Callable[[int, int], None]

#: More measurements than any recording has: the window holds all of them.
_ALL = 2**60
_PIECE = 50_000
#: A share of duplicates above this is logged as a warning.
_DUPLICATES = 0.01

logger = logging.getLogger("slackline.calibration")


def calibrate(hierarchy: Hierarchy, recording: Recording, progress: Progress | None = None) -> Calibration:
    """The delays of all types of a hierarchy, from a recording of its sensors."""
    *_, last = configurations(hierarchy, recording, progress)
    return last


def configurations(
    hierarchy: Hierarchy, recording: Recording, progress: Progress | None = None
) -> Iterator[Calibration]:
    """The result of each run; the last is right for all levels."""
    pieces = _pieces_by_key(recording)
    found: dict[str, TypeDelay] = {}
    for level in range(1, max(hierarchy.levels.values()) + 1):
        before, settled = found, _settled(hierarchy, level - 1)
        start = {kind: before[kind] if kind in settled else TypeDelay(0) for kind in _types(hierarchy)}
        found = _taken_apart(hierarchy, _run(hierarchy, pieces, Calibration.made(hierarchy, start), level, progress))
        yield Calibration.made(hierarchy, found)
        if found == before:
            return


def sensor_delays(hierarchy: Hierarchy, recording: Recording, progress: Progress | None = None) -> dict[str, int]:
    """The delays of the sensor types alone; no detector runs."""
    kinds = tuple(hierarchy.types.get(kind, kind) for kind in hierarchy.sensor_types)
    listener = Hierarchy([_Listener(kinds)], hierarchy.clock, hierarchy.clock_aids)
    return _sensors(hierarchy, _run(listener, _pieces_by_key(recording), None, 1, progress))


def _sensors(hierarchy: Hierarchy, stats: dict[str, Any]) -> dict[str, int]:
    measured = {kind: stats["types"][kind] for kind in hierarchy.sensor_types}
    latest = max(known["K"] for known in measured.values())
    return {kind: known["K"] if known["events"] else latest for kind, known in measured.items()}


class _Listener(Detector):
    """Receives all events and publishes none."""

    def __init__(self, listens: tuple[Any, ...]) -> None:
        self.listens = listens  # type: ignore[misc]

    def on_batch(self, batch: Batch) -> Iterable[tuple[int, Event]]:
        return ()


def awaited(hierarchy: Hierarchy, name: str) -> list[str]:
    """The types that a detector's input waits for; types that bypass ordering are not waited for."""
    unsorted = hierarchy.unsorted[name]
    return [kind for kind in hierarchy.listens[name] if kind not in unsorted] or list(hierarchy.listens[name])


def _types(hierarchy: Hierarchy) -> list[str]:
    return [*hierarchy.sensor_types, *(kind for name in hierarchy.names for kind in hierarchy.published(name))]


def _settled(hierarchy: Hierarchy, level: int) -> set[str]:
    """The types whose delays are right after so many runs: what detectors up to that level listen to."""
    low = {name for name, its in hierarchy.levels.items() if its <= level}
    inputs = {kind for name in low for kind in hierarchy.listens[name]}
    return {*inputs, *hierarchy.sensor_types} if level else set()


def _taken_apart(hierarchy: Hierarchy, stats: dict[str, Any]) -> dict[str, TypeDelay]:
    """The measured delays, and of those of published events what they consist of."""
    measured = stats["types"]
    found = {kind: TypeDelay(delay) for kind, delay in _sensors(hierarchy, stats).items()}
    for name in hierarchy.names:
        ordering = max(found[kind].delay for kind in awaited(hierarchy, name))
        for kind in hierarchy.published(name):
            back = measured[kind]["back"]
            delay = max(measured[kind]["K"], ordering + back)
            found[kind] = TypeDelay(delay, delay - ordering - back, back)
    return found


def _run(
    hierarchy: Hierarchy,
    recordings: Sequence[Callable[[], Iterator[Any]]],
    start: Calibration | None,
    run: int,
    progress: Progress | None,
) -> dict[str, Any]:
    """One run over all keys; of each type its events, its largest delay and how far it is set back."""
    found: dict[str, Any] = {"types": {}}
    arrivals = duplicates = 0
    quarantined: Counter[str] = Counter()
    has_clock = False
    for pieces in recordings:
        # A copy, so that the detectors given stay as they are.
        engine = Engine(copy.deepcopy(hierarchy), policy=Slack(margin=0, window=_ALL), calibration=start)
        for piece in pieces():
            engine.push(piece)
            engine.drain()
            arrivals += len(piece)
            if progress is not None:
                progress(run, arrivals)
        stats = engine.stats()
        has_clock = has_clock or stats["stream_time"] is not None
        duplicates += engine.duplicates
        quarantined.update(stats["quarantined"])
        for kind, its in stats["types"].items():
            known = found["types"].setdefault(kind, {"events": 0, "K": 0, "back": 0})
            known["events"] += its["events"]
            for name in ("K", "back"):
                known[name] = max(known[name], its.get(name) or 0)
    if not has_clock:
        aside = f"; in quarantine are {dict(quarantined)}" if quarantined else ""
        raise ConfigError(
            f"no delay can be measured: none of {arrivals} arrivals is of the clock types {list(hierarchy.clock)}"
            f"{aside}. Give a recording of this hierarchy's sensors."
        )
    if run == 1 and duplicates > _DUPLICATES * arrivals:
        logger.warning(
            "%s of %s arrivals (%.3g %%) were dropped as duplicates: their type, source and sequence number were seen "
            "before, so their delays are not measured. Check which fields are the source and the sequence number",
            f"{duplicates:,}", f"{arrivals:,}", 100 * duplicates / arrivals,
        )  # fmt: skip
    return found


def _pieces_by_key(recording: Recording) -> list[Callable[[], Iterator[Any]]]:
    each = recording.values() if isinstance(recording, Mapping) else [recording]
    return [_pieces(one) for one in each]


def _pieces(recording: OneRecording) -> Callable[[], Iterator[Any]]:
    """A function that gives the recording, piece by piece, from the start."""
    if not callable(recording) and not isinstance(recording, pa.Table):
        recording = list(recording)  # it may be an iterator, and there are several runs

    def pieces() -> Iterator[Any]:
        for whole in recording() if callable(recording) else (recording,):
            part = whole if isinstance(whole, pa.Table) else list(whole)
            for start in range(0, len(part), _PIECE):
                yield part.slice(start, _PIECE) if isinstance(part, pa.Table) else part[start : start + _PIECE]

    return pieces


# Semi-configured estimation.

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
    return Calibration.made(hierarchy, _propagated(old, hierarchy, sub_delays or {}, 0)[1])


def propagate(
    old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays | None = None, clk: int = 0
) -> list[PseudoEvent]:
    """The pseudo events by which :func:`estimate` finds its delays, in the order in which they are sent, at ``clk``."""
    return _propagated(old, hierarchy, sub_delays or {}, clk)[0]


def _propagated(
    old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays, clk: int
) -> tuple[list[PseudoEvent], dict[str, TypeDelay]]:
    """The pseudo events, and the delays of all types."""
    known, sent = _sensor_delays(old, hierarchy, _checked(hierarchy, sub_delays)), []
    # The order of the names is from the lowest level up, so that all inputs of a detector are known before its turn.
    for name in hierarchy.names:
        ordering = max(known[kind].delay for kind in awaited(hierarchy, name))
        for kind in hierarchy.published(name):
            parts = _parts(old, hierarchy, name, kind, sub_delays.get(kind, {}))
            event = PseudoEvent(kind, clk - ordering - parts["processing"] - parts["back"], clk + parts["network"])
            if event.received - event.ts > MAX_TS:
                raise ConfigError(f"the delay of {kind!r} would be {event.received - event.ts}, more than all time.")
            known[kind] = TypeDelay(event.received - event.ts, **parts)
            sent.append(event)
    return sent, known


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


def _sensor_delays(old: Calibration, hierarchy: Hierarchy, sub_delays: SubDelays) -> dict[str, TypeDelay]:
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
