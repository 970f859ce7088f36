"""An application over a file, as `slackline run` runs it: the one place where benchmarks name parts of the runtime."""

from __future__ import annotations

import asyncio
from pathlib import Path

import slackline as sl
from slackline.connectors import FolderSink
from slackline.connectors.addresses import open_sources
from slackline.runtime import KeyedEngines, RecordSchema, Worker


def run_over(hierarchy: sl.Hierarchy, source: Path, target: Path, key: str | None = None) -> None:
    """From a file or a folder of files to an empty folder, with checkpoints; event times are microseconds."""
    engines = KeyedEngines(hierarchy, keyed=key is not None)
    worker = Worker(engines, open_sources([str(source)]), FolderSink(target), RecordSchema(unit="us", key=key))
    asyncio.run(worker.run())
