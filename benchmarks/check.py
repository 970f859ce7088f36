"""Performance regression gate: figures of other benchmarks in a short form, compared with the committed ones.

    slackline bench check

measures ``ordering``, ``events``, ``detectors``, ``soccer`` (embedded), ``run``, ``migrate`` and ``spark`` within 6
minutes on two cores, compares them with ``benchmarks/ratios.json``, prints a table and exits with 1 if a figure fell.

A figure is one of two kinds:

- **ratio**: Slackline against a program without Slackline (a NumPy argsort, a heap or a loop in plain Python, a script
  with the ``csv`` module, a plain stateful processor on Spark), both measured in the same run in turns, the best of
  several rounds each. A ratio fell if it is worse than the committed one by more than its bound, which is the larger of
  5 % and the spread recorded with it. A part with a fallen ratio is measured up to 2 more times while the 6 minutes
  last, and the best counts.
- **exact**: a count or a virtual time that repeats to the bit. It fell if it is worse at all.

A committed figure that is no longer measured is a failure, too. Times are CPU times, except on Spark. Each part runs in
a process of its own.

``--update`` measures each part 3 times and writes the median, and as spread the largest minus the smallest over the
median. Update on a quiet machine, and commit the file together with the change that explains it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import slackline
from slackline.core.errors import ConfigError, SlacklineError

FOLDER = Path(__file__).resolve().parent
COMMITTED = FOLDER / "ratios.json"
TOLERANCE = 0.05
#: A spread above this makes a bound that lets real regressions pass; ``--update`` warns.
WIDE = 0.10
LIMIT_SECONDS = 360.0
RETRIES = 2
REPEATS = 3
SPARK_BATCH = 600_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that is measured.

    ``name`` starts with the part that gives it; ``better`` is ``"higher"`` or ``"lower"``; ``kind`` is ``"ratio"`` or
    ``"exact"``.
    """

    name: str
    better: str
    kind: str
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A figure beside the committed one.

    ``change`` is relative, positive if better, None without two values or if the committed one is 0. ``verdict`` is
    ``within``, ``fell``, ``improved``, ``missing`` (committed, but not measured) or ``new`` (measured, but not
    committed). ``bound`` is the relative loss that is accepted, and ``bound_by`` why: ``tolerance``, ``spread`` or
    ``exact``.
    """

    name: str
    kind: str
    committed: float | None
    now: float | None
    change: float | None
    bound: float
    bound_by: str
    verdict: str

    @property
    def failed(self) -> bool:
        return self.verdict in ("fell", "missing")


def judge(name: str, committed: Mapping[str, Any] | None, now: float | None) -> Verdict:
    """Compare a figure with the committed entry of the same name."""
    if committed is None:
        return Verdict(name, "ratio", None, now, None, TOLERANCE, "tolerance", "new")
    kind, was = committed["kind"], committed["value"]
    if kind == "exact":
        bound, bound_by = 0.0, "exact"
    elif committed["spread"] > TOLERANCE:
        bound, bound_by = committed["spread"], "spread"
    else:
        bound, bound_by = TOLERANCE, "tolerance"
    if now is None:
        return Verdict(name, kind, was, None, None, bound, bound_by, "missing")
    gain = now - was if committed["better"] == "higher" else was - now
    accepted = bound * abs(was)
    verdict = "fell" if gain < -accepted else "improved" if gain > accepted else "within"
    change = gain / abs(was) if was else None
    return Verdict(name, kind, was, now, change, bound, bound_by, verdict)


def compare(committed: Mapping[str, Mapping[str, Any]], measured: Mapping[str, float]) -> list[Verdict]:
    """Verdicts of all figures, those of the committed file first."""
    names = [*committed, *(name for name in measured if name not in committed)]
    return [judge(name, committed.get(name), measured.get(name)) for name in names]


def best_of(better: Mapping[str, str], one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The better value of each figure in two measurements of one part."""
    return {name: (max if better[name] == "higher" else min)(one[name], other[name]) for name in one}


def summary(figure: Figure, values: list[float]) -> dict[str, Any]:
    """The entry of the committed file for repeated measurements of a figure."""
    value = statistics.median(values)
    spread = (max(values) - min(values)) / abs(value) if value else 0.0
    if figure.kind == "exact" and max(values) != min(values):
        raise SlacklineError(
            f"{figure.name} is declared exact, but {len(values)} measurements gave {values}. Find what makes them "
            f"differ, or declare it a ratio in {Path(__file__).name}."
        )
    return {
        "value": float(f"{value:.4g}") if figure.kind == "ratio" else value,
        "better": figure.better,
        "kind": figure.kind,
        "what": figure.what,
        "spread": round(spread, 4),
    }


