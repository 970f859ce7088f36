"""Packets: rows of a DataFrame as Arrow IPC bytes, their way through Spark, and back into arrival order.

Rows are the slow part of Spark's Python path, so rows cross the shuffle packed: each task cuts its input into packets,
in the order it read them, one per file and group (or engine, see :func:`packer`). A packet carries its origin
(:class:`Packet`), which is enough to restore the order in which the source delivered. It is data: Arrow IPC, never a
pickle.

**Groups.** Spark calls a stateful processor once per group, and that call alone costs up to 3 ms. So the engines of a
stream are hashed into ``GROUPS`` groups, and the state of a group is a map from the names of engines to their states:
one call serves many engines, and each still costs one read and one write of its own state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from slackline.engine.arrow import split

#: Columns of prepared rows that are not the event's: the name of the engine (a key or a shard; null without a key), the
#: group, the arrival, and where the row was read. ``slackline.runtime.sharding.KEY`` is the key in a shard.
ENGINE, GROUP, ARRIVAL, MTIME, PATH, BLOCK = (
    f"__slackline_{name}" for name in ("engine", "group", "arrival", "mtime", "path", "block")
)
PLACE = (MTIME, PATH, BLOCK)

#: Groups into which the engines of a stream are hashed. Part of the checkpoint's format: with another number a key
#: would not find its state. It bounds the tasks that can work at once.
GROUPS = 512

#: Rows a task gathers before it cuts packets. More makes fewer and larger packets, and needs more memory.
GATHER_ROWS = 131_072
#: Bytes of a packet before compression, about. Spark puts thousands of them into one Arrow batch.
PACKET_BYTES = 512 * 1024
#: Rows handed to an engine at once. Their number changes memory, never results (law 3).
PUSH_ROWS = 131_072

#: Reason and detail of a row that is rejected.
NO_ARRIVAL = "no arrival", "the arrival is null: the event has no place in the order"

# Packets are small: a pool of threads costs more than compressing them.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class Packet(NamedTuple):
    """Rows of one group or engine, in the order one task read them from one file (or one input partition)."""

    mtime: int
    path: str
    block: int
    part: int
    nr: int
    blob: bytes

    @property
    def place(self) -> tuple[int, str, int, int, int]:
        """Sorts packets into reading order: older file, path, position in the file; then partition and count."""
        return self[:5]


def encode(rows: pa.RecordBatch | pa.Table) -> bytes:
    """The rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_WRITE) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()


def decode(blob: bytes) -> pa.Table:
    """The rows of :func:`encode`.

    >>> decode(encode(pa.record_batch({"ts": [3, 1]})))["ts"].to_pylist()
    [3, 1]
    """
    return pa.ipc.open_stream(pa.py_buffer(blob), options=_READ).read_all()


def packer(
    by: str, dictionaries: Sequence[str], first: pa.DataType, group: pa.DataType
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: rows in, packets out.

    ``by``            the column that separates packets: ``GROUP`` for streams, ``ENGINE`` for batches, of type
                      ``group``.
    ``dictionaries``  columns worth a dictionary.
    ``first``         type of the arrival column, whose least value is in the packet for the merge of batches (null
                      without one).
    """
    names = ["group", "first", "mtime", "path", "block", "part", "nr", "blob"]
    types = [group, first, pa.int64(), pa.string(), pa.int64(), pa.int32(), pa.int64(), pa.binary()]

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        nr = 0
        for table in _gathered(batches):
            packets: list[list[object]] = []
            for value, place, rows in _cut(table, by):
                least = pc.min(rows[ARRIVAL]).as_py() if by == ENGINE and ARRIVAL in rows.schema.names else None
                for name in dictionaries:
                    at = rows.schema.get_field_index(name)
                    rows = rows.set_column(at, name, rows.column(at).dictionary_encode())
                packets.append([value, least, *place, part, nr, encode(rows)])
                nr += 1
            columns = zip(*packets, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names
            )

    return pack


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The input in larger batches; never an empty one."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
        if count >= GATHER_ROWS:
            yield pa.concat_batches(held)
            held, count = [], 0
    if held:
        yield pa.concat_batches(held)


def _cut(batch: pa.RecordBatch, by: str) -> Iterator[tuple[str | int | None, tuple[int, str, int], pa.RecordBatch]]:
    """The batch split by file and by a column, each part in reading order."""
    inside = [name for name in batch.schema.names if name not in (by, *PLACE)]
    for place, rows in _files(batch):
        groups = rows[by].dictionary_encode(null_encoding="encode")
        rows = rows.select(inside)
        for value, part in split(rows, groups):
            for piece in slices(part):
                yield value, place, piece


def slices(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows in parts of the size of a packet."""
    size = max(1, PACKET_BYTES * rows.num_rows // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, size):
        yield rows.slice(at, size)


def _files(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, str, int], pa.RecordBatch]]:
    """The batch split where the file changes; whole when the source is no file source."""
    here = [name for name in PLACE if name in batch.schema.names]
    changed = np.zeros(max(batch.num_rows - 1, 0), dtype=bool)
    for name in here:
        column = batch[name]
        changed |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(bounds):
        value = {name: batch[name][start].as_py() for name in here}
        yield (
            (value.get(MTIME, 0), value.get(PATH, ""), value.get(BLOCK, 0)),
            batch.slice(start, end - start),
        )


