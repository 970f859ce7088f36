"""Records become events column by column, by the rule of ``record``: the same events, for many records at once.

Nothing here changes or rejects anything. Where a record may be none, or has no exact form in columns, the answer is
None, and the records are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.event import Event
from slackline.core.time import MAX_TS, converted_column
from slackline.runtime.record import BadRecordError, Fields, sequence_number, time_of

#: More fields than a table should have: such records have data for names.
MOST_NAMES = 256

#: Python's types that Arrow gives back as they were.
_KINDS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_DIGITS = r"^[0-9]{1,19}$"


@dataclass(frozen=True, slots=True)
class StreamColumns:
    """Events of one stream: ``type`` is that of all, or a column; null in a column of the payload is no such field."""

    type: str | pa.Array
    ts: pa.Array
    source: str
    seq: pa.Array | None
    payload: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.ts)

    def __getitem__(self, part: slice) -> StreamColumns:
        kind = self.type if isinstance(self.type, str) else self.type[part]
        seq = None if self.seq is None else self.seq[part]
        payload = {name: column[part] for name, column in self.payload.items()}
        return StreamColumns(kind, self.ts[part], self.source, seq, payload)

    def events(self) -> list[Event]:
        """The same, one by one."""
        none = [None] * len(self)
        kinds = [self.type] * len(self) if isinstance(self.type, str) else self.type.to_pylist()
        seqs = none if self.seq is None else self.seq.to_pylist()
        values = [column.to_pylist() for column in self.payload.values()]
        rows = zip(*values, strict=True) if values else [()] * len(self)
        return [
            Event.of(kind, ts, self.source, seq, dict(zip(self.payload, row, strict=True)))
            for kind, ts, seq, row in zip(kinds, self.ts.to_pylist(), seqs, rows, strict=True)
        ]


def stream_columns(fields: Fields, columns: Mapping[str, pa.Array], source: str) -> StreamColumns | None:
    """Records of a stream as events, if each of them is one."""
    payload = {name: _plain(column) for name, column in columns.items()}
    try:
        ts = _stamps(payload.pop(fields.ts), fields.unit)
        kind = fields.type if fields.type_field is None else _types(payload.pop(fields.type_field))
        seq = None
        if fields.seq is not None and fields.seq in payload:
            seq = _numbers(payload.pop(fields.seq))
    except (KeyError, BadRecordError, pa.ArrowInvalid, OverflowError):
        return None
    if not all(_is_exact(column.type) for column in payload.values()):
        return None
    return StreamColumns(kind, ts, source, seq, payload)


def _plain(column: pa.Array) -> pa.Array:
    """Text of any layout as plain text."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_string(kind)
    return column.cast(pa.string()) if is_text else column


def _stamps(column: pa.Array, unit: str) -> pa.Array:
    """:func:`time_of` for a column."""
    if pa.types.is_timestamp(column.type) and not column.null_count:
        numbers = converted_column(column.cast(pa.int64()).to_numpy(), column.type.unit, unit)
        return _in_range(pa.array(numbers))
    if column.null_count or not (pa.types.is_integer(column.type) or _all_match(column, _DIGITS)):
        return pa.array([time_of(value, unit) for value in column.to_pylist()], pa.int64())
    return _in_range(column.cast(pa.int64()))


def _numbers(column: pa.Array) -> pa.Array:
    """:func:`sequence_number` for a column."""
    if pa.types.is_integer(column.type) or _all_match(column, _DIGITS):
        return _in_range(column.cast(pa.int64()))
    found = [None if value is None else sequence_number(value) for value in column.to_pylist()]
    return pa.array(found, pa.int64())


def _in_range(numbers: pa.Array) -> pa.Array:
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= MAX_TS:
        raise BadRecordError("one of the numbers is no time stamp")
    return numbers


def _types(column: pa.Array) -> pa.Array:
    if not pa.types.is_string(column.type) or column.null_count or pc.any(pc.equal(column, "")).as_py():
        raise BadRecordError("one of the types is none")
    return column


def _is_exact(kind: pa.DataType) -> bool:
    """Whether an engine gives values of such a column as they would be in an event."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return bool(kind.unit != "ns")  # Python has no nanoseconds
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_null(kind)
        or pa.types.is_union(kind)
        or pa.types.is_date(kind)
    )


# Columns of values.


def columns_of(records: Collection[Mapping[str, Any]]) -> dict[str, pa.Array] | None:
    """Records as columns, null where one lacks a field, if all have their fields in one order."""
    shapes = sorted(dict.fromkeys(map(tuple, records)), key=len, reverse=True)
    names = {name: place for place, name in enumerate(dict.fromkeys(chain.from_iterable(shapes)))}
    if len(names) > MOST_NAMES or any(names[a] > names[b] for shape in shapes for a, b in pairwise(shape)):
        return None
    if len(shapes) == 1:
        values: Iterable[Sequence[Any]] = zip(*(record.values() for record in records), strict=True)
    else:
        values = ([record.get(name) for record in records] for name in names)
    return _whole({name: array_of(column) for name, column in zip(names, values, strict=True)})


def _all_match(column: pa.Array, pattern: str) -> bool:
    """Whether all texts in a column are like this."""
    return pa.types.is_string(column.type) and pc.all(pc.match_substring_regex(column, pattern)).as_py() is not False


def array_of(values: Sequence[Any]) -> pa.Array | None:
    """Values of an event's field as a column that gives each back as it was, if there is one; None: no such field.

    >>> array_of([1, 2.0, None, "x"]).to_pylist(), array_of([[1]]), array_of([2**63])
    ([1, 2.0, None, 'x'], None, None)
    """
    there = set(map(type, values)) - {NoneType}
    kinds = [kind for kind in _KINDS if kind in there]
    if len(kinds) < len(there):
        return None
    try:
        if len(kinds) < 2:
            return pa.array(values, _KINDS[kinds[0]] if kinds else pa.null())
        each = list(map(type, values))
        codes = np.zeros(len(values), np.int8)
        parts = []
        for code, kind in enumerate(kinds):
            is_one = [one is kind for one in each]
            codes[is_one] = code
            parts.append(pa.array([value if one else None for value, one in zip(values, is_one, strict=True)]))
        return pa.UnionArray.from_sparse(pa.array(codes), parts, [kind.__name__ for kind in kinds])
    except (pa.ArrowInvalid, OverflowError, UnicodeError):
        return None


def _whole(columns: dict[str, pa.Array | None]) -> dict[str, pa.Array] | None:
    found = {name: column for name, column in columns.items() if column is not None}
    return found if len(found) == len(columns) else None
