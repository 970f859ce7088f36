"""Engines by key: one for each, or one for all. A machine without I/O, for hosts that run a hierarchy in one process.

What arrives is told apart by key, in the order of arrival, and each key's engine gets its own; what comes out has the
key beside it. So the outputs of a key depend on the key's own arrivals alone, however they were cut into pushes and
whoever else came in between (laws 3 and 6 of the engine hold for each key).

**Many keys.** An engine takes some 27 KB awake, and 7 KB more for each detector; asleep, as bytes, a tenth to a fifth
of that. The engines of the keys that were heard of last are awake, as many as ``MEMORY`` has room for; the others
sleep, and are woken when something comes for them. To wake one and send another to sleep costs what some 30 events
cost. So of the keys in a push those come first that are awake: else, with some more keys than there is room for, each
key in its turn would send the one to sleep whose turn is next. What is saved of a key is kept until the key has
arrivals again, so that a checkpoint costs what has changed. Figures are looked up for ``LOOKED_AT`` keys at a time;
counts of what passed through are always right.

**Checkpoints while it goes on.** :meth:`Sites.save` takes some 0.3 ms for each key that had arrivals. Who cannot wait
for that makes a :meth:`Sites.cut`, and saves the engines one by one between pushes; one that is about to change is
saved before it does (copy on write). So a push may take longer while a cut is made, by what it takes to save each of
its keys once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline.core import codec
from slackline.core.calibration import calibration_of
from slackline.core.errors import ConfigError, SchemaError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import NO_KEY, Late, Output, Quarantined
from slackline.engine import Engine
from slackline.engine.arrivals import rows_of
from slackline.engine.arrow import split
from slackline.engine.options import DEFAULTS, Options
from slackline.runtime.forms import events_of, quickest
from slackline.runtime.numbers import Figures, Numbers, RunTotals

Key = str | int | None
Arrivals = Any  # events, a table or a batch of records, as an engine takes them

#: Bytes that engines which are awake may take, about, and what one takes, for itself and for each detector.
MEMORY, OF_ENGINE, OF_DETECTOR = 512 << 20, 27 << 10, 7 << 10
#: Of so many keys figures are brought up to date when somebody asks for them.
LOOKED_AT = 256

STATE_KIND, STATE_VERSION = "sites", 1


class Sites:
    """The engines of a hierarchy, by key.

    ``options``  those of :class:`~slackline.Engine`, the same for all; unless told, an engine does not measure time
                 (:meth:`worked`).
    ``keyed``    whether each key has its own engine. If not, there is one, and its key is None.

    >>> from slackline import Detector
    >>> class Echo(Detector):
    ...     listens, publishes = ("ping",), ("pong",)
    ...     def on_event(self, event):
    ...         yield event.derive("pong")
    >>> sites = Sites(Hierarchy([Echo()], clock="ping"), keyed=True)
    >>> found = sites.push([Event("ping", ts=5), Event("ping", ts=2), Event("ping", ts=1)], keys=["a", "b", "a"])
    >>> [(key, output.event.ts) for key, output in found + sites.close()]
    [('a', 1), ('a', 5), ('b', 2)]
    """

    def __init__(
        self, hierarchy: Hierarchy, options: Mapping[str, Any] | None = None, *, keyed: bool, awake: int | None = None
    ) -> None:
        given = dict(options or {})
        unknown = sorted(set(given) - set(DEFAULTS))
        if unknown:
            raise ConfigError(f"an engine has no options {unknown}; it has {list(DEFAULTS)}.")
        given["calibration"] = calibration_of(given.get("calibration"))
        #: What all engines run, and the types that come to it of which something is declared.
        self.hierarchy = hierarchy
        self.keyed = keyed
        self._options = given
        self.types = tuple(hierarchy.types[name] for name in hierarchy.sensor_types if name in hierarchy.types)
        self._most_awake = awake or MEMORY // (OF_ENGINE + OF_DETECTOR * len(hierarchy.names))
        self._awake: OrderedDict[Key, Engine] = OrderedDict()  # the one heard of last is last
        self._known: dict[Key, None] = {}  # all keys that were heard of, awake or asleep
        self._saved: dict[Key, bytes] = {}  # of keys that had no arrivals since; asleep are those not awake
        self._waiting: set[Key] = set()  # keys for which something waits
        self._stale: dict[Key, None] = {}  # keys whose figures are those of a moment ago; all of them are awake
        self._pushed: list[Key] = []  # in the last push
        self._uncut: dict[Key, None] = {}  # keys of the last cut that are as they were then, and not saved for it yet
        self._pieces: list[bytes] = []  # of the last cut, that nobody took yet
        #: How many engines the last push has woken.
        self.woken = 0
        self._set_aside: tuple[list[tuple[Key, Late]], list[tuple[Key, Quarantined]]] = ([], [])
        first = Engine(hierarchy, now="host", **given)  # whatever is wrong with the options shows now
        self._tally = RunTotals(hierarchy.names, Options(**given).target)
        if not keyed:
            self._awake[None] = first
            self._known[None] = None

    @property
    def keys(self) -> list[Key]:
        """The keys that were heard of, awake or asleep."""
        return list(self._known)

    @property
    def waits(self) -> bool:
        """Whether anything waits, for any key."""
        return bool(self._waiting)

    # Arrivals.

    def push(
        self, arrivals: Arrivals, keys: Sequence[Any] | pa.Array | pa.ChunkedArray | None = None, now: Any = None
    ) -> list[tuple[Key, Output]]:
        """Take the next arrivals, and return what was detected, with its key.

        ``keys`` are those of the rows, one each: text or whole numbers; see :func:`without_key`. A row without one is
        set aside. ``now`` is as in :meth:`slackline.Engine.push`: one wall time for all, or one per row.
        """
        rows = rows_of(arrivals)
        if keys is not None and not self.keyed:
            raise ConfigError("keys were given, but all arrivals go to one engine; make Sites with keyed=True.")
        if self.keyed and (keys is None or len(keys) != len(rows)):
            raise ConfigError(f"{len(rows)} rows have {'no' if keys is None else len(keys)} keys; give one per row.")
        self._pushed, self.woken = [], 0
        found: list[tuple[Key, Output]] = []
        for key, part, times in self._parts(rows, keys, now):
            self._tally.arrivals += len(part)
            self._pushed.append(key)
            if not isinstance(part, pa.Table):
                part = quickest(part, self.types)
            found += self._told(key, partial(Engine.push, arrivals=part, now=times))
        return found

    def wait(self, now: int) -> list[tuple[Key, Output]]:
        """Wall time has passed: what it lets go of what waits. For hosts that push with wall times."""
        self._pushed = []
        return self._all(self._waiting, partial(Engine.push, arrivals=[], now=now))

    def flush(self, reason: str) -> list[tuple[Key, Output]]:
        """Let all that waits go on, and go on with the stream; see :meth:`slackline.Engine.flush`."""
        return self._all(self._waiting, partial(Engine.flush, reason=reason))

    def close(self) -> list[tuple[Key, Output]]:
        """The stream has ended: all that waits goes on. Who sleeps and has nothing waiting is left alone."""
        return self._all(self._waiting.union(self._awake), Engine.close)

    def worked(self, start: float, stop: float) -> None:
        """The last push took from start to stop, in seconds of wall time: ``alpha="auto"`` is set from this."""
        for key in self._pushed:
            if key in self._awake:
                self._awake[key].worked(start, stop)

    def drain(self) -> tuple[list[tuple[Key, Late]], list[tuple[Key, Quarantined]]]:
        """Take the late and the quarantined events, with their keys; they are forgotten here."""
        taken, self._set_aside = self._set_aside, ([], [])
        return taken

    def _all(self, keys: Iterable[Key], work: Callable[[Engine], list[Output]]) -> list[tuple[Key, Output]]:
        """What becomes of some keys, in an order that does not depend on who came first."""
        return [pair for key in sorted(keys, key=_order) for pair in self._told(key, work)]

    def _told(self, key: Key, work: Callable[[Engine], list[Output]]) -> list[tuple[Key, Output]]:
        """Let a key's engine work; what comes of it."""
        engine = self._engine(key)
        self._cut_off(key)
        self._saved.pop(key, None)
        self._stale[key] = None
        try:
            outputs = work(engine)
        finally:
            late, quarantined, _ = engine.drain()
            self._tally.late += len(late)
            self._tally.reasons.update(item.reason for item in quarantined)
            self._set_aside[0].extend((key, item) for item in late)
            self._set_aside[1].extend((key, item) for item in quarantined)
            (self._waiting.add if engine.waiting else self._waiting.discard)(key)
        self._tally.found(outputs)
        return [(key, output) for output in outputs]

    def _engine(self, key: Key) -> Engine:
        """A key's engine, awake."""
        engine = self._awake.get(key)
        if engine is None:
            saved = self._saved.get(key)
            if saved is None:
                engine = Engine(self.hierarchy, now="host", **self._options)
            else:
                self.woken += 1
                engine = Engine.load(saved, self.hierarchy, now="host", **(DEFAULTS | self._options))
            self._awake[key] = engine
            self._known[key] = None
            while len(self._awake) > self._most_awake:
                self._send_to_sleep()
        self._awake.move_to_end(key)
        return engine

    def _is_awake(self, key: Any) -> bool:
        return _is_key(key) and key in self._awake

    def _send_to_sleep(self) -> None:
        """Keep the engine that was not heard of for longest as bytes."""
        key = next(iter(self._awake))
        self._bytes(key)
        del self._awake[key]

    def _parts(self, rows: list[Event] | pa.Table, keys: Any, now: Any) -> Iterator[tuple[Key, Any, Any]]:
        """The rows of each key, in the order of arrival, with their wall times."""
        if not self.keyed:
            yield None, rows, now
            return
        one = now is None or isinstance(now, int)
        times = None if one else pc.fill_null_forward(pa.array(now) if not isinstance(now, pa.ChunkedArray) else now)
        for key, places in sorted(_places(keys), key=lambda part: not self._is_awake(part[0])):
            part = rows.take(places) if isinstance(rows, pa.Table) else [rows[place] for place in places]
            if _is_key(key):
                yield key, part, now if times is None else times.take(places)
            else:
                self._reject(part, key)

    def _reject(self, rows: list[Event] | pa.Table, key: Any) -> None:
        """Set rows aside that are nobody's."""
        reason, detail = NO_KEY
        if key is not None:
            detail = f"the key is {key!r:.80}; a key is text or a whole number"
        self._tally.arrivals += len(rows)
        self._tally.reasons[reason] += len(rows)
        events = events_of(rows) if isinstance(rows, pa.Table) else rows
        self._set_aside[1].extend((None, Quarantined(event, reason, detail)) for event in events)

    # Figures.

    def numbers(self) -> Numbers:
        """What is known of all engines. Where many keys had arrivals, some figures are those of a moment ago."""
        for key in list(self._stale)[:LOOKED_AT]:
            self._look_at(key)
        return self._tally.numbers(len(self._known))

    def _look_at(self, key: Key) -> None:
        del self._stale[key]
        found = self._awake[key].stats()["detectors"]
        self._tally.note(key, (Figures.of(found[name]) for name in self.hierarchy.names))

    # Checkpoints.

    def save(self, keys: Iterable[Key] | None = None) -> bytes:
        """The engines of some keys, or of all, as bytes. Saving changes nothing. What was not drained is not in it."""
        if keys is None:
            return self._dump(self._known, self._tally.state())
        return self._dump([key for key in keys if key in self._known], None)

    def cut(self) -> Iterator[bytes]:
        """What :meth:`save` would give now, in pieces, one for each key; :meth:`load` takes them together.

        Whatever is pushed while they are taken is not in them. There is one cut at a time: pieces of the one before
        must not be taken any more.
        """
        left = self._uncut = dict.fromkeys(self._known)
        pieces = self._pieces = [self._dump([], self._tally.state())]

        def taken() -> Iterator[bytes]:
            while pieces or left:
                yield pieces.pop() if pieces else self._dump([left.popitem()[0]], None)

        return taken()

    def _cut_off(self, key: Key) -> None:
        """A key's engine is about to change: as it is, it belongs to the cut, unless it is there already."""
        if key in self._uncut:
            del self._uncut[key]
            self._pieces.append(self._dump([key], None))

    def _dump(self, keys: Iterable[Key], counts: Mapping[str, Any] | None) -> bytes:
        sites = [(key, self._bytes(key), tuple(map(tuple, self._tally.of(key)))) for key in keys]
        state = {"keyed": self.keyed, "sites": sites, "counts": counts}
        return codec.dump(STATE_KIND, STATE_VERSION, state, where="sites")

    def _bytes(self, key: Key) -> bytes:
        saved = self._saved.get(key)
        if saved is None:
            if key in self._stale:
                self._look_at(key)
            saved = self._saved[key] = self._awake[key].save()
        return saved

    def load(self, *data: bytes) -> None:
        """Go on where saved engines were: those of these keys take the place of any that are here.

        Raises :class:`~slackline.StateError` for bytes of others; one engine is tried at once, the rest when
        something comes for them.
        """
        loaded = [key for piece in data for key in self._load(piece)]
        for key in loaded[:1]:
            self._engine(key)

    def _load(self, piece: bytes) -> list[Key]:
        """Take the engines in saved bytes; their keys."""
        state = codec.load(STATE_KIND, STATE_VERSION, piece)
        match state:
            case {"keyed": bool(keyed), "sites": list(sites), "counts": counts}:
                pass
            case _:
                raise StateError("the saved state does not fit this release; start anew.")
        if keyed != self.keyed:
            was, is_now = ("one engine per key", "one for all") if keyed else ("one engine for all", "one per key")
            raise StateError(f"the state was saved with {was}, and there is {is_now} now. Give the key as it was.")
        for key, saved, figures in sites:
            self._cut_off(key)
            self._awake.pop(key, None)
            self._stale.pop(key, None)
            self._saved[key] = saved
            self._known[key] = None
            if figures:
                self._tally.note(key, (Figures(*each) for each in figures))
                if max(each.buffered for each in self._tally.of(key)):
                    self._waiting.add(key)
        if counts is not None:
            self._tally.add(counts)
        return [key for key, *_ in sites]

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop engines, with all that waits in them: somebody else has them now."""
        for key in keys:
            self._cut_off(key)
            for place in (self._known, self._awake, self._saved, self._stale):
                place.pop(key, None)
            self._waiting.discard(key)
            self._tally.forget(key)


def without_key(arrivals: list[Event] | pa.Table, field: str) -> tuple[list[Event] | pa.Table, Any]:
    """Arrivals without the field that holds their keys, and the keys. A table must have such a column.

    >>> rows, keys = without_key([Event("ping", ts=5, van="a", speed=3), Event("ping", ts=6)], "van")
    >>> rows, keys
    ([Event('ping', ts=5, speed=3), Event('ping', ts=6)], ['a', None])
    """
    if isinstance(arrivals, pa.Table):
        if field not in arrivals.column_names:
            raise SchemaError(f"there is no column {field!r} for the key; the columns are {arrivals.column_names}.")
        column = arrivals[field]
        return arrivals.drop_columns([field]), column
    keys, events = [], []
    for event in arrivals:
        payload = dict(event.payload)
        keys.append(payload.pop(field, None))
        events.append(Event.of(event.type, event.ts, event.source, event.seq, payload))
    return events, keys


def _places(keys: Any) -> Iterator[tuple[Any, Any]]:
    """Each key with the numbers of its rows, by first arrival."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.Array):
        codes = keys if isinstance(keys, pa.DictionaryArray) else keys.dictionary_encode(null_encoding="encode")
        if not codes.null_count:
            yield from split(pa.array(np.arange(len(codes))), codes)
            return
        keys = keys.to_pylist()
    places: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        if _is_key(key):
            places.setdefault(key, []).append(place)
        else:
            yield key, [place]
    yield from places.items()


def _is_key(key: Any) -> bool:
    return isinstance(key, str | int) and not isinstance(key, bool)


def _order(key: Key) -> tuple[str, Any]:
    return type(key).__name__, key
