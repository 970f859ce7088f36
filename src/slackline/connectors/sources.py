"""Where events come from, by address: files, folders, standard input, HTTP and MQTT.

**Place.** Of a file it is known how many events were taken, so that a later life goes on behind them: it is read from
its start again, and the first so many events are left out. What came by other ways and was not in a checkpoint is gone
with a crash.

**Together.** Files that are read once are read in columns where that is the same, and side by side, the one first whose
next event is the oldest; so the order depends on the files alone, and none of them is late because another one is
longer. All others are read as they come.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from slackline.connectors import FileStream, HttpStream, MqttStream, Rejected
from slackline.connectors.delivery import Delivery
from slackline.connectors.sending import broker_of
from slackline.connectors.standard import LinesStream
from slackline.core.errors import ConfigError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.columns import StreamColumns
from slackline.runtime.roles import Roles

#: What there is to read from.
AnyStream = FileStream | HttpStream | MqttStream | LinesStream

#: Endings of files that are read out of a folder.
ENDINGS = (".csv", ".jsonl", ".ndjson", ".jsonlines", ".csv.gz", ".jsonl.gz", ".ndjson.gz", ".parquet", ".pq")


class ReadPlace(NamedTuple):
    """How far a source was read: events and rejected records; and the file, so that another one is noticed."""

    taken: int = 0
    rejected: int = 0
    mark: tuple[int, ...] = ()


class Source:
    """One stream of events.

    ``says``     what it is, for people.
    ``live``     whether events come when they happen: then wall time is evidence.
    ``path``     the file, if it is one and can be read again.
    """

    def __init__(
        self, url: str, adapter: AnyStream, says: str, roles: Roles, *, live: bool, path: Path | None = None
    ) -> None:
        self.url = url
        self.adapter = adapter
        self.says = says
        self._roles = roles
        self.live = live
        self.path = path
        self._place = ReadPlace()
        self._skip = ReadPlace()
        self._rejected: list[Rejected] = []  # nobody was told of these yet
        adapter.tell_rejected(lambda record: self._rejected.append(record))  # the list is another one each time
        self._lives = 0  # how often the file was replaced or cut short, as far as its events were taken

    async def read(self) -> AsyncIterator[Delivery]:
        """Events that were not taken in a life before, with their keys."""
        skip = self._skip.taken
        async with aclosing(self._chunks()) as chunks:
            async for lives, chunk in chunks:
                if lives:
                    skip = 0
                rest = chunk[skip:] if skip else chunk
                skip -= len(chunk) - len(rest)
                if len(rest):
                    for piece in self._placed(rest, lives).cut():
                        yield piece
        if skip:
            raise StateError(
                f"{self.url} has {self._skip.taken - skip} events, and {self._skip.taken} of it were taken before: it "
                f"is another file, or was cut short. Bring it back, or begin anew with another folder."
            )

    async def _chunks(self) -> AsyncGenerator[tuple[int, list[Event] | StreamColumns]]:
        """Events, each with the number of the file's lives."""
        adapter = self.adapter
        if isinstance(adapter, FileStream) and not self.live:
            async with aclosing(adapter.chunks()) as chunks:
                async for chunk in chunks:
                    yield 0, chunk
            return
        follows = isinstance(adapter, FileStream)
        async with aclosing(adapter.__aiter__()) as events:  # type: ignore[type-var]
            async for event in events:
                yield adapter.counts()["reopened"] if follows else 0, [event]

    def _placed(self, chunk: list[Event] | StreamColumns, lives: int) -> Delivery:
        taken = ((self, lives, len(chunk)),)
        if isinstance(chunk, StreamColumns):
            table = self._roles.table(chunk)
            if table is not None:
                return Delivery(*table, taken)
            chunk = chunk.events()
        placed = [self._roles.place(event) for event in chunk]
        keys = None if self._roles.key is None else [key for _, key in placed]
        return Delivery([event for event, _ in placed], keys, taken)

    def took(self, lives: int, count: int) -> None:
        """The next events were taken."""
        if lives != self._lives:
            self._lives, self._place = lives, self._place._replace(taken=0)
        self._place = self._place._replace(taken=self._place.taken + count)

    def rejected(self) -> list[Rejected]:
        """Records that were no events, of which nobody was told yet; also not in a life before."""
        news, self._rejected = self._rejected, []
        known = min(len(news), self._skip.rejected)
        self._skip = self._skip._replace(rejected=self._skip.rejected - known)
        self._place = self._place._replace(rejected=self._place.rejected + len(news) - known)
        return news[known:]

    @property
    def place(self) -> ReadPlace:
        """How far it was taken."""
        return self._place._replace(mark=self._mark())

    def go_on(self, place: ReadPlace) -> str | None:
        """Go on behind a place of a life before. What there is to say about it, if anything."""
        if self.path is None:
            return None
        mark = self._mark()
        if mark and place.mark and len(mark) != len(place.mark):
            was, now = ("read once", "followed") if self.live else ("followed", "read once")
            raise StateError(f"{self.url} was {was} before, and is {now}. Give --follow as then, or another folder.")
        if self.live and place.mark != mark:
            return f"{self.url} is another file than the one that was read before; reading from its start"
        if not self.live and mark < place.mark:
            raise StateError(
                f"{self.url} has {mark[0] if mark else 'no'} bytes, and had {place.mark[0]} when it was read before. "
                f"Bring it back, or begin anew with another folder."
            )
        self._skip = place
        self._place = place
        return None

    def _mark(self) -> tuple[int, ...]:
        try:
            found = self.path.stat() if self.path is not None else None
        except OSError:
            found = None
        if found is None:
            return ()
        return (found.st_dev, found.st_ino) if self.live else (found.st_size,)


