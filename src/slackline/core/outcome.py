"""Outcomes of events: outputs, late, quarantined and duplicate events, and progress updates between engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from slackline.core.batch import Batch
from slackline.core.event import Event

#: Reason and detail of an event without a key that is quarantined where each key has its own engine.
NO_KEY = "no key", "the key is null: the event belongs to no keyed engine"


def id_of(event: Event) -> str:
    """The id of a published event: its type, its detector and the detector's count.

    >>> id_of(Event("hit", ts=5, source="Hits", seq=0))
    'hit:Hits:0'
    """
    return f"{event.type}:{event.source}:{event.seq}"


class Output(NamedTuple):
    """A detected event. ``id`` is deterministic: the same stream gives the same ids.

    ``op`` is ``insert``; with speculation also ``retract`` (an early output is withdrawn) and ``final`` (an early
    output is confirmed). ``detected_at`` is stream time. ``flushed`` is the reason given to
    :meth:`~slackline.Engine.flush` if a flush caused the output, None otherwise. ``delayed`` is how much later it is,
    in stream time, because detectors were deferred (:class:`~slackline.Pause`).
    """

    op: str
    id: str
    event: Event
    final: bool
    detected_at: int
    detector: str
    flushed: str | None = None
    delayed: int = 0


class Late(NamedTuple):
    """A late event; ``lateness`` is how far below the watermark it was.

    ``detector`` is the one for which it is late, None if it is late for all; ``position`` is its arrival position. A
    synchroniser sets neither.
    """

    event: Event
    lateness: int
    detector: str | None = None
    position: int | None = None


class Quarantined(NamedTuple):
    """An event that cannot be processed.

    ``reason`` is one of a few fixed phrases, suitable for counting; ``detail`` describes the problem of this event.
    ``detector`` is the one that raised on it, if that was the reason, ``position`` its arrival position.
    """

    event: Event
    reason: str
    detail: str
    detector: str | None = None
    position: int | None = None


class Duplicate(NamedTuple):
    """An event whose type, source and sequence number arrived before; detectors do not see it again.

    ``position`` is its arrival position.
    """

    event: Event
    position: int | None = None


class Drained(NamedTuple):
    """What :meth:`~slackline.Engine.drain` returns, each in order of arrival.

    ``duplicates`` is empty unless the engine stores them (``duplicates="keep"``); they are counted either way.
    """

    late: list[Late]
    quarantined: list[Quarantined]
    duplicates: list[Duplicate]


class ProgressUpdate(NamedTuple):
    """The progress of one type, for detectors that listen to it in other engines.

    Of a derived type: ``events`` were published since the last update, and ``warnings`` are time stamps of pseudo
    events, which announce that delays are about to grow that far. The publisher has processed everything up to its
    ``watermark`` and back-dates events by at most ``back``.

    Of a sensor type that enters the sending engine: ``events`` are a batch in arrival order, without late and refused
    ones, and ``watermark`` is the type's input watermark. A watermark beyond all time stamps marks the end of the type.

    ``clk`` is stream time there, ``K`` the slack of the publisher or of the type. ``default_slack`` is the slack there
    of sensor types whose delays are not known yet; -1 if there is none.
    """

    type: str
    events: Sequence[Event] | Batch
    warnings: tuple[int, ...]
    watermark: int
    back: int
    clk: int
    K: int = 0
    default_slack: int = -1