# --- what is measured ---------------------------------------------------------------------------------------------


def _ordering(bench: Any) -> dict[str, float]:
    figures = bench.rates(seconds=20, repeats=8, singles=40_000)
    return {name: figures[f"{name}_ratio"] for name in ("slack", "auto", "single_event")}


def _events(bench: Any) -> dict[str, float]:
    figures = bench.rates(events=50_000, single=10_000, repeats=8)
    return {name: figures[f"{name}_ratio"] for name in ("push_list", "push_one", "table_event")}


def _detectors(bench: Any) -> dict[str, float]:
    figures = bench.run(rounds=16)
    return {
        f"{way}_{n}": figures[f"{way}_{n}_ratio"] * figures[f"{way}_us"] / figures["heap_us"]
        for way, n in (("one_type", 200), ("in_turn", 20), ("in_turn", 200))
    }


def _soccer(bench: Any) -> dict[str, float]:
    figures = bench.run(json=True, repeats=5, spark=False, seconds=20.0)
    return {"queries": figures["queries_ratio"], "late_share": figures["late_share"]}


def _run(bench: Any) -> dict[str, float]:
    figures = bench.run(rows=50_000, rounds=4)
    ways = ("csv", "jsonl", "parquet", "keyed", "bad", "side_by_side")
    script = figures["script_ratio"]
    return {"engine": 1 / script} | {way: figures[f"{way}_ratio"] / script for way in ways}


def _migrate(bench: Any) -> dict[str, float]:
    match = bench.Benchmark(12.0, bench.SEED)
    figures = bench.cooperative(match, lambda _, *arguments, **options: match.play(*arguments, **options))
    return {
        "handovers": figures["handovers"],
        "net_equal": int(figures["net_equal"]),
        "misdetections": figures["misdetections_cooperative"],
        "forwarded": figures["forwarded_cooperative"],
        "late": figures["late_cooperative"],
        "mean_added_ms": round(figures["mean_added_latency_ms"], 6),
        "max_added_ms": round(figures["max_added_latency_ms"], 6),
    }


def _spark(bench: Any) -> dict[str, float]:
    figures = bench.run(json=True, events=5 * SPARK_BATCH, batches=5, rounds=2)
    return {"rows": figures["best_ratio"]}


#: How a part is measured: a function of the benchmark's module that gives figures by name, without the part.
PARTS: dict[str, Callable[[Any], dict[str, float]]] = {
    "ordering": _ordering,
    "events": _events,
    "detectors": _detectors,
    "soccer": _soccer,
    "run": _run,
    "migrate": _migrate,
    "spark": _spark,
}

_HEAP = "over that of a heap in plain Python"
_LOOP = "over those of a plain loop over sorted rows that makes the same events and calls the same method"
_SCRIPT = "over that of a script with the csv module that only sorts"

