"""An application for tests of `slackline run`, and arrivals for it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slackline import Detector, Event, Hierarchy


class Steps(Detector):
    """Tells how far each value is from the one before."""

    listens, publishes = ("at",), ("step",)

    def __init__(self) -> None:
        self.last = 0

    def on_event(self, event: Event) -> Iterable[Event]:
        step, self.last = event["x"] - self.last, event["x"]
        yield event.derive("step", by=step)


def steps() -> Hierarchy:
    return Hierarchy([Steps()], clock="at")


hierarchy = steps()


def records(n: int = 400, keys: int = 5, seed: int = 3) -> list[dict[str, Any]]:
    """Records of vans, shuffled a little."""
    chance = random.Random(seed)
    made = []
    for at in range(n):
        record = {"ts": 1000 * at, "van": f"v{at % keys}", "x": chance.randrange(100), "seq": at}
        made.append((at + chance.randrange(8), at, record))
    return [record for *_, record in sorted(made, key=lambda each: each[:2])]


def write_records(path: Path, found: Iterable[dict[str, Any]]) -> Path:
    """As JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in found))
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
