"""Keyed detectors: what a million keys cost in memory, and per event beside a single key, on one core.

    slackline bench keyed_detectors --json

A keyed detector with ``on_event`` and one small attribute, pushed tables of one event per key, in random order of keys.
Prints ``keys_1m_bytes_per_key`` (memory allocated per key, less that of a plain object with the same attribute) and
``keys_1m_slowdown`` (CPU time per event with that many keys over that with one key; all keys are known, best of
``repeats`` rounds that take turns).

    slackline bench keyed_detectors --spark --json

The same detector in :func:`slackline.spark.detect`, two cores: micro-batches of ``SPARK_ROWS`` rows in one engine, with
``SPARK_KEYS`` keys of four rows each, and with one key. Prints ``spark_many_s`` and ``spark_one_s``, the CPU time that
all processes spend on a micro-batch (median of those after the first two), and ``spark_keys_ratio``.
"""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import slackline as sl
from _baselines import cpu_seconds
from _figures import parser, print_figures

SEED = 26
KEYS = 1_000_000
SPARK_KEYS, SPARK_ROWS, SPARK_BATCHES = 100_000, 400_000, 5


class Count(sl.Detector):
    """Counts the events of each device."""

    listens, publishes, key = ("beat",), ("many",), "device"

    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, event: sl.Event) -> Any:
        self.seen += 1


class Plain:
    """An object with the same attribute."""

    def __init__(self) -> None:
        self.seen = 0


def tables(keys: int, events: int, rounds: int) -> list[pa.Table]:
    """Tables of events in order, each with all keys in random order."""
    rng = np.random.default_rng(SEED)
    made = []
    for nth in range(rounds):
        ts = np.arange(nth * events, (nth + 1) * events)
        made.append(pa.table({"ts": ts, "source": pa.array(["s"] * events), "device": rng.permutation(events) % keys}))
    return made


def bytes_per_key(keys: int) -> float:
    """Memory per key beside Python's own object."""
    (table,) = tables(keys, keys, 1)
    engine = sl.Engine(sl.Hierarchy([Count()]), policy="ordered")
    engine.push(table.slice(0, 1_000))  # what the first push compiles and caches is not counted
    tracemalloc.start()
    engine.push(table.slice(1_000))
    gc.collect()
    allocated = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del engine
    tracemalloc.start()
    objects = [Plain() for _ in range(keys)]
    own = tracemalloc.get_traced_memory()[0] - 8 * len(objects)
    tracemalloc.stop()
    return (allocated - own) / keys


def slowdown(keys: int, repeats: int) -> float:
    """Time per event with many keys over that with one."""
    rounds = {n: tables(n, keys, repeats + 1) for n in (1, keys)}
    engines = {n: sl.Engine(sl.Hierarchy([Count()]), policy="ordered") for n in rounds}
    for n, given in rounds.items():
        engines[n].push(given[0])
    best = dict.fromkeys(rounds, float("inf"))
    for nth in range(1, repeats + 1):
        for n, given in rounds.items():
            best[n] = min(best[n], cpu_seconds(partial(engines[n].push, given[nth])))
    return best[keys] / best[1]


def on_spark(keys: int = SPARK_KEYS, rows: int = SPARK_ROWS, batches: int = SPARK_BATCHES) -> dict[str, float]:
    """CPU time of a micro-batch with many keys and with one."""
    from keys import _cost, _stream
    from slackline.spark import detect, session

    class Counter(sl.Detector):
        """Counts the events of each device. Made here, it is shipped by value."""

        listens, publishes, key = ("beat",), ("many",), "device"

        def __init__(self) -> None:
            self.seen = 0

        def on_event(self, event: sl.Event) -> Any:
            self.seen += 1

    cpu: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="slackline-bench-") as folder:
        for name, count in (("many", keys), ("one", 1)):
            (Path(folder) / name).mkdir()
            for nth in range(batches):
                pq.write_table(_shuffled(count, rows, nth), Path(folder) / name / f"{nth:03d}.parquet")
        spark = session(2, **{"spark.driver.memory": "2g"})
        try:
            for name in ("one", "many"):
                frame = _stream(spark, Path(folder) / name)
                found = detect(frame, sl.Hierarchy([Counter()]), key="all", ts="ts", arrival="arrival", source="source")
                cpu[name] = (_cost(found, Path(folder) / f"checkpoint-{name}", 1)[1] or 0.0) / 1_000
        finally:
            spark.stop()
    return {"spark_many_s": cpu["many"], "spark_one_s": cpu["one"], "spark_keys_ratio": cpu["many"] / cpu["one"]}


def _shuffled(keys: int, rows: int, nth: int) -> pa.Table:
    """A micro-batch in arrival order, up to 50 event times late: each key in turn, in random order."""
    rng = np.random.default_rng((SEED, nth))
    at = np.arange(nth * rows, (nth + 1) * rows)
    ts = at[np.argsort(at * 10 + rng.integers(0, 500, rows), kind="stable")]
    devices = np.concatenate([rng.permutation(keys) for _ in range(rows // keys)])
    columns = {"all": np.zeros(rows, np.int64), "arrival": at, "ts": ts * 10, "device": devices}
    return pa.table({**columns, "source": pa.array([f"s{number}" for number in range(4)]).take(pa.array(ts % 4))})


def figures(keys: int = KEYS, repeats: int = 3) -> dict[str, float]:
    """The figures, by name."""
    return {
        "keys_1m_bytes_per_key": round(bytes_per_key(keys), 1),
        "keys_1m_slowdown": round(slowdown(keys, repeats), 2),
    }


def main(arguments: list[str] | None = None) -> int:
    asked = parser("keyed_detectors", __doc__)
    asked.add_argument("--keys", type=int, default=KEYS, help="number of keys")
    asked.add_argument("--spark", action="store_true", help="measure detect() on Spark instead")
    asked.add_argument("--repeats", type=int, default=3, help="rounds, of which the best counts")
    given = asked.parse_args(arguments)
    found = on_spark() if given.spark else figures(given.keys, given.repeats)
    print_figures(found, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
