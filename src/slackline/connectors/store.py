"""Folders on any file system that pyarrow opens by a URI (S3, Google Cloud, Azure, HDFS, local), and results there.

Such file systems have no locks, no exclusive create and no append, and some no atomic replace. What they all have: a
file that is written, or moved to a name that does not exist, is there as a whole, and every process that lists the
folder afterwards sees it. All of this module relies on that and on nothing else:

- **A file is never replaced** where an older one must not be lost: checkpoints are numbered, and the former one is
  deleted when the new one is there. Results are segments, one for each checkpoint that has any.
- **The owner is the process that has claimed the newest epoch, alone.** A process writes its claim, then lists the
  claims: if there is another one of this epoch or a later one, it withdraws. Of two that claim the same epoch at least
  one sees the other, so at most one has it.
- **A former owner is fenced**: it writes its checkpoint under its own epoch, then lists the claims. Either it sees the
  successor's, and publishes nothing more, or the successor's look at the checkpoints comes later and finds this one.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from slackline.connectors.files import FILES, FolderInUseError, ResultFolder
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.output import OutputRecord
from slackline.runtime.sink import FencedError, SinkError

if TYPE_CHECKING:
    from pyarrow import fs

#: Schemes of URIs of folders. ``s3a`` is what Hadoop calls S3.
SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "file")

#: Attempts to claim an epoch that others claim at the same time, and the seconds before the next one, at most at first.
ATTEMPTS, PAUSE = 6, 0.1
#: Seconds without a renewal after which a lease is that of a process that has ended.
EXPIRY = 3.0
#: Attempts to read a checkpoint while its owner replaces it.
READS = 5


@dataclass(frozen=True, slots=True)
class Store:
    """A folder on a file system. ``name`` is how it was given.

    >>> str(Store.of("s3a://bucket/app?region=eu-west-1").child("n1"))
    's3a://bucket/app/n1?region=eu-west-1'
    """

    system: fs.FileSystem
    path: str
    name: str

    @classmethod
    def of(cls, where: str | Path) -> Store:
        """The folder at a path or a URI. A ConfigError if the URI cannot be opened."""
        from pyarrow import fs  # only where it is needed: it takes long to load

        text = str(where)
        if "://" not in text:
            return cls(fs.LocalFileSystem(), str(Path(text).resolve()), text)
        try:
            system, path = fs.FileSystem.from_uri(re.sub("^s3a:", "s3:", text))
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ConfigError(
                f"{_shown(text)} cannot be opened: {str(error).splitlines()[0]}. Give a path, or a URI of "
                f"{', '.join(SCHEMES)} with what its file system needs: credentials, for HDFS libhdfs and Java."
            ) from error
        return cls(system, path.rstrip("/"), text)

    def __str__(self) -> str:
        return self.name

    @property
    def is_local(self) -> bool:
        """Whether it was given as a path."""
        return "://" not in self.name

    def child(self, name: str) -> Store:
        """The folder of this name in it."""
        start, mark, rest = self.name.partition("?")
        return Store(self.system, f"{self.path}/{name}", f"{start.rstrip('/')}/{name}{mark}{rest}")

    def exists(self) -> bool:
        with _errors(f"read {self}"):
            return bool(self.system.get_file_info(self.path).type.value)  # 0: not found

    def names(self) -> list[str]:
        """The names of its files; none if it does not exist."""
        from pyarrow import fs

        with _errors(f"list {self}"):
            found = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
            return [each.base_name for each in found if each.is_file]

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        with _errors(f"read {name} in {self}"):
            try:
                with self.system.open_input_stream(f"{self.path}/{name}", compression=None) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write a file, which is there as a whole or not at all; its size. An existing one is replaced, not on every
        file system at once."""
        size, new = 0, f"{self.path}/{name}.new"
        with _errors(f"write {name} in {self}"):
            with self.open(f"{name}.new") as file:
                for piece in pieces:
                    size += file.write(piece)
            self.system.move(new, f"{self.path}/{name}")
        return size

    def open(self, name: str) -> pa.NativeFile:
        """A file to write to, which is made."""
        path = f"{self.path}/{name}"
        with _errors(f"write {name} in {self}"):
            try:
                return self.system.open_output_stream(path, compression=None)
            except FileNotFoundError:
                self.system.create_dir(self.path, recursive=True)
                return self.system.open_output_stream(path, compression=None)

    def delete(self, *names: str) -> None:
        """Delete files, as far as they exist."""
        for name in names:
            with _errors(f"delete {name} in {self}"), suppress(FileNotFoundError):
                self.system.delete_file(f"{self.path}/{name}")


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Errors of a file system as ours."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"cannot {_shown(what)}: {str(error).splitlines()[0]}.") from error


