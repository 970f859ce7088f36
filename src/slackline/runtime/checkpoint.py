"""Checkpoints: saved state to resume from, in one format for every store.

A checkpoint is a header and pieces. The header is plain data (positions of the sources, the record schema, lengths of
result files, metrics); a piece is the state of one key's engine, or of a node. As bytes a checkpoint is a sequence of
frames (:mod:`slackline.runtime.frames`): the header, then the pieces. So it can be made and written a little at a time,
and a store only has to store bytes. The header and each engine carry a checksum (:mod:`slackline.core.codec`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slackline.core import codec
from slackline.core.errors import SlacklineError, StateError
from slackline.runtime.frames import FrameError, framed, frames

STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Saved state. ``kind`` says what it is of, e.g. ``run``; a checkpoint of another kind is refused.

    >>> saved = Checkpoint("run", {"positions": {"a.csv": 7}}, [b"engine"])
    >>> Checkpoint.of("run", b"".join(saved.frames())) == saved
    True
    """

    kind: str
    header: Mapping[str, Any] = field(default_factory=dict)
    pieces: Iterable[bytes] = ()

    def with_header(self, **more: Any) -> Checkpoint:
        """The same with more in the header."""
        return replace(self, header={**self.header, **more})

    def frames(self) -> Iterator[bytes]:
        """The checkpoint as bytes, frame by frame."""
        yield framed(codec.dump(self.kind, STATE_VERSION, dict(self.header)))
        yield from map(framed, self.pieces)

    @classmethod
    def of(cls, kind: str, data: bytes, where: str = "the checkpoint") -> Checkpoint:
        """The checkpoint in these bytes. Raises StateError if they are damaged or of another kind."""
        try:
            header, *pieces = frames(data)
        except (FrameError, ValueError) as error:
            raise StateError(f"{where} is damaged: {error} Restore an older one, or start without it.") from error
        found = codec.load(kind, STATE_VERSION, header)
        if not isinstance(found, dict):
            raise StateError(f"{where} has no header. Restore an older one, or start without it.")
        return cls(kind, found, pieces)


class FolderCheckpointStore:
    """Stores the checkpoint in a file of a folder, which is replaced atomically."""

    def __init__(self, folder: Path, kind: str, name: str = "checkpoint") -> None:
        self.path = folder / name
        self._kind = kind

    def load(self) -> Checkpoint | None:
        """The newest complete checkpoint; None if there is none."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SlacklineError(f"cannot read the checkpoint {self.path}: {error}.") from error
        return Checkpoint.of(self._kind, data, f"the checkpoint {self.path}")

    def save(self, checkpoint: Checkpoint) -> int:
        """Store a checkpoint; return its size in bytes when it is durable. A crash leaves the older one or this one."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            with new.open("wb") as file:
                file.writelines(checkpoint.frames())
                size = synced(file)
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            new.unlink(missing_ok=True)  # the disk may be full
            raise SlacklineError(f"cannot write the checkpoint {self.path}: {error}.") from error
        return size


def synced(file: Any) -> int:
    """Flush a file to the disk; return its length."""
    file.flush()
    os.fsync(file.fileno())
    return int(file.tell())
