"""What becomes of events: found, late, set aside, dropped as a duplicate, or passed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from slackline.core.batch import Batch
from slackline.core.event import Event

#: Why an event without a key is set aside where each key has an engine of its own: the reason and the detail.
NO_KEY = "no key", "the key is null: the event belongs to no site"


def id_of(event: Event) -> str:
    """What identifies a published event: its type, its detector and the detector's count.

    >>> id_of(Event("hit", ts=5, source="Hits", seq=0))
    'hit:Hits:0'
    """
    return f"{event.type}:{event.source}:{event.seq}"


class Output(NamedTuple):
    """A detected event. ``id`` is deterministic: the same stream gives the same ids.

    ``op`` is ``insert``; with speculation also ``retract`` (an early answer is taken back) and ``final`` (an early
    answer is certain now). ``detected_at`` is stream time. ``flushed`` is the reason given to
    :meth:`~slackline.Engine.flush`, if it was that which let the detector go on; None for what was complete.
    ``delayed`` is how much later it is, in stream time, because detectors were held up (:class:`~slackline.Pause`).
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
    """An event that came too late; ``lateness`` is by how much.

    ``detector`` is the one that had gone on without it, None where its type had; ``position`` is the number of its
    arrival. A synchroniser has neither.
    """

    event: Event
    lateness: int
    detector: str | None = None
    position: int | None = None


class Quarantined(NamedTuple):
    """An event set aside.

    ``reason`` is one of a few fixed phrases, fit for counting; ``detail`` says what is wrong with this very event.
    ``detector`` is the one that raised on it, if that was the reason, ``position`` the number of its arrival.
    """

    event: Event
    reason: str
    detail: str
    detector: str | None = None
    position: int | None = None


class Duplicate(NamedTuple):
    """An event whose type, source and sequence number arrived before; detectors do not see it again.

    ``position`` is the number of its arrival.
    """

    event: Event
    position: int | None = None


class Drained(NamedTuple):
    """What :meth:`~slackline.Engine.drain` returns, each in order of arrival.

    ``duplicates`` is empty unless the engine keeps them (``duplicates="keep"``); it counts them either way.
    """

    late: list[Late]
    quarantined: list[Quarantined]
    duplicates: list[Duplicate]


class ProgressUpdate(NamedTuple):
    """What an engine tells of one type, for detectors that listen to it in other engines.

    Of a type that it publishes: ``events`` were published since the last news, and ``warnings`` are time stamps of
    pseudo events: the type's delays are about to grow so far. The publisher has processed everything up to its
    ``watermark`` and sets events ``back`` by so much at most.

    Of a sensor type that enters there: ``events`` are a batch in the order of arrival, of what was let in and is not
    late, and ``watermark`` is the type's input watermark. A watermark beyond all time stamps is the end of either.

    ``clk`` is stream time there, ``K`` how long the publisher, or the type, waits. ``far`` is how long a sensor type of
    which nothing is known is waited for there, after all that was heard; -1: too little was.
    """

    type: str
    events: Sequence[Event] | Batch
    warnings: tuple[int, ...]
    watermark: int
    back: int
    clk: int
    K: int = 0
    far: int = -1
