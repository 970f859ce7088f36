"""The streaming side: stateful processors, called once per group and micro-batch.

A group's state is a map: of each key that has rows in the micro-batch, one value is read once and written once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from slackline.core.errors import StateError
from slackline.spark.codec import GROUPS, KEY, Packet, by_site, decode, encode, restored, slices
from slackline.spark.merge import Merge, MergeRecipe
from slackline.spark.observed import SitesTally
from slackline.spark.rows import OUTPUT_ROWS, OutputRows
from slackline.spark.silence import Ledger, Silence, by_shard, shard_key
from slackline.spark.site import Recipe, Site

#: Without idle and forget.
NEVER_SILENT = Silence()

#: The key of the map.
SITE_KEY = StructType([StructField("site", StringType())])


def site_state(arrival: DataType) -> StructType:
    """The state of a site: the engine's bytes, four counts, the greatest arrival and when it began."""
    return StructType(
        [
            StructField("engine", BinaryType()),
            StructField("rows", LongType()),
            StructField("rejected", LongType()),
            StructField("behind", LongType()),
            StructField("changes", LongType()),
            StructField("last", arrival),
            StructField("life", LongType()),
        ]
    )


#: The state of a merge: the synchroniser's bytes, the rows that wait, and three numbers.
MERGE_STATE = StructType(
    [
        StructField("sync", BinaryType()),
        StructField("held", BinaryType()),
        StructField("rows", LongType()),
        StructField("position", LongType()),
        StructField("now", LongType()),
    ]
)


#: Into how many groups and shards the keys of a group's state were hashed.
LAYOUT = StructType([StructField("groups", LongType()), StructField("shards", LongType())])

#: When each site of a group last had rows, whether what it held then was let go, and the timer that is set.
LEDGER = StructType(
    [
        StructField("sites", ArrayType(StringType())),
        StructField("at", ArrayType(LongType())),
        StructField("released", ArrayType(BooleanType())),
        StructField("timer", LongType()),
    ]
)

#: What a merge gives out.
MERGE_OUTPUT = StructType([StructField("blob", BinaryType())])


class GroupProcessor(StatefulProcessor):
    """Hands a group's rows of a micro-batch, site by site and in arrival order, to :meth:`process`.

    Spark's own late filter stays off, in either time mode: stream time is part of the machine's state.
    """

    def __init__(self, schema: StructType, shards: int | None = None) -> None:
        self._schema = schema
        self._shards = shards
        self._states: Any = None
        self._layout: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = handle.getMapState("sites", SITE_KEY, self._schema)
        self._layout = handle.getValueState("layout", LAYOUT)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        packets = [Packet(*row[1:]) for row in rows]  # behind the group
        return self.process(by_site(restored(packets)), timerValues)

    @abstractmethod
    def process(self, sites: Iterable[tuple[str, pa.Table]], timerValues: Any) -> Iterator[Row]:
        """Of each site: read its state, take its rows, write its state; what comes out of all."""

    def state_of(self, name: str) -> Any:
        """The state of a site, None if it is new. Raises if its keys would be found elsewhere in this checkpoint."""
        state = self._states.getValue((name,))
        if state is None:
            ours = (GROUPS, self._shards or 0)
            theirs = self._layout.get()
            if theirs is None:
                self._layout.update(ours)
            elif tuple(theirs) != ours:
                raise StateError(
                    f"this checkpoint has its keys in {theirs[0]} groups and {theirs[1] or 'no'} shards, and the query "
                    f"has {ours[0]} and {ours[1] or 'no'}: keys would not find their states. Give `shards` as it was, "
                    f"or begin with a new checkpoint."
                )
        return state

    def close(self) -> None:
        """Nothing is held between tasks."""