FIGURES = (
    Figure("ordering.slack", "higher", "ratio", "Events/s under slack in chunks over a stable NumPy argsort's."),
    Figure("ordering.auto", "higher", "ratio", "Events/s under auto in chunks over a stable NumPy argsort's."),
    Figure("ordering.single_event", "higher", "ratio", f"Events/s pushed one by one {_HEAP}."),
    Figure("events.push_list", "higher", "ratio", f"Events/s to on_event, pushed in lists of 1,000, {_LOOP}."),
    Figure("events.push_one", "higher", "ratio", f"Events/s to on_event, pushed one by one, {_LOOP}."),
    Figure("events.table_event", "higher", "ratio", f"Events/s to on_event, pushed as tables, {_LOOP}."),
    Figure(
        "detectors.one_type_200", "lower", "ratio", f"CPU of a single event among 200 detectors, one type, {_HEAP}."
    ),
    Figure(
        "detectors.in_turn_20", "lower", "ratio", f"CPU of a single event among 20 detectors, types in turn, {_HEAP}."
    ),
    Figure("detectors.in_turn_200", "lower", "ratio", f"CPU of a single event among 200 detectors, in turn, {_HEAP}."),
    Figure("soccer.queries", "higher", "ratio", "Positions/s of ordering and four queries over a stable argsort's."),
    Figure("soccer.late_share", "lower", "exact", "Share of the positions of a simulated match that are late."),
    Figure("run.engine", "lower", "ratio", f"CPU of the engine with a table of rows {_SCRIPT}."),
    Figure("run.csv", "lower", "ratio", f"CPU of `slackline run` over a CSV file {_SCRIPT}."),
    Figure("run.jsonl", "lower", "ratio", f"CPU of `slackline run` over JSON lines {_SCRIPT}."),
    Figure("run.parquet", "lower", "ratio", f"CPU of `slackline run` over a Parquet file {_SCRIPT}."),
    Figure("run.keyed", "lower", "ratio", f"CPU of `slackline run` over a CSV file with 20 keys {_SCRIPT}."),
    Figure("run.bad", "lower", "ratio", f"CPU of `slackline run` over a CSV file with malformed lines {_SCRIPT}."),
    Figure("run.side_by_side", "lower", "ratio", f"CPU of `slackline run` over four CSV files {_SCRIPT}."),
    Figure("migrate.handovers", "higher", "exact", "Handovers that were completed."),
    Figure("migrate.net_equal", "higher", "exact", "1 if all nodes together detected what one engine detects, else 0."),
    Figure("migrate.misdetections", "lower", "exact", "Passes that are wrong or missing after migrations."),
    Figure("migrate.forwarded", "lower", "exact", "Packets forwarded during handovers."),
    Figure("migrate.late", "lower", "exact", "Late events of the network with migrations."),
    Figure(
        "migrate.mean_added_ms", "lower", "exact", "Mean virtual time that migrations add to the latency of a pass."
    ),
    Figure(
        "migrate.max_added_ms", "lower", "exact", "Largest virtual time that migrations add to the latency of a pass."
    ),
    Figure(
        "spark.rows", "higher", "ratio", "Rows/s of detect over those of a plain stateful processor that only sorts."
    ),
)


def figures_of(parts: Iterable[str]) -> dict[str, Figure]:
    """The declared figures of some parts, by name."""
    chosen = set(parts)
    return {figure.name: figure for figure in FIGURES if figure.name.partition(".")[0] in chosen}


def measure_here(part: str) -> dict[str, float]:
    """Measure a part in this process; it must give exactly the figures that are declared."""
    sys.path.insert(0, str(FOLDER))
    measured = {f"{part}.{name}": value for name, value in PARTS[part](importlib.import_module(part)).items()}
    if set(measured) != set(figures_of([part])):
        raise SlacklineError(f"{part} gave {sorted(measured)}, but FIGURES declares {sorted(figures_of([part]))}.")
    return measured


