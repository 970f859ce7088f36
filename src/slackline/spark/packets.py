"""Packets: rows of a DataFrame on their way through Spark to the engines, in the order of arrival.

**Streams.** Rows are the slow part of Spark's Python path, so they cross the shuffle packed: each task cuts its input
into packets of Arrow IPC bytes, in the order it read them, one per file and group. A packet carries its origin, which
is enough to restore the order in which the source delivered. It is data: Arrow IPC, never a pickle.

Spark calls a stateful processor once per group, and that call alone costs up to 3 ms. So the engines of a stream are
hashed into ``GROUPS`` groups, and the state of a group is a map from the names of engines to their states: one call
serves many engines, and each still costs one read and one write of its own state. Groups have names by which Spark
deals them evenly to any number of shuffle partitions; hashed at random, the fullest of 8 tasks had 1.5 times its share
of 64 shards, and the fuller of two tasks 1.05 times its share of all groups.

**Batches.** Spark sorts the rows by engine and arrival, and spills to disk what memory cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from slackline.engine.arrow import split

#: Columns of prepared rows that are not the event's: the name of the engine (a key or a shard; null without a key), the
#: group, the arrival, and where the row was read. ``slackline.runtime.sharding.KEY`` is the key in a shard.
ENGINE, GROUP, ARRIVAL, MTIME, PATH, BLOCK, NR = (
    f"__slackline_{name}" for name in ("engine", "group", "arrival", "mtime", "path", "block", "nr")
)
PLACE = (MTIME, PATH, BLOCK)

#: A packet: its group, and where its rows were read: modification time and path of the file, position in it, the task
#: and a count of the packets of the task.
PACKET = pa.schema({
    "group": pa.int32(), "mtime": pa.int64(), "path": pa.string(), "block": pa.int64(), "part": pa.int32(),
    "nr": pa.int64(), "blob": pa.binary(),
})  # fmt: skip

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

_WORD = 1 << 32

# Packets are small: a pool of threads costs more than compressing them.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)

#: What ``mapInArrow`` takes.
ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: The name of an engine: a key or a shard; None for rows without a key.
Name = str | int | None


def streamed(
    prepared: DataFrame, dictionaries: Sequence[str], processor: StatefulProcessor, schema: StructType | str,
    shards: int | None = None, time_mode: str = "None",
) -> DataFrame:  # fmt: skip
    """A stream's rows through a stateful processor, group by group."""
    # A shard's number is that of its group, so that another number of shards meets the state of the first.
    shard = F.split_part(F.col(ENGINE), F.lit("/"), F.lit(2)).cast("int")
    number = F.hash(ENGINE) if not shards else F.coalesce(shard, F.lit(0))
    names = F.array(*map(F.lit, group_names(GROUPS)))
    grouped = prepared.withColumn(GROUP, F.get(names, F.pmod(number, F.lit(GROUPS))))
    groups = grouped.mapInArrow(packer([ENGINE, *dictionaries]), from_arrow_schema(PACKET)).groupBy("group")
    return groups.transformWithState(processor, outputStructType=schema, outputMode="Append", timeMode=time_mode)


