"""Does `auto` keep its late target, and what does that cost?

    slackline bench targets --json
    slackline bench targets ticks.csv.gz --arrival arrival_us --ts ts_us --unit us

prints ``generated``: the late share over the target (``over``, one per seed) of streams of 20 / target events
(``--length``), on average one per ms, for every target, distribution of delays, number of sources and loss, without
wall time and with it (``wall``). What happens meanwhile is ``plain``: nothing; ``regime``: from 6 / target to
12 / target events all delays are ten times as long; ``early``: the same from 2 / target to 8 / target; ``drift``: they
grow to ten times; ``bursts``: five times one of the sources is held up for 100 ms.

``recorded`` has the phones of examples/data and the files given, under each target of `slackline study`: late share,
steady late share and steady mean wait, and these: ``ratio``, the steady mean wait over that of the cheapest fixed
watermark with no larger steady late share plus one mean gap between arrivals; over the whole stream ``less``, how many
times longer the cheapest fixed watermark with no larger late share waits, and ``clairvoyant``, the mean wait over that
of one who knows the future. Waits are in the unit of the stream; watermarks are chosen with hindsight.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from slackline.core.errors import SlacklineError
from slackline.runtime import RecordSchema
from slackline.study import STEADY, PolicyResult, RecordedStream, StudyResult, load_stream, study
from slackline.study.policies import replay

Floats = NDArray[np.float64]

TARGETS = (0.001, 0.002, 0.005, 0.01)
SEEDS = 5
LENGTH = 20
GAP = 1_000
#: Delays in us.
DELAYS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "exponential": lambda rng, n: rng.exponential(5_000, n),
    "lognormal": lambda rng, n: rng.lognormal(8, 1.5, n),
    "pareto": lambda rng, n: 1_000 * (rng.pareto(1.5, n) + 1),
    "uniform": lambda rng, n: rng.uniform(0, 20_000, n),
    "mixture": lambda rng, n: rng.exponential(np.where(rng.random(n) < 0.01, 100_000, 500)),
}
CHANGES = ("plain", "regime", "early", "drift", "bursts")
#: From how many times 1 / target events on, until how many, delays are ten times as long.
LONGER = {"regime": (6, 12), "early": (2, 8)}
SOURCES = (1, 10, 500)
LOSSES = (0.0, 0.3)
BURSTS, HELD_UP = 5, 100_000
TOO_MANY = 1.5

PHONES = Path(__file__).parents[1] / "examples" / "data"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="slackline bench targets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recordings, as for `slackline study`")
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--target", type=_share, action="append", help=f"of generated streams; unless given, {TARGETS}")
    parser.add_argument("--seeds", type=_positive, default=SEEDS, help="generated streams of each kind")
    parser.add_argument(
        "--length", type=_positive, default=LENGTH, help="of generated streams, times 1 / target events"
    )
    for name in ("arrival", "ts"):
        parser.add_argument(f"--{name}", default=f"{name}_ms", help="a column of the files")
    parser.add_argument("--source", default="source", help="a column of the files")
    parser.add_argument("--type", help="a column of the files")
    parser.add_argument("--unit", choices=("us", "ms", "ns", "s"), help="of the times in the files")
    options = parser.parse_args(argv)
    phones = {"arrival": "arrival_ms", "ts": "ts_ms", "source": "source", "unit": "ms"}
    given = {name: getattr(options, name) for name in ("arrival", "ts", "source", "type", "unit")}
    # Files first: what is wrong with them should be said at once.
    streams = [(path, load_stream(path, RecordSchema(**given))) for path in options.files]
    streams += [(path, load_stream(path, RecordSchema(**phones))) for path in sorted(PHONES.glob("d-*.csv.gz"))]
    figures = {
        "recorded": [row for path, stream in streams for row in recorded(path.name.split(".")[0], stream)],
        "generated": list(generated(options.target or TARGETS, options.seeds, options.length)),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        _print(**figures)
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} cannot be; it must be at least 1")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{value} cannot be; it must be between 0 and 1")
    return value


def made(seed: int, target: float, delays: str, change: str, sources: int, loss: float, length: int) -> RecordedStream:
    """A generated stream, as it arrives."""
    rng = np.random.default_rng(seed)
    n = round(length / target / (1 - loss))
    end = n * GAP
    ts = np.sort(rng.uniform(0, end, n))
    delay = DELAYS[delays](rng, n)
    source = rng.integers(0, sources, n)
    if change in LONGER:
        begin, stop = LONGER[change]
        delay[(ts >= begin / length * end) & (ts < stop / length * end)] *= 10
    elif change == "drift":
        delay *= 1 + 9 * ts / end
    elif change == "bursts":
        for first in np.searchsorted(ts, rng.uniform(0.1, 0.95, BURSTS) * end):
            until = ts[first] + HELD_UP
            held = (source == source[first]) & (ts >= ts[first]) & (ts < until)
            delay[held] = np.maximum(delay[held], until - ts[held])
    kept = np.flatnonzero(rng.random(n) >= loss)
    order = kept[np.argsort((ts + delay)[kept], kind="stable")]
    return RecordedStream((ts + delay)[order].astype(np.int64), ts[order].astype(np.int64), source[order])


def generated(targets: tuple[float, ...] | list[float], seeds: int, length: int) -> Iterator[dict[str, Any]]:
    """Every kind of generated stream."""
    for target, delays, change, sources, loss in product(targets, DELAYS, CHANGES, SOURCES, LOSSES):
        streams = [made(seed, target, delays, change, sources, loss, length) for seed in range(1, seeds + 1)]
        for wall in (False, True):
            over = [
                float(
                    replay(s.ts, s.source, late_target=target, arrival=s.arrival if wall else None).late.mean() / target
                )
                for s in streams
            ]
            yield {
                "target": target,
                "delays": delays,
                "change": change,
                "sources": sources,
                "loss": loss,
                "wall": wall,
                "over": over,
            }


def recorded(name: str, stream: RecordedStream) -> Iterator[dict[str, Any]]:
    """A recording under `auto` with each target of the study."""
    if len(stream) <= STEADY:
        raise SlacklineError(
            f"{name} has {len(stream):,} events; steady figures begin after {STEADY:,}. Give a longer recording."
        )
    result = study(stream)
    gap = float(stream.arrival[-1] - stream.arrival[0]) / len(stream)
    for auto in result.policies:
        target = auto.params.get("late_target")
        if target is None:
            continue
        waits = auto.waits
        steady, whole = _cheapest(result, auto, steady=True), _cheapest(result, auto, steady=False)
        yield {
            "stream": name,
            "unit": stream.unit,
            "target": target,
            "late": waits.late_share,
            "steady_late": waits.steady_late_share,
            "steady_mean_wait": waits.steady_mean_wait,
            "fixed_steady_mean_wait": steady,
            "gap": gap,
            "ratio": None if steady is None else _over(waits.steady_mean_wait, steady + gap),
            "less": _over(whole, waits.mean_wait),
            "clairvoyant": _over(waits.mean_wait, result.clairvoyant.mean_wait),
        }


def _cheapest(result: StudyResult, auto: PolicyResult, *, steady: bool) -> float | None:
    """The mean wait of the cheapest fixed watermark that loses no more events; the study has it."""
    best = result.cheapest("fixed", steady=steady, than=auto)
    return None if best is None else best.waits.steady_mean_wait if steady else best.waits.mean_wait


def _over(wait: float | None, other: float | None) -> float | None:
    return wait / other if wait is not None and other else None


def _print(recorded: list[dict[str, Any]], generated: list[dict[str, Any]]) -> None:
    console = Console()
    table = Table("stream", title="recorded streams: late shares in %, steady mean wait in the stream's unit")
    for heading in ("target", "late", "steady late", "steady wait", "/ (fixed + gap)", "fixed / auto", "/ clairvoyant"):
        table.add_column(heading, justify="right")
    for row in recorded:
        shares = (f"{100 * row[name]:.3f}" for name in ("target", "late", "steady_late"))
        ratios = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("ratio", "less", "clairvoyant"))
        table.add_row(row["stream"], *shares, f"{row['steady_mean_wait']:,.1f} {row['unit']}", *ratios)
    console.print(table)
    title = "generated streams: late share over target, mean (largest)"
    for key in ("change", "target", "sources", "loss", "wall"):
        console.print(_cells(generated, key, title))
        title = ""
    every = [over for row in generated for over in row["over"]]
    above = [over for over in every if over > TOO_MANY]
    console.print(
        f"{len(above)} of {len(every)} runs of generated streams are above {TOO_MANY}; the largest is {max(every):.2f}."
    )


def _cells(rows: list[dict[str, Any]], key: str, title: str) -> Table:
    """Distributions from left to right, values of ``key`` from top to bottom."""
    cells: defaultdict[tuple[Any, str], list[float]] = defaultdict(list)
    for row in rows:
        cells[row[key], row["delays"]] += row["over"]
    table = Table(key, title=title or None, title_justify="left")
    for name in (*DELAYS, f"above {TOO_MANY}"):
        table.add_column(name, justify="right")
    for value in dict.fromkeys(row[key] for row in rows):
        line = [cells[value, name] for name in DELAYS]
        together = np.concatenate(line)
        above = f"{np.sum(together > TOO_MANY)} of {len(together)}"
        table.add_row(str(value), *(f"{np.mean(cell):.2f} ({max(cell):.2f})" for cell in line), above)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
