"""Columns from end to end: top speeds from thousands of positions a second, without one Python object per position.

The positions come as pyarrow tables, out of order. A batch detector gets them in order, as NumPy columns. Run it with
`python examples/03_columnar.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import slackline as sl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the simulated stream is

from scenarios.positions import position_chunks

#: Declared fields only: the other columns of the table (its arrival times) are not carried along.
POSITION = sl.EventType("position", x="float32", y="float32", z="float32")


class TopSpeed(sl.Detector):
    """Publishes a `record` whenever a source is faster, in whole metres per second, than it ever was."""

    listens = (POSITION,)
    publishes = ("record",)

    def __init__(self) -> None:
        self.positions = 0
        self.last: dict[int, tuple[int, np.ndarray]] = {}  # per source: time stamp and place
        self.best: dict[int, int] = {}

    def on_batch(self, batch: sl.Batch) -> Iterator[tuple[int, sl.Event]]:
        self.positions += len(batch)
        ts, source = batch.ts, batch.source
        place = np.stack([batch["x"], batch["y"], batch["z"]], axis=1).astype(np.float64)
        for who in np.unique(source).tolist():
            rows = np.flatnonzero(source == who)
            # A run may end anywhere, so the last position of the run before is where this one starts.
            before = self.last.get(who, (int(ts[rows[0]]), place[rows[0]]))
            seconds = np.diff(ts[rows], prepend=before[0]) / 1e6
            metres = np.linalg.norm(np.diff(place[rows], axis=0, prepend=before[1][None]), axis=1)
            speed = np.divide(metres, seconds, out=np.zeros_like(metres), where=seconds > 0)
            yield from self._records(who, rows, speed.astype(np.int64), ts)
            self.last[who] = int(ts[rows[-1]]), place[rows[-1]]

    def _records(self, who: int, rows: np.ndarray, speed: np.ndarray, ts: np.ndarray) -> Iterator[tuple[int, sl.Event]]:
        best = np.maximum.accumulate(np.concatenate(([self.best.get(who, 0)], speed)))
        for i in np.flatnonzero(np.diff(best) > 0).tolist():
            row = int(rows[i])
            yield row, sl.Event("record", ts=int(ts[row]), player=who, speed=int(best[i + 1]))
        self.best[who] = int(best[-1])


def run(rows: int) -> tuple[list[sl.Output], sl.Engine]:
    """Two seconds of two balls and twenty players, in tables of so many rows."""
    # Players send packets of ten, 20 times a second. In the first 2000 arrivals, a quarter of a second, all of them
    # appear; the default warm-up of 32 arrivals would be over before the first packet has come.
    engine = sl.Engine(sl.Hierarchy([TopSpeed()]), policy=sl.Auto(warmup=2_000))
    outputs: list[sl.Output] = []
    for table in position_chunks(seconds=2, seed=3, ball_sources=2, other_sources=20, type="position", rows=rows):
        outputs += engine.push(table)
    return outputs + engine.close(), engine


def main() -> None:
    outputs, engine = run(rows=5_000)
    detector = engine.detectors["TopSpeed"]
    stats = engine.stats()["detectors"]["TopSpeed"]
    fastest = max(outputs, key=lambda output: output.event["speed"]).event
    print(f"positions: {detector.positions}, late: {stats['late']}, sources: {len(detector.best)}")
    print(f"records: {len(outputs)}, the fastest: source {fastest['player']} with {fastest['speed']} m/s")
    again, _ = run(rows=700)
    print(f"the same in tables of 700 rows: {again == outputs}")


if __name__ == "__main__":
    main()
