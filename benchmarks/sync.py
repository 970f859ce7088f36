"""The tests of [Sync]: what synchronising many streams costs, by four methods.

    slackline bench sync --json

prints ``figure2`` (Table I: comparisons and updates of an indexed list, a linked list and a binary tree on the stream
of Figure 2), ``runs`` (a list of ``streams, delayed, method, visited, seconds, events, held``), and what they come to:
``fastest_beyond_16`` (is watermark the fastest in all runs with more than 16 streams?), ``least_margin`` (how many
times longer the next best took there, at least) and ``growth`` (watermark's time per event with the most streams over
that with 16, without delays, and the ratio of the logarithms of these numbers, which it should not exceed).

As in [Sync] all streams have the same throughput and 10,000 events are made: one per tick, the streams in
turn. Without delay they arrive as they occur, with 1 to 1500 streams; ``delayed`` is how many of the first streams are
late (2, or 1 if there is only one), with 1 to 256 streams: the first by 100 ticks, the second by 200.

``visited`` counts the nodes looked at: on the way to an event's place, to see whether they may go, and to take them
out; not in rotations. Watermark has no nodes: it counts the entries on top of its heaps that it looks at, and not what
the C library does inside them, so its count cannot be compared. ``held`` is for how many arrivals an event was kept, on
average. ``seconds`` is the best of ``repeats`` rounds, for whole pushes of one event; the rounds of the methods take
turns, so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from bisect import bisect_left
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from _figures import parser
from slackline import Event
from slackline.sync import METHODS, Synchroniser

#: Figure 2: which stream an event is of, and in which order the events arrive. The picture's order did not survive in
#: the text. Of the 720,720 orders in which every stream delivers in order this is the only one that gives the tree of
#: Figure 3 when event 9 arrives, has event 4 arrive ninth (counted from 0) right behind 1 and 2, and gives all six
#: numbers of Table I with the counting rules below, which [Sync] does not give either.
STREAM_OF = {6: 1, 7: 1, 11: 1, 0: 2, 1: 2, 2: 2, 4: 2, 9: 2, 3: 3, 5: 3, 8: 3, 10: 4, 12: 4}
ARRIVALS = (6, 0, 3, 10, 5, 7, 8, 1, 2, 4, 9, 12, 11)
#: The event with which processing begins (III-A).
BEGINS_AT = 9
TABLE_1 = {
    "indexed_list": {"comparisons": 25, "updates": 39},
    "linked_list": {"comparisons": 37, "updates": 37},
    "binary_tree": {"comparisons": 30, "updates": 17},
}

EVENTS = 10_000
WITHOUT_DELAY = (1, 2, 4, 8, 16, 24, 32, 64, 65, 128, 256, 512, 1024, 1500)
WITH_DELAY = (1, 2, 4, 8, 16, 24, 32, 64, 65, 128, 256)
DELAYS = (100, 200)


def main(argv: list[str] | None = None) -> int:
    asked = parser("sync", __doc__)
    asked.add_argument("--events", type=_positive, default=EVENTS, help="events in each run")
    asked.add_argument("--repeats", type=_positive, default=3, help="rounds; the best counts")
    asked.add_argument("--streams", type=_positive, default=max(WITHOUT_DELAY), help="the most streams to try")
    options = asked.parse_args(argv)
    runs = measure(options.events, options.repeats, options.streams)
    figures = {"figure2": figure2(), "runs": runs, **verdict(runs)}
    if options.json:
        print(json.dumps(figures))
    else:
        _print(figures)
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} cannot be; it must be at least 1")
    return value


# --- Table I -----------------------------------------------------------------------------------------------------


def figure2() -> dict[str, Any]:
    """Table I as counted here, and as [Sync] has it."""
    return {
        "binary_tree": binary_tree(),
        "indexed_list": indexed_list(),
        "linked_list": linked_list(),
        "document": TABLE_1,
        "arrivals": list(ARRIVALS),
        "begins_at": BEGINS_AT,
    }


def binary_tree() -> dict[str, int]:
    """Method 1. Every time stamp compared counts, and every node whose table an event changes as it passes."""
    sync = Synchroniser(sorted({f"DS{stream}" for stream in STREAM_OF.values()}), method="method1")
    for ts in ARRIVALS:
        sync.push(Event("e", ts=ts, source=f"DS{STREAM_OF[ts]}"))
    return {"comparisons": sync.work.comparisons, "updates": sync.work.updates}


def linked_list() -> dict[str, int]:
    """A sorted list walked from its head: every event passed is a comparison, and its table is set."""
    waiting: list[int] = []
    passed = 0
    for ts in ARRIVALS:
        place = bisect_left(waiting, ts)
        passed += place
        waiting.insert(place, ts)
        waiting = _processed(waiting, ts)
    return {"comparisons": passed, "updates": passed}


def indexed_list() -> dict[str, int]:
    """A sorted array walked from its end: every event passed is a comparison and moves one place up; tables of older
    events are set where the bit was not set before."""
    waiting: list[int] = []
    tables: dict[int, set[int]] = {}
    moved = bits = 0
    for ts in ARRIVALS:
        place = bisect_left(waiting, ts)
        moved += len(waiting) - place
        bits += sum(STREAM_OF[ts] not in tables[older] for older in waiting[:place])
        for older in waiting[:place]:
            tables[older].add(STREAM_OF[ts])
        tables[ts] = {STREAM_OF[ts], *(STREAM_OF[newer] for newer in waiting[place:])}
        waiting.insert(place, ts)
        waiting = _processed(waiting, ts)
    return {"comparisons": moved, "updates": moved + bits}


def _processed(waiting: list[int], ts: int) -> list[int]:
    """What is left: with event 9 everything goes that all four streams have passed."""
    if ts != BEGINS_AT:
        return waiting
    arrived = ARRIVALS[: ARRIVALS.index(BEGINS_AT) + 1]
    reached = min(max(ts for ts in arrived if STREAM_OF[ts] == stream) for stream in STREAM_OF.values())
    return [ts for ts in waiting if ts > reached]


# --- the two tests -----------------------------------------------------------------------------------------------


def measure(events: int, repeats: int, most: int) -> list[dict[str, Any]]:
    """All runs: without delay, then with."""
    cases = [(n, 0) for n in WITHOUT_DELAY if n <= most] + [(n, min(2, n)) for n in WITH_DELAY if n <= most]
    console = Console(stderr=True)
    runs = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(cases) * (repeats + 1))
        for streams, delayed in cases:
            bar.update(task, description=f"{streams} streams, {delayed} delayed")
            arrivals = generate(streams, delayed, events)
            held = {method: _held(arrivals, streams, method) for method in METHODS}
            bar.advance(task)
            best: dict[str, tuple[float, int]] = {}
            for _ in range(repeats):
                for method in METHODS:
                    best[method] = min(best.get(method, (math.inf, 0)), _time(arrivals, streams, method))
                bar.advance(task)
            for method, (seconds, visited) in best.items():
                runs.append(
                    {
                        "streams": streams,
                        "delayed": delayed,
                        "method": method,
                        "visited": visited,
                        "seconds": round(seconds, 6),
                        "events": len(arrivals),
                        "held": round(held[method], 2),
                    }
                )
    return runs


def generate(streams: int, delayed: int, events: int) -> list[Event]:
    """One event per tick, the streams in turn, in order of arrival; the first ``delayed`` streams are late."""
    delays = dict(zip(range(delayed), DELAYS, strict=False))
    made = [(ts + delays.get(ts % streams, 0), ts) for ts in range(events)]
    return [Event("e", ts=ts, source=_name(ts % streams)) for _, ts in sorted(made)]


def _name(stream: int) -> str:
    return f"{stream:04}"


def _time(arrivals: list[Event], streams: int, method: str) -> tuple[float, int]:
    sync = Synchroniser(map(_name, range(streams)), method=method)
    push = sync.push
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for event in arrivals:
            push(event)
        seconds = time.perf_counter() - start
    finally:
        gc.enable()
    return seconds, sync.work.visited


def _held(arrivals: list[Event], streams: int, method: str) -> float:
    """For how many arrivals an event is kept, on average."""
    now = 0
    sync = Synchroniser(map(_name, range(streams)), method=method, now=lambda: now)
    for now, event in enumerate(arrivals):  # noqa: B007
        sync.push(event)
    sync.close()
    stats = sync.stats().values()
    return sum(each.wait_total for each in stats) / sum(each.released for each in stats)


def verdict(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What the runs come to."""
    margins = []
    for run in runs:
        if run["method"] == "watermark" and run["streams"] > 16:
            others = [r["seconds"] for r in runs if _case(r) == _case(run) and r["method"] != "watermark"]
            margins.append(min(others) / run["seconds"])
    times = {r["streams"]: r["seconds"] / r["events"] for r in runs if r["method"] == "watermark" and not r["delayed"]}
    most = max(times)
    growth = None
    if most > 16 and 16 in times:
        growth = {"seen": round(times[most] / times[16], 3), "logarithmic": round(math.log(most) / math.log(16), 3)}
    return {
        "fastest_beyond_16": all(margin > 1 for margin in margins) if margins else None,
        "least_margin": round(min(margins), 3) if margins else None,
        "growth": growth,
    }


