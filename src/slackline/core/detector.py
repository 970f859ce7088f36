"""The one class users write: a detector sees its input in order and publishes what it finds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from slackline.core.event import Event

if TYPE_CHECKING:
    from slackline.core.batch import Batch
    from slackline.core.types import EventType

#: Attributes that are set up once, not state.
CONNECTIONS = frozenset(
    {"listens", "publishes", "unsorted", "reliable", "fixed", "state_types", "max_backdate", "urgency", "name"}
)

Published = Iterable[Event] | None
PublishedRows = Iterable[tuple[int, Event]] | None


class Detector:
    """A black box with state that listens to event types and publishes others.

    Subclasses set ``listens`` and ``publishes`` (names, or :class:`~slackline.EventType`) and write ``on_event``,
    ``on_batch`` or both: with both, columns go to ``on_batch`` and single events to ``on_event``. State is kept in
    ordinary attributes. **A detector never sees the middleware**: no clock, no arrival order, no ordering unit, only
    events in order.

    ``unsorted`` names those of ``listens`` that are wanted at once, in arrival order, without waiting. ``reliable`` names
    those of which nothing may get lost on the way from another node, even if one of them crashes. ``fixed`` names
    attributes that never change after ``__init__`` (tables, thresholds): they are not state, and are neither copied nor
    saved. ``state_types`` declares the dataclasses, enums and named tuples of which the state holds instances, each of
    them, also those inside others. It is needed for classes that a process cannot import by name: those defined in a
    function, or in a script whose code is sent to Spark's workers. ``max_backdate`` is how far the detector may set its
    events back, if that is known: the levels above wait so much longer from the start. Otherwise it is measured, and
    the first event that is set back comes too late for them.
    ``urgency`` says who goes first when there is too much to do and detectors may be held up
    (:class:`~slackline.Pause`): the higher, the later; what an urgent detector rests on is as urgent.

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

    #: How the detector is called in outputs, statistics and errors; the class name unless set.
    name: str = ""

    def on_event(self, event: Event) -> Published:
        """Take the next event; return or yield the events it causes. **Called in order.**"""
        raise NotImplementedError

    def on_batch(self, batch: Batch) -> PublishedRows:
        """Take a run of events of one type at once; yield ``(row, event)`` for what row ``row`` causes.

        **Where a run ends means nothing**: cutting it differently must give the same events.
        """
        raise NotImplementedError

    def snapshot(self) -> Any:
        """The state as a value: by default the instance's own attributes, less ``fixed`` and how it is connected."""
        fixed = self._fixed()
        return {name: value for name, value in vars(self).items() if name not in fixed}

    def restore(self, state: Any) -> None:
        """Take over a state that ``snapshot`` gave."""
        fixed = self._fixed()
        kept = {name: value for name, value in vars(self).items() if name in fixed}
        vars(self).clear()
        vars(self).update(kept)
        vars(self).update(state)

    def _fixed(self) -> frozenset[str]:
        return CONNECTIONS.union(self.fixed)

    # What the subclass wrote, asked by the engine.

    @property
    def takes_events(self) -> bool:
        return type(self).on_event is not Detector.on_event

    @property
    def takes_batches(self) -> bool:
        return type(self).on_batch is not Detector.on_batch
