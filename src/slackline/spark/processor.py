"""The streaming side: stateful processors, called once per group and micro-batch.

The state of a group is a map: of each engine that has rows in the micro-batch, one value is read once and written once.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DataType, StringType

from slackline.core import codec
from slackline.core.errors import StateError
from slackline.core.outcome import NO_KEY
from slackline.core.time import Now
from slackline.runtime.keyed import EngineFactory, KeyedEngines, KeyedStates
from slackline.runtime.output import OutputRecord
from slackline.runtime.sharding import KEY, key_name
from slackline.runtime.timeouts import Timeouts
from slackline.spark.merge import Merge, MergeRecipe
from slackline.spark.metrics import CallMetrics
from slackline.spark.packets import (
    ARRIVAL,
    GROUPS,
    NO_ARRIVAL,
    Packet,
    by_engine,
    decode,
    encode,
    placed,
    pushes,
    restored,
    slices,
)
from slackline.spark.rows import OUTPUT_ROWS, OutputRows

#: The state of an engine, and that of a merge: the synchroniser, the buffered rows, and three counts.
ENGINE_STATE, MERGE_STATE = "state binary", "sync binary, held binary, rows long, position long, now long"
#: Into how many groups and shards the keys of a group's state were hashed.
LAYOUT = "groups long, shards long"
#: When engines, and the keys of shards, last had rows, and the timer that is registered.
ACTIVITY = "activity binary, timer long"
#: Output of a merge.
MERGE_OUTPUT = "blob binary"

#: The name of an engine: a key or a shard; None for rows without a key.
Name = str | int | None


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """What a task needs to run keyed engines. Shipped to the workers with Spark's own pickling of the user's code.

    ``timed``  whether arrivals are times like the event times, in microseconds: then they are evidence, too.
    ``key``    the type of keys, string or long.
    """

    factory: EngineFactory
    shards: int | None = None
    timeouts: Timeouts = Timeouts()  # noqa: RUF009
    stats: bool = True
    metrics: bool = False
    timed: bool = False
    key: DataType = StringType()  # noqa: RUF009

    def engines(self, states: KeyedStates | None = None) -> KeyedEngines:
        """Keyed engines whose states are in ``states``, in memory unless given."""
        return KeyedEngines(self.factory, shards=self.shards, timeouts=self.timeouts, states=states)


class KeyedRows:
    """Pushes the rows of one call to keyed engines, engine by engine, and collects output records and metrics."""

    def __init__(self, plan: KeyedPlan, out: OutputRows, metrics: CallMetrics, states: KeyedStates | None = None):
        self.engines = plan.engines(states)
        self._plan = plan
        self._out = out
        self._metrics = metrics

    def push(self, name: Name, table: pa.Table, at: int = 0) -> None:
        """Process rows of an engine, in arrival order; those without a key or an arrival go to the quarantine."""
        if name is None:
            table = table.drop_columns([each for each in (KEY, ARRIVAL) if each in table.column_names])
            self._out.add(self.engines.reject(None, table, NO_KEY))
            return
        times = arrival = None
        if ARRIVAL in table.column_names:
            table, unplaced = placed(table)
            if len(unplaced):
                self._out.add(self.engines.reject(name, unplaced.drop_columns([ARRIVAL]), NO_ARRIVAL, at=at))
            arrival = table[ARRIVAL].combine_chunks()
            if self._plan.timed:  # before 1970: unknown
                times = pc.if_else(pc.less(arrival, 0), pa.scalar(None, pa.int64()), arrival)
            table = table.drop_columns([ARRIVAL])
        start = 0
        for run in pushes(table):
            now = None if times is None else times.slice(start, len(run))
            start += len(run)
            self._out.add(self.engines.push_to(name, run, now, at=at))
        if arrival is not None and len(arrival):
            self._note(self.engines.notes(name), arrival)

    @staticmethod
    def _note(notes: dict[str, Any], arrival: pa.Array) -> None:
        """Count arrivals before one of an earlier micro-batch: the source did not deliver in order."""
        first, last = arrival[0].as_py(), arrival[-1].as_py()
        before = notes.get("last_arrival")
        behind = 0 if before is None or first >= before else pc.sum(pc.less(arrival, before)).as_py()
        notes["arrival_behind"] = notes.get("arrival_behind", 0) + behind
        notes["last_arrival"] = last if before is None else max(before, last)

    def pushed(self, name: Name, table: pa.Table, started: float, stopped: float) -> None:
        """The rows of an engine were processed: emit its statistics, and write its state."""
        stats = self._stats(name)
        busy = self.engines.worked(started, stopped)
        size = self.engines.evict(name)
        if name is not None:
            self._metrics.engine(1 if self._plan.shards is None else len(pc.unique(table[KEY])), size)
        self._emit_stats(name, stats, busy=busy, state_bytes=size)

    def expired(self, at: int) -> None:
        """Apply the timeouts that are due."""
        changed: dict[Name, None] = {}
        for reason, name in self.engines.due(at):
            if isinstance(name, tuple):  # a key of a shard
                shard, key = name
                self._out.add(self.engines.apply([(reason, name)]))
                changed[shard] = None
                self._emit_stats(shard, self._stats(shard), reason, key)
                continue
            self._out.add(self.engines.flush(reason, [name]))
            self._emit_stats(name, self._stats(name), reason)
            changed[name] = None
            if reason == "state_ttl":
                self.engines.drop([name])
                del changed[name]
        for name in changed:
            self.engines.evict(name)

    def closed(self, name: Name) -> None:
        """The rows of an engine have ended: flush it and emit its statistics."""
        self._out.add(self.engines.close())
        stats = self._stats(name)
        if stats is not None and name is not None:
            self._metrics.engine(stats["keyed"].get("keys", 1))
        self._emit_stats(name, stats)
        self.done()

    def done(self) -> None:
        """The call has ended."""
        self._metrics.collected(self.engines.collector, any(name is not None for name in self.engines.names))

    def _stats(self, name: Name) -> dict[str, Any] | None:
        return self.engines.stats(name) if self._plan.stats or self._plan.metrics else None

    def _emit_stats(
        self, name: Name, stats: dict[str, Any] | None, reason: str = "", key: Name = None, **more: Any
    ) -> None:
        """Emit statistics, where asked for: those of a shard have no key, unless it is about one of its keys."""
        if stats is None or not self._plan.stats:
            return
        own = stats["keyed"] | more
        of_shard = self._plan.shards is not None and name is not None
        parts = [*([name] if of_shard else []), own["rows"] + own["rejected"], reason, own.get("incarnation")]
        record = OutputRecord(
            kind="stats", key=key if of_shard else name, payload={**stats, "keyed": own},
            id="/".join(str(part) for part in ("stats", *parts) if part not in ("", None)),
        )  # fmt: skip
        self._out.add([record])


class GroupStates:
    """The states of a group in Spark's state store, by the name of the engine.

    With shards the key of the map has another type, so that Spark refuses a checkpoint that was made without.
    """

    def __init__(self, handle: StatefulProcessorHandle, schema: str, shards: int | None = None) -> None:
        key = "name string" if shards is None else "name string, shards long"
        self._map = handle.getMapState("states", key, schema)
        self._layout = handle.getValueState("layout", LAYOUT)
        self._shards = shards

    def value(self, name: Name) -> Any:
        """The state of an engine, None if it is new. Raises if its keys have their states elsewhere."""
        value = self._map.getValue(self._key(name))
        if value is None:
            ours = (GROUPS, self._shards or 0)
            theirs = self._layout.get()
            if theirs is None:
                self._layout.update(ours)
            elif tuple(theirs) != ours:
                raise StateError(
                    f"this checkpoint has its keys in {theirs[0]} groups and {theirs[1] or 'no'} shards, and the query "
                    f"has {ours[0]} and {ours[1] or 'no'}: keys would not find their states. Give `shards` as it was, "
                    f"or start with a new checkpoint."
                )
        return value

    def put(self, name: Name, value: tuple[Any, ...]) -> None:
        """Write the state of an engine."""
        self._map.updateValue(self._key(name), value)

    def get(self, name: Name) -> bytes | None:
        value = self.value(name)
        return None if value is None else bytes(value[0])

    def __setitem__(self, name: Name, state: bytes) -> None:
        self.put(name, (state,))

    def pop(self, name: Name, default: None = None) -> None:
        self._map.removeKey(self._key(name))

    def _key(self, name: Name) -> tuple[Any, ...]:
        text = "none" if name is None else key_name(name)  # those of keys begin with s or i
        return (text,) if self._shards is None else (text, self._shards)


class GroupProcessor(StatefulProcessor):
    """Gives the rows of a group in a micro-batch, engine by engine and in arrival order, to :meth:`process`.

    Spark's own late filter stays off, in either time mode: stream time is part of the state.
    """

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        packets = [Packet(*row[1:]) for row in rows]  # behind the group
        return self.process(by_engine(restored(packets)), timerValues)

    @abstractmethod
    def process(self, parts: Iterable[tuple[Name, pa.Table]], timerValues: Any) -> Iterator[Row]:
        """Of each engine: read its state, process its rows, write its state; return what all emit."""

    def close(self) -> None:
        """Nothing lives between tasks."""


class KeyedProcessor(GroupProcessor):
    """Runs keyed engines.

    The load of a key, which sets α, is the time from the start of the task to the end of the key's turn, over the time
    since the end of its last turn. So a key counts the work on those before it in the task, which need the same core;
    those after it are unknown, because the key's state is written when its turn ends. α is set for the micro-batches to
    come, never for the one at hand: one that is repeated emits the same rows, however long it takes then.

    Many output rows leave in one of Spark's, as columns: see :func:`~slackline.spark.rows.separate`.
    """

    def __init__(self, plan: KeyedPlan, now: Now = time.time) -> None:
        self._plan = plan
        self._now = now
        self._started = 0.0
        self._handle: Any = None
        self._states: Any = None
        self._activity: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._started = self._now()
        self._handle = handle
        self._states = GroupStates(handle, ENGINE_STATE, self._plan.shards)
        self._activity = handle.getValueState("activity", ACTIVITY)

    def process(self, parts: Iterable[tuple[Name, pa.Table]], timerValues: Any) -> Iterator[Row]:
        at = timerValues.getCurrentProcessingTimeInMs() if self._plan.timeouts else 0
        out, metrics = OutputRows(), CallMetrics()
        rows = KeyedRows(self._plan, out, metrics, self._states)
        timer = self._resume(rows.engines)
        for name, table in parts:
            rows.push(name, table, at)
            rows.pushed(name, table, self._started, self._now())
            if len(out) >= OUTPUT_ROWS:
                yield out.take_columns()
        rows.done()
        self._keep(rows.engines, timer)
        yield from self._rest(out, metrics)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Apply the timeouts that are due. Spark removes the timer afterwards."""
        out, metrics = OutputRows(), CallMetrics()
        rows = KeyedRows(self._plan, out, metrics, self._states)
        timer = self._resume(rows.engines)
        if timer is not None and timer <= expiredTimerInfo.getExpiryTimeInMs():
            timer = None
        rows.expired(timerValues.getCurrentProcessingTimeInMs())
        rows.done()
        self._keep(rows.engines, timer)
        yield from self._rest(out, metrics)

    def _rest(self, out: OutputRows, metrics: CallMetrics) -> Iterator[Row]:
        if len(out):
            yield out.take_columns()
        if self._plan.metrics:
            out.add([metrics.record()])
            yield out.take_columns()

    def _resume(self, engines: KeyedEngines) -> int | None:
        """Continue with the activity of the group; returns its timer."""
        saved = self._activity.get() if self._plan.timeouts else None
        if saved is None:
            return None
        engines.resume_activity(*codec.decode(bytes(saved[0])))
        return None if saved[1] is None else int(saved[1])

    def _keep(self, engines: KeyedEngines, timer: int | None) -> None:
        """Write the activity, and move the timer to the timeout that is due first."""
        if not self._plan.timeouts:
            return
        due = engines.next_timeout()
        if due is not None and (timer is None or due < timer):
            if timer is not None:
                self._handle.deleteTimer(timer)
            self._handle.registerTimer(due)
            timer = due
        self._activity.update((codec.encode(engines.activity()), timer))


class MergeProcessor(GroupProcessor):
    """Pushes each key's rows to its merge. Output leaves as packets, because Spark would not return every type as it
    was."""

    def __init__(self, recipe: MergeRecipe) -> None:
        self._recipe = recipe
        self._states: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._states = GroupStates(handle, MERGE_STATE)

    def process(self, parts: Iterable[tuple[Name, pa.Table]], timerValues: Any) -> Iterator[Row]:
        for name, table in parts:
            merge = Merge(name, self._recipe, self._states.value(name))
            for out in merge.push(table):
                for part in slices(out):
                    yield Row(blob=encode(part))
            self._states.put(name, merge.save())


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function for ``mapInArrow``: the rows of a :class:`MergeProcessor`'s packets."""
    for batch in batches:
        for blob in batch["blob"]:
            yield from decode(blob.as_py()).to_batches()
