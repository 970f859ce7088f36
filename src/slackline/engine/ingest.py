"""Tables in: find the columns, set aside the rows that cannot be taken, sort the rest by type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.batch import Column, object_column
from slackline.core.errors import SchemaError
from slackline.core.event import NO_SEQ, Event
from slackline.core.time import MAX_TS
from slackline.core.types import EventType
from slackline.engine.stepwise import BAD_TS, JUMP
from slackline.engine.wiring import NOT_FINITE, UNKNOWN_SOURCE, Wiring
from slackline.ordering.channel import SensorChannel

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Sources that are numbers below this need no dictionary.
SMALL = 1 << 14


@dataclass(slots=True)
class Lot:
    """The rows of one type in a table: their positions in it, and their columns."""

    channel: SensorChannel
    rows: Ints
    ts: Ints
    slots: Ints
    seq: Ints
    columns: dict[str, Column]

    def keep(self, mask: Mask) -> None:
        """Keep some of the rows."""
        self.rows, self.ts, self.slots, self.seq = (a[mask] for a in (self.rows, self.ts, self.slots, self.seq))
        self.columns = {field: column[mask] for field, column in self.columns.items()}


def read(wiring: Wiring, table: pa.Table) -> tuple[dict[str, Lot], Ints]:
    """The table's rows by type, and the clock after each of its positions."""
    n = table.num_rows
    types = _checked_types(wiring, table)
    ts, good = _times(wiring, table)
    lots = {}
    for channel, mine in _rows_by_type(wiring, table, types, good):
        lot = _lot(wiring, table, channel, np.flatnonzero(mine), ts)
        found = channel.are_duplicates(lot.slots, lot.seq)
        if found.any():
            channel.duplicates += int(found.sum())
            lot.keep(~found)
        lots[channel.name] = lot
    keys, is_clock = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    for lot in lots.values():
        keys[lot.rows] = lot.channel.rank << 32 | lot.slots
        is_clock[lot.rows] = lot.channel.name in wiring.clock_types
    clk = np.empty(n, dtype=np.int64)
    rejected = wiring.clock.run(ts, is_clock, keys, clk)
    for row in rejected.tolist():
        _set_aside(wiring, table, row, JUMP.format(int(ts[row]), int(clk[row])))
    if len(rejected):
        for lot in lots.values():
            lot.keep(~np.isin(lot.rows, rejected))
    return lots, clk


Types = tuple[Ints, Sequence[Any]]


def _checked_types(wiring: Wiring, table: pa.Table) -> Types | None:
    """The encoded types of the rows, if the table has any.

    Raises what is wrong with the table as a whole, before any of its rows is taken.
    """
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"the table has several columns called {twice}; name each column differently.")
    kind = _column(table, "ts", "the occurrence time stamps").type
    if not (_is_number(kind) or pa.types.is_null(kind)) or pa.types.is_boolean(kind):
        raise SchemaError(
            f"column 'ts' is of type {kind}; time stamps are integers in a unit of your choice. "
            f"Cast it first, e.g. table.set_column(i, 'ts', column.cast('int64'))."
        )
    if "seq" in names and not (pa.types.is_integer(table["seq"].type) or pa.types.is_null(table["seq"].type)):
        raise SchemaError(f"column 'seq' is of type {table['seq'].type}; sequence numbers are integers. Cast it first.")
    types = None
    present = set(wiring.sensors)
    if "type" in names:
        if not _is_text(table["type"].type):
            raise SchemaError(f"column 'type' is of type {table['type'].type}; event types are strings. Cast it first.")
        types = _encoded(table["type"])
        present &= set(types[1])
    elif len(wiring.sensors) > 1:
        raise SchemaError(
            f"the table has no column 'type', but the hierarchy has several sensor types {sorted(wiring.sensors)}; "
            f"add a column 'type' with the event type of each row. Columns: {names}."
        )
    for name in sorted(present):
        _check_type(wiring, table, name)
    return types


