"""One application and one recorded excerpt of a match, which every runtime gets (law 11)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from slackline import Auto, Hierarchy
from slackline.runtime.keyed import KeyedEngines
from slackline.runtime.schema import Decoder, RecordSchema
from slackline_soccer import Simulation, match_hierarchy, simulate

APP = f"{Path(__file__)}:hierarchy"
#: Length of the excerpt: 36,000 positions a second, out of order.
SECONDS = 2.0
SCHEMA = {"key": "match", "source": "sid", "unit": "us"}
#: No position is late with it: it may be so for a detector in one runtime, and where it enters in another.
POLICY = Auto(warmup=15_000, margin=0.5)
ENGINE = ("--engine", "policy=auto", "--engine", "warmup=15000", "--engine", "margin=0.5")
#: The command line of it all, but for the keys.
ARGUMENTS = ("--source", "sid", "--unit", "us", *ENGINE)


@cache
def simulation() -> Simulation:
    return simulate(SECONDS, seed=7)


def hierarchy() -> Hierarchy:
    """All detectors and queries."""
    return match_hierarchy(simulation().match)


def rows() -> list[dict[str, Any]]:
    """The excerpt in the order of arrival."""
    found = simulation().table().drop_columns(["arrival"]).to_pylist()
    return [{"type": "position", "match": "m"} | row for row in found]


def write(path: Path) -> Path:
    """The excerpt, a record per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


@cache
def embedded() -> list[dict[str, Any]]:
    """The records of engines in this process."""
    engines = KeyedEngines(hierarchy(), {"policy": POLICY})
    events, keys, bad = Decoder(RecordSchema(**SCHEMA), hierarchy()).decode(rows())
    found = [*engines.push(events, keys), *engines.flush("stop")]
    assert not bad and {record.kind for record in found} == {"event"}
    assert {"near", "hit", "possession", "heatmap"} <= {record.type for record in found}
    return [json.loads(record.json()) for record in found]


def comparable(records: Iterable[dict[str, Any]], *without: str) -> list[str]:
    """Records as text, in order of their ids, without the marks of what was flushed at the end."""
    dropped = ("flushed", "delayed", *without)
    bare = ({k: v for k, v in one.items() if v is not None and k not in dropped} for one in records)
    return [json.dumps(one, sort_keys=True) for one in sorted(bare, key=lambda one: one["id"])]
