"""The queries' results as typed tables, one per kind of result.

They are made from whatever carries the events: an engine's outputs, events, or the rows that come back from Spark
(``Row``, ``dict`` or any mapping with ``type``, ``ts`` and ``payload``, the latter as JSON text or a dict). Other
events in between are passed over.

>>> from slackline.core.event import Event
>>> team = Event("possession_team", ts=10**12, team="A", window=60, time=0.5, share=1.0)
>>> query_tables([team])["possession_team"].to_pylist()
[{'ts': 1000000000000, 'team': 'A', 'window': 60, 'time': 0.5, 'share': 1.0}]
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline import Event, SchemaError
from slackline_soccer.model.match import Field
from slackline_soccer.queries.events import (
    HEATMAP,
    POSSESSION_PLAYER,
    POSSESSION_TEAM,
    RUN,
    RUNNING,
    RUNNING_TOTAL,
    SHOT_MOTION,
)
from slackline_soccer.queries.heatmap import COARSE, FINE, GRIDS, WINDOWS
from slackline_soccer.queries.running import INTENSITIES

#: An engine's output, an event, or a row as Spark gives it back.
Result = Any
Columns = dict[str, list[Any]]
#: By grid and window.
Maps = dict[tuple[tuple[int, int], int], tuple[npt.NDArray[Any], ...]]

_TEXT, _FLOAT, _INT = pa.string(), pa.float64(), pa.int64()
_RUN = {"player": _TEXT, "team": _TEXT, "intensity": _TEXT, "start": _INT, "stop": _INT}
_RUN |= dict.fromkeys(("distance", "speed", "top"), _FLOAT)

#: Per kind of result, its columns.
SCHEMAS: Mapping[str, pa.Schema] = {
    name: pa.schema({"ts": _INT, **fields})
    for name, fields in {
        RUNNING.name: _RUN,
        RUN.name: _RUN,
        RUNNING_TOTAL.name: {
            "player": _TEXT,
            "team": _TEXT,
            "window": _INT,
            "intensity": _TEXT,
            "time": _FLOAT,
            "distance": _FLOAT,
        },
        POSSESSION_PLAYER.name: {"player": _TEXT, "team": _TEXT, "time": _FLOAT, "hits": _INT},
        POSSESSION_TEAM.name: {"team": _TEXT, "window": _INT, "time": _FLOAT, "share": _FLOAT},
        SHOT_MOTION.name: {"player": _TEXT, "team": _TEXT, "goal": _INT, "ball": _INT, "shot_at": _INT}
        | dict.fromkeys(("x", "y", "z", "vx", "vy", "vz", "speed", "acceleration"), _FLOAT),
    }.items()
}

#: x and y are the cell's low corner in the coordinates of the recording (mm).
HEATMAP_SCHEMA = pa.schema(
    {"ts": _INT, "player": _TEXT, "team": _TEXT, "grid": _TEXT, "window": _INT}
    | {"across": pa.int32(), "along": pa.int32(), "x": _FLOAT, "y": _FLOAT, "share": _FLOAT}
)


def query_tables(results: Iterable[Result]) -> dict[str, pa.Table]:
    """One table per kind of result but the heat maps, empty where there are no such results."""
    gathered: dict[str, Columns] = {name: {column: [] for column in schema.names} for name, schema in SCHEMAS.items()}
    for kind, ts, payload in _parts(results, SCHEMAS):
        _GATHER.get(kind, _flat)(gathered[kind], ts, payload)
    return {name: pa.table(gathered[name], schema=schema) for name, schema in SCHEMAS.items()}


def _flat(columns: Columns, ts: int, payload: Mapping[str, Any]) -> None:
    """An event that is a row as it is."""
    for name, column in columns.items():
        column.append(ts if name == "ts" else payload.get(name))


def _running(columns: Columns, ts: int, payload: Mapping[str, Any]) -> None:
    """One row per player: his current run, which lasts until now."""
    players = len(payload["player"])
    for name, column in columns.items():
        column.extend([ts] * players if name in ("ts", "stop") else payload[name])


def _running_total(columns: Columns, ts: int, payload: Mapping[str, Any]) -> None:
    """One row per player, window and class."""
    kinds = len(INTENSITIES)
    times, distances = payload["time"], payload["distance"]
    for number, (player, team) in enumerate(zip(payload["player"], payload["team"], strict=True)):
        for window, time, distance in zip(payload["window"], times[number], distances[number], strict=True):
            columns["ts"] += [ts] * kinds
            columns["player"] += [player] * kinds
            columns["team"] += [team] * kinds
            columns["window"] += [window] * kinds
            columns["intensity"] += INTENSITIES
            columns["time"] += time
            columns["distance"] += distance


_GATHER: Mapping[str, Callable[[Columns, int, Mapping[str, Any]], None]] = {
    RUNNING.name: _running,
    RUNNING_TOTAL.name: _running_total,
}


def heatmap_table(
    results: Iterable[Result],
    field: Field,
    grids: Iterable[tuple[int, int]] = GRIDS,
    windows: Iterable[int] = WINDOWS,
) -> pa.Table:
    """The heat maps, one row per cell that is not empty; all twenty of each event, or of some grids and windows."""
    grids, windows = tuple(grids), tuple(windows)
    for wanted, known in ((grids, GRIDS), (windows, WINDOWS)):
        if not set(wanted) <= set(known):
            raise SchemaError(f"heat maps are published for {known}; got {wanted}.")
    parts = [
        _cells(ts, payload, field, grid, window, *maps[grid, window])
        for _, ts, payload in _parts(results, {HEATMAP.name})
        for maps in (unpack(payload),)
        for grid in grids
        for window in windows
    ]
    return pa.concat_tables([HEATMAP_SCHEMA.empty_table(), *parts]).combine_chunks()


def unpack(payload: Mapping[str, Any]) -> Maps:
    """The maps of a ``heatmap`` event: across, along and share of the cells that are not empty."""
    cells = np.frombuffer(_bytes(payload["cells"]), "<u2").astype(np.int64)
    counts = np.frombuffer(_bytes(payload["counts"]), "<u4").astype(np.int64)
    ends = np.cumsum(payload["sizes"]).tolist()
    starts = [0, *ends[:-1]]
    maps: Maps = {}
    for number, window in enumerate(WINDOWS):
        seen = payload["seen"][number]
        for grid in GRIDS:
            published = number if grid != COARSE else len(WINDOWS) + number
            rows = slice(starts[published], ends[published])
            across, along = np.divmod(cells[rows], (COARSE if grid == COARSE else FINE)[1])
            notes = counts[rows]
            if grid not in (COARSE, FINE):
                across, along = across * grid[0] // FINE[0], along * grid[1] // FINE[1]
                joined, place = np.unique(across * grid[1] + along, return_inverse=True)
                across, along = np.divmod(joined, grid[1])
                notes = np.bincount(place, weights=notes, minlength=len(joined))
            maps[grid, window] = across, along, notes / max(seen, 1)
    return maps


def _cells(
    ts: int,
    payload: Mapping[str, Any],
    field: Field,
    grid: tuple[int, int],
    window: int,
    across: npt.NDArray[Any],
    along: npt.NDArray[Any],
    share: npt.NDArray[Any],
) -> pa.Table:
    n = len(share)
    low_across = field.sides[0] + across * (field.width / grid[0])
    low_along = field.ends[0] + along * (field.length / grid[1])
    x, y = (low_along, low_across) if field.lengthwise == "x" else (low_across, low_along)
    same = (ts, payload["player"], payload["team"], f"{grid[0]}x{grid[1]}", window)
    columns = [pa.repeat(pa.scalar(value, HEATMAP_SCHEMA.field(i).type), n) for i, value in enumerate(same)]
    columns += [pa.array(across, pa.int32()), pa.array(along, pa.int32()), pa.array(x), pa.array(y), pa.array(share)]
    return pa.Table.from_arrays(columns, schema=HEATMAP_SCHEMA)


def _parts(results: Iterable[Result], kinds: Iterable[str]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Type, time stamp and payload of those results that are of some kinds."""
    wanted = frozenset(kinds)
    for result in results:
        event = getattr(result, "event", result)
        if isinstance(event, Event):
            if event.type in wanted:
                yield event.type, event.ts, event.payload
            continue
        try:
            kind, ts, payload = result["type"], result["ts"], result["payload"]
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(
                f"a result is an output, an event, or a row with type, ts and payload; got {result!r}."
            ) from error
        if kind in wanted:
            yield kind, ts, json.loads(payload) if isinstance(payload, str) else payload


def _bytes(packed: bytes | str) -> bytes:
    """Bytes as they are, or as JSON has them."""
    return base64.b64decode(packed) if isinstance(packed, str) else packed