def _shown(text: str) -> str:
    """Without credentials.

    >>> _shown("s3://key:secret@bucket/app"), _shown("/tmp/app")
    ('s3://***@bucket/app', '/tmp/app')
    """
    return re.sub(r"://[^/@\s]+@", "://***@", text)


class StoreLease:
    """The right of one process to write to a folder of a file system without locks: the newest epoch, claimed alone.

    :meth:`take_over` takes it from whatever process has it, which sees that by :attr:`is_fenced`. A process that calls
    :meth:`renew` more often than every ``EXPIRY`` seconds is protected from :meth:`acquire`.
    """

    def __init__(self, store: Store) -> None:
        self.epoch = 0
        self._store = store
        self._claims = store.child("epochs")
        self._renewals = store.child("renewals")  # a file whose name changes
        self._token = secrets.token_hex(8)
        self._renewed = 0

    def acquire(self) -> None:
        """Take the lease of a process that has ended. A FolderInUseError if it is renewed."""
        if self.is_renewed():
            raise FolderInUseError(
                f"another process uses the folder {_shown(str(self._store))}. Give each process its own folder, or "
                f"stop that process."
            )
        former = self._renewals.names()
        self.take_over()
        self.renew()
        self._renewals.delete(*former)

    def is_renewed(self) -> bool:
        """Whether a process renews it. Takes ``EXPIRY`` seconds if one did, and has ended without a release."""
        seen, until = set(self._renewals.names()), time.monotonic() + EXPIRY
        while seen and time.monotonic() < until:
            time.sleep(EXPIRY / 20)
            now = set(self._renewals.names())
            if now - seen:
                return True
            seen &= now
        return False

    def take_over(self) -> None:
        """Claim the next epoch. A FolderInUseError if others claim it, again and again."""
        for attempt in range(ATTEMPTS):
            epoch = 1 + max(self._epochs().values(), default=0)
            own = f"{epoch}.{self._token}"
            self._claims.write(own, ())
            found = self._epochs()
            if not any(number >= epoch for name, number in found.items() if name != own):
                self.epoch = epoch
                self._claims.delete(*(name for name in found if name != own))
                return
            self._claims.delete(own)
            time.sleep(random.uniform(0, PAUSE * 2**attempt))
        raise FolderInUseError(f"other processes take over the folder {_shown(str(self._store))} at the same time.")

    def renew(self) -> None:
        """Show that this process is alive."""
        self._renewed += 1
        self._renewals.write(f"{self._token}.{self._renewed}", ())
        self._renewals.delete(f"{self._token}.{self._renewed - 1}")

    def release(self) -> None:
        """End the lease: the next process need not wait until it expires."""
        self._renewals.delete(f"{self._token}.{self._renewed}")

    @property
    def is_fenced(self) -> bool:
        """Whether another process has taken over the folder."""
        return any(number > self.epoch for number in self._epochs().values())

    def _epochs(self) -> dict[str, int]:
        """The claims: their epochs, by name."""
        found = {name: name.partition(".")[0] for name in self._claims.names() if not name.endswith(".new")}
        return {name: int(number) for name, number in found.items() if number.isdigit()}