def restored(packets: Iterable[Packet]) -> pa.Table:
    """The rows of all packets, in the order in which they were read."""
    return joined([decode(packet.blob) for packet in sorted(packets, key=lambda packet: packet.place)])


def by_engine(table: pa.Table) -> Iterator[tuple[str | int | None, pa.Table]]:
    """Each engine of a group with its rows, in arrival order; those without an arrival come last."""
    table = by_arrival(table)
    at = table.schema.get_field_index(ENGINE)
    names = table.column(at).combine_chunks()
    table = table.remove_column(at)
    if names.null_count:
        names = names.cast(names.type.value_type).dictionary_encode(null_encoding="encode")
    if len(names.dictionary) > 1:
        table = _plain(table)  # a slice would carry the dictionaries of the whole group
    return split(table, names)


def _plain(table: pa.Table) -> pa.Table:
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(field.type.value_type))
    return table


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables behind one another, as one run of memory per column."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def by_arrival(table: pa.Table) -> pa.Table:
    """The rows sorted by the arrival column, if there is one; rows of equal arrival stay as they are."""
    if ARRIVAL not in table.schema.names or len(table) < 2:
        return table
    column = table[ARRIVAL].combine_chunks()
    if column.null_count == 0 and pc.all(pc.less_equal(column[:-1], column[1:])).as_py():
        return table
    return table.take(pc.sort_indices(column))


def placed(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows that have an arrival, and those that lack it."""
    arrival = table[ARRIVAL]
    if arrival.null_count == 0 and not pa.types.is_floating(arrival.type):
        return table, table.slice(0, 0)
    missing = pc.is_null(arrival, nan_is_null=True)
    return table.filter(pc.invert(missing)), table.filter(missing)


def pushes(table: pa.Table) -> Iterator[pa.Table]:
    """The table in runs that one push can take in bounded memory."""
    for start in range(0, len(table), PUSH_ROWS):
        yield table.slice(start, PUSH_ROWS)


# The way through Spark.

#: What ``mapInArrow`` takes.
ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them; for types only, whatever the session's time zone."""
    return to_arrow_schema(schema, timezone="UTC")


def packed(prepared: DataFrame, dictionaries: Sequence[str], by: str) -> DataFrame:
    """The prepared rows as packets, see :func:`packer`."""
    group = prepared.schema[by].dataType
    first = prepared.schema[ARRIVAL].dataType if ARRIVAL in prepared.columns else LongType()
    schema = (
        f"group {group.simpleString()}, first {first.simpleString()}, mtime long, path string, block long, part int"
    )
    schema += ", nr long, blob binary"
    types = arrow_schema(StructType([StructField("first", first), StructField("group", group)])).types
    return prepared.mapInArrow(packer(by, dictionaries, *types), schema)


def streamed(
    prepared: DataFrame, dictionaries: Sequence[str], processor: StatefulProcessor, schema: StructType | str,
    shards: int | None = None, time_mode: str = "None",
) -> DataFrame:  # fmt: skip
    """A stream's rows through a stateful processor, group by group."""
    # A shard's number is that of its group, so that another number of shards meets the state of the first.
    shard = F.split_part(F.col(ENGINE), F.lit("/"), F.lit(2)).cast("int")
    number = F.hash(ENGINE) if shards is None else F.coalesce(shard, F.lit(0))
    grouped = prepared.withColumn(GROUP, F.pmod(number, F.lit(GROUPS)))
    groups = packed(grouped, [ENGINE, *dictionaries], GROUP).drop("first").groupBy("group")
    return groups.transformWithState(processor, outputStructType=schema, outputMode="Append", timeMode=time_mode)


def whole(prepared: DataFrame, dictionaries: Sequence[str], run: ArrowMap, schema: StructType) -> DataFrame:
    """A batch's rows through a function that gets all packets of an engine, by least arrival and place."""
    order = [F.col("group"), F.col("first").asc_nulls_last()]
    order += [F.col(name) for name in ("mtime", "path", "block", "part", "nr")]
    packets = packed(prepared, dictionaries, ENGINE)
    return packets.repartition("group").sortWithinPartitions(*order).mapInArrow(run, schema)