def _check_type(wiring: Wiring, table: pa.Table, name: str) -> None:
    declared = wiring.hierarchy.types.get(name)
    source = _source_column(declared, table)
    if declared and declared.source != "source" and source not in table.column_names:
        _column(table, declared.source, f"the source of event type {name!r}")
    if source in table.column_names:
        kind = table[source].type
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_integer(values) or pa.types.is_null(values) or _is_text(values)):
            raise SchemaError(f"column {source!r} is of type {kind}; sources are strings or integers. Cast it first.")
    for field, dtype in declared.fields.items() if declared else ():
        kind = _column(table, field, f"a field of event type {name!r}").type
        if dtype.kind == "O":
            continue
        if not _is_number(kind) or (pa.types.is_floating(kind) and dtype.kind != "f"):
            raise SchemaError(
                f"column {field!r} is of type {kind}, but event type {name!r} declares it as {dtype}; "
                f"cast the column, or declare the field otherwise."
            )


def _source_column(declared: EventType | None, table: pa.Table) -> str:
    """Where the sources are: in the declared column, or in ``source`` (as Spark's pipeline names it)."""
    return declared.source if declared and declared.source in table.column_names else "source"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_null(values))


def _times(wiring: Wiring, table: pa.Table) -> tuple[Ints, Mask]:
    """The time stamps, and which of them can be used; the rest is set aside."""
    column = table["ts"]
    if pa.types.is_int64(column.type) and column.null_count == 0:
        ts = column.to_numpy()
        good = (ts >= 0) & (ts <= MAX_TS)
    else:
        raw = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            good = np.isfinite(raw) & (raw >= 0) & (raw <= MAX_TS) & (np.floor(raw) == raw)
        ts = np.zeros(len(raw), dtype=np.int64)
        usable = pc.cast(column.filter(pa.array(good)), pa.int64(), safe=False)
        ts[good] = usable.to_numpy()
    if not good.all():
        for row in np.flatnonzero(~good).tolist():
            _set_aside(wiring, table, row, BAD_TS.format(column[row].as_py()))
    return ts, good


def _rows_by_type(wiring: Wiring, table: pa.Table, types: Types | None, good: Mask) -> list[tuple[SensorChannel, Mask]]:
    sensors = wiring.sensors
    if types is None:
        return [(next(iter(sensors.values())), good)]
    codes, values = types
    lots = []
    for code, name in enumerate(values):
        mine = (codes == code) & good
        if not mine.any():
            continue
        if name in sensors:
            lots.append((sensors[name], mine))
            continue
        reason = "type is null" if name is None else wiring.hierarchy.unknown_type(name)
        for row in np.flatnonzero(mine).tolist():
            _set_aside(wiring, table, row, reason)
    return lots


def _lot(wiring: Wiring, table: pa.Table, channel: SensorChannel, rows: Ints, ts: Ints) -> Lot:
    declared = wiring.hierarchy.types.get(channel.name)
    source = _source_column(declared, table)
    reserved = {"ts", "type", "seq", source}
    if declared and declared.sources is not None:
        rows = _from_known_sources(wiring, table, rows, source, declared.sources)
    seq, good = _sequence_numbers(table, rows)
    columns: dict[str, Column] = {}
    fields = declared.fields if declared and declared.fields else None
    for field in fields if fields else [name for name in table.column_names if name not in reserved]:
        data = table[field]
        if fields:
            columns[field], usable = _declared(data, rows, fields[field])
            good = usable if good is None else good if usable is None else good & usable
        elif len(rows) and data.null_count < len(data):
            columns[field] = _undeclared(data, rows)
    lot = Lot(channel, rows, ts.take(rows), _slots(table, channel, rows, source), seq, columns)
    if good is not None and not good.all():
        for row in rows[~good].tolist():
            _set_aside(wiring, table, row, "bad sequence number or a declared field without a value")
        lot.keep(good)
    if declared and declared.finite:
        _keep_finite(wiring, table, lot)
    return lot


def _from_known_sources(
    wiring: Wiring, table: pa.Table, rows: Ints, source: str, sources: frozenset[int | str]
) -> Ints:
    """The rows whose source the type names; the rest is set aside."""
    if source in table.column_names:
        codes, values = _encoded(table[source])
        known = np.array([value in sources for value in values], dtype=np.bool_)[codes[rows]]
    else:
        known = np.zeros(len(rows), dtype=np.bool_)
    if known.all():
        return rows
    for row in rows[~known].tolist():
        name = table[source][row].as_py() if source in table.column_names else None
        _set_aside(wiring, table, row, UNKNOWN_SOURCE.format(name))
    return rows[known]


