"""Detectors that take single events: what the engine costs beside the detector's own work, on one core.

    slackline bench events --json

Three interleaved types of 60 devices, 6 % of the events out of order, one detector with ``on_event``, default options.
Prints, in events per second, ``bare_loop_rate`` (a plain Python loop over the sorted rows that makes an Event of each
and calls the same method), ``push_list_rate`` (makes the same events and pushes them in lists of 1,000),
``push_one_rate`` (one event per push), ``table_event_rate`` (tables of 10,000 rows), ``argsort_rate`` (a stable NumPy
argsort of the time stamps), and ratios to the bare loop: ``push_list_ratio``, ``push_one_ratio``,
``table_event_ratio``. Rates are by CPU time, the best of ``repeats`` rounds that take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import slackline as sl
from _baselines import cpu_seconds
from _figures import parser, print_figures

SEED = 23
EVENTS = 200_000
SINGLE = 40_000
LIST, TABLE = 1_000, 10_000
TYPES = ("temperature", "door", "power")
DEVICES = 20  # per type


class Alerts(sl.Detector):
    """Reports a device whose value has jumped since its last event."""

    listens, publishes = TYPES, ("alert",)

    def __init__(self) -> None:
        self.last: dict[Any, float] = {}
        self.seen = 0

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        self.seen += 1
        value, device = event["value"], event.source
        if abs(value - self.last.get(device, value)) > 2.6:
            yield event.derive("alert", device=device, value=value)
        self.last[device] = value


Row = tuple[str, int, str, int, float, bool]


def stream(events: int) -> list[Row]:
    """Rows in arrival order: type, ts, source, seq, value, charging."""
    rng = np.random.default_rng(SEED)
    kinds, devices = rng.integers(0, len(TYPES), events), rng.integers(0, DEVICES, events)
    ts = np.arange(events) * 1_000
    late = np.where(rng.random(events) < 0.06, rng.exponential(20_000, events), rng.exponential(300, events))
    order = np.argsort(ts + late, kind="stable")
    values, charging = rng.normal(20, 1, events), rng.random(events) < 0.5
    return [
        (TYPES[kinds[i]], int(ts[i]), f"{TYPES[kinds[i]]}-{devices[i]}", int(i), float(values[i]), bool(charging[i]))
        for i in order
    ]


def event_of(row: Row) -> sl.Event:
    kind, ts, source, seq, value, charging = row
    return sl.Event(kind, ts, source, seq, value=value, charging=charging)


def rates(events: int, single: int, repeats: int) -> dict[str, float]:
    """Rates and ratios."""
    rows = stream(events)
    in_order = sorted(rows, key=lambda row: (row[1], row[0], row[2], row[3]))
    stamps = np.array([row[1] for row in rows])
    names = ("type", "ts", "source", "seq", "value", "charging")
    table = pa.table(dict(zip(names, map(pa.array, zip(*rows, strict=True)), strict=True)))
    tables = [table.slice(start, TABLE) for start in range(0, len(table), TABLE)]

    def bare() -> None:
        detector = Alerts()
        for row in in_order:
            for _ in detector.on_event(event_of(row)):
                pass

    def pushed(pushes: Callable[[], Iterator[Any]], count: int) -> Callable[[], None]:
        def work() -> None:
            detector = Alerts()
            engine = sl.Engine(sl.Hierarchy([detector]))
            for push in pushes():
                engine.push(push)
            engine.close()
            if detector.seen < 0.99 * count:
                raise RuntimeError(f"{count} events were pushed, but the detector saw {detector.seen}.")

        return work

    def lists() -> Iterator[list[sl.Event]]:
        for start in range(0, len(rows), LIST):
            yield [event_of(row) for row in rows[start : start + LIST]]

    def ones() -> Iterator[list[sl.Event]]:
        for row in rows[:single]:
            yield [event_of(row)]

    kinds: dict[str, tuple[int, Callable[[], Any]]] = {
        "bare_loop_rate": (events, bare),
        "push_list_rate": (events, pushed(lists, events)),
        "push_one_rate": (single, pushed(ones, single)),
        "table_event_rate": (events, pushed(lambda: iter(tables), events)),
        "argsort_rate": (events, lambda: np.argsort(stamps, kind="stable")),
    }
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(repeats):
        for name, (_, work) in kinds.items():
            best[name] = min(best[name], cpu_seconds(work))
    found = {name: round(count / best[name], 1) for name, (count, _) in kinds.items()}
    ratios = {f"{name}_ratio": found[f"{name}_rate"] / found["bare_loop_rate"]
              for name in ("push_list", "push_one", "table_event")}  # fmt: skip
    return found | ratios


def main(argv: list[str] | None = None) -> int:
    asked = parser("events", __doc__)
    asked.add_argument("--events", type=int, default=EVENTS, help="number of events")
    asked.add_argument("--repeats", type=int, default=5, help="rounds; the best counts")
    options = asked.parse_args(argv)
    figures = rates(options.events, min(SINGLE, options.events), options.repeats)
    print_figures(figures, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
