"""Ordering throughput and memory on simulated positions, on one core.

    slackline bench ordering --json

prints, in events per second, ``argsort_rate`` (a stable NumPy argsort of all time stamps), ``slack_rate`` and
``auto_rate`` (the engine, chunks of 10,000 rows, one columnar detector), ``interleaved_slack_rate`` and
``interleaved_auto_rate`` (the same with two types, every second source of the other, in runs of about two rows, and a
detector with ``merged = True``), ``runs_slack_rate`` and ``runs_auto_rate`` (the same, a batch for each run),
``single_event_rate`` (pushes of one event, one detector), ``heap_rate`` (a reorder buffer in plain Python,
:func:`_baselines.heap_us`); ``slack_ratio``, ``auto_ratio`` and those of interleaved types to the argsort,
``single_event_ratio`` to the heap; ``peak_mb_2m`` and ``peak_mb_20m`` (peak memory of a fresh process that streams so
many events through `auto`) and ``memory_ratio``. Rates are by CPU time, the best of ``repeats`` rounds; the rounds of
all kinds take turns, so that a busy machine disturbs all alike. Compilation is not measured.

A batch is a run of one type unless the detector asks for merged types: interleaved types make short batches then, each
with a call of the detector.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

import slackline as sl
from _baselines import cpu_seconds, heap_us
from _figures import parser, print_figures
from scenarios.positions import position_chunks, positions

SEED = 20
SECONDS = 65
CHUNK = 10_000
SINGLE = 200_000
EVENTS_PER_SECOND = 36_000


class Batches(sl.Detector):
    """Looks at every position, column by column, and publishes nothing."""

    listens = ("position",)
    publishes = ()

    def __init__(self) -> None:
        self.seen = 0

    def on_batch(self, batch: Any) -> Iterator[Any]:
        self.seen += len(batch)
        return iter(())


class Runs(Batches):
    """The same for two types, in runs of one type."""

    listens = ("position", "other")  # type: ignore[assignment]


class Interleaved(Runs):
    """The same, both types in one batch."""

    merged = True


class Singles(sl.Detector):
    """Looks at every position, one by one, and publishes nothing."""

    listens = ("position",)
    publishes = ()

    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.seen += 1
        return iter(())


def main(argv: list[str] | None = None) -> int:
    asked = parser("ordering", __doc__)
    asked.add_argument("--seconds", type=float, default=SECONDS, help="length of the simulated session")
    asked.add_argument("--repeats", type=int, default=5, help="rounds; the best counts")
    asked.add_argument("--no-memory", action="store_true", help="skip the memory figures, which take longest")
    asked.add_argument("--peak-of", type=int, metavar="EVENTS", help=argparse.SUPPRESS)
    options = asked.parse_args(argv)
    if options.peak_of is not None:
        with _one_core():
            print(json.dumps(_stream_through(options.peak_of)))
        return 0
    figures = _measure(options)
    print_figures(figures, options.json)
    return 0


@contextmanager
def _one_core() -> Iterator[None]:
    """Everything inside, and every process started there, shares one core."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        pa.set_cpu_count(threads)
        if cores:
            os.sched_setaffinity(0, cores)


def _measure(options: argparse.Namespace) -> dict[str, float]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("simulating", total=9 * options.repeats + (0 if options.no_memory else 11))

        def step(name: str, done: int = 0) -> None:
            bar.update(task, description=name, advance=done)

        figures = rates(options.seconds, options.repeats, step=step)
        if not options.no_memory:
            with _one_core():
                figures |= _memory(step)
    return figures


def rates(
    seconds: float, repeats: int, singles: int = SINGLE, step: Callable[..., None] = lambda *_: None
) -> dict[str, float]:
    """Rates and ratios of a session of so many seconds, on one core; ``singles`` events are pushed one by one."""
    with _one_core():
        return _rates(seconds, repeats, singles, step)