def _case(run: dict[str, Any]) -> tuple[int, int]:
    return run["streams"], run["delayed"]


def _print(figures: dict[str, Any]) -> None:
    console = Console()
    table = Table(title="Table I on the stream of Figure 2: counted here (in the paper)", title_justify="left")
    table.add_column("")
    for name in TABLE_1:
        table.add_column(name.replace("_", " "), justify="right")
    for what in ("comparisons", "updates"):
        cells = [f"{figures['figure2'][name][what]} ({said[what]})" for name, said in TABLE_1.items()]
        table.add_row(what, *cells)
    console.print(table)
    for delayed in (False, True):
        runs = [run for run in figures["runs"] if bool(run["delayed"]) == delayed]
        title = "the first two streams delayed" if delayed else "no delays"
        table = Table(title=f"{title}: µs per event (nodes visited per event)", title_justify="left")
        table.add_column("streams", justify="right")
        for method in METHODS:
            table.add_column(method, justify="right")
        for streams in dict.fromkeys(run["streams"] for run in runs):
            row = {run["method"]: run for run in runs if run["streams"] == streams}
            table.add_row(str(streams), *(_cell(row[method]) for method in METHODS))
        console.print(table)
    margin, growth = figures["least_margin"], figures["growth"]
    if margin is not None:
        console.print(f"Beyond 16 streams the next best method takes {margin:.2f} times as long as watermark, or more.")
    if growth is not None:
        console.print(
            f"From 16 to the most streams watermark's time per event grows {growth['seen']:.2f} times; "
            f"their logarithm grows {growth['logarithmic']:.2f} times."
        )


def _cell(run: dict[str, Any]) -> str:
    return f"{run['seconds'] / run['events'] * 1e6:.1f} ({run['visited'] / run['events']:,.1f})"


if __name__ == "__main__":
    raise SystemExit(main())
