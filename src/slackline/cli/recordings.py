"""A recorded stream of any hierarchy, read as ``slackline run`` reads it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from slackline.connectors.files import FileSource
from slackline.core.errors import SlacklineError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.forms import quickest
from slackline.runtime.keyed import places_by_key, rows_at
from slackline.runtime.schema import Decoder, RecordSchema


class Recording:
    """The arrivals of a file, in pieces as an engine takes them; by key, if the schema has one.

    ``decoder`` says how the records were read.
    """

    def __init__(self, path: Path, hierarchy: Hierarchy, schema: RecordSchema) -> None:
        self.decoder = Decoder(schema, hierarchy)
        self.by_key: dict[Any, list[Any]] = {}
        self._types = tuple(hierarchy.types[name] for name in hierarchy.sensor_types if name in hierarchy.types)
        asyncio.run(self._read(path))

    async def _read(self, path: Path) -> None:
        source = FileSource(path)
        records = 0
        async for batch in source.batches():
            rows, keys, bad = self.decoder.decode(batch, None, records + 1)
            records += len(batch)
            self.decoder.check_fields(path.name)
            if bad:
                raise SlacklineError(
                    f"{path.name}, {bad[0].place}: {bad[0].reason}. Repair or remove such records of the recording."
                )
            if keys is None:
                self.by_key.setdefault(None, []).append(quickest(rows, self._types))
                continue
            places_of, without = places_by_key(keys)
            for key, places in without:
                number = records - len(batch) + int(np.asarray(places)[0]) + 1
                raise SlacklineError(
                    f"{path.name}, record {number}: the key is {key!r}; a key is text or a whole number."
                )
            for key, places in places_of.items():
                self.by_key.setdefault(key, []).append(quickest(rows_at(rows, places), self._types))
        if not self.by_key:
            raise SlacklineError(f"{path} holds no events. Give a file with at least one record.")

    @property
    def pieces(self) -> Any:
        """The recording as :func:`slackline.calibration.calibrate` takes it."""
        return {key: (lambda parts=parts: parts) for key, parts in self.by_key.items()}