def group_names(count: int) -> list[int]:
    """Integers whose hashes are 0, 1, 2, …: of ``n`` shuffle partitions Spark gives each every ``n``-th group.

    Spark's hash of an integer is MurmurHash3 with the seed 42, which is a bijection; this inverts it step by step. With
    another hash the groups would be distributed at random, and nothing else would change.
    """

    def inverse_shift(value: int, bits: int) -> int:
        found = value
        for _ in range(32 // bits):
            found = value ^ (found >> bits)
        return found

    def rotated(value: int, bits: int) -> int:
        return (value >> bits | value << (32 - bits)) % _WORD

    names = []
    for wanted in range(count):
        mixed = inverse_shift(wanted, 16) * pow(0xC2B2AE35, -1, _WORD) % _WORD
        mixed = inverse_shift(mixed, 13) * pow(0x85EBCA6B, -1, _WORD) % _WORD
        mixed = inverse_shift(mixed, 16) ^ 4
        mixed = rotated((mixed - 0xE6546B64) * pow(5, -1, _WORD) % _WORD, 13) ^ 42
        mixed = rotated(mixed * pow(0x1B873593, -1, _WORD) % _WORD, 15) * pow(0xCC9E2D51, -1, _WORD) % _WORD
        names.append(mixed - (mixed >> 31) * _WORD)
    return names


def sorted_batch(prepared: DataFrame, run: ArrowMap, schema: StructType) -> DataFrame:
    """A batch's rows through a function that gets them by engine and in arrival order; see :func:`engine_runs`."""
    numbered = prepared.withColumn(NR, F.monotonically_increasing_id())
    by = [name for name in (ENGINE, ARRIVAL, *PLACE, NR) if name in numbered.columns]
    rows = numbered.repartition(ENGINE).sortWithinPartitions(*(F.col(name).asc_nulls_last() for name in by))
    return rows.drop(*PLACE, NR).mapInArrow(run, schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them; for types only, whatever the session's time zone."""
    return to_arrow_schema(schema, timezone="UTC")


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


def packer(dictionaries: Sequence[str]) -> ArrowMap:
    """The function for ``mapInArrow``: rows in, packets out, with dictionaries of these columns."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        numbers = count()
        for batch in gathered(batches):
            packets = [
                (group, *place, part, next(numbers), encode(encoded(rows, dictionaries)))
                for place, file in _files(batch)
                for group, group_rows in split(file.drop_columns([GROUP]), file[GROUP].dictionary_encode())
                for rows in slices(group_rows)
            ]
            columns = zip(*packets, strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, PACKET.types, strict=True)]
            yield pa.record_batch(arrays, schema=PACKET)

    return pack


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The input in larger batches; never an empty one."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            rows += batch.num_rows
        if rows >= GATHER_ROWS:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)


def _files(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, str, int], pa.RecordBatch]]:
    """The batch split where the file changes, without its place; whole when the source is no file source."""
    here = [name for name in PLACE if name in batch.schema.names]
    changed = np.zeros(batch.num_rows - 1, dtype=bool)
    for name in here:
        column = batch[name]
        changed |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    rows = batch.drop_columns(here)
    for start, end in pairwise([0, *(np.flatnonzero(changed) + 1).tolist(), batch.num_rows]):
        value = {name: batch[name][start].as_py() for name in here}
        yield (value.get(MTIME, 0), value.get(PATH, ""), value.get(BLOCK, 0)), rows.slice(start, end - start)


def slices(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows in parts of the size of a packet."""
    size = max(1, PACKET_BYTES * rows.num_rows // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, size):
        yield rows.slice(at, size)


def restored(packets: Iterable[tuple[Any, ...]]) -> pa.Table:
    """The rows of all packets by arrival; rows of equal arrival, or without that column, in the order of reading."""
    table = joined([decode(packet[-1]) for packet in sorted(packets, key=lambda packet: packet[1:-1])])
    if ARRIVAL not in table.schema.names or len(table) < 2:
        return table
    column = table[ARRIVAL].combine_chunks()
    if column.null_count == 0 and pc.all(pc.less_equal(column[:-1], column[1:])).as_py():
        return table
    return table.take(pc.sort_indices(column))


def by_engine(table: pa.Table) -> Iterator[tuple[Name, pa.Table]]:
    """Each engine with its rows, in the order they have."""
    names = table[ENGINE].combine_chunks()
    table = table.drop_columns([ENGINE])
    if names.null_count or not pa.types.is_dictionary(names.type):
        names = _plain(names).dictionary_encode(null_encoding="encode")
    if len(names.dictionary) > 1:  # a slice would carry the dictionaries of all engines
        table = pa.table([_plain(column) for column in table.columns], table.schema.names)
    return split(table, names)


def engine_runs(batches: Iterable[pa.RecordBatch], dictionaries: Sequence[str]) -> Iterator[tuple[Name, Iterator[Any]]]:
    """Each engine of a sorted batch with its rows, in tables, which must be exhausted before the next engine."""
    tables = (table for batch in gathered(batches) for table in by_engine(pa.table(batch)))
    for name, parts in groupby(tables, key=lambda part: part[0]):
        yield name, (encoded(table, dictionaries) for _, table in parts)


def encoded(rows: Any, dictionaries: Sequence[str]) -> Any:
    """The rows with dictionaries of these columns."""
    for name in dictionaries:
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].dictionary_encode())
    return rows


def _plain(column: Any) -> Any:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables behind one another, as one run of memory per column."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def with_arrival(table: pa.Table) -> tuple[pa.Table, pa.Table]:
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
