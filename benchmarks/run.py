"""What `slackline run` costs from a file to a folder, against the engine alone on the same rows.

    slackline bench run --json

One detector that looks at every event and finds one in a hundred; rows out of order by up to 20 places, of a fixed
seed. ``engine_us`` is CPU time per row of :meth:`slackline.Engine.push` with the table, in pieces of 4,096 rows;
``…_ratio`` is that of a run over the file, checkpoints and results included, as a multiple of it: without keys, with 20
keys (``keyed``), with malformed lines here and there (``bad``), four files side by side (``side_by_side``);
``pyarrow`` only reads the CSV file, and ``script`` does the same by hand (:func:`_baselines.csv_script`). Each is the
best of three rounds, in which all take turns.
"""

from __future__ import annotations

import json as jsonlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import slackline as sl
from _baselines import cpu_seconds, csv_script
from _figures import parser, print_figures
from _runtime import run_over

ROWS, PUSH, ROUNDS = 100_000, 4_096, 3


class Jump(sl.Detector):
    """A van that is far from where it was a moment ago."""

    listens, publishes = ("at",), ("jump",)

    def __init__(self) -> None:
        self.last = 0.0

    def on_event(self, event: sl.Event) -> Iterable[sl.Event]:
        if abs(event["km"] - self.last) > 9:
            yield event.derive("jump", km=event["km"] - self.last)
        self.last = event["km"]


HIERARCHY = sl.Hierarchy([Jump()], clock="at")


def stream(rows: int) -> pa.Table:
    chance = np.random.default_rng(7)
    order = np.argsort(np.arange(rows) + chance.integers(0, 20, rows), kind="stable")
    names = np.array([f"van{n}" for n in range(20)])
    return pa.table(
        {
            "ts": order * 1000,
            "van": names[order % 20],
            "km": np.round(chance.random(rows) * 10, 3),
            "doors": chance.integers(0, 5, rows),
        }
    )


def write(folder: Path, table: pa.Table) -> None:
    """The same rows in every form."""
    plain = pa_csv.WriteOptions(quoting_style="none")
    pq.write_table(table, folder / "in.parquet")
    pa_csv.write_csv(table, folder / "in.csv", plain)
    lines = (folder / "in.csv").read_text().splitlines(keepends=True)
    (folder / "bad.csv").write_text(
        "".join(line if n % 2_000 else f"{line}no record\n" for n, line in enumerate(lines))
    )
    (folder / "in.jsonl").write_text("".join(f"{jsonlib.dumps(row)}\n" for row in table.to_pylist()))
    (folder / "parts").mkdir()
    for n in range(4):
        pa_csv.write_csv(table.take(np.arange(n, len(table), 4)), folder / "parts" / f"{n}.csv", plain)


def into_folder(source: Path, key: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_over(HIERARCHY, source, Path(folder), key)


def push(table: pa.Table) -> None:
    engine = sl.Engine(HIERARCHY)
    for start in range(0, len(table), PUSH):
        engine.push(table.slice(start, PUSH))
    engine.close()


def run(rows: int = ROWS, rounds: int = ROUNDS) -> dict[str, float]:
    """The figures."""
    table = stream(rows)
    folder = Path(tempfile.mkdtemp())
    ways: dict[str, Callable[[], object]] = {
        "engine": lambda: push(table),
        "csv": lambda: into_folder(folder / "in.csv"),
        "jsonl": lambda: into_folder(folder / "in.jsonl"),
        "parquet": lambda: into_folder(folder / "in.parquet"),
        "keyed": lambda: into_folder(folder / "in.csv", "van"),
        "bad": lambda: into_folder(folder / "bad.csv"),
        "side_by_side": lambda: into_folder(folder / "parts"),
        "pyarrow": lambda: pa_csv.read_csv(folder / "in.csv"),
        "script": lambda: csv_script(folder / "in.csv", folder / "jumps.jsonl"),
    }
    try:
        write(folder, table)
        push(table.slice(0, PUSH))  # what must be compiled or loaded is
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(rounds):
            best = {name: min(least, cpu_seconds(ways[name])) for name, least in best.items()}
    finally:
        shutil.rmtree(folder)
    figures = {"rows": float(rows), "engine_us": best["engine"] / rows * 1e6}
    return figures | {f"{name}_ratio": best[name] / best["engine"] for name in ways if name != "engine"}


def main(argv: list[str] | None = None) -> int:
    asked = parser("run", __doc__)
    asked.add_argument("--rows", type=int, default=ROWS, help="rows of the file")
    options = asked.parse_args(argv)
    print_figures(run(options.rows), options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
