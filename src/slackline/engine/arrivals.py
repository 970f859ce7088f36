"""What is given to be pushed, and its wall times, before any of it is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from slackline.core.batch import Ints
from slackline.core.errors import ClosedError, ConfigError
from slackline.core.event import Event
from slackline.core.time import A_TIME_STAMP, NEVER, time_stamp
from slackline.engine import arrow
from slackline.engine.topology import Topology


def rows_of(arrivals: Any) -> list[Event] | pa.Table:
    """What is given to be pushed as a list of events or a table, all of it, before any is taken."""
    if isinstance(arrivals, Event):
        return [arrivals]
    if isinstance(arrivals, pa.Table):
        return arrivals
    if isinstance(arrivals, pa.RecordBatch):
        return pa.Table.from_batches([arrivals])
    what = type(arrivals).__name__
    is_one = isinstance(arrivals, str | bytes | Mapping) or hasattr(arrivals, "columns")  # a word, a row, a frame
    if is_one or not isinstance(arrivals, Iterable):
        raise ConfigError(
            f"push() takes events or a pyarrow.Table; got a {what}. A row is pushed as slackline.Event(type, ts, "
            f"source, seq, **payload), a pandas DataFrame as pyarrow.Table.from_pandas(frame)."
        )
    events = arrivals if isinstance(arrivals, list) else list(arrivals)
    for number, event in enumerate(events):
        if not isinstance(event, Event):
            raise ConfigError(
                f"push() takes events; item {number} of the {what} given is a {type(event).__name__}: {event!r}. "
                f"Nothing was taken. Make it slackline.Event(type, ts, source, seq, **payload)."
            )
    return events


def types_of(topology: Topology, arrivals: list[Event] | pa.Table) -> set[str]:
    """The event types of what is pushed; a table without a column for them has those that enter here."""
    if not isinstance(arrivals, pa.Table):
        return {event.type for event in arrivals if isinstance(event.type, str)}
    if "type" in arrivals.column_names:
        return set(arrow.plain(arrivals["type"]).unique().to_pylist())
    return set(topology.entering) if len(arrivals) else set()


def refuse_ended(topology: Topology, arrivals: list[Event] | pa.Table) -> None:
    """Refuse a push of types that have ended."""
    ended = topology.ended & types_of(topology, arrivals)
    if ended:
        raise ClosedError(f"push of {sorted(ended)} after end(): nothing more was to come. Nothing was taken.")


def times_of(now: Any, rows: int) -> Ints:
    """The wall time of each row, NEVER where none is given; of the moment itself if there are no rows.

    >>> times_of(7, 2), times_of(7, 0), times_of([], 0)
    (array([7, 7]), array([7]), array([], dtype=int64))
    """
    one = time_stamp(now)
    if one is not None:
        return np.full(max(1, rows), one, dtype=np.int64)
    column = _column(now)
    if len(column) != rows:
        raise ConfigError(
            f"now has {len(column)} wall times, and {rows} rows are pushed; give one for each row, or one for all."
        )
    times, good = arrow.whole_numbers(column)
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        times, good = np.where(absent, NEVER, times), good | absent
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ConfigError(f"now[{row}] is {column[row].as_py()!r}; a wall time is {A_TIME_STAMP}, or None. {_UNIT}")
    return times


_UNIT = "It is told in the unit of the time stamps, such as time.time_ns() // 1_000_000 for milliseconds."


def _column(now: Any) -> pa.ChunkedArray:
    """Wall times for rows as a column, if they can be one."""
    wrong = ConfigError(f"now={now!r:.80} is not valid; it must be {A_TIME_STAMP}, or one for each row. {_UNIT}")
    if isinstance(now, pa.Array):
        now = pa.chunked_array([now])
    elif not isinstance(now, pa.ChunkedArray):
        is_list = isinstance(now, Sequence) and not isinstance(now, str | bytes | bytearray)
        if not is_list and not hasattr(now, "__array__"):
            raise wrong
        try:
            now = pa.chunked_array([pa.array(now if is_list else np.asarray(now))])
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            raise wrong from None
    column = arrow.plain(now)
    kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise wrong
    return column