def measure(part: str) -> dict[str, float]:
    """Measure a part in a process of its own."""
    path = os.pathsep.join([str(Path(slackline.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--measure", part],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise SlacklineError(f"the benchmark {part!r} failed with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


# --- the command --------------------------------------------------------------------------------------------------


class Run:
    """One call of the command: measures parts and reports progress on stderr."""

    def __init__(self, parts: list[str], quiet: bool, measure: Callable[[str], dict[str, float]] = measure) -> None:
        self.parts = parts
        self._measure = measure
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._start = time.monotonic()

    def seconds(self) -> float:
        """How long this run has taken so far."""
        return time.monotonic() - self._start

    def check(self, committed: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
        """Measure all parts once, those with a fallen ratio again, and compare."""
        measured: dict[str, float] = {}
        took: dict[str, float] = {}
        for part in self.parts:
            before = self.seconds()
            measured |= self._one(part, f"[{len(took) + 1}/{len(self.parts)}]")
            took[part] = self.seconds() - before
        for attempt in range(1, RETRIES + 1):
            for part in self._fallen(committed, measured):
                if self.seconds() + took[part] > LIMIT_SECONDS:
                    self._console.print(f"{part} is not measured again: {LIMIT_SECONDS:.0f} s would be exceeded")
                    continue
                again = self._one(part, f"[again {attempt}/{RETRIES}]")
                better = {name: figure.better for name, figure in figures_of([part]).items()}
                measured |= best_of(better, {name: measured[name] for name in again}, again)
        return compare(committed, measured)

    def update(self) -> dict[str, dict[str, Any]]:
        """Entries of the committed file, from repeated measurements; the repeats of a part are not adjacent."""
        figures = figures_of(self.parts)
        values: dict[str, list[float]] = {name: [] for name in figures}
        for repeat in range(REPEATS):
            for part in self.parts:
                for name, value in self._one(part, f"[repeat {repeat + 1}/{REPEATS}]").items():
                    values[name].append(value)
        entries = {name: summary(figure, values[name]) for name, figure in figures.items()}
        for name, entry in entries.items():
            if entry["spread"] > WIDE:
                self._console.print(
                    f"warning: {name} has a spread of {entry['spread']:.1%}, so smaller losses will not be noticed; "
                    f"run --update --only {name.partition('.')[0]} again on a quiet machine",
                    soft_wrap=True,
                )
        return entries

    def _one(self, part: str, label: str) -> dict[str, float]:
        before = self.seconds()
        self._console.print(f"{label} {part} …", end=" ", markup=False)
        measured = self._measure(part)
        self._console.print(f"{self.seconds() - before:.0f} s")
        return measured

    def _fallen(self, committed: Mapping[str, Mapping[str, Any]], measured: Mapping[str, float]) -> list[str]:
        fallen = {v.name.partition(".")[0] for v in compare(committed, measured) if v.failed and v.kind == "ratio"}
        return [part for part in self.parts if part in fallen]


def read_committed(parts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The committed figures of some parts."""
    chosen = set(parts)
    if not COMMITTED.exists():
        raise ConfigError(f"{COMMITTED} does not exist. Create it with `slackline bench check --update`.")
    entries: dict[str, dict[str, Any]] = json.loads(COMMITTED.read_text("utf-8"))
    return {name: entry for name, entry in entries.items() if name.partition(".")[0] in chosen}


def write_committed(entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the entries of these names, keep the others that are declared, in the order of the declaration."""
    kept = read_committed(PARTS) if COMMITTED.exists() else {}
    merged = {figure.name: entries.get(figure.name, kept.get(figure.name)) for figure in FIGURES}
    text = json.dumps({name: entry for name, entry in merged.items() if entry is not None}, indent=2)
    COMMITTED.write_text(text + "\n", "utf-8")


def _rows(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, ...]]:
    for v in verdicts:
        limit = {"exact": "exact", "tolerance": f"{v.bound:.0%}", "spread": f"{v.bound:.1%} (spread)"}[v.bound_by]
        committed, now = ("–" if value is None else f"{value:.4g}" for value in (v.committed, v.now))
        yield v.name, committed, now, "–" if v.change is None else f"{v.change:+.1%}", limit, v.verdict


def show(verdicts: list[Verdict], seconds: float) -> None:
    """The table, and what follows from it."""
    table = Table("figure", "committed", "now", "change (+ is better)", "bound", "verdict")
    for row, verdict in zip(_rows(verdicts), verdicts, strict=True):
        table.add_row(*row, style={"fell": "red", "missing": "red", "improved": "green"}.get(verdict.verdict))
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(table)
    wide = [v.name for v in verdicts if v.bound_by == "spread"]
    if wide:
        console.print(f"Bound by their recorded spread instead of {TOLERANCE:.0%}: {', '.join(wide)}.")
    improved = [v.name for v in verdicts if v.verdict in ("improved", "new")]
    if improved:
        console.print(f"Improved or new: {', '.join(improved)}. Record with `slackline bench check --update`.")
    failed = [v.name for v in verdicts if v.failed]
    result = f"fell or missing: {', '.join(failed)}" if failed else "no figure fell"
    console.print(f"{len(verdicts)} figures in {seconds:.0f} s: {result}.")


def main(argv: list[str] | None = None) -> int:
    about = (__doc__ or "").replace("    slackline bench check\n\n", "").replace("``", "").replace("**", "")
    asked = argparse.ArgumentParser(
        prog="slackline bench check", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--json", action="store_true", help="print one JSON object only")
    asked.add_argument("--only", action="append", choices=list(PARTS), metavar="NAME",
                       help=f"measure this part only, may be repeated; one of {', '.join(PARTS)}")  # fmt: skip
    asked.add_argument("--update", action="store_true", help=f"measure {REPEATS} times and rewrite {COMMITTED.name}")
    asked.add_argument("--measure", choices=list(PARTS), help=argparse.SUPPRESS)
    options = asked.parse_args(argv)
    if options.measure:
        print(json.dumps(measure_here(options.measure)))
        return 0
    parts = [part for part in PARTS if options.only is None or part in options.only]
    run = Run(parts, quiet=options.json)
    if options.update:
        entries = run.update()
        write_committed(entries)
        print(json.dumps(entries) if options.json else f"{len(entries)} figures written to {COMMITTED}.")
        return 0
    verdicts = run.check(read_committed(parts))
    failed = any(verdict.failed for verdict in verdicts)
    if options.json:
        print(json.dumps({"ok": not failed, "seconds": run.seconds(), "figures": [asdict(v) for v in verdicts]}))
    else:
        show(verdicts, run.seconds())
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
