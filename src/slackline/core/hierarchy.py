"""The hierarchy: which detector listens to which types, as levels of an acyclic graph."""

from __future__ import annotations

import copy
import difflib
import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from slackline.core.detector import Detector
from slackline.core.errors import HierarchyError
from slackline.core.time import MAX_TS, seconds_in
from slackline.core.types import EventType, type_names

log = logging.getLogger("slackline")

TypeNames = str | EventType | Iterable[str | EventType]

#: The parts in which a sensor type may enter, at most.
MAX_PARTS = 1_000


class Hierarchy:
    """Detectors, sorted so that each comes after those it listens to, and the types that set stream time.

    ``clock`` names the event types whose time stamps move stream time: one, or several of equal delay
    [Order, II-E.1]. Unless given, all sensor types do. Name one where some are delayed much longer than others.
    ``clock_aids`` names types of other delays that move it too: how far each is ahead or behind is measured
    [Thesis, 3.3.6]. All must be sensor types, that is, types that no detector publishes. A clock type that no detector
    listens to is declared as an :class:`~slackline.EventType`; a plain name could be a misspelled one.

    The first engine made from a hierarchy runs the detector instances given here; every further one runs copies
    of them, as they were when the hierarchy was made.

    >>> class Low(Detector):
    ...     listens, publishes = ("a",), ("b",)
    ...     def on_event(self, event):
    ...         yield event.derive("b")
    >>> class High(Low):
    ...     listens, publishes = ("a", "b"), ("c",)
    >>> hierarchy = Hierarchy([High(), Low()], clock="a")
    >>> hierarchy.levels, hierarchy.sensor_types
    ({'Low': 1, 'High': 2}, ('a',))
    >>> hierarchy
    Hierarchy([<Low: a -> b>, <High: a, b -> c>], clock=('a',))
    """

    def __init__(
        self, detectors: Iterable[Detector], clock: TypeNames | None = None, clock_aids: TypeNames = ()
    ) -> None:
        if not isinstance(detectors, Iterable):
            raise HierarchyError(
                f"a hierarchy takes a list of detectors, e.g. Hierarchy([MyDetector()]); got {detectors!r}."
            )
        given = list(detectors)
        if not given:
            raise HierarchyError("a hierarchy needs at least one detector; got none.")
        for detector in given:
            if isinstance(detector, type) or not isinstance(detector, Detector):
                raise HierarchyError(
                    f"a hierarchy is made of instances of slackline.Detector; got {detector!r}. "
                    f"Subclass slackline.Detector and pass an instance, e.g. Hierarchy([MyDetector()], ...)."
                )
            if not isinstance(detector.name, str):
                raise HierarchyError(f"the name of a detector is a string; {detector!r} has {detector.name!r}.")
        names = [detector_name(detector) for detector in given]
        for name, times in Counter(names).items():
            if times > 1:
                raise HierarchyError(
                    f"two detectors are called {name!r}; give each its own name: set `name` on one of them."
                )
        self._reported: set[str] = set()
        self.types: dict[str, EventType] = {}
        self.publisher: dict[str, str] = {}
        clocks, aids = _several(() if clock is None else clock), _several(clock_aids)
        self.clock, self.clock_aids = type_names(clocks), type_names(aids)
        for kind in (*clocks, *aids):
            self._note(kind)
        self._note_types(given)
        order = self._sorted(dict(zip(names, given, strict=True)))
        self._given: list[Detector] | None = [detector for _, detector in order]
        self.names = tuple(name for name, _ in order)
        self._rank = {name: rank for rank, name in enumerate(self.names)}
        self.classes: dict[str, type] = {name: type(detector) for name, detector in order}
        self._published = {name: sorted(type_names(detector.publishes)) for name, detector in order}
        self.listens = {name: type_names(detector.listens) for name, detector in order}
        self.unsorted = {name: type_names(detector.unsorted) for name, detector in order}
        self.reliable = {name: type_names(detector.reliable) for name, detector in order}
        self.max_backdate = {name: detector.max_backdate for name, detector in order}
        direct = {
            name: {self.publisher[kind] for kind in self.listens[name] if kind in self.publisher} for name in self.names
        }
        #: For each detector all detectors upstream of it, direct and indirect.
        self.below: dict[str, frozenset[str]] = {}
        self.levels: dict[str, int] = {}
        for name, lower in direct.items():
            self.below[name] = frozenset(lower.union(*(self.below[each] for each in lower)))
            self.levels[name] = 1 + max([self.levels[each] for each in lower], default=0)
        #: The urgency of each detector: the highest of its own and of all downstream of it.
        self.urgency = {name: each.urgency for name, each in order}
        for name, each in order:
            for beneath in self.below[name]:
                self.urgency[beneath] = max(self.urgency[beneath], each.urgency)
        published = set(self.publisher)
        wanted = {kind for _, detector in order for kind in type_names(detector.listens)}
        if clock is None:
            self.clock = tuple(sorted(wanted - published - set(self.clock_aids)))
        self.sensor_types = tuple(sorted((wanted - published) | {*self.clock, *self.clock_aids}))
        #: The types of the events that enter; they are the sensor types, unless some enter in parts.
        self.entering = self.sensor_types
        #: By type that enters in parts, how many; and by part, the type of its events (see :meth:`in_parts`).
        self.parts: dict[str, int] = {}
        self._part_of: dict[str, str] = {}
        self._check_clock(published)
        for kind in (*clocks, *aids):
            if isinstance(kind, str) and kind not in wanted:
                self._check_spelling(kind, sorted(wanted - published))
        try:
            self._pristine = copy.deepcopy(self._given)
        except Exception as error:
            raise HierarchyError(
                f"the detectors cannot be copied ({type(error).__name__}: {error}); keep only data in a detector's "
                f"attributes, no open files, locks or connections."
            ) from error

    def in_parts(self, parts: Mapping[str, int]) -> Hierarchy:
        """The same hierarchy for several engines or nodes, at which sensor types enter in so many parts.

        Part k of the type ``reading`` is the sensor type ``reading/k``, whose events are of the type ``reading``. It
        has an input watermark of its own; a detector that listens to the type listens to all its parts.

        >>> class Low(Detector):
        ...     listens, publishes = ("a",), ("b",)
        ...     def on_event(self, event):
        ...         yield event.derive("b")
        >>> hierarchy = Hierarchy([Low()]).in_parts({"a": 2})
        >>> hierarchy.sensor_types, hierarchy.listens, hierarchy.event_type("a/1")
        (('a/0', 'a/1'), {'Low': ('a/0', 'a/1')}, 'a')
        """
        if not parts:
            return self
        for kind, count in parts.items():
            if kind not in self.sensor_types or kind in self._part_of:
                raise HierarchyError(
                    f"{kind!r} cannot enter in parts: it is not a sensor type; these are {list(self.sensor_types)}."
                )
            if type(count) is not int or not 2 <= count <= MAX_PARTS:
                raise HierarchyError(f"{kind!r} cannot enter in {count!r} parts; give a number from 2 to {MAX_PARTS}.")
        made = {kind: tuple(f"{kind}/{part}" for part in range(count)) for kind, count in parts.items()}
        part_of = {part: kind for kind, its in made.items() for part in its}
        if taken := sorted(part_of.keys() & {*self.sensor_types, *self.publisher}):
            raise HierarchyError(f"parts would be called {taken}, as other types are; rename these.")

        def split(kinds: Iterable[str]) -> tuple[str, ...]:
            return tuple(each for kind in kinds for each in made.get(kind, (kind,)))

        copied = copy.copy(self)
        copied._given = None
        copied.parts, copied._part_of = {**self.parts, **parts}, {**self._part_of, **part_of}
        copied.sensor_types = tuple(sorted(split(self.sensor_types)))
        copied.clock, copied.clock_aids = split(self.clock), split(self.clock_aids)
        for name in ("listens", "unsorted", "reliable"):
            setattr(copied, name, {detector: split(kinds) for detector, kinds in getattr(self, name).items()})
        copied.types = {
            **self.types,
            **{each: self.types[kind] for each, kind in part_of.items() if kind in self.types},
        }
        return copied

    def event_type(self, kind: str) -> str:
        """The type that events of a type have: for a part, the type of which it is one."""
        return self._part_of.get(kind, kind)

    def event_types(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """The types of the events of these types, each once."""
        return tuple(dict.fromkeys(map(self.event_type, kinds)))

    def take_detectors(self) -> dict[str, Detector]:
        """The detectors for one engine, by name: the instances given on the first call, copies afterwards."""
        given, self._given = self._given, None
        return dict(zip(self.names, given if given is not None else copy.deepcopy(self._pristine), strict=True))

    def fresh(self, name: str) -> Detector:
        """A copy of one detector as it was when the hierarchy was made."""
        return copy.deepcopy(self._pristine[self._rank[name]])

    def published(self, name: str) -> list[str]:
        """The types that a detector publishes, sorted by name."""
        return list(self._published.get(name, ()))

    def extended(self, detector: Detector) -> Hierarchy:
        """The same hierarchy with one detector more, which may not publish a sensor type."""
        clock, aids = (
            [self.types.get(kind, EventType(kind)) for kind in self.event_types(kinds)]
            for kinds in (self.clock, self.clock_aids)
        )
        more = Hierarchy([*copy.deepcopy(self._pristine), detector], clock, aids)
        more.types = {**self.types, **more.types}
        taken = sorted(set(self.entering) & set(more.publisher))
        if taken:
            raise HierarchyError(
                f"detector {detector_name(detector)!r} publishes {taken}, which are sensor types of this "
                f"hierarchy; rename what it publishes."
            )
        return more.in_parts(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the detectors as they were when the hierarchy was made."""
        return {**vars(self), "_given": None}

    def __repr__(self) -> str:
        aids = f", clock_aids={self.clock_aids}" if self.clock_aids else ""
        return f"Hierarchy({self._pristine}, clock={self.clock}{aids})"

    def _note_types(self, detectors: list[Detector]) -> None:
        for detector in detectors:
            name = detector_name(detector)
            self._check_detector(name, detector)
            for kind in (*detector.listens, *detector.publishes):
                self._note(kind)
            for published in type_names(detector.publishes):
                if published in self.publisher:
                    raise HierarchyError(
                        f"detectors {self.publisher[published]!r} and {name!r} both publish {published!r}; "
                        f"a type has one publisher. Rename one, or let a third detector listen to both."
                    )
                self.publisher[published] = name

    def _note(self, kind: str | EventType) -> None:
        if isinstance(kind, EventType) and self.types.setdefault(kind.name, kind) != kind:
            raise HierarchyError(
                f"event type {kind.name!r} is declared twice and differently: {kind!r} and "
                f"{self.types[kind.name]!r}; declare it once and use that everywhere."
            )

    @staticmethod
    def _check_detector(name: str, detector: Detector) -> None:
        for attribute in ("listens", "publishes", "unsorted", "reliable"):
            kinds = getattr(detector, attribute)
            is_list = isinstance(kinds, Iterable) and not isinstance(kinds, str)
            if not is_list or not all(isinstance(kind, str | EventType) for kind in kinds):
                raise HierarchyError(
                    f"{name}.{attribute} must be a tuple of event type names, e.g. ('near', 'kick'); got {kinds!r}."
                )
        types: Any = detector.state_types
        if not isinstance(types, tuple) or not all(isinstance(kind, type) for kind in types):
            raise HierarchyError(f"{name}.state_types must be a tuple of classes, e.g. (Player,); got {types!r}.")
        fixed: Any = detector.fixed
        if isinstance(fixed, str) or not all(isinstance(each, str) for each in fixed):
            raise HierarchyError(f"{name}.fixed must be a tuple of attribute names, e.g. ('limits',); got {fixed!r}.")
        version: Any = detector.version
        if type(version) is not int or version < 1:
            raise HierarchyError(f"{name}.version is a whole number of at least 1; got {version!r}.")
        max_backdate: Any = detector.max_backdate
        if not isinstance(max_backdate, int) or not 0 <= max_backdate <= MAX_TS:
            raise HierarchyError(
                f"{name}.max_backdate is a length of time in the unit of the time stamps, a whole number; "
                f"got {max_backdate!r}."
            )
        urgency: Any = detector.urgency
        if not isinstance(urgency, int | float) or not math.isfinite(urgency):
            raise HierarchyError(f"{name}.urgency is a number, the higher the more urgent; got {urgency!r}.")
        if not detector.listens:
            raise HierarchyError(f"detector {name!r} listens to nothing; set `listens` to the event types it needs.")
        if not (detector.takes_events or detector.takes_batches):
            raise HierarchyError(f"detector {name!r} has neither on_event nor on_batch; write one of them.")
        key, ttl = detector.key, detector.ttl
        if key is not None and (type(key) is not str or not key):
            raise HierarchyError(f"{name}.key is the name of a payload field, e.g. 'device', or 'source'; got {key!r}.")
        for kind in detector.listens if key not in (None, "source") else ():
            if isinstance(kind, EventType) and kind.fields and key not in kind.fields:
                close = difflib.get_close_matches(str(key), kind.fields, n=1)
                raise HierarchyError(
                    f"{name}.key={key!r} is a field of all its events, but event type {kind.name!r} declares "
                    f"{list(kind.fields)}{f'; did you mean {close[0]!r}?' if close else '.'}"
                )
        length = ttl if type(ttl) is int else seconds_in(ttl)
        if ttl is not None and (length is None or not 0 < length <= MAX_TS):
            raise HierarchyError(
                f"{name}.ttl is a length of time above 0: a whole number in the unit of the time stamps, a timedelta, "
                f"or text such as '10 min'; got {ttl!r}."
            )
        if ttl is not None and key is None:
            raise HierarchyError(f"{name}.ttl drops the state of a key, but {name!r} has no key; set `key`.")
        if detector.merged and not detector.takes_batches:
            raise HierarchyError(f"{name}.merged is set, but {name!r} has no on_batch; write it, or remove `merged`.")
        for attribute in ("unsorted", "reliable"):
            strange = set(type_names(getattr(detector, attribute))) - set(type_names(detector.listens))
            if strange:
                raise HierarchyError(f"{name}.{attribute} names {sorted(strange)}, which {name!r} does not listen to.")

    def _sorted(self, detectors: dict[str, Detector]) -> list[tuple[str, Detector]]:
        graph = {
            name: [self.publisher[kind] for kind in type_names(detector.listens) if kind in self.publisher]
            for name, detector in detectors.items()
        }
        try:
            return [(name, detectors[name]) for name in TopologicalSorter(graph).static_order()]
        except CycleError as error:
            circle = " -> ".join(error.args[1])
            raise HierarchyError(
                f"the detectors form a cycle: {circle}. A detector cannot, even through others, listen to what it "
                f"publishes; split one of them or rename the type that closes the circle."
            ) from None

    def _check_clock(self, published: set[str]) -> None:
        if not self.clock:
            raise HierarchyError("a hierarchy needs a clock: name at least one sensor type, e.g. clock=('kick',).")
        twice = sorted(set(self.clock) & set(self.clock_aids))
        if twice:
            raise HierarchyError(
                f"{twice} are in clock and in clock_aids; a type sets stream time or is an aid, not both."
            )
        for kind in (*self.clock, *self.clock_aids):
            if kind in published:
                raise HierarchyError(
                    f"clock type {kind!r} is published by detector {self.publisher[kind]!r}; the clock must come from "
                    f"sensor types: {[k for k in self.sensor_types if k not in published]}."
                )

    @staticmethod
    def _check_spelling(kind: str, known: list[str]) -> None:
        """Refuse a clock type that no detector listens to if it looks misspelled; warn otherwise."""
        remedy = f"If {kind!r} is a type that only sets stream time, declare it: clock=sl.EventType({kind!r})."
        close = difflib.get_close_matches(kind, known, n=1, cutoff=0.75)
        if close:
            raise HierarchyError(
                f"no detector listens to clock type {kind!r}; did you mean {close[0]!r}? Sensor types that detectors "
                f"listen to: {known}. {remedy}"
            )
        log.warning(
            "no detector listens to clock type %r (they listen to %s): until events of this type arrive, stream time "
            "does not move and nothing is released. %s",
            kind,
            known,
            remedy,
        )

    def report(self, message: str, detail: str) -> None:
        """Log what happens to this hierarchy, once, however many engines it happens to."""
        if detail not in self._reported:
            self._reported.add(detail)
            log.warning(message, detail)

    def unknown_type(self, kind: object) -> str:
        """The detail of a quarantined event of an unknown type."""
        known = [*self.entering]
        close = difflib.get_close_matches(str(kind), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        if isinstance(kind, str) and kind in self.publisher:
            return f"type {kind!r} is published by detector {self.publisher[kind]!r}; it cannot be pushed"
        return f"unknown type {kind!r}: no detector listens to it{hint} (sensor types: {known})"


def _several(kinds: TypeNames) -> tuple[str | EventType, ...]:
    return (kinds,) if isinstance(kinds, str | EventType) else tuple(kinds)


def detector_name(detector: Detector) -> str:
    """The name of a detector: its ``name``, or that of its class."""
    return detector.name or type(detector).__name__
