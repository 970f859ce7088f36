"""What the benchmarks compare the engine with: programs that are written by hand, without Slackline."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path
from typing import Any


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU time of this process, all threads; other processes on the same core do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def heap_us(events: int = 50_000, wait: int = 200) -> float:
    """Microseconds of CPU per event of a reorder buffer in plain Python: a heap, and a wait that is known beforehand.

    Events are tuples of type and event time, up to 15 places out of order. A dict selects the handler by type.
    """
    rows = [(f"t{i % 20}", 10 * (i - i * 7 % 16)) for i in range(events)]
    handlers = {type: (lambda row: None) for type, _ in rows[:20]}
    stream_time = -1
    buffered: list[tuple[int, int, tuple[str, int]]] = []

    def work() -> None:
        nonlocal stream_time
        for seq, row in enumerate(rows):
            ts = row[1]
            heappush(buffered, (ts, seq, row))
            if ts > stream_time:
                stream_time = ts
            while buffered and buffered[0][0] + wait <= stream_time:
                released = heappop(buffered)[2]
                handlers[released[0]](released)

    return cpu_seconds(work) / events * 1e6


def csv_script(source: Path, target: Path) -> None:
    """The application of ``bench run`` as a script: reads the whole file, sorts, detects, writes JSON lines.

    It knows neither late events, nor checkpoints, nor malformed lines.
    """
    with source.open(newline="") as file:
        rows = [(int(row["ts"]), row["van"], float(row["km"])) for row in csv.DictReader(file)]
    rows.sort()
    last = 0.0
    with target.open("w") as out:
        for ts, van, km in rows:
            if abs(km - last) > 9:
                out.write(json.dumps({"type": "jump", "ts": ts, "van": van, "km": km - last}) + "\n")
            last = km