class SiteProcessor(GroupProcessor):
    """Feeds each key's rows to its engine.

    How busy we are is the time from the start of the task to the end of the key's turn, over the time since the end of
    its last turn. So a key counts the work on those before it in the task, which need the same core; those after it
    it cannot know, because its state is written when its turn ends.

    Many output rows leave in one of Spark's, as columns: see :func:`~slackline.spark.rows.apart`.
    """

    def __init__(
        self, recipe: Recipe, arrival: DataType, silence: Silence = NEVER_SILENT, shards: int | None = None
    ) -> None:
        super().__init__(site_state(arrival), shards)
        self._recipe = recipe
        self._silence = silence
        self._started = 0.0
        self._handle: Any = None
        #: Who is watched for which silence, and where that is kept.
        self._sites, self._keys = self._silence.watched(recipe.sharded)
        self._site_ledger: Any = None
        self._key_ledger: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._started = self._recipe.now()
        super().init(handle)
        self._handle = handle
        if self._sites:
            self._site_ledger = handle.getValueState("ledger", LEDGER)
        if self._keys:
            self._key_ledger = handle.getValueState("keys", LEDGER)

    def process(self, sites: Iterable[tuple[str, pa.Table]], timerValues: Any) -> Iterator[Row]:
        out, tally = OutputRows(), SitesTally()
        now = timerValues.getCurrentProcessingTimeInMs() if self._silence else 0
        names: list[str] = []
        keys: list[str] = []
        for name, table in sites:
            self._turn(name, table, out, now, tally)
            names.append(name)
            if self._keys and KEY in table.schema.names:
                keys += [shard_key(name, key) for key in pc.unique(table[KEY]).to_pylist()]
            if len(out) >= OUTPUT_ROWS:
                yield out.take_columns()
        for silence, state, rows in ((self._sites, self._site_ledger, names), (self._keys, self._key_ledger, keys)):
            if silence:
                ledger = Ledger(silence, state.get())
                ledger.rows(rows, now)
                self._keep(ledger, state)
        if len(out):
            yield out.take_columns()
        if self._recipe.metrics:
            out.metrics(tally.plain())
            yield out.take_columns()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Look who is silent. Spark takes the timer away when this is done."""
        out, tally = OutputRows(), SitesTally()
        now, expired = timerValues.getCurrentProcessingTimeInMs(), expiredTimerInfo.getExpiryTimeInMs()
        if self._sites:
            ledger = Ledger(self._sites, self._site_ledger.get(), expired)
            for name in ledger.idle(now):
                self._states.updateValue((name,), self._flushed(name, "idle", out, tally).save())
            for name in ledger.forgotten(now):
                self._flushed(name, "forget", out, tally)
                self._states.removeKey((name,))
            self._keep(ledger, self._site_ledger)
        if self._keys:
            ledger = Ledger(self._keys, self._key_ledger.get(), expired)
            for name, keys in by_shard(ledger.forgotten(now)).items():
                site = Site(name, self._recipe, self._states.getValue((name,)))
                site.forget(keys, out)
                self._states.updateValue((name,), site.save())
            self._keep(ledger, self._key_ledger)
        if len(out):
            yield out.take_columns()
        if self._recipe.metrics:
            out.metrics(tally.plain())
            yield out.take_columns()

    def _keep(self, ledger: Ledger, state: Any) -> None:
        """Save it, and set the timer to whoever is due first."""
        due = ledger.next_timer()
        if due is not None and (ledger.timer is None or due < ledger.timer):
            if ledger.timer is not None:
                self._handle.deleteTimer(ledger.timer)
            self._handle.registerTimer(due)
            ledger.timer = due
        state.update(ledger.save())

    def _flushed(self, name: str, reason: str, out: OutputRows, tally: SitesTally) -> Site:
        """A site after what it holds was let go."""
        site = Site(name, self._recipe, self._states.getValue((name,)))
        site.flush(reason, out)
        if self._recipe.told:
            stats = site.stats()
            tally.figures(site.figures(stats))
            if self._recipe.stats:
                out.stats(stats, site.rows, reason)
        return site

    def _turn(self, name: str, table: pa.Table, out: OutputRows, now: int, tally: SitesTally) -> None:
        life = now if self._sites.forget is not None else 0
        site = Site(name, self._recipe, self.state_of(name), life)
        site.push(table, out)
        stats = site.stats() if self._recipe.told else None
        busy = site.worked(self._started, self._recipe.now())
        saved = site.save()
        self._states.updateValue((name,), saved)
        if stats is not None:
            size = len(saved[0] or b"")
            if self._recipe.metrics:
                tally.rows(len(table), site.keys_of(table))
                tally.figures(site.figures(stats), size)
            if self._recipe.stats:
                stats["site"] |= {"busy": busy, "state_bytes": size}
                out.stats(stats, site.rows)


class MergeProcessor(GroupProcessor):
    """Feeds each key's rows to its merge.

    What comes out leaves as packets, because Spark would not give every type back as it was.
    """

    def __init__(self, recipe: MergeRecipe) -> None:
        super().__init__(MERGE_STATE)
        self._recipe = recipe

    def process(self, sites: Iterable[tuple[str, pa.Table]], timerValues: Any) -> Iterator[Row]:
        for name, table in sites:
            merge = Merge(name, self._recipe, self.state_of(name))
            for out in merge.push(table):
                for part in slices(out):
                    yield Row(blob=encode(part))
            self._states.updateValue((name,), merge.save())


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for ``mapInArrow``: the rows of a :class:`MergeProcessor`'s packets."""
    for batch in batches:
        for blob in batch["blob"]:
            yield from decode(blob.as_py()).to_batches()
