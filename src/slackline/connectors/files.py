"""Files: CSV, JSON lines and Parquet as sources, read once or followed as they grow; folders and files as sinks."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from slackline.connectors.formats import (
    CHUNK,
    GZIP,
    PARQUET,
    check_regular,
    format_of,
    line_decoder,
    read_lines,
    read_parquet,
    skip_to,
    stem_of,
)
from slackline.core import check
from slackline.core.errors import ConfigError, StateError
from slackline.runtime.backoff import Sleep
from slackline.runtime.checkpoint import Checkpoint, FolderCheckpointStore, synced
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import FencedError, Sink, SinkError
from slackline.runtime.source import Records, Source, SourceError

logger = logging.getLogger("slackline.connectors")

#: The files of a folder of results, by the kind of their records.
FILES = {
    "event": "outputs.jsonl",
    "late": "late.jsonl",
    "quarantine": "quarantined.jsonl",
    "duplicate": "duplicates.jsonl",
}

_COPY_BYTES = 1024 * 1024

_T = TypeVar("_T")
#: Records, the place behind them, and the inode of a followed file.
_Placed = tuple[Records, dict[str, Any], list[int] | None]


class FileSource(Source):
    """The records of a file, in the order of the file.

    ``path``    a CSV or JSON lines file (also with ``.gz``, if it is not followed), a Parquet file, or a folder of
                Parquet files, which are read by name. See :mod:`slackline.connectors.formats`.
    ``name``    the name of the source; default the name of the file without its ending.
    ``follow``  continue at the end of the file: wait for more lines, or for more files in the folder, with a look
                every ``poll`` seconds. A line is read when its newline is written. A file that is replaced (log
                rotation) is read to its end, then its successor from the beginning; a file that is truncated is read
                from the beginning again. A Parquet file cannot grow: follow its folder, write files under a name that
                begins with ``.`` or ``_``, and rename them when they are complete.

    The position is the byte offset in a file of lines, and the number of rows in a Parquet file. A file that was read
    once must not shrink. Where another file has the name of one that was followed, reading starts from its beginning.

    >>> FileSource("logs/door.csv").name
    'door'
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        follow: bool = False,
        poll: float = 0.25,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.path = Path(path)
        self.name = check.text("name", stem_of(self.path) if name is None else name)
        self.live, self.bounded = follow, not follow
        self._is_parquet = format_of(self.path) == "parquet"
        if follow and self.path.name.lower().endswith(GZIP):
            raise ConfigError(f"{self.path} is compressed and cannot be followed. Follow the uncompressed file.")
        if follow and self._is_parquet and not self.path.is_dir():
            raise ConfigError(
                f"{self.path} is not a folder. A Parquet file cannot grow: follow the folder into which complete files "
                f"are moved."
            )
        self._poll = check.positive("poll", poll)
        self._sleep = sleep
        self._place: dict[str, Any] = {}
        self._position = self._at({}, None)

    def describe(self) -> str:
        if self.path.is_dir():
            return f"folder of Parquet files {self.path}, {'followed' if self.live else 'read once'}"
        return f"file {self.path}, {'followed as it grows' if self.live else 'read once'}"

    def position(self) -> dict[str, Any]:
        return self._position

    def _at(self, place: dict[str, Any], inode: list[int] | None) -> dict[str, Any]:
        """The position at a place, with what identifies the file: that of a followed one its inode."""
        size = None if self.live else self._size()
        return {"path": str(self.path.absolute()), "follow": self.live, "size": size, "inode": inode, "place": place}

    def seek(self, position: Any) -> None:
        """Resume from a position. Where it is one in another file, reading starts from the beginning."""
        match position:
            case {"path": str(path), "follow": bool(follow), "size": size, "inode": inode, "place": dict(place)}:
                pass
            case _:
                raise StateError(
                    f"source {self.name!r} cannot resume from {position!r}: it is not a position in a file."
                )
        if path != str(self.path.absolute()):
            raise StateError(
                f"source {self.name!r} is {self.path} now and was {path} at the checkpoint. Give that file, or start "
                f"with another output folder (--fresh discards this one)."
            )
        if follow != self.live:
            was, now = ("followed", "read once") if follow else ("read once", "followed")
            raise StateError(
                f"{self.path} was {was} up to the checkpoint and is {now} now. Read it as before, or start with "
                f"another output folder."
            )
        if size is not None and self._size() < size:
            raise StateError(
                f"{self.path} has {self._size()} bytes and had {size} at the checkpoint: it was truncated or replaced. "
                f"Restore the file, or start with another output folder."
            )
        if follow and (inode not in (None, _inode(self.path)) or self._size() < place.get("offset", 0)):
            return self._warn("another file than at the checkpoint, or truncated; reading from the beginning")
        self._position, self._place = position, place

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def _warn(self, message: str) -> None:
        logger.warning("source %r: %s: %s", self.name, self.path, message)

    async def batches(self) -> AsyncIterator[Records]:
        if self._is_parquet:
            found = self._folder() if self.path.is_dir() else in_threads(self._rows(self.path, {}))
        else:
            found = self._followed_lines() if self.live else in_threads(self._lines())
        async with aclosing(found):
            async for records, place, inode in found:
                self._position = self._at(place, inode)
                if len(records):
                    yield records

    def _lines(self) -> Generator[_Placed]:
        """The records of a file of lines that is read once."""
        for records, decoder in read_lines(self.path, **self._place):
            yield records, {"offset": decoder.offset, "line": decoder.line}, None

    def _rows(self, path: Path, more: dict[str, Any]) -> Generator[_Placed]:
        """The rows of a Parquet file, behind those that were read before."""
        rows = self._place.get("rows", 0)
        for table in read_parquet(path, rows):
            rows += len(table)
            yield table, {"rows": rows, **more}, None

    async def _folder(self) -> AsyncGenerator[_Placed]:
        """The rows of the Parquet files of a folder: first the one that was being read, then the others by name."""
        done: list[str] = self._place.get("done", [])
        reading: str | None = self._place.get("reading")
        while True:
            names = await in_thread(self._names)
            there, read = set(names), set(done)
            done = [name for name in done if name in there]  # a file that was removed needs no entry
            waiting = [name for name in names if name not in read]
            if reading not in waiting:
                reading = None
                self._place = {"done": done}
            if waiting:
                reading = reading or waiting[0]
                rows = self._rows(self.path / reading, {"done": done, "reading": reading})
                async with aclosing(in_threads(rows)) as found:
                    async for placed in found:
                        yield placed
                done, reading = [*done, reading], None
                yield [], {"done": done}, None
            elif self.live:
                await self._sleep(self._poll)
            elif done:
                return
            else:
                raise SourceError(f"no Parquet file in {self.path}. Give another folder, or follow this one.")

    def _names(self) -> list[str]:
        """The complete Parquet files of the folder. A name that begins with . or _ is one of an incomplete file."""
        names = (entry.name for entry in self.path.iterdir() if entry.name.lower().endswith(PARQUET))
        return sorted(name for name in names if not name.startswith((".", "_")))

    async def _followed_lines(self) -> AsyncGenerator[_Placed]:
        tail = _Tail(self.path, self._place, self._warn)
        try:
            while True:
                try:
                    records = await in_thread(tail.read)
                except OSError as error:
                    raise SourceError(f"cannot follow {self.path}: {error}.") from error
                if records is None:
                    await self._sleep(self._poll)
                else:
                    yield records, {"offset": tail.decoder.offset, "line": tail.decoder.line}, tail.inode
        finally:
            tail.close()


