"""Snapshots in a folder that all processes of an application share, or that the only one has."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slackline.connectors.kafka.records import Record
from slackline.connectors.kafka.snapshots import Owner, PartitionSnapshot
from slackline.core.errors import ConfigError, StateError

logger = logging.getLogger("slackline.kafka")


class FolderSnapshots:
    """Two files per partition, written in turn: the older one is whole until the newer one is.

    A file is written after its offset was committed. If that fails, since the disk is full, say, the host goes on with
    the snapshot before: there is more input to read again after a restart, and nothing is lost.
    """

    def __init__(self, folder: Path, owner: Owner) -> None:
        self._folder = folder
        self._owner = owner
        #: Snapshots that could not be written.
        self.failures = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the folder {str(folder)!r} for snapshots cannot be made: {error}.") from error

    def records(self, partition: int, snapshot: PartitionSnapshot) -> Iterator[Record]:
        """None: they are no part of a transaction."""
        return iter(())

    def keep(self, partition: int, snapshot: PartitionSnapshot) -> None:
        state, crc = snapshot.state or (), 0
        for piece in state:
            crc = zlib.crc32(piece, crc)
        numbers = {place: found[0] for place in (0, 1) if (found := self._read(self._path(partition, place)))}
        told: dict[str, Any] = {**self._owner._asdict(), "offset": snapshot.offset, "crc": crc}
        told |= {"empty": snapshot.state is None, "number": max(numbers.values(), default=0) + 1}
        head = json.dumps(told).encode()
        path = self._path(partition, min((0, 1), key=lambda place: numbers.get(place, 0)))
        part = path.with_suffix(".part")
        try:
            with open(part, "wb") as file:
                file.write(head + b"\n")
                file.writelines(state)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except OSError as error:
            self.failures += 1
            part.unlink(missing_ok=True)
            logger.error(
                "the snapshot of partition %d could not be written to %s: %s. Going on with the one before; free some "
                "room, or a restart reads the input again from there",
                partition, self._folder, error.strerror,
            )  # fmt: skip

    def newest(self, partition: int, up_to: int | None) -> PartitionSnapshot | None:
        each = [found for place in (0, 1) if (found := self._read(self._path(partition, place)))]
        right = [found for found in each if up_to is None or found[1].offset <= up_to]
        return max(right)[1] if right else None

    def _path(self, partition: int, place: int) -> Path:
        return self._folder / f"{partition}-{place}.snapshot"

    def _read(self, path: Path) -> tuple[int, PartitionSnapshot] | None:
        """The snapshot in a file, and its number; None: there is none, or it is damaged."""
        try:
            head, _, data = path.read_bytes().partition(b"\n")
            told = json.loads(head)
            number, offset, crc, is_empty = int(told["number"]), int(told["offset"]), told["crc"], told["empty"]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"the snapshot {str(path)!r} cannot be read: {error}.") from error
        except (ValueError, KeyError, TypeError):
            logger.warning("the snapshot %s is damaged; going on without it", path)
            return None
        self._owner.check(told, f"the folder {str(self._folder)!r}")
        if zlib.crc32(data) != crc:
            logger.warning("the snapshot %s is damaged; going on without it", path)
            return None
        return number, PartitionSnapshot(offset, None if is_empty else (data,))
