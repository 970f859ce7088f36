"""An application over a file, as `slackline run` runs it: the one place where benchmarks name parts of the runtime."""

from __future__ import annotations

import asyncio
from pathlib import Path

import slackline as sl
from slackline.connectors.runhost import RunHost
from slackline.connectors.sources import open_sources
from slackline.connectors.targets import FolderTarget
from slackline.runtime.roles import Roles
from slackline.runtime.sites import Sites


def run_over(hierarchy: sl.Hierarchy, source: Path, target: Path, key: str | None = None) -> None:
    """From a file or a folder of files to an empty folder, with checkpoints; timestamps are microseconds."""
    roles = Roles(unit="us", key=key)
    sites, sources = Sites(hierarchy, keyed=key is not None), open_sources([str(source)], hierarchy, roles, False)
    asyncio.run(RunHost(sites, sources, FolderTarget(target), roles).run())