class _Tail:
    """Reads a file of lines as it grows, from a place. A file that does not exist yet has not grown yet.

    Not detected: a file that is truncated and then exceeds its former length before the next look.
    """

    def __init__(self, path: Path, place: dict[str, int], warn: Callable[[str], object]) -> None:
        self.inode: list[int] | None = None
        self.decoder = line_decoder(path)
        self._path = path
        self._place = place
        self._warn = warn
        self._file: BinaryIO | None = None

    def read(self) -> Records | None:
        """The next records, possibly none; None if nothing was written."""
        if self._file is None and not self._open():
            return None
        assert self._file is not None
        # Looked up before reading: what the old file received before it was replaced is read to its end.
        is_replaced = _inode(self._path) not in (None, self.inode)
        if data := self._file.read(CHUNK):
            return self.decoder.feed(data)
        if is_replaced:
            self._warn("replaced by another file; reading that one from the beginning")
            self.close()
            return self.decoder.end()
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._warn("truncated; reading from the beginning")
            self._file.seek(0)
            records = self.decoder.cut_off("cut off when the file was truncated")
            self.decoder = line_decoder(self._path)
            return records
        return None

    def _open(self) -> bool:
        try:
            check_regular(self._path)
            self._file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        found = os.fstat(self._file.fileno())
        self.inode = [found.st_dev, found.st_ino]
        self.decoder = line_decoder(self._path)
        skip_to(self._file, self.decoder, **self._place)
        self._place = {}
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _inode(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None  # moved away; its successor will come
    return [found.st_dev, found.st_ino]


async def in_threads(pieces: Generator[_T]) -> AsyncGenerator[_T]:
    """What a generator yields, each piece made in a thread, so that other sources are read meanwhile."""
    try:
        while (piece := await in_thread(lambda: next(pieces, None))) is not None:
            yield piece
    finally:
        pieces.close()


async def in_thread(work: Callable[[], _T]) -> _T:
    """Do blocking work in a thread. If cancelled, work that has begun is finished first."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # retrieved: the outcome is not needed any more
        raise


class FolderInUseError(ConfigError):
    """Another process uses a folder."""


class FolderLease:
    """The right of one process to write to a folder: a lock, which ends with the process.

    :meth:`take_over` takes it from a process that may still run: it opens the next **epoch** of the folder, with a lock
    of its own. The former process sees by :attr:`is_fenced` that it may not write any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch = 0
        self._lock: IO[str] | None = None

    def acquire(self) -> None:
        """Make the folder if need be, and lock it. A FolderInUseError if another process has it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.epoch = self.last_epoch()
            self._acquire()
        except BlockingIOError:
            raise FolderInUseError(
                f"another process uses the folder {self.path}. Give each process its own folder, or stop that process."
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot write to the folder {self.path}: {error}.") from error

    def take_over(self) -> None:
        """Lock the next epoch of the folder."""
        try:
            self.epoch = self.last_epoch() + 1
            os.close(os.open(self.path / f"epoch.{self.epoch}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            self._acquire()
        except (BlockingIOError, FileExistsError):
            raise FolderInUseError(f"another process has taken over the folder {self.path}.") from None
        except OSError as error:
            raise ConfigError(f"cannot take over the folder {self.path}: {error}.") from error

    def _acquire(self) -> None:
        lock = (self.path / self.name("lock", self.epoch)).open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    def last_epoch(self) -> int:
        numbers = [each.suffix[1:] for each in self.path.glob("epoch.*")]
        return max((int(number) for number in numbers if number.isdigit()), default=0)

    def name(self, name: str, epoch: int) -> str:
        """The name of a file in an epoch."""
        return f"{name}.{epoch}" if epoch else name

    @property
    def is_fenced(self) -> bool:
        """Whether another process has taken over the folder."""
        return (self.path / f"epoch.{self.epoch + 1}").exists()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()


class ResultFolder(Sink):
    """A sink that stores results and checkpoints, and can be taken from a process that may still run."""

    commits = True

    @abstractmethod
    def take_over(self) -> Checkpoint | None:
        """As :meth:`open`, of the folder of another process, which is fenced."""

    @abstractmethod
    def last_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint, of any epoch; None if there is none. The folder need not be open."""

    @property
    @abstractmethod
    def is_fenced(self) -> bool:
        """Whether another process has taken over the folder."""


class FolderSink(ResultFolder):
    """A folder with a file of JSON lines for each kind of record, and the checkpoint.

    ``outputs.jsonl`` has the events, ``late.jsonl`` the late events, ``quarantined.jsonl`` what could not be processed;
    ``duplicates.jsonl`` is written only with ``duplicates=True``. Records of other kinds are dropped. What was written
    behind the last checkpoint is discarded by :meth:`open`; with ``fresh=True`` all results and the checkpoint are.
    A folder belongs to one process. ``kind`` is that of its checkpoints.

    :meth:`take_over` takes the folder from a process that may still run: it opens the next **epoch** of the folder,
    with a lock and a checkpoint of its own, and copies of the results up to the last checkpoint. The former process is
    fenced: what it writes is not in the folder, and its next :meth:`commit` raises a FencedError.
    """

    def __init__(self, path: str | Path, duplicates: bool = False, *, fresh: bool = False, kind: str = "run") -> None:
        self.path = Path(path)
        self._names = {of: name for of, name in FILES.items() if duplicates or of != "duplicate"}
        self._fresh = fresh
        self._kind = kind
        self._lease = FolderLease(self.path)
        self._store = FolderCheckpointStore(self.path, kind)
        self._files: dict[str, BinaryIO] = {}
        self._lengths: dict[str, int] = {}  # at the last checkpoint
        self._former: list[int] = []  # epochs whose checkpoints are not needed after the next one

    def describe(self) -> str:
        return f"folder {self.path} ({', '.join(self._names.values())}, checkpoint)"

    def open(self) -> Checkpoint | None:
        self._lease.acquire()
        if self._fresh:
            stores = [self._store_of(epoch).path.name for epoch in range(self._lease.epoch + 1)]
            for name in (*stores, *FILES.values()):  # first the checkpoint: the files belong to it
                (self.path / name).unlink(missing_ok=True)
        return self._load()

    def take_over(self) -> Checkpoint | None:
        self._lease.take_over()
        self._former = list(range(self._lease.epoch))
        return self._load(copied=True)

    def _store_of(self, epoch: int) -> FolderCheckpointStore:
        return FolderCheckpointStore(self.path, self._kind, self._lease.name("checkpoint", epoch))

    def _load(self, copied: bool = False) -> Checkpoint | None:
        """The newest checkpoint, with the results up to it."""
        self._store = self._store_of(self._lease.epoch)
        checkpoint = self.last_checkpoint()
        if checkpoint is not None:
            self._lengths = dict(checkpoint.header.get("sink", {}).get("files", {}))
        for name in self._names.values():
            length = self._lengths.get(name, 0)
            if copied:
                _copy_start(self.path / name, length)
            self._files[name] = self._truncated(self.path / name, length)
        return checkpoint

    def last_checkpoint(self) -> Checkpoint | None:
        found = (self._store_of(epoch).load() for epoch in range(self._lease.last_epoch(), -1, -1))
        return next((each for each in found if each is not None), None)

    @property
    def is_fenced(self) -> bool:
        return self._lease.is_fenced

    @staticmethod
    def _truncated(path: Path, length: int) -> BinaryIO:
        try:
            file = path.open("ab")
            if file.tell() < length:
                raise StateError(
                    f"{path} has {file.tell()} bytes and had {length} at the last checkpoint: results are missing. "
                    f"Restore the file, or start with another folder."
                )
            file.truncate(length)
            file.seek(length)
        except OSError as error:
            raise SinkError(f"cannot write {path}: {error}.") from error
        return file

    async def write(self, records: Sequence[OutputRecord]) -> None:
        lines: dict[str, list[bytes]] = {}
        for record in records:
            lines.setdefault(record.kind, []).append(record.json())
        for kind, name in self._names.items():
            if kind in lines:
                _append(self._files[name], lines[kind], self.path / name)

    def commit(self, checkpoint: Checkpoint) -> None:
        try:
            self._lengths |= {name: synced(file) for name, file in self._files.items()}
        except OSError as error:
            raise SinkError(f"cannot write to the folder {self.path}: {error}.") from error
        self._store.save(checkpoint.with_header(sink={"files": self._lengths}))
        if self.is_fenced:  # after it was saved: a successor has read it, or this process learns here that it has not
            raise FencedError(f"another process has taken over the folder {self.path}; this one stops.")
        while self._former:
            self._store_of(self._former.pop()).path.unlink(missing_ok=True)

    async def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._lease.release()


class CopyingSink(ResultFolder):
    """A folder whose records another sink gets, too: at least once, since after a crash those behind the last
    checkpoint are written again, with the same ids."""

    def __init__(self, folder: ResultFolder, to: Sink) -> None:
        self._folder = folder
        self._to = to

    def describe(self) -> str:
        return f"{self._folder.describe()}, and {self._to.describe()}"

    def open(self) -> Checkpoint | None:
        checkpoint = self._folder.open()
        self._to.open()
        return checkpoint

    def take_over(self) -> Checkpoint | None:
        checkpoint = self._folder.take_over()
        self._to.open()
        return checkpoint

    def last_checkpoint(self) -> Checkpoint | None:
        return self._folder.last_checkpoint()

    @property
    def is_fenced(self) -> bool:
        return self._folder.is_fenced

    async def write(self, records: Sequence[OutputRecord]) -> None:
        await self._folder.write(records)
        await self._to.write(records)

    def commit(self, checkpoint: Checkpoint) -> None:
        self._folder.commit(checkpoint)

    async def close(self) -> None:
        await self._to.close()
        await self._folder.close()


class FileSink(Sink):
    """A file of JSON lines, records of all kinds in one, each with its ``kind``. An existing file is overwritten."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None

    def describe(self) -> str:
        return f"file {self.path}, JSON lines, overwritten"

    def open(self) -> None:
        try:
            self._file = self.path.open("wb")
        except OSError as error:
            raise ConfigError(f"cannot write {self.path}: {error.strerror or error}.") from error

    async def write(self, records: Sequence[OutputRecord]) -> None:
        assert self._file is not None
        _append(self._file, [record.json() for record in records], self.path)

    async def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _copy_start(path: Path, length: int) -> None:
    """Replace a file by a copy of its first bytes: a process that has it open writes to the former one."""
    copy = path.with_name(f"{path.name}.copy")
    try:
        with copy.open("wb") as target:
            if path.exists():
                with path.open("rb") as source:
                    for size in iter(lambda: min(_COPY_BYTES, length - target.tell()), 0):
                        if not (data := source.read(size)):
                            break  # results are missing, which is an error of opening the file
                        target.write(data)
            synced(target)
        copy.replace(path)
    except OSError as error:
        raise SinkError(f"cannot copy {path}: {error}.") from error


def _append(file: BinaryIO, lines: list[bytes], path: Path) -> None:
    try:
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
    except OSError as error:
        raise SinkError(f"cannot write {path}: {error.strerror or error}.") from error
