"""The batch side: an engine's packets, sorted by Spark, are processed from its first event to its last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackline.spark.merge import Merge, MergeRecipe
from slackline.spark.metrics import CallMetrics
from slackline.spark.packets import ARRIVAL, PUSH_ROWS, ArrowMap, arrow_schema, decode, joined
from slackline.spark.processor import KeyedPlan, KeyedRows, Name
from slackline.spark.rows import OUTPUT_ROWS, OutputRows, output_schema

_RANK = "__slackline_rank"

#: The engine, least arrival and rows of a packet.
_Item = tuple[Name, Any, pa.Table]


def runner(plan: KeyedPlan) -> ArrowMap:
    """The function for ``mapInArrow`` on packets sorted by engine, least arrival and place.

    Memory is bounded by the packets whose arrivals overlap, not by the rows of a key.
    """

    schema = arrow_schema(output_schema(plan.key))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        out, metrics = OutputRows(), CallMetrics()
        for name, runs in by_engine(batches):
            rows = KeyedRows(plan, out, metrics)
            for table in runs:
                rows.push(name, table)
                if len(out) >= OUTPUT_ROWS:
                    yield out.take(schema)
            rows.closed(name)
        if plan.metrics:
            out.add([metrics.record()])
        if len(out):
            yield out.take(schema)

    return run


def merger(recipe: MergeRecipe) -> ArrowMap:
    """The same for :func:`~slackline.spark.synchronise`.

    Without an arrival column the streams are read side by side, so all rows of a key are in memory at once.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name, runs in by_engine(batches):
            merge = Merge(name, recipe)
            for table in runs if recipe.arrival else [joined(list(runs))]:
                yield from _batches(merge.push(table))
            yield from _batches(merge.close())

    return run


def _batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches()


def by_engine(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Name, Iterator[pa.Table]]]:
    """Each engine with its rows in arrival order, in runs, which must be exhausted before the next engine."""
    for name, items in groupby(_unpacked(batches), key=lambda item: item[0]):
        yield name, arrivals(items)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[_Item]:
    for batch in batches:
        for row in range(batch.num_rows):
            table = decode(batch["blob"][row].as_py())
            if ARRIVAL in table.schema.names:
                # Rows of equal arrival are in reading order, as on the streaming side.
                place = [batch[name][row].as_py() for name in ("mtime", "block", "part", "nr")]
                for at, value in enumerate(place):
                    table = table.append_column(f"{_RANK}{at}", pa.repeat(pa.scalar(value, pa.int64()), len(table)))
            yield batch["group"][row].as_py(), batch["first"][row].as_py(), table


def arrivals(items: Iterable[_Item]) -> Iterator[pa.Table]:
    """The rows of an engine in arrival order, in runs of about ``PUSH_ROWS``.

    Items come by least arrival, so every row below the next item's least is complete. Without an arrival column
    (the least is null) they come in order already; rows that lack only the value come last of all.
    """
    held: list[pa.Table] = []
    count, rest = 0, 0
    for _, first, table in items:
        # Cutting costs as much as what is held; doing it only when that much came new keeps it linear.
        if count - rest >= max(PUSH_ROWS, rest):
            whole, held = joined(held), []
            if first is not None:
                ready = pc.fill_null(pc.less(whole[ARRIVAL], first), False)
                held = [whole.filter(pc.invert(ready))]
                whole = whole.filter(ready)
            count = rest = sum(map(len, held))
            if len(whole):
                yield _sorted(whole)
        held.append(table)
        count += len(table)
    if held:
        yield _sorted(joined(held))


def _sorted(table: pa.Table) -> pa.Table:
    ranks = [name for name in table.schema.names if name.startswith(_RANK)]
    if not ranks:
        return table
    arrival = table[ARRIVAL].combine_chunks()
    if arrival.null_count == 0 and pc.all(pc.less(arrival[:-1], arrival[1:])).as_py():
        return table.drop_columns(ranks)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in (ARRIVAL, *ranks)])
    return table.take(order).drop_columns(ranks)
