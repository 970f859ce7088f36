"""The roster: which streams there are, and which there were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from slackline.core.errors import ConfigError
from slackline.sync.stream import Point, Stream, StreamStats

#: So many streams that left are remembered by name; those before are counted together, under the empty name.
REMEMBERED = 10_000
FORGOTTEN = ""


class Roster:
    """Streams by name. A name stands for one stream for ever: one that leaves and joins again goes on counting."""

    def __init__(self) -> None:
        self._here: dict[str, Stream] = {}
        #: Ordered, since it finds its first at once, however many were deleted before it.
        self._gone: OrderedDict[str, Stream] = OrderedDict()
        #: The bits that those who are here have in readiness tables.
        self._bits = 0

    def __iter__(self) -> Iterator[Stream]:
        """Those who are here, in the order in which they joined."""
        return iter(self._here.values())

    def __contains__(self, name: str) -> bool:
        return name in self._here

    def __getitem__(self, name: Any) -> Stream:
        try:
            return self._here[name]
        except (KeyError, TypeError):
            raise ConfigError(
                f"there is no stream {name!r}; there are {list(self._here)}. A stream is named by its events' "
                f"source; add({name!r}) makes it known."
            ) from None

    def join(self, name: Any, watermark: Point) -> Stream:
        """A stream joins; nobody up to ``watermark`` waits for it."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a stream is named by a string that is not empty; got {name!r}.")
        if name in self._here:
            raise ConfigError(f"there is a stream {name!r} already; streams need different names.")
        stream = self._gone.pop(name, None) or Stream(name)
        stream.join(self._free_bit(), watermark)
        self._here[name] = stream
        return stream

    def leave(self, name: str) -> Stream:
        """A stream leaves; another one may have its bit."""
        stream = self[name]
        del self._here[name]
        self._gone[name] = stream
        self._bits &= ~stream.bit
        stream.removed = True
        if len(self._gone) > REMEMBERED:
            self._forget()
        return stream

    def owing(self, point: Point) -> list[Stream]:
        """The streams that have not reached a point and are waited for."""
        return [stream for stream in self if stream.live and stream.watermark < point]

    def stats(self) -> dict[str, StreamStats]:
        """What was counted of all, those who left too."""
        return {name: stream.stats() for name, stream in (self._here | self._gone).items()}

    def state(self) -> list[dict[str, Any]]:
        """All streams as plain values."""
        return [stream.state() for stream in (self._here | self._gone).values()]

    def restore(self, state: list[dict[str, Any]]) -> dict[str, Stream]:
        """Take over what ``state`` gave; all streams by name."""
        for said in state:
            stream = Stream(said["name"])
            stream.restore(said)
            if stream.removed:
                self._gone[stream.name] = stream
            else:
                stream.bit = self._free_bit()
                self._here[stream.name] = stream
        return self._here | self._gone

    def _forget(self) -> None:
        """Count the one that left longest ago, of those of which nothing waits, among the forgotten."""
        for name, stream in self._gone.items():
            if name != FORGOTTEN and not stream.waiting:
                forgotten = self._gone.setdefault(FORGOTTEN, Stream(FORGOTTEN))
                forgotten.live, forgotten.removed = False, True
                forgotten.absorb(stream)
                del self._gone[name]
                return

    def _free_bit(self) -> int:
        """The lowest bit that nobody has: tables are no wider than there were streams at once."""
        bit = ~self._bits & (self._bits + 1)
        self._bits |= bit
        return bit