class StoreSink(ResultFolder):
    """Results and checkpoints on a file system that is given by a URI, where files cannot be appended to or locked.

    A folder for each kind of record (``outputs``, ``late``, ``quarantined``, ``duplicates``) has **segments** of JSON
    lines, ``EPOCH-NUMBER.jsonl``: one for each checkpoint before which there were records. What was written behind the
    last checkpoint is in no segment that counts: the checkpoint lists those that do, and all others are deleted when
    the next process has committed its first checkpoint.

    The last process that opens the folder has it; a former one is fenced, and its next :meth:`commit` raises a
    FencedError. Parameters as of :class:`~slackline.connectors.FolderSink`.
    """

    commits = True

    def __init__(self, where: Store | str, duplicates: bool = False, *, fresh: bool = False, kind: str = "run") -> None:
        store = where if isinstance(where, Store) else Store.of(where)
        names = {of: name.removesuffix(".jsonl") for of, name in FILES.items() if duplicates or of != "duplicate"}
        self._folders = {of: store.child(name) for of, name in names.items()}
        self._store = store
        self._checkpoints = store.child("checkpoints")
        self._fresh = fresh
        self._kind = kind
        self._lease = StoreLease(store)
        self._files: dict[str, pa.NativeFile] = {}  # the open segments
        self._segments: dict[str, list[list[int]]] = {}  # at the last checkpoint: epochs and numbers of segments
        self._last: str | None = None  # the own checkpoint
        self._number = 0

    def describe(self) -> str:
        folders = ", ".join(f"{each.path.rpartition('/')[2]}/" for each in self._folders.values())
        return f"folder {_shown(str(self._store))} ({folders}, checkpoints/)"

    def open(self) -> Checkpoint | None:
        if not self._fresh:
            return self.take_over()
        self._lease.take_over()
        self._checkpoints.delete(*self._checkpoints.names())
        return None

    def take_over(self) -> Checkpoint | None:
        self._lease.take_over()
        checkpoint = self.last_checkpoint()
        self._segments = {} if checkpoint is None else _segments(checkpoint.header)
        for kind, folder in self._folders.items():
            missing = sorted(_names(self._segments.get(kind, [])) - set(folder.names()))
            if missing:
                raise StateError(
                    f"{_shown(str(folder))} had {', '.join(missing[:3])} at the last checkpoint: results are missing. "
                    f"Restore them, or start with another folder."
                )
        return checkpoint

    def last_checkpoint(self) -> Checkpoint | None:
        for _ in range(READS):
            newest = max(self._checkpoints.names(), key=_order, default="")
            if _order(newest) < (0, 0):
                return None
            if (data := self._checkpoints.read(newest)) is not None:
                return Checkpoint.of(self._kind, data, f"the checkpoint {newest} in {_shown(str(self._checkpoints))}")
        raise SlacklineError(f"cannot read a checkpoint in {_shown(str(self._checkpoints))}: each is replaced at once.")

    @property
    def is_fenced(self) -> bool:
        return self._lease.is_fenced

    async def write(self, records: Sequence[OutputRecord]) -> None:
        lines: dict[str, list[bytes]] = {}
        for record in records:
            lines.setdefault(record.kind, []).append(record.json() + b"\n")
        for kind, folder in self._folders.items():
            if kind not in lines:
                continue
            if kind not in self._files:
                self._files[kind] = folder.open(self._next(kind))
            with _errors(f"write to {folder}"):
                self._files[kind].write(b"".join(lines[kind]))

    def commit(self, checkpoint: Checkpoint) -> None:
        for kind in list(self._files):
            with _errors(f"write to {self._folders[kind]}"):
                self._files[kind].close()
            del self._files[kind]
            runs = self._segments.setdefault(kind, [])
            if not runs or runs[-1][0] != self._lease.epoch:
                runs.append([self._lease.epoch, 0])
            runs[-1][1] += 1
        self._number += 1
        name = f"{self._lease.epoch}-{self._number}"
        self._checkpoints.write(name, checkpoint.with_header(sink={"segments": self._segments}).frames())
        if self.is_fenced:
            self._withdraw(name)
            raise FencedError(f"another process has taken over the folder {_shown(str(self._store))}; this one stops.")
        if self._last is None:
            self._clear(name)
        else:
            self._checkpoints.delete(self._last)
        self._last = name

    def _next(self, kind: str) -> str:
        runs = self._segments.get(kind) or [[0, 0]]
        return _segment(self._lease.epoch, runs[-1][1] if runs[-1][0] == self._lease.epoch else 0)

    def _clear(self, name: str) -> None:
        """Delete what belongs to former processes, after the first checkpoint."""
        self._checkpoints.delete(*(each for each in self._checkpoints.names() if each != name))
        for kind, folder in self._folders.items():
            folder.delete(*set(folder.names()) - _names(self._segments.get(kind, [])))

    def _withdraw(self, name: str) -> None:
        """Delete what the successor has not taken. One that has not committed yet will do so itself."""
        last = self.last_checkpoint()
        newest = max(self._checkpoints.names(), key=_order, default=name)
        if last is None or _order(newest)[0] <= self._lease.epoch:
            return
        self._checkpoints.delete(name)
        taken = _segments(last.header)
        for kind, folder in self._folders.items():
            own = {each for each in folder.names() if _order(each)[0] == self._lease.epoch}
            folder.delete(*own - _names(taken.get(kind, [])))

    async def close(self) -> None:
        for file in self._files.values():
            with suppress(OSError, pa.ArrowException):
                file.close()


def _segment(epoch: int, number: int) -> str:
    """Names whose order is that of the records."""
    return f"{epoch:06}-{number:08}.jsonl"


def _names(runs: Iterable[Sequence[int]]) -> set[str]:
    """The names of segments, given by epoch and number."""
    return {_segment(epoch, number) for epoch, count in runs for number in range(count)}


def _order(name: str) -> tuple[int, int]:
    """The epoch and the number of a checkpoint or segment.

    >>> _order("000002-00000017.jsonl"), _order("2-17"), _order("other")
    ((2, 17), (2, 17), (-1, -1))
    """
    found = re.fullmatch(r"(\d+)-(\d+)(\.jsonl)?", name)
    return (-1, -1) if found is None else (int(found[1]), int(found[2]))


def _segments(header: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    """The segments that a checkpoint lists."""
    found = header.get("sink", {}).get("segments")
    if not isinstance(found, dict):
        raise StateError("the checkpoint does not list segments of results; start with another folder.")
    return {kind: [list(map(int, run)) for run in runs] for kind, runs in found.items()}
