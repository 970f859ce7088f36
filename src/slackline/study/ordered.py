"""Files of a synchronised recording: the ordered stream, and late events beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from slackline.connectors.formats import ending_of, format_of, stem_of
from slackline.core.errors import SlacklineError
from slackline.study.sync import SyncResult

_LINES = 10_000


def write_ordered(result: SyncResult, path: Path) -> list[Path]:
    """Write the ordered stream, and late events, if there are any, to a file of their own; return the paths.

    Before the columns of the recording come ``position``, ``stream`` and ``waited``; for late events ``stream`` and
    ``lateness``. A column of the recording with such a name gets ``_in`` at its end.
    """
    recording = result.recording
    table = _stacked(recording.tables)
    names = pa.array(recording.names)

    def rows(which: np.ndarray, **ours: object) -> pa.Table:
        ours = {"stream": names.take(pa.array(recording.stream.source[which])), **ours}
        return _beside(ours, table.take(pa.array(recording.row[which])))

    order = result.order
    waited = pa.array(result.released_at[order] - recording.stream.arrival[order])
    written = [path]
    ordered = rows(order, waited=waited)
    _write(ordered.add_column(0, "position", pa.array(np.arange(1, len(order) + 1))), path)
    if len(result.late):
        aside = path.with_name(f"{stem_of(path)}.late{path.name[len(stem_of(path)) :]}")
        _write(rows(result.late, lateness=pa.array(result.lateness)), aside)
        written.append(aside)
    return written


def _stacked(tables: tuple[pa.Table, ...]) -> pa.Table:
    """One table of all. A column that has different types in different files gets one that holds all, or text."""
    kinds: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            kinds.setdefault(name, set()).add(kind)
    common = {name: _common(each) for name, each in kinds.items()}
    return pa.concat_tables([_cast(table, common) for table in tables], promote_options="default")


def _common(kinds: set[pa.DataType]) -> pa.DataType | None:
    """A type that holds what all of them hold without a loss; None if only text does."""
    known = [kind for kind in kinds if not pa.types.is_null(kind)]
    if len({pa.types.is_integer(kind) for kind in known}) > 1:
        return None  # large integers would lose digits
    if pa.uint64() in known and any(map(pa.types.is_signed_integer, known)):
        return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in kinds]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _cast(table: pa.Table, kinds: dict[str, pa.DataType | None]) -> pa.Table:
    columns = zip(table.column_names, table.columns, strict=True)
    return pa.table(
        {name: _as_text(each) if (kind := kinds[name]) is None else each.cast(kind) for name, each in columns}
    )


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers, dates and the like as they are written; lists and the like as JSON."""
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        texts = [None if value is None else msgspec.json.encode(value).decode() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _beside(ours: dict[str, pa.Array], theirs: pa.Table) -> pa.Table:
    """Our columns before theirs."""
    taken = {"position", *ours}
    names = []
    for name in theirs.column_names:
        while name in taken:
            name += "_in"
        taken.add(name)
        names.append(name)
    return pa.table({**ours, **dict(zip(names, theirs.columns, strict=True))})


def _write(table: pa.Table, path: Path) -> None:
    write: Callable[[pa.Table, pa.NativeFile], None] = _write_lines
    if format_of(path) == "csv":
        write = partial(_write_csv, delimiter="\t" if ending_of(path).startswith(".tsv") else ",")
    elif format_of(path) == "parquet":
        write = pa_parquet.write_table
    try:
        # Compressed if its name says so.
        with pa.output_stream(str(path)) as sink:
            write(table, sink)
    except (OSError, pa.ArrowException) as cause:
        raise SlacklineError(f"cannot write {path}: {cause}.") from cause


def _write_csv(table: pa.Table, sink: pa.NativeFile, delimiter: str) -> None:
    for i, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            table = table.set_column(i, field.name, _as_text(table.column(i)))
        elif pa.types.is_string(field.type):
            table = table.set_column(i, field.name, _as_numbers(table.column(i)))
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(delimiter=delimiter))


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text that is written the same as a number, so that it gets no quotation marks; any other as it is."""
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowException:
        return column
    return numbers if numbers.cast(pa.string()).equals(column) else column


def _write_lines(table: pa.Table, sink: pa.NativeFile) -> None:
    for batch in table.to_batches(_LINES):
        sink.write(msgspec.json.Encoder().encode_lines(batch.to_pylist()))