Opener = Callable[[str, dict[str, Any], Roles], Source]


def _http(url: str, options: dict[str, Any], roles: Roles) -> Source:
    return Source(url, HttpStream(url, **options), "HTTP", roles, live=True)


def _mqtt(url: str, options: dict[str, Any], roles: Roles) -> Source:
    return Source(url, MqttStream(**broker_of(url), **options), "MQTT", roles, live=True)


#: Who opens an address, by its scheme. What has none is a file, a folder, or ``-``.
OPENERS: dict[str, Opener] = {"http": _http, "https": _http, "mqtt": _mqtt}


def scheme_of(url: str) -> str:
    """The scheme of an address, empty for a path.

    >>> scheme_of("mqtt://127.0.0.1/hall"), scheme_of("door.csv"), scheme_of("-")
    ('mqtt', '', '')
    """
    return urlsplit(url).scheme.lower() if "://" in url else ""


def open_sources(urls: Sequence[str], hierarchy: Hierarchy, roles: Roles, follow: bool) -> list[Source]:
    """The sources at these addresses; nothing is read yet."""
    if not urls:
        raise ConfigError("there is nothing to read; give --from FILE, FOLDER, URL or - (standard input).")
    options = roles.of_stream(hierarchy)
    found: list[Source] = []
    for url in urls:
        scheme = scheme_of(url)
        if scheme in OPENERS:
            found.append(OPENERS[scheme](url, options, roles))
        elif scheme:
            raise unknown_scheme(url, OPENERS)
        elif url == "-":
            found.append(Source("-", LinesStream(**options), "standard input, JSON lines", roles, live=False))
        else:
            found += _paths(url, options, roles, follow)
    twice = sorted({source.url for source in found if sum(each.url == source.url for each in found) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)}: given several times; each source is read once.")
    return found


def unknown_scheme(url: str, known: dict[str, Any]) -> ConfigError:
    """Nobody opens such addresses."""
    schemes = ", ".join(f"{scheme}://" for scheme in sorted(known))
    return ConfigError(f"{url}: nothing here opens {scheme_of(url)}:// addresses; known are {schemes}, paths and -.")


def _paths(url: str, options: dict[str, Any], roles: Roles, follow: bool) -> list[Source]:
    path = Path(url)
    if follow:
        says = "folder of Parquet files, followed" if path.is_dir() else "file, followed as it grows"
        return [Source(url, FileStream(path, follow=True, **options), says, roles, live=True, path=path)]
    if not path.exists():
        raise ConfigError(
            f"{url}: there is no such file or folder. To wait for one that is written later, --follow it."
        )
    names = [path]
    if path.is_dir():
        names = [each for each in sorted(path.iterdir()) if each.name.lower().endswith(ENDINGS)]
        names = [each for each in names if not each.name.startswith((".", "_"))]
    if not names:
        raise ConfigError(f"{url}: there is no file in this folder that ends with {', '.join(ENDINGS)}.")
    says = "file, read once"
    return [Source(str(each), FileStream(each, **options), says, roles, live=False, path=each) for each in names]
