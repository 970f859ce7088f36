"""Where results go, by address: a folder with checkpoints, a file, standard output, HTTP and MQTT."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from slackline.connectors import Rejected
from slackline.connectors.sending import HttpSender, MqttSender, Sender, broker_of
from slackline.connectors.sources import scheme_of, unknown_scheme
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.outcome import Late, Output, Quarantined
from slackline.core.payload import to_json
from slackline.runtime.keeping import Folder, Kept, late_line, of_kind, output_line, quarantined_line
from slackline.runtime.sites import Key

NOT_AN_EVENT = "not an event"


@dataclass(slots=True)
class Results:
    """What came of some arrivals, each with its key; records that were no events have the name of their source."""

    keyed: bool
    outputs: list[tuple[Key, Output]] = field(default_factory=list)
    late: list[tuple[Key, Late]] = field(default_factory=list)
    quarantined: list[tuple[Key, Quarantined]] = field(default_factory=list)
    rejected: list[tuple[str, Rejected]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.outputs or self.late or self.quarantined or self.rejected)

    def output_lines(self) -> Iterator[str]:
        return (output_line(output, **self._of(key)) for key, output in self.outputs)

    def late_lines(self) -> Iterator[str]:
        return (late_line(late, **self._of(key)) for key, late in self.late)

    def quarantined_lines(self) -> Iterator[str]:
        """Events that were set aside, and records that were none."""
        for key, item in self.quarantined:
            yield quarantined_line(item, **self._of(key))
        for source, record in self.rejected:
            told = {"reason": NOT_AN_EVENT, "detail": record.reason, "source": source, "place": record.place}
            yield to_json({**told, "record": record.record})

    def lines(self) -> Iterator[str]:
        """All of it, where lines of all kinds go the same way."""
        kinds = ("output", self.output_lines()), ("late", self.late_lines()), ("quarantined", self.quarantined_lines())
        return (of_kind(kind, line) for kind, lines in kinds for line in lines)

    def _of(self, key: Key) -> dict[str, Key]:
        return {"key": key} if self.keyed else {}


class Target(Protocol):
    """Where results go."""

    #: What it is, for people.
    says: str
    #: Whether a later life can go on from what is kept here.
    keeps: bool

    def open(self) -> Kept | None:
        """Get ready, and give what was kept last, if anything."""

    async def write(self, results: Results) -> None:
        """Take results."""

    def keep(self, kept: Kept) -> None:
        """Return when this and all that was written before survive a crash."""

    async def close(self) -> None:
        """Nothing more will come."""


class FolderTarget:
    """A folder of :class:`~slackline.runtime.keeping.Folder`: three files that grow, and a checkpoint."""

    says = "folder: outputs.jsonl, late.jsonl, quarantined.jsonl and a checkpoint"
    keeps = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder: Folder | None = None

    def open(self) -> Kept | None:
        self._folder = Folder(self._path)
        return self._folder.open()

    async def write(self, results: Results) -> None:
        assert self._folder is not None
        self._folder.append(results.output_lines(), results.late_lines(), results.quarantined_lines())

    def keep(self, kept: Kept) -> None:
        assert self._folder is not None
        self._folder.keep(kept)

    async def close(self) -> None:
        if self._folder is not None:
            self._folder.close()


class _Forgetful:
    """A target that keeps nothing."""

    keeps = False

    def __init__(self, says: str) -> None:
        self.says = says

    def open(self) -> Kept | None:
        return None

    def keep(self, kept: Kept) -> None:
        pass


class LinesTarget(_Forgetful):
    """A file, or standard output: a line of JSON each, with its ``kind``. A file is written anew."""

    def __init__(self, path: Path | None) -> None:
        super().__init__("standard output, JSON lines" if path is None else "file of JSON lines, written anew")
        self._path = path
        self._file: IO[str] = sys.stdout

    def open(self) -> Kept | None:
        if self._path is not None:
            try:
                self._file = self._path.open("w", encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"cannot write {self._path}: {error.strerror or error}.") from error
        return None

    async def write(self, results: Results) -> None:
        try:
            self._file.writelines(f"{line}\n" for line in results.lines())
            self._file.flush()
        except OSError as error:
            raise SlacklineError(f"cannot write {self._path or 'standard output'}: {error.strerror}.") from error

    async def close(self) -> None:
        if self._path is not None and self._file is not sys.stdout:
            self._file.close()


class SentTarget(_Forgetful):
    """A receiver elsewhere: a line of JSON each, with its ``kind``, at least once."""

    def __init__(self, says: str, sender: Callable[[], Sender]) -> None:
        super().__init__(says)
        self._make = sender
        self._sender: Sender | None = None

    async def write(self, results: Results) -> None:
        if self._sender is None:
            self._sender = self._make()
        await self._sender.send(list(results.lines()))

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def _http(url: str) -> Target:
    return SentTarget("HTTP POST, JSON lines", lambda: HttpSender(url))


def _mqtt(url: str) -> Target:
    broker = broker_of(url)
    return SentTarget("MQTT, a message per line of JSON", lambda: MqttSender(**broker))


#: Who opens an address, by its scheme.
OPENERS: dict[str, Callable[[str], Target]] = {"http": _http, "https": _http, "mqtt": _mqtt}


def open_target(url: str) -> Target:
    """The target at this address: ``-`` is standard output, ``.jsonl`` a file, another path a folder."""
    scheme = scheme_of(url)
    if scheme in OPENERS:
        return OPENERS[scheme](url)
    if scheme:
        raise unknown_scheme(url, OPENERS)
    if url == "-":
        return LinesTarget(None)
    path = Path(url)
    if path.suffix in (".jsonl", ".ndjson"):
        return LinesTarget(path)
    if path.suffix and not path.is_dir():
        raise ConfigError(f"--to {url}: write results to a .jsonl file, or to a folder, whose name has no ending.")
    return FolderTarget(path)
