"""What sources deliver: rows of one form, with their keys and whose they are; and files side by side as one stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline.core.event import Event
from slackline.runtime.forms import events_of

if TYPE_CHECKING:
    from slackline.connectors.sources import Source

#: Rows of a delivery, at most.
PIECE = 4_096


class Delivery(NamedTuple):
    """Rows as an engine takes them, the key of each if there are keys, and how many of each source they are.

    The number beside a source is that of its file's lives, see :meth:`Source.took`.
    """

    rows: list[Event] | pa.Table
    keys: list[Any] | pa.ChunkedArray | None
    taken: tuple[tuple[Source, int, int], ...]

    def took(self) -> None:
        """Tell the sources that all of it was taken."""
        for source, lives, count in self.taken:
            source.took(lives, count)

    def cut(self) -> list[Delivery]:
        """The same in pieces that are not too long, of a delivery of one source."""
        if len(self.rows) <= PIECE:
            return [self]
        ((source, lives, _),) = self.taken
        pieces = []
        for start in range(0, len(self.rows), PIECE):
            part = slice(start, start + PIECE)
            keys = None if self.keys is None else self.keys[part]
            pieces.append(Delivery(self.rows[part], keys, ((source, lives, len(self.rows[part])),)))
        return pieces


def joined(deliveries: Sequence[Delivery]) -> Delivery:
    """Deliveries one after the other; as a table if they are tables with the same columns."""
    if len(deliveries) == 1:
        return deliveries[0]
    taken = tuple(each for one in deliveries for each in one.taken)
    keyed = deliveries[0].keys is not None
    if _are_alike(deliveries):
        rows = pa.concat_tables([one.rows for one in deliveries])
        chunks = [chunk for one in deliveries for chunk in one.keys.chunks] if keyed else []  # type: ignore[union-attr]
        return Delivery(rows, pa.chunked_array(chunks) if keyed else None, taken)
    events: list[Event] = []
    keys: list[Any] | None = [] if keyed else None
    for one in deliveries:
        events += events_of(one.rows) if isinstance(one.rows, pa.Table) else one.rows
        if keys is not None and one.keys is not None:
            keys += one.keys.to_pylist() if isinstance(one.keys, pa.ChunkedArray) else one.keys
    return Delivery(events, keys, taken)


def _are_alike(deliveries: Sequence[Delivery]) -> bool:
    first = deliveries[0]
    if not isinstance(first.rows, pa.Table):
        return False
    kind = None if first.keys is None else first.keys.type  # type: ignore[union-attr]
    return all(
        isinstance(one.rows, pa.Table)
        and one.rows.schema.equals(first.rows.schema)
        and (one.keys is None or one.keys.type == kind)  # type: ignore[union-attr]
        for one in deliveries
    )


class _Head:
    """What was read of a source and not given on yet, each row with the time stamp at which its turn comes."""

    def __init__(self, place: int, source: Source) -> None:
        self.place = place
        self.source = source
        self.reader = source.read()
        self.turns: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.delivery: Delivery | None = None
        self._latest = -1

    async def read_on(self) -> bool:
        """Read more, of which nothing is left; whether there is more."""
        self.delivery = await anext(self.reader, None)
        if self.delivery is None:
            return False
        rows = self.delivery.rows
        if isinstance(rows, pa.Table):
            stamps = rows["ts"].to_numpy()
        else:
            stamps = np.fromiter((event.ts for event in rows), np.int64, len(rows))
        self.turns = np.maximum(np.maximum.accumulate(stamps), self._latest)
        self._latest = int(self.turns[-1])
        return True

    def take(self, count: int) -> Delivery:
        """The first so many rows."""
        assert self.delivery is not None
        rows, keys, ((source, lives, _),) = self.delivery
        self.delivery = Delivery(rows[count:], None if keys is None else keys[count:], ((source, lives, 0),))
        self.turns = self.turns[count:]
        return Delivery(rows[:count], None if keys is None else keys[:count], ((source, lives, count),))


async def merged(sources: Sequence[Source]) -> AsyncIterator[Delivery]:
    """The rows of several files, always the one next that is the oldest of those that come next in theirs.

    So a row that is older than one before it in its file comes right after that: its turn is the newest time stamp so
    far. By turn, then by file, they are in order.
    """
    heads = [_Head(place, source) for place, source in enumerate(sources)]
    try:
        open_heads = [head for head in heads if await head.read_on()]
        while open_heads:
            # Up to its last row nothing can come from the others but what was read.
            first = min(open_heads, key=lambda head: (head.turns[-1], head.place))
            end = int(first.turns[-1])
            ready = []
            turns = []
            for head in open_heads:
                count = int(np.searchsorted(head.turns, end, "right" if head.place <= first.place else "left"))
                if count:
                    turns.append(head.turns[:count])
                    ready.append(head.take(count))
            for delivery in _interleaved(ready, turns):
                yield delivery
            if not await first.read_on():
                open_heads.remove(first)
    finally:
        for head in heads:
            await head.reader.aclose()  # type: ignore[attr-defined]


def _interleaved(ready: list[Delivery], turns: list[npt.NDArray[np.int64]]) -> list[Delivery]:
    """Rows of several files by turn, then by file."""
    if len(ready) == 1:
        return ready[0].cut()
    order = np.argsort(np.concatenate(turns), kind="stable")
    whose = np.repeat(np.arange(len(ready)), [len(part) for part in turns])[order]
    whole = joined(ready)
    pieces = []
    for start in range(0, len(order), PIECE):
        chosen, owners = order[start : start + PIECE], np.bincount(whose[start : start + PIECE], minlength=len(ready))
        if isinstance(whole.rows, pa.Table):
            rows, keys = whole.rows.take(chosen), None if whole.keys is None else whole.keys.take(chosen)  # type: ignore[union-attr]
        else:
            places = chosen.tolist()
            rows = [whole.rows[place] for place in places]
            keys = None if whole.keys is None else [whole.keys[place] for place in places]
        sources = [source for one in ready for source, *_ in one.taken]
        taken = tuple((source, 0, int(count)) for source, count in zip(sources, owners, strict=True))
        pieces.append(Delivery(rows, keys, taken))
    return pieces
