"""What a detector publishes: events with the rows, or the timers, that caused them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from slackline.core.batch import Batch
from slackline.core.errors import NotAnEventError
from slackline.core.event import Event
from slackline.core.timer import Timer


class Fired(NamedTuple):
    """A timer that fired before row ``row`` of what was fed, or after all of them; ``at``: when it was due."""

    row: int
    at: int


#: Published events, each with the row or the timer that caused it, in order.
Found = list[tuple[int | Fired, Event]]


def shifted(found: Found, rows: int) -> Found:
    """Results of rows that begin at row ``rows``."""
    return [
        (cause + rows if isinstance(cause, int) else Fired(cause.row + rows, cause.at), event) for cause, event in found
    ]


def iterable(results: Any, method: str) -> Iterable[Any]:
    """The result of a detector's method, if it is iterable."""
    if results is None:
        return ()
    if isinstance(results, Event | Timer):
        raise NotAnEventError(f"{method} returned {results!r}; yield it, or return a list.")
    if isinstance(results, (str, dict)) or not isinstance(results, Iterable):
        raise NotAnEventError(f"{method} returned {results!r:.200}; it must yield events, or return a list or None.")
    return results


def runs_of(events: Sequence[Event]) -> Iterator[tuple[int, Batch]]:
    """Events as batches of one type, with the row at which each batch begins."""
    start = 0
    for end in range(1, len(events) + 1):
        if end == len(events) or events[end].type != events[start].type:
            yield start, Batch.of_events(events[start].type, events[start:end])
            start = end
