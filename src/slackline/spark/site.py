"""A site: one key's engine with what Spark's side must remember about it. A machine without Spark in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import NO_KEY, Output
from slackline.engine import Engine
from slackline.engine.options import DEFAULTS
from slackline.running.backlog import UNLIMITED
from slackline.running.pause import Pause
from slackline.spark.codec import ARRIVAL, KEY, NO_ARRIVAL, NULL_SITE, placed, pushes
from slackline.spark.rows import OutputRows
from slackline.spark.sharded import Keyed, joined_sources, told_apart

Saved = tuple[bytes | None, int, int, int, int, Any, int]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make a site's engine. Shipped to the workers with Spark's own pickling of the user's code.

    ``now`` is wall time: a site's batches are processed by one process today and by another tomorrow. Where sites are
    ``sharded`` the hierarchy is a :func:`~slackline.spark.sharded.keyed` one.
    """

    hierarchy: Hierarchy
    options: dict[str, Any] = field(default_factory=dict)
    stats: bool = True
    #: Whether figures are to be had of each micro-batch: see :mod:`slackline.spark.observed`.
    metrics: bool = False
    now: Callable[[], float] = time.time
    sharded: bool = False
    #: Whether arrivals are times like the time stamps, in microseconds: then they are evidence too.
    timed: bool = False

    def __post_init__(self) -> None:
        unknown = sorted(set(self.options) - set(DEFAULTS))
        if unknown:
            raise ConfigError(f"detect() has no options {unknown}; it has {list(DEFAULTS)}, which go to the engine.")

    @property
    def told(self) -> bool:
        """Whether anybody wants to know the engines' statistics."""
        return self.stats or self.metrics

    def engine(self, saved: bytes | None = None) -> Engine:
        """A new engine, or the one of a checkpoint with the options of this query: those it does not name have their
        defaults, whatever the checkpoint has.

        It does not measure time: see :meth:`Site.worked`.
        """
        # What is late for the shard need not be late for its key: the detectors decide.
        options = {**self.options, "late": "deliver"} if self.sharded else dict(self.options)
        pause = options.get("pause")
        if isinstance(pause, Pause):  # what waits is in the state; an executor's disk is no place for it
            options["pause"] = replace(pause, keep=min(pause.keep, pause.memory or 1), memory=UNLIMITED)
        if saved is None:
            return Engine(self.hierarchy, now="host", **options)
        return Engine.load(bytes(saved), self.hierarchy, now="host", **(DEFAULTS | options))


