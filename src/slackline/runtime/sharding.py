"""Shards: many keys of few events, ordered as one stream and processed key by key.

A key with a few hundred events ends before its delays are known. So with ``shards`` keys are hashed into that many
engines. A shard has one engine: stream time, delays, sources and order are those of all its keys together. Detection
stays per key, because each detector of the hierarchy is a :class:`KeyedDetector`.

The key travels with its events: with sensor events in the source, ``(key, source)`` as one text; with published events
in the payload. Neither detectors nor output records show it there.

**Late.** A key that was silent for a while is late for its shard when it returns, because the other keys have moved the
watermark. Its own detectors have seen nothing since, so the engine delivers late events, and an event is late only
where the detector of its own key has processed a later one.
"""

from __future__ import annotations

import copy
import operator
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core.batch import Batch
from slackline.core.codec import decode, encode
from slackline.core.detector import Detector, Published
from slackline.core.errors import ConfigError
from slackline.core.event import Event, Source
from slackline.core.hierarchy import Hierarchy, detector_name
from slackline.core.outcome import Late
from slackline.core.types import type_names
from slackline.ordering.sources import total_order
from slackline.running.runner import Runner

#: The column, and the field of published events, that holds the key.
KEY = "__slackline_key"
#: Beside the keys, all of which begin with a letter: the number of late events.
_COUNTED = ""
#: Added to whole numbers, so that as text they sort as numbers do.
_BIAS = 2**63


def shard_of(key: Any, shards: int) -> str:
    """The shard of a key. The number of shards is part of the name: another number must not find these states.

    >>> shard_of("van-7", 64), shard_of(7, 64)
    ('64/30', '64/2')
    """
    return f"{shards}/{zlib.crc32(str(key).encode('utf-8', 'surrogatepass')) % shards}"


def key_name(key: str | int) -> str:
    """A key as text from which it can be read back.

    >>> key_name("7"), key_name(7), key_of_name("i7")
    ('s7', 'i7', 7)
    """
    return f"s{key}" if isinstance(key, str) else f"i{key}"


def key_of_name(name: str) -> str | int:
    """The key that :func:`key_name` has made text."""
    return name[1:] if name[0] == "s" else int(name[1:])


def together(key: str | int, source: Source) -> str:
    """A key and a source as one text. For each key these sort as its sources do.

    >>> sorted([together("van", "b"), together("van", 10), together("van", 9), together("van", None)]) == [
    ...     together("van", None), together("van", 9), together("van", 10), together("van", "b")]
    True
    """
    name = key_name(key)
    if source is None:
        return f"{len(name)}:{name}"
    return f"{len(name)}:{name}s{source}" if isinstance(source, str) else f"{len(name)}:{name}i{source + _BIAS:020d}"


@lru_cache(maxsize=2**16)
def apart(both: str) -> tuple[str, Source]:
    """The name of the key and the source that :func:`together` made one.

    >>> apart(together("van:7", -3)), apart(together("", None))
    (('svan:7', -3), ('s', None))
    """
    size, _, rest = both.partition(":")
    name, source = rest[: int(size)], rest[int(size) :]
    if not source:
        return name, None
    return name, source[1:] if source[0] == "s" else int(source[1:]) - _BIAS


def joined_events(events: Sequence[Event], keys: Sequence[str | int]) -> list[Event]:
    """Events of many keys with ``(key, source)`` as their source."""
    return [
        Event.of(event.type, event.ts, together(key, event.source), event.seq, dict(event.payload))
        for event, key in zip(events, keys, strict=True)
    ]


