"""What is given to be pushed, before any of it is taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from slackline.core.errors import ClosedError, ConfigError
from slackline.core.event import Event
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


def refuse_ended(topology: Topology, arrivals: list[Event] | pa.Table) -> None:
    """Refuse a push of types that have ended."""
    ended = topology.ended
    if not isinstance(arrivals, pa.Table):
        kinds = {event.type for event in arrivals if isinstance(event.type, str)}
    elif "type" in arrivals.column_names:
        kinds = set(arrivals["type"].unique().to_pylist())
    else:
        kinds = set(topology.entering) if len(arrivals) else set()
    if kinds & ended:
        raise ClosedError(f"push of {sorted(kinds & ended)} after end(): nothing more was to come. Nothing was taken.")
