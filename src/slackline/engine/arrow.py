"""Arrow columns of any layout as NumPy arrays and Python values.

Values are those of ``to_pylist``, with one exception: nanosecond types become NumPy scalars (``datetime64[ns]`` in UTC,
``timedelta64[ns]``; a time of day since midnight), since Python's own types end at microseconds, and the result must
not depend on whether pandas is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.batch import Column, Ints, Mask, object_column
from slackline.core.time import MAX_TS, time_stamp, time_stamps

#: Integers below this are their own codes.
SMALL = 1 << 14


class Cast(NamedTuple):
    """A column in its declared type, and which of its values fit; None for all."""

    values: Column
    fits: Mask | None = None


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a layout that Arrow's functions support; a dictionary of strings stays one."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return plain(pa.chunked_array(chunks, kind.value_type))
    if pa.types.is_dictionary(kind):
        if pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type):
            return column
        chunks = [plain(pa.chunked_array([chunk.dictionary])).take(chunk.indices) for chunk in column.chunks]
        none = plain(pa.chunked_array([], kind.value_type))
        return pa.chunked_array([piece for chunk in chunks for piece in chunk.chunks], none.type)
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Whether values of this type are numbers, decimals included."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def whole_numbers(column: pa.ChunkedArray) -> tuple[Ints, Mask]:
    """The values as time stamps or sequence numbers (see ``core.time``), and which of them are valid."""
    kind = column.type
    if pa.types.is_int64(kind) and not column.null_count:
        numbers = _writable(column)
        return numbers, (numbers >= 0) & (numbers <= MAX_TS)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):  # decimals, or nothing but nulls
        stamps = [time_stamp(each) for each in column.to_pylist()]
        good = np.array([stamp is not None for stamp in stamps], dtype=np.bool_)
        return np.array([stamp or 0 for stamp in stamps], dtype=np.int64), good
    there = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    with np.errstate(invalid="ignore"):
        numbers, good = time_stamps((column.fill_null(0) if column.null_count else column).to_numpy())
    return numbers, good & there


def _writable(column: pa.Array | pa.ChunkedArray) -> Column:
    """A column as a writable array: for Arrow's read-only ones the loops would be compiled once more."""
    numbers = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return numbers if numbers.flags.writeable else numbers.copy()


def declared(column: pa.ChunkedArray, rows: Ints, dtype: np.dtype[Any]) -> Cast:
    """Some rows of a column in the declared type of a field, by the rule of ``intake.declared_value``."""
    kind = column.type
    if dtype.kind == "O":
        return Cast(undeclared(column, rows, objects=True))
    if dtype.kind == "f":
        if pa.types.is_decimal(kind):
            numbers = np.array([np.nan if each is None else float(each) for each in values(column, rows)])
        elif pa.types.is_boolean(kind) or column.null_count:
            if pa.types.is_boolean(kind):
                column = column.cast(pa.int8())
            numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).take(rows)
        else:
            numbers = column.to_numpy().take(rows)
        with np.errstate(over="ignore"):
            return Cast(numbers.astype(dtype, copy=False))
    fits = None
    if column.null_count:
        fits = column.is_valid().to_numpy(zero_copy_only=False).take(rows)
        if pa.types.is_null(kind):
            return Cast(np.zeros(len(rows), dtype=dtype), fits)
        column = column.fill_null(False if pa.types.is_boolean(kind) else 0)
    raw = column.to_numpy().take(rows)
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if len(raw) and raw.dtype != np.bool_ and not (low <= int(raw.min()) and int(raw.max()) <= high):
        inside = np.array([low <= each <= high for each in raw.tolist()], dtype=np.bool_)
        fits = inside if fits is None else fits & inside
        raw = np.where(inside, raw, 0)
    return Cast(raw.astype(dtype, copy=False), fits)


def undeclared(column: pa.ChunkedArray, rows: Ints, objects: bool = False) -> Column:
    """Some rows of a column without a declared type: typed if they are numbers without nulls, else objects."""
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if is_number and not column.null_count and not objects:
        typed: Column = column.to_numpy().take(rows)
        return typed
    return object_column(values(column, rows))


def values(column: pa.ChunkedArray, rows: Ints) -> list[Any]:
    """Some rows of a column as Python values."""
    if len(rows) < len(column):
        try:
            column = column.take(pa.array(rows))
        except pa.ArrowNotImplementedError:
            every = values(column, np.arange(len(column)))
            return [every[row] for row in rows.tolist()]
    if not _has_nanoseconds(column.type):
        found: list[Any] = column.to_pylist()
        return found
    return [value(each) for each in column]


def value(scalar: pa.Scalar) -> Any:
    """One value as a Python value."""
    kind = scalar.type
    if not scalar.is_valid or not _has_nanoseconds(kind):
        return scalar.as_py()
    if pa.types.is_timestamp(kind):
        return np.datetime64(scalar.value, "ns")
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return np.timedelta64(scalar.value, "ns")
    if pa.types.is_struct(kind):
        return {field: value(each) for field, each in scalar.items()}
    if pa.types.is_map(kind):
        return [(value(each["key"]), value(each["value"])) for each in scalar.values]
    return [value(each) for each in scalar.values]


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        return bool(kind.unit == "ns")
    return pa.types.is_nested(kind) and any(_has_nanoseconds(kind.field(i).type) for i in range(kind.num_fields))


def encoded(column: pa.ChunkedArray) -> tuple[Ints, Sequence[Any]]:
    """A column as codes and the values they stand for, None for null."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk at all
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=column.type)
    if pa.types.is_dictionary(array.type) and (
        array.dictionary.null_count or len(array.dictionary.unique()) < len(array.dictionary)
    ):
        array = array.dictionary_decode()  # Arrow lets a dictionary hold a value twice, and null
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    known = array.dictionary.to_pylist()
    indices = array.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(known))
        known = [*known, None]
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), known


def encoded_sources(column: pa.ChunkedArray) -> tuple[Ints, Sequence[Any]]:
    """The same for sources, where small integers are their own codes."""
    if pa.types.is_integer(column.type) and len(column) and not column.null_count:
        numbers = _writable(column)
        if numbers.min() >= 0 and numbers.max() < SMALL:
            return numbers.astype(np.int64, copy=False), range(int(numbers.max()) + 1)
    return encoded(column)


def split(rows: Any, groups: pa.DictionaryArray) -> Iterator[tuple[Any, Any]]:
    """The rows of each group, in the order they had."""
    values = groups.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], rows
        return
    codes = groups.indices.to_numpy(zero_copy_only=False)
    rows = rows.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes, minlength=len(values))).tolist()
    for value, start, end in zip(values, [0, *ends[:-1]], ends, strict=True):
        yield value, rows.slice(start, end - start)