def joined_sources(table: pa.Table) -> pa.Table:
    """The rows of many keys with ``(key, source)`` as their source, and without the column of the key."""
    keys = _encoded(table[KEY])
    table = table.drop_columns([KEY])
    none = pa.nulls(len(table), pa.string())
    sources = _encoded(table["source"] if "source" in table.schema.names else none)
    names, owners = [*sources.dictionary.to_pylist(), None], keys.dictionary.to_pylist()
    at = pc.fill_null(sources.indices, len(names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, rows = np.unique(keys.indices.to_numpy(zero_copy_only=False) * len(names) + at, return_inverse=True)
    texts = pa.array([together(owners[pair // len(names)], names[pair % len(names)]) for pair in pairs.tolist()])
    column = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int32()), texts.cast(pa.string()))
    if "source" in table.schema.names:
        return table.set_column(table.schema.get_field_index("source"), "source", column)
    return table.append_column("source", column)


def _encoded(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()


def separated(event: Event) -> tuple[str | int, Event]:
    """The key of an event, and the event as that key has it."""
    name, separate = _for_key(event)
    return key_of_name(name), separate


def sharded(hierarchy: Hierarchy, columns: Iterable[str] = (), late: str = "divert") -> Hierarchy:
    """The same hierarchy for events of many keys; ``columns`` are those of the events."""
    for kind in hierarchy.types.values():
        if kind.sources is not None:
            raise ConfigError(
                f"event type {kind.name!r} declares its sources, which a shard does not know: leave out "
                f"`sources`, or shards."
            )
        if kind.source != "source" and kind.source in columns:
            raise ConfigError(
                f"event type {kind.name!r} has its sources in column {kind.source!r}; with shards pass "
                f"source={kind.source!r}, so that it is known before keys are put together."
            )
    given = [hierarchy.fresh(name) for name in hierarchy.names]
    for detector in given:
        if detector.takes_timers or detector.key is not None:
            raise ConfigError(
                f"detector {detector_name(detector)!r} has timers or a key, which shards do not support: leave out "
                f"shards. One engine has a state per key if the detector names its `key`."
            )
    detectors = [KeyedDetector(detector, late == "divert") for detector in given]
    clock, aids = (
        [hierarchy.types.get(name, name) for name in names] for names in (hierarchy.clock, hierarchy.clock_aids)
    )
    return Hierarchy(detectors, clock, aids)


class _Mine:
    """The detector of one key, and the place in the total order of what it saw last."""

    __slots__ = ("last", "runner")

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.last: tuple[Any, ...] | None = None


class KeyedDetector(Detector):
    """One detector per key, each of which sees the events of its key alone, and with ``strict`` in order.

    States are stored as bytes; a snapshot encodes only the detectors that processed events since the last one.
    """

    def __init__(self, detector: Detector, strict: bool = True) -> None:
        self.name = detector_name(detector)
        self.listens, self.publishes, self.unsorted = detector.listens, detector.publishes, detector.unsorted  # type: ignore[misc]
        self.max_backdate = detector.max_backdate
        self._pristine = detector
        self._free = type_names(detector.unsorted if strict else detector.listens)
        self._mine: dict[str, _Mine] = {}
        self._saved: dict[str, bytes] = {}
        self._touched: set[str] = set()
        #: Events that came too late for their key, by number, and how many there were in all. Where inputs are seen
        #: again after a failure, they get the number that they had, and are not given away again.
        self._late: dict[int, Late] = {}
        self._counted = 0
        self._given = 0

    @property
    def keys(self) -> int:
        """How many keys have a state."""
        return len(self._saved.keys() | self._touched)

    @property
    def counted(self) -> int:
        """How many events came too late for their key, so far."""
        return self._counted

    @property
    def takes_events(self) -> bool:
        return self._pristine.takes_events

    @property
    def takes_batches(self) -> bool:
        return self._pristine.takes_batches

    def drop(self, key: str | int) -> int:
        """Drop the detector of a key; return how many bytes its state had."""
        name = key_name(key)
        if name in self._touched:
            self.snapshot()
        self._mine.pop(name, None)
        return len(self._saved.pop(name, b""))

    def take_late(self) -> list[Late]:
        """The events that came too late for their key, since the last call."""
        taken = [late for number, late in self._late.items() if number >= self._given]
        self._late, self._given = {}, max(self._given, self._counted)
        return taken

    def on_event(self, event: Event) -> Published:
        name, theirs = _for_key(event)
        mine = self._of(name)
        if not self._in_turn(mine, theirs, event):
            return None
        found: Any = mine.runner.detector.on_event(theirs)
        if isinstance(found, Iterable) and not isinstance(found, Event):
            found = (_marked(one, name) for one in found)
        return found  # or nothing, or what the runner objects to

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        for key, rows, part in _by_key(batch):
            mine = self._of(key)
            start = 0  # a batch is in order, so what is late comes first
            while start < len(part) and not self._in_turn(mine, part.event(start), batch.event(int(rows[start]))):
                start += 1
            if start == len(part):
                continue
            rows, part = rows[start:], part.slice(start, len(part))
            if batch.type not in self._free:
                mine.last = total_order(part.event(len(part) - 1))
            found: Any = mine.runner.detector.on_batch(part)
            for item in () if found is None else found:
                if isinstance(item, tuple) and len(item) == 2:
                    row = operator.index(item[0])
                    item = (int(rows[row]) if 0 <= row < len(rows) else -1), _marked(item[1], key)
                yield item

    def snapshot(self) -> dict[str, bytes]:
        for key in sorted(self._touched):
            mine = self._mine[key]
            self._saved[key] = encode((mine.last, mine.runner.state()), self.name)
        self._touched.clear()
        return {**self._saved, _COUNTED: encode(self._counted)}

    def restore(self, state: dict[str, bytes]) -> None:
        if not all(type(key) is str and type(value) is bytes for key, value in state.items()):
            raise TypeError("a state by key was expected")
        self._saved = dict(state)
        self._counted = operator.index(decode(self._saved.pop(_COUNTED)))
        self._mine.clear()
        self._touched.clear()

    def _of(self, key: str) -> _Mine:
        self._touched.add(key)
        mine = self._mine.get(key)
        if mine is None:
            pristine = self._pristine
            fixed = [getattr(pristine, name) for name in pristine.fixed if hasattr(pristine, name)]
            detector = copy.deepcopy(pristine, {id(value): value for value in fixed})
            mine = self._mine[key] = _Mine(Runner(detector, self.name, guarded=False))
            if key in self._saved:
                mine.last, state = decode(self._saved[key], where=self.name)
                mine.runner.restore(state)
        return mine

    def _in_turn(self, mine: _Mine, theirs: Event, event: Event) -> bool:
        """Whether a key's detector may see an event now; if not, it is late."""
        if theirs.type in self._free:
            return True
        place = total_order(theirs)
        if mine.last is not None and place < mine.last:
            self._late[self._counted] = Late(event, mine.last[0] - theirs.ts, self.name, self._counted)
            self._counted += 1
            return False
        mine.last = place
        return True


def _for_key(event: Event) -> tuple[str, Event]:
    """The name of an event's key, and the event as that key has it."""
    payload = dict(event.payload)
    name, source = payload.pop(KEY, None), event.source
    if name is None:
        name, source = apart(str(source))
    return name, Event.of(event.type, event.ts, source, event.seq, payload)


def _marked(event: Any, key: str) -> Any:
    """What a detector published for a key."""
    if not isinstance(event, Event):
        return event
    return Event.of(event.type, event.ts, None, None, {**event.payload, KEY: key})


def _by_key(batch: Batch) -> Iterator[tuple[str, Any, Batch]]:
    """Each key with the numbers of its rows, and with its rows as they are for that key alone."""
    slots, names = batch.sources
    if KEY in batch.fields:
        owners = batch[KEY].tolist()
    else:
        met, slots = np.unique(slots, return_inverse=True)
        pairs = [apart(str(names[slot])) for slot in met.tolist()]
        owners, names = [pairs[slot][0] for slot in slots.tolist()], [source for _, source in pairs]
    number = {key: n for n, key in enumerate(dict.fromkeys(owners))}
    codes = np.fromiter((number[key] for key in owners), dtype=np.int64, count=len(owners))
    order = np.argsort(codes, kind="stable")
    for key, rows in zip(number, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True):
        columns = {field: batch[field][rows] for field in batch.fields if field != KEY}
        yield key, rows, Batch(batch.type, batch.ts[rows], slots[rows], batch.seq[rows], columns, names)