def _keep_finite(wiring: Wiring, table: pa.Table, lot: Lot) -> None:
    numbers = [column for column in lot.columns.values() if column.dtype.kind == "f"]
    # A sum is finite only if all its terms are (and then some: an overflow is looked at again, one by one).
    if not numbers or np.isfinite(sum(float(np.sum(column)) for column in numbers)):
        return
    finite = np.all([np.isfinite(column) for column in numbers], axis=0)
    for row in lot.rows[~finite].tolist():
        _set_aside(wiring, table, row, NOT_FINITE)
    lot.keep(finite)


def _slots(table: pa.Table, channel: SensorChannel, rows: Ints, source: str) -> Ints:
    """The numbers of the sources of these rows; new ones are numbered in the order of their arrival."""
    if source not in table.column_names:
        return np.full(len(rows), channel.slot(None) if len(rows) else 0, dtype=np.int64)
    column = table[source]
    if pa.types.is_integer(column.type) and not column.null_count and len(rows):
        numbers = column.to_numpy()
        if len(rows) < len(numbers):
            numbers = numbers[rows]
        if numbers.min() >= 0 and numbers.max() < SMALL:
            return channel.slots_of(numbers.astype(np.int64, copy=False), range(int(numbers.max()) + 1))
    codes, values = _encoded(column)
    return channel.slots_of(codes if len(rows) == len(codes) else codes[rows], values)


def _sequence_numbers(table: pa.Table, rows: Ints) -> tuple[Ints, Mask | None]:
    if "seq" not in table.column_names or pa.types.is_null(table["seq"].type):
        return np.full(len(rows), NO_SEQ, dtype=np.int64), None
    column = table["seq"]
    nulls = column.null_count
    seq = column.cast(pa.int64(), safe=False)  # an unsigned column has no room for NO_SEQ
    numbers = (seq.fill_null(NO_SEQ) if nulls else seq).to_numpy().take(rows)
    good = numbers >= 0
    if nulls:
        good |= column.is_null().to_numpy(zero_copy_only=False)[rows]
    return numbers, good


def _declared(data: pa.ChunkedArray, rows: Ints, dtype: np.dtype[Any]) -> tuple[Column, Mask | None]:
    """A column of a declared field in its declared type, and which rows have a value (floats: NaN stands in)."""
    if dtype.kind == "O":
        return _objects(data, rows), None
    if not data.null_count:
        return data.to_numpy().take(rows).astype(dtype, copy=False), None
    if dtype.kind == "f":
        return data.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)[rows].astype(dtype), None
    usable = data.is_valid().to_numpy(zero_copy_only=False)[rows]
    zero = False if pa.types.is_boolean(data.type) else 0
    return data.fill_null(zero).to_numpy().take(rows).astype(dtype), usable


def _undeclared(data: pa.ChunkedArray, rows: Ints) -> Column:
    """A column as it comes: typed where numbers are complete, objects (None: no such field) otherwise."""
    if _is_number(data.type) and not data.null_count:
        column: Column = data.to_numpy().take(rows)
        return column
    return _objects(data, rows)


def _objects(data: pa.ChunkedArray, rows: Ints) -> Column:
    return object_column(data.take(pa.array(rows)).to_pylist())


def _encoded(column: pa.ChunkedArray) -> tuple[Ints, Sequence[Any]]:
    """A column as codes and the values they stand for, None for null."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk at all
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=column.type)
    if pa.types.is_dictionary(array.type) and len(array.dictionary.unique()) < len(array.dictionary):
        array = array.dictionary_decode()  # Arrow lets a dictionary hold a value twice
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(len(values))
        values = [*values, None]
    return indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), values


def _column(table: pa.Table, name: str, what: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise SchemaError(f"the table has no column {name!r} ({what}); its columns are {table.column_names}.")
    return table[name]


def _set_aside(wiring: Wiring, table: pa.Table, row: int, reason: str) -> None:
    values = {name: table[name][row].as_py() for name in table.column_names}
    kind = values.pop("type", None)
    if kind is None and len(wiring.sensors) == 1 and "type" not in table.column_names:
        kind = next(iter(wiring.sensors))
    declared = wiring.hierarchy.types.get(kind) if isinstance(kind, str) else None
    source = values.pop(_source_column(declared, table), None)
    ts, seq = values.pop("ts"), values.pop("seq", None)
    payload = {name: value for name, value in values.items() if value is not None}
    wiring.quarantine(Event.of(kind, ts, source, seq, payload), reason, wiring.position + row)
