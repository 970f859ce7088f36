"""Packets: a micro-batch's events of one key as Arrow IPC bytes, and their way back into arrival order.

Rows are the slow part of Spark's Python path (DESIGN.md section 8), so events cross the shuffle packed: each task
cuts its input into packets, one per key and file, in the order it read them. A packet says where it comes from
(:class:`Packet`), and that is enough to restore the order in which the source delivered.

A packet is data: Arrow IPC, never a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

#: Columns of the prepared input that are not the engine's. The names are ours alone.
SITE, ARRIVAL, MTIME, PATH, BLOCK = (f"__slackline_{name}" for name in ("site", "arrival", "mtime", "path", "block"))
PLACE = (MTIME, PATH, BLOCK)

#: The site whose key is null; every other is its key's text behind a "v", so that none can be taken for it.
NULL_SITE = "n"

#: Rows a task gathers before it cuts packets. More makes fewer and larger packets, and needs more memory.
GATHER_ROWS = 131_072
#: Bytes of a packet before compression, about. Spark puts thousands of them into one Arrow batch.
PACKET_BYTES = 512 * 1024
#: Rows handed to an engine at once. Their number changes memory, never results (law 3).
PUSH_ROWS = 131_072

#: Why a row cannot be taken.
NO_KEY = "the key is null: an event belongs to no site"
NO_ARRIVAL = "the arrival is null: an event has no place in the order"

_IPC = pa.ipc.IpcWriteOptions(compression="lz4")


class Packet(NamedTuple):
    """Events of one key, in the order one task read them from one file (or one input partition)."""

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
    with pa.ipc.new_stream(sink, rows.schema, options=_IPC) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()


def decode(blob: bytes) -> pa.Table:
    """The rows of :func:`encode`.

    >>> decode(encode(pa.record_batch({"ts": [3, 1]})))["ts"].to_pylist()
    [3, 1]
    """
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def packer(dictionaries: Sequence[str], first: pa.DataType) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: rows in, packets out.

    ``dictionaries`` names the columns worth a dictionary; ``first`` is the type of the arrival column, whose least
    value in the packet goes along for the batch path's merge (null without one).
    """
    names = ["site", "first", "mtime", "path", "block", "part", "nr", "blob"]

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        nr = 0
        for table in _gathered(batches):
            packets: list[list[object]] = []
            for site, place, rows in _cut(table):
                least = None
                if ARRIVAL in rows.schema.names:
                    least = pc.min(rows[ARRIVAL]).as_py()
                for name in dictionaries:
                    at = rows.schema.get_field_index(name)
                    rows = rows.set_column(at, name, rows.column(at).dictionary_encode())
                packets.append([site, least, *place, part, nr, encode(rows)])
                nr += 1
            types = [pa.string(), first, pa.int64(), pa.string(), pa.int64(), pa.int32(), pa.int64(), pa.binary()]
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


def _cut(batch: pa.RecordBatch) -> Iterator[tuple[str, tuple[int, str, int], pa.RecordBatch]]:
    """The batch split by key and file, each part in reading order."""
    inside = [name for name in batch.schema.names if name not in (SITE, *PLACE)]
    for place, rows in _files(batch):
        sites = rows[SITE].dictionary_encode(null_encoding="encode")
        codes = sites.indices.to_numpy(zero_copy_only=False)
        rows = rows.select(inside)
        names = [site_name(key) for key in sites.dictionary.to_pylist()]
        ends = np.cumsum(np.bincount(codes, minlength=len(names)))
        if len(names) > 1:
            rows = rows.take(pa.array(np.argsort(codes, kind="stable")))
        for name, start, end in zip(names, (0, *ends[:-1]), ends, strict=True):
            for part in slices(rows.slice(start, end - start)):
                yield name, place, part


def slices(rows: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows in parts of the size of a packet."""
    size = max(1, PACKET_BYTES * rows.num_rows // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, size):
        yield rows.slice(at, size)


def site_name(key: object) -> str:
    """A key as the text by which Spark groups.

    >>> site_name("n"), site_name(7), site_name(None)
    ('vn', 'v7', 'n')
    """
    return NULL_SITE if key is None else f"v{key}"


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
    """The rows of all packets in arrival order."""
    tables = [decode(packet.blob) for packet in sorted(packets, key=lambda packet: packet.place)]
    return by_arrival(joined(tables))


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
    missing = pc.is_null(table[ARRIVAL], nan_is_null=True)
    if not pc.any(missing).as_py():
        return table, table.slice(0, 0)
    return table.filter(pc.invert(missing)), table.filter(missing)


def pushes(table: pa.Table) -> Iterator[pa.Table]:
    """The table in runs that one push can take in bounded memory."""
    for start in range(0, len(table), PUSH_ROWS):
        yield table.slice(start, PUSH_ROWS)
