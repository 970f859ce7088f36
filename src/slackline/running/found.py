"""What a detector publishes: events with the rows, or the timers, that caused them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from slackline.core.batch import Batch
from slackline.core.errors import NotAnEventError
from slackline.core.event import Event
from slackline.core.timer import Timer

T = TypeVar("T")


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


def row_results(results: Any, rows: int, name: str, check: Callable[[Any], T]) -> list[tuple[int, T]]:
    """What ``on_batch`` of a detector gave for a batch of so many rows, in order of rows, each item checked."""
    found: list[tuple[int, T]] = []
    for item in iterable(results, "on_batch"):
        if not isinstance(item, tuple) or len(item) != 2:
            raise NotAnEventError(
                f"on_batch of {name!r} yielded {item!r}; yield (row, event) or (row, timer) pairs, row being the "
                f"number of the row in the batch that causes it."
            )
        row = operator.index(item[0])
        if not 0 <= row < rows:
            raise NotAnEventError(
                f"on_batch of {name!r} yielded row {row} of a batch of {rows} rows; rows count from 0."
            )
        found.append((row, check(item[1])))
    found.sort(key=operator.itemgetter(0))
    return found


def runs_of(events: Sequence[Event]) -> Iterator[tuple[int, Batch]]:
    """Events as batches of one type, with the row at which each batch begins."""
    start = 0
    for end in range(1, len(events) + 1):
        if end == len(events) or events[end].type != events[start].type:
            yield start, Batch.of_events(events[start].type, events[start:end])
            start = end
