"""The class that users write: a detector receives its input in order and publishes events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from slackline.core.event import Event
from slackline.core.timer import Timer
from slackline.core.types import EventType, type_names

if TYPE_CHECKING:
    from slackline.core.batch import Batch

#: Attributes that configure a detector and are not state.
CONNECTIONS = frozenset(
    {
        "listens",
        "publishes",
        "unsorted",
        "reliable",
        "fixed",
        "state_types",
        "max_backdate",
        "urgency",
        "merged",
        "key",
        "ttl",
        "name",
        "version",
    }
)

Published = Iterable[Event | Timer] | None
PublishedRows = Iterable[tuple[int, Event | Timer]] | None


class Detector:
    """A stateful operator that listens to event types and publishes others.

    Subclasses set ``listens`` and ``publishes`` (names, or :class:`~slackline.EventType`) and define ``on_event``,
    ``on_batch`` or both: with both, rows that the engine holds as columns go to ``on_batch`` and single events to
    ``on_event``. State is held in ordinary attributes. **A detector never sees the middleware**: no stream time, no
    arrival order, no buffers, only events in order.

    ``unsorted`` names those of ``listens`` that are delivered at once, in arrival order. ``reliable`` names those of
    which no event may be lost on the way from another node, even if a node crashes. ``fixed`` names attributes that
    never change after ``__init__`` (tables, thresholds): they are not state, and are neither copied nor saved.
    ``state_types`` declares the dataclasses, enums and named tuples of which the state holds instances, including
    nested ones. It is needed for classes that a process cannot import by name: those defined in a function, or in a
    script whose code is sent to Spark's workers. ``max_backdate`` is by how much the detector may back-date its events,
    if that is known: detectors above wait so much longer from the start. Otherwise it is measured, and the first
    back-dated event may be late above. ``urgency`` decides which detectors are deferred first under overload
    (:class:`~slackline.Pause`): the higher, the later; all detectors upstream of an urgent one are as urgent.
    ``merged = True``: ``on_batch`` gets all its types merged in order as one batch, with the type of each row in
    ``batch.types``; a field that a row's type does not have is NaN there, or None in a column that is not of numbers.

    ``key`` names a payload field (or ``"source"``): each value of it has an instance with its own state and timers, a
    copy of the given one, made when its first event comes. ``ttl``: an instance is dropped after so much event time
    without events of its key, unless it has timers: in the unit of the time stamps, or as ``"10 min"`` or a
    ``timedelta`` (which requires ``Engine(unit=…)``). Events whose key is missing or not valid are quarantined.
    ``version`` is raised when the attributes of the state change; ``upgrade`` then converts saved states.

    >>> class Twice(Detector):
    ...     listens, publishes = ("a",), ("b",)
    ...     def on_event(self, event):
    ...         yield event.derive("b", value=2 * event["value"])
    >>> list(Twice().on_event(Event("a", ts=1, value=4)))
    [Event('b', ts=1, value=8)]
    """

    listens: ClassVar[tuple[str | EventType, ...]] = ()
    publishes: ClassVar[tuple[str | EventType, ...]] = ()
    unsorted: ClassVar[tuple[str | EventType, ...]] = ()
    reliable: ClassVar[tuple[str | EventType, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()
    state_types: ClassVar[tuple[type, ...]] = ()
    max_backdate: int = 0
    urgency: float = 0
    merged: bool = False
    key: str | None = None
    ttl: int | str | timedelta | None = None
    version: int = 1

    #: The name in outputs, statistics and errors; the class name unless set.
    name: str = ""

    def on_event(self, event: Event) -> Published:
        """Process the next event; return or yield the events it causes. **Called in order.**"""
        raise NotImplementedError

    def on_batch(self, batch: Batch) -> PublishedRows:
        """Process a run of events of one type (``merged``: of several).

        Yield ``(row, event)`` for each event that row ``row`` causes.

        **Run boundaries are arbitrary**: cutting the input differently must give the same events.
        """
        raise NotImplementedError

    def on_timer(self, timer: Timer) -> Published:
        """Process a timer that is due; return or yield events and further timers. **Called in order**, as events are.

        A timer is set by yielding a :class:`~slackline.Timer` (in ``on_batch``: with the row that sets it).
        """
        raise NotImplementedError

    def snapshot(self) -> Any:
        """The state as a value: by default the instance's attributes without ``fixed`` and the configuration."""
        fixed = self._fixed()
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def restore(self, state: Any) -> None:
        """Restore a state that ``snapshot`` returned."""
        fixed, attributes = self._fixed(), vars(self)
        kept = {name: value for name, value in attributes.items() if name in fixed}
        attributes.clear()
        attributes |= kept
        attributes |= state

    def upgrade(self, state: Any, version: int) -> Any:
        """A state that an older ``version`` of this class saved, as this one restores it. Called before ``restore``."""
        return state

    def use_unit(self, unit: str | None) -> None:
        """Called with the engine's unit of event times before the first event, to convert lengths of time."""

    def _fixed(self) -> frozenset[str]:
        return CONNECTIONS.union(self.fixed)

    def __repr__(self) -> str:
        listens, publishes = type_names(self.listens), type_names(self.publishes)
        return f"<{self.name or type(self).__name__}: {', '.join(listens)} -> {', '.join(publishes) or 'nothing'}>"

    # Which methods the subclass defines; read by the engine.

    @property
    def takes_events(self) -> bool:
        return type(self).on_event is not Detector.on_event

    @property
    def takes_batches(self) -> bool:
        return type(self).on_batch is not Detector.on_batch

    @property
    def takes_timers(self) -> bool:
        return type(self).on_timer is not Detector.on_timer

    @property
    def is_atomic(self) -> bool:
        """Whether ``on_batch`` raises before it changes the state, so that no copy of it is needed."""
        return False