def _rates(seconds: float, repeats: int, single: int, step: Callable[..., None]) -> dict[str, float]:
    step("simulating")
    table = positions(seconds=seconds, seed=SEED, type="position")
    ts = table["ts"].to_numpy()
    chunks, interleaved = _chunks(table), _chunks(_interleaved(table))
    singles = [[event] for event in _events(table.slice(0, single))]
    kinds: dict[str, tuple[int, Callable[[], float]]] = {
        "argsort_rate": (len(ts), lambda: cpu_seconds(lambda: np.argsort(ts, kind="stable"))),
        "slack_rate": (len(ts), lambda: _pushed(Batches(), "slack", chunks)),
        "auto_rate": (len(ts), lambda: _pushed(Batches(), "auto", chunks)),
        "interleaved_slack_rate": (len(ts), lambda: _pushed(Interleaved(), "slack", interleaved)),
        "interleaved_auto_rate": (len(ts), lambda: _pushed(Interleaved(), "auto", interleaved)),
        "runs_slack_rate": (len(ts), lambda: _pushed(Runs(), "slack", interleaved)),
        "runs_auto_rate": (len(ts), lambda: _pushed(Runs(), "auto", interleaved)),
        "single_event_rate": (len(singles), lambda: _pushed(Singles(), "auto", singles)),
        "heap_rate": (1_000_000, heap_us),
    }
    # Warm-up: compiles and touches everything once.
    for policy in ("slack", "auto"):
        _pushed(Batches(), policy, chunks[:5])
        _pushed(Interleaved(), policy, interleaved[:5])
        _pushed(Runs(), policy, interleaved[:5])
        _pushed(Singles(), policy, singles[:2_000])
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(repeats):
        for name, (_, run) in kinds.items():
            step(name.removesuffix("_rate"))
            best[name] = min(best[name], run())
            step(name.removesuffix("_rate"), 1)
    rates = {name: round(events / best[name], 1) for name, (events, _) in kinds.items()}
    against = dict.fromkeys(
        ("slack", "auto", "interleaved_slack", "interleaved_auto", "runs_slack", "runs_auto"), "argsort"
    )
    against["single_event"] = "heap"
    return rates | {f"{ours}_ratio": rates[f"{ours}_rate"] / rates[f"{other}_rate"] for ours, other in against.items()}


def _chunks(table: pa.Table) -> list[pa.Table]:
    return [table.slice(start, CHUNK) for start in range(0, len(table), CHUNK)]


def _interleaved(table: pa.Table) -> pa.Table:
    """The positions of every second source as another type."""
    sources = table["source"].to_numpy()
    kinds = pa.DictionaryArray.from_arrays(pa.array(sources % 2, pa.int8()), ["position", "other"])
    return table.set_column(table.column_names.index("type"), "type", kinds)


def _pushed(detector: Batches | Singles, policy: str, pushes: list[Any]) -> float:
    """Seconds to push everything through a fresh engine; checks that they got through."""
    engine = sl.Engine(sl.Hierarchy([detector], clock=detector.listens[:1]), policy=policy)

    def work() -> None:
        for rows in pushes:
            engine.push(rows)
            engine.drain()
        engine.close()

    seconds = cpu_seconds(work)
    pushed = sum(len(rows) for rows in pushes)
    # While K is still unknown some come late; after that next to none.
    if not 0.99 * pushed - 5_000 <= detector.seen <= pushed:
        raise RuntimeError(f"{policy}: {pushed} events were pushed, but the detector saw {detector.seen}.")
    return seconds


def _events(table: pa.Table) -> list[sl.Event]:
    payload = ["x", "y", "z"]
    return [
        sl.Event(row["type"], row["ts"], row["source"], row["seq"], **{name: row[name] for name in payload})
        for row in table.to_pylist()
    ]


def _memory(step: Callable[..., None]) -> dict[str, float]:
    """Peaks of fresh processes, so that neither run sees the other's memory."""
    peaks = {}
    for name, millions in (("peak_mb_2m", 2), ("peak_mb_20m", 20)):
        step(f"{millions} M events")
        command = [sys.executable, str(Path(__file__).resolve()), "--peak-of", str(millions * 1_000_000)]
        path = os.pathsep.join([str(Path(sl.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        peaks[name] = round(json.loads(done.stdout)["peak_mb"], 1)
        step(name, millions // 2)
    return peaks | {"memory_ratio": round(peaks["peak_mb_20m"] / peaks["peak_mb_2m"], 3)}


def _stream_through(events: int) -> dict[str, float]:
    """Stream so many simulated events through `auto` and say how much memory that took at most."""
    detector = Batches()
    engine = sl.Engine(sl.Hierarchy([detector], clock="position"), policy="auto")
    for chunk in position_chunks(seconds=events / EVENTS_PER_SECOND, seed=SEED, rows=CHUNK, type="position"):
        engine.push(chunk)
        engine.drain()
    engine.close()
    return {"seen": detector.seen, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Peak resident memory of this process alone.

    Linux hands ``ru_maxrss`` on to a started process, so that it would tell the peak of its parent; the
    high-water mark of the address space starts afresh.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    raise SystemExit(main())