class Site:
    """One key's engine (or that of all keys of a shard), fed in arrival order, giving output rows.

    The state is one value: the engine's bytes and six numbers. ``life`` is that of a new site, see
    :meth:`~slackline.spark.rows.OutputRows.turn`.
    """

    def __init__(self, name: str, recipe: Recipe, saved: Saved | None = None, life: int = 0) -> None:
        engine, rows, rejected, behind, changes, last, life = saved or (None, 0, 0, 0, 0, None, life)
        self.name = name
        self.recipe = recipe
        #: Rows received in all.
        self.rows = rows
        #: Rows set aside here because they have no key or no arrival, in all.
        self.rejected = rejected
        #: Rows whose arrival lies before one of an earlier micro-batch, in all: the source was not in order.
        self.behind = behind
        #: Events put out in all; the next one gets this number.
        self.changes = changes
        #: The greatest arrival so far.
        self.last = last
        self.life = life
        self.engine = None if name == NULL_SITE else recipe.engine(engine)

    def push(self, table: pa.Table, out: OutputRows) -> None:
        """Take rows in arrival order; what they cause goes to ``out``."""
        self._turn(out)
        self.rows += len(table)
        if self.engine is None:
            self._reject(out, table, NO_KEY)
            return
        table, times = self._arrivals(out, table)
        start = 0
        for run in pushes(joined_sources(table) if self.recipe.sharded else table):
            now = None if times is None else times.slice(start, len(run))
            start += len(run)
            self._take(out, self.engine, self.engine.push(run, now))

    def close(self, out: OutputRows) -> None:
        """The end of the stream: what was still waiting goes to ``out``."""
        self._turn(out)
        if self.engine is not None:
            self._take(out, self.engine, self.engine.close())

    def flush(self, reason: str, out: OutputRows) -> None:
        """No rows for a while: what is waiting goes to ``out``."""
        self._turn(out)
        if self.engine is not None:
            self._take(out, self.engine, self.engine.flush(reason))

    def forget(self, keys: Sequence[str], out: OutputRows) -> None:
        """Keys of this shard had no rows for long: their detectors go, after what still waits of them."""
        assert self.engine is not None
        self._turn(out)
        waiting = {told_apart(event)[0] for events in self.engine.buffered().values() for event in events}
        if not waiting.isdisjoint(keys):
            self._take(out, self.engine, self.engine.flush("forget"))
        for key in keys:
            dropped = sum(each.forget(key) for each in self._keyed())
            if self.recipe.stats:
                out.forgotten(key, {"site": {"shard": self.name, "state_bytes": dropped}}, self.rows)

    def worked(self, start: float, stop: float) -> float | None:
        """The work on a micro-batch took from ``start`` to ``stop``; the busy factor, if it is time for one.

        It sets α for the micro-batches to come, never for the one at hand: α is part of the state with which a
        micro-batch begins, so one that is done again gives the same rows, however long it takes then.
        """
        return None if self.engine is None else self.engine.worked(start, stop)

    def save(self) -> Saved:
        """The whole state as one value of the state store."""
        engine = None if self.engine is None else self.engine.save()
        return engine, self.rows, self.rejected, self.behind, self.changes, self.last, self.life

    def stats(self) -> dict[str, Any]:
        """The engine's statistics and the site's own, as JSON takes them."""
        own: dict[str, Any] = {"rows": self.rows, "rejected": self.rejected}
        own |= {"arrival_behind": self.behind, "changes": self.changes}
        if self.engine and self.recipe.sharded:
            own |= {"shard": self.name, "keys": max(each.keys for each in self._keyed())}
        return {**(self.engine.stats() if self.engine else {}), "site": own}

    def keys_of(self, table: pa.Table) -> int:
        """How many keys have rows in a table of this site."""
        if self.engine is None:
            return 0
        return len(pc.unique(table[KEY])) if self.recipe.sharded else 1

    def figures(self, stats: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What its statistics say of each detector. In a shard late is what came too late for its key."""
        found = list(stats.get("detectors", {}).values())
        for at, each in enumerate(self._keyed()):
            found[at] = {**found[at], "late": each.counted, "delivered": found[at]["delivered"] - each.counted}
        return found

    def _turn(self, out: OutputRows) -> None:
        out.turn(self.name, told_apart if self.engine and self.recipe.sharded else None, self.life)

    def _take(self, out: OutputRows, engine: Engine, outputs: list[Output]) -> None:
        self.changes = out.outputs(outputs, self.changes)
        late, quarantined, _ = engine.drain()
        out.late([*late, *(item for each in self._keyed() for item in each.take_late())])
        out.quarantined(quarantined)

    def _keyed(self) -> list[Keyed]:
        """The detectors of a shard."""
        return [each for each in self.engine.detectors.values() if isinstance(each, Keyed)] if self.engine else []

    def _arrivals(self, out: OutputRows, table: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        """Check the arrival column and take it out: the order of the rows, and their wall times where it has them."""
        if ARRIVAL not in table.schema.names:
            return table, None
        table, unplaced = placed(table)
        if len(unplaced):
            self._reject(out, unplaced, NO_ARRIVAL)
        if len(table):
            arrival = table[ARRIVAL]
            if self.last is None:
                self.last = arrival[-1].as_py()
            else:
                if arrival[0].as_py() < self.last:
                    self.behind += pc.sum(pc.less(arrival, self.last)).as_py()
                self.last = max(self.last, arrival[-1].as_py())
        times = None
        if self.recipe.timed:
            given = table[ARRIVAL].combine_chunks()
            times = pc.if_else(pc.less(given, 0), pa.scalar(None, pa.int64()), given)  # before 1970: not told
        return table.remove_column(table.schema.get_field_index(ARRIVAL)), times

    def _reject(self, out: OutputRows, table: pa.Table, why: tuple[str, str]) -> None:
        if ARRIVAL in table.schema.names:
            table = table.drop_columns([ARRIVAL])
        out.rejected(table, self.rejected, *why)
        self.rejected += len(table)
