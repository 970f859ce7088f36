"""A site: one key's engine with what Spark's side must remember about it. A machine without Spark in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.hierarchy import Hierarchy
from slackline.engine import Engine
from slackline.spark.codec import ARRIVAL, NULL_SITE, pushes
from slackline.spark.rows import Rows

Saved = tuple[bytes | None, int, int, int, Any]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a site's engine. Shipped to the workers with Spark's own pickling of the user's code."""

    hierarchy: Hierarchy
    options: Mapping[str, Any] = field(default_factory=dict)
    stats: bool = True


class Site:
    """One key's engine, fed in arrival order, giving output rows.

    The state is one value: the engine's bytes and four numbers.
    """

    def __init__(self, name: str, recipe: Recipe, saved: Saved | None = None) -> None:
        engine, rows, rejected, behind, last = saved or (None, 0, 0, 0, None)
        self.name = name
        self.recipe = recipe
        #: Rows received in all.
        self.rows = rows
        #: Rows set aside here because they have no key or no arrival, in all.
        self.rejected = rejected
        #: Rows whose arrival lies before one of an earlier micro-batch, in all: the source was not in order.
        self.behind = behind
        #: The greatest arrival so far.
        self.last = last
        self.engine: Engine | None = None
        if engine is not None:
            self.engine = Engine.load(bytes(engine), recipe.hierarchy)
        elif name != NULL_SITE:
            self.engine = Engine(recipe.hierarchy, **recipe.options)

    def push(self, table: pa.Table) -> Rows:
        """Take rows in arrival order; what they cause."""
        out = Rows(self.name)
        self.rows += len(table)
        if self.engine is None:
            self._reject(out, table, "the key is null: an event belongs to no site")
            return out
        table = self._arrivals(out, table)
        for run in pushes(table):
            out.outputs(self.engine.push(run))
            self._drain(out)
        return out

    def close(self) -> Rows:
        """The end of the stream: what was still waiting."""
        out = Rows(self.name)
        if self.engine is not None:
            out.outputs(self.engine.close())
            self._drain(out)
        return out

    def save(self) -> Saved:
        """The whole state as one value of the state store."""
        engine = None if self.engine is None else self.engine.save()
        return engine, self.rows, self.rejected, self.behind, self.last

    def stats(self, saved_bytes: int | None = None) -> dict[str, Any]:
        """The engine's statistics and the site's own, as JSON takes them."""
        own = {"rows": self.rows, "rejected": self.rejected, "arrival_behind": self.behind}
        if saved_bytes is not None:
            own["state_bytes"] = saved_bytes
        return {**(self.engine.stats() if self.engine else {}), "site": own}

    def _drain(self, out: Rows) -> None:
        assert self.engine is not None
        late, quarantined = self.engine.drain()
        out.late(late)
        out.quarantined(quarantined)

    def _arrivals(self, out: Rows, table: pa.Table) -> pa.Table:
        """Check the arrival column and take it out: the order of the rows says all it said."""
        if ARRIVAL not in table.schema.names or not len(table):
            return table
        arrival = table[ARRIVAL]
        missing = pc.is_null(arrival, nan_is_null=True)
        if pc.any(missing).as_py():
            self._reject(out, table.filter(missing), "the arrival is null: an event has no place in the order")
            table = table.filter(pc.invert(missing))
            arrival = table[ARRIVAL]
        if len(table):
            if self.last is not None:
                self.behind += pc.sum(pc.less(arrival, self.last)).as_py() or 0
            newest = arrival[-1].as_py()
            self.last = newest if self.last is None else max(self.last, newest)
        return table.drop_columns([ARRIVAL])

    def _reject(self, out: Rows, table: pa.Table, reason: str) -> None:
        if ARRIVAL in table.schema.names:
            table = table.drop_columns([ARRIVAL])
        out.rejected(table, self.rejected, reason)
        self.rejected += len(table)
