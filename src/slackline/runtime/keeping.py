"""What a node has found and what it is, on disk: it goes on after a crash as if there had been none.

A folder belongs to one process. ``outputs.jsonl``, ``late.jsonl`` and ``quarantined.jsonl`` grow; ``checkpoint`` holds
the node, how long these files were when it was made, and how many local arrivals were in it. What was written after the
last checkpoint is cut off when the node comes back: it finds it again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from slackline.core import codec
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.outcome import Late, Output, Quarantined
from slackline.core.payload import to_json
from slackline.runtime.frames import FrameError, framed, frames

OUTPUTS, LATE, QUARANTINED = FILES = ("outputs.jsonl", "late.jsonl", "quarantined.jsonl")
CHECKPOINT = "checkpoint"

_KIND, _VERSION = "node on disk", 1


@dataclass(frozen=True, slots=True)
class Kept:
    """What a checkpoint holds: the node, how many rows of its recording are in it, and where its peers were."""

    node: bytes
    position: int
    addresses: dict[str, str]


class Keeping(Protocol):
    """Where a host puts what its node gives."""

    def write(self, outputs: list[Output], late: list[Late], quarantined: list[Quarantined]) -> None:
        """Note what was found and what was set aside."""

    def keep(self, kept: Kept) -> None:
        """Return when the node and all that was written before survive a crash."""


class Folder:
    """A node's folder. Nobody else may use it at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, IO[bytes]] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "lock").open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process uses the folder {path}. Give each process a folder of its own, or end that process."
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot keep anything in {path}: {error}.") from error

    def open(self) -> Kept | None:
        """What was kept last, None if nothing was; the files are as they were then."""
        kept, lengths = self._read()
        for name in FILES:
            path = self.path / name
            length = lengths.get(name, 0)
            try:
                file = path.open("ab")
                if file.tell() < length:
                    raise StateError(
                        f"{path} has {file.tell()} bytes, and had {length} at the last checkpoint: something is lost. "
                        f"Bring it back, or start anew with another folder."
                    )
                file.truncate(length)
                file.seek(length)
            except OSError as error:
                raise SlacklineError(f"cannot write {path}: {error}.") from error
            self._files[name] = file
        return kept

    def _read(self) -> tuple[Kept | None, dict[str, int]]:
        try:
            data = (self.path / CHECKPOINT).read_bytes()
        except FileNotFoundError:
            return None, {}
        except OSError as error:
            raise SlacklineError(f"cannot read {self.path / CHECKPOINT}: {error}.") from error
        try:
            card, node = frames(data)
        except (FrameError, ValueError) as error:
            raise StateError(f"{self.path / CHECKPOINT} is damaged. Start anew with another folder.") from error
        match codec.load(_KIND, _VERSION, card):
            case {"position": int(position), "addresses": dict(known), "lengths": dict(lengths)}:
                return Kept(node, position, known), lengths
        raise StateError(f"{self.path / CHECKPOINT} was not written by this release; start anew with another folder.")

    def write(self, outputs: list[Output], late: list[Late], quarantined: list[Quarantined]) -> None:
        self.append(map(output_line, outputs), map(late_line, late), map(quarantined_line, quarantined))

    def append(self, outputs: Iterable[str], late: Iterable[str], quarantined: Iterable[str]) -> None:
        """Note what was found and what was set aside, as lines."""
        for name, lines in zip(FILES, (outputs, late, quarantined), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            if text:
                self._append(name, text.encode())

    def _append(self, name: str, data: bytes) -> None:
        try:
            self._files[name].write(data)
            self._files[name].flush()
        except OSError as error:
            raise SlacklineError(f"cannot write {self.path / name}: {error}.") from error

    def keep(self, kept: Kept) -> None:
        try:
            lengths = {name: _durable(file) for name, file in self._files.items()}
            card = {"position": kept.position, "addresses": kept.addresses, "lengths": lengths}
            new = self.path / f"{CHECKPOINT}.new"
            with new.open("wb") as file:
                file.write(framed(codec.dump(_KIND, _VERSION, card)))
                file.write(framed(kept.node))
                _durable(file)
            new.replace(self.path / CHECKPOINT)
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise SlacklineError(f"cannot write the checkpoint in {self.path}: {error}.") from error

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._lock.close()


def _durable(file: IO[bytes]) -> int:
    """Wait until what was written is on the disk; how long the file is."""
    file.flush()
    os.fsync(file.fileno())
    return file.tell()


@dataclass(slots=True)
class Printed:
    """A node that keeps nothing: what it finds goes to a stream, a line each with its ``kind``."""

    stream: IO[str]

    def write(self, outputs: list[Output], late: list[Late], quarantined: list[Quarantined]) -> None:
        self._print("output", map(output_line, outputs))
        self._print("late", map(late_line, late))
        self._print("quarantined", map(quarantined_line, quarantined))
        self.stream.flush()

    def _print(self, kind: str, lines: Iterable[str]) -> None:
        self.stream.writelines(f"{of_kind(kind, line)}\n" for line in lines)

    def keep(self, kept: Kept) -> None:
        pass


# Lines.


def of_kind(kind: str, line: str) -> str:
    """A line that says what it is, where lines of several kinds go the same way.

    >>> of_kind("late", '{"lateness":3}')
    '{"kind":"late","lateness":3}'
    """
    return f'{{"kind":"{kind}",{line[1:]}'


def output_line(output: Output, **beside: object) -> str:
    """An output as JSON, with what else is to be said of it."""
    found = {**beside, **output._asdict(), "event": _event(output.event)}
    if output.flushed is None:
        del found["flushed"]
    if not output.delayed:
        del found["delayed"]
    return to_json(found, output.id)


def late_line(late: Late, **beside: object) -> str:
    """A late event as JSON, with what else is to be said of it."""
    return to_json({**beside, **late._asdict(), "event": _event(late.event)}, late.event.type)


def quarantined_line(quarantined: Quarantined, **beside: object) -> str:
    """An event that was set aside as JSON. It may be anything: what has no JSON form is written as it looks."""
    plain = {**beside, **quarantined._asdict()}
    try:
        return to_json({**plain, "event": _event(quarantined.event)})
    except SlacklineError:
        return to_json({**plain, "event": repr(quarantined.event)})


def _event(event: Event) -> dict[str, object]:
    return {"type": event.type, "ts": event.ts, "source": event.source, "seq": event.seq, "payload": event.payload}
