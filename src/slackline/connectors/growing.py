"""A file that grows, is cut short, or is replaced by another of its name, as log rotation does."""

from __future__ import annotations

import os
import stat
from enum import Enum
from pathlib import Path
from typing import BinaryIO

#: So much is read at once.
CHUNK = 1 << 18


def check_regular(path: Path) -> None:
    """Raise OSError unless it is a regular file: to open a pipe may block for ever, and its thread with it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("it is not a regular file, but a folder, a pipe or a device")


class FileChange(Enum):
    """What may happen to a file but growing."""

    REPLACED = "another file has its name"
    TRUNCATED = "it is shorter than what was read of it"


class GrowingFile:
    """Reads a file as it grows. A file that is not there yet is one that has not grown yet.

    Not noticed: a file that is cut short and outgrows what was read of it before the next look.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self) -> bytes | FileChange:
        """The next bytes, none if there are none yet; or what happened. After a change reading starts anew."""
        if self._file is None:
            try:
                check_regular(self._path)
                self._file = self._path.open("rb", buffering=0)
            except FileNotFoundError:
                return b""
        # Looked at before reading: what the old file got before it was replaced is read to its end.
        replaced = self._is_replaced(self._file)
        data = self._file.read(CHUNK)
        if data:
            return data
        if replaced:
            self.close()
            return FileChange.REPLACED
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            return FileChange.TRUNCATED
        return b""

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self, file: BinaryIO) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False  # moved away; its successor will come
        mine = os.fstat(file.fileno())
        return (there.st_ino, there.st_dev) != (mine.st_ino, mine.st_dev)
