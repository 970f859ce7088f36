"""A pattern, and the same detector written by hand.

    slackline bench patterns --json

Three interleaved types of many devices, 6 % of the events out of order; "the door opens and the temperature rises by 5
degrees within two minutes without a close, per device" (its source). Prints, in events per second, ``bare_loop_rate``
(a plain Python loop over the sorted rows that makes an Event of each and calls the detector's ``on_event``),
``event_rate`` (the same detector in an engine with default options, tables of ``TABLE`` rows), ``pattern_rate`` (the
same as ``sl.Pattern``), ``argsort_rate`` (a stable NumPy argsort of the time stamps), and their ratios; ``matches``,
``late`` (events that were late), ``recall`` and ``precision`` of the pattern against the detector by hand in the same
engine. Rates are by CPU time, the best of ``repeats`` rounds that take turns. The figures of a million keys are those
of ``slackline bench keyed_detectors``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import keyed_detectors
import slackline as sl
from _baselines import cpu_seconds
from _figures import parser, print_figures

SEED = 26
EVENTS = 600_000
DEVICES = 2_000
TABLE = 50_000
TYPES = ("door_close", "door_open", "temperature")
SHARES = (0.1, 0.1, 0.8)
WITHIN, RISE = 120_000, 5.0


class Overheated(sl.Detector):
    """The pattern by hand: for each device the open doors, each with the first temperature after it."""

    listens, publishes = TYPES, ("overheated",)

    def __init__(self) -> None:
        self.opened: dict[Any, list[list[float | None]]] = {}

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        device = event.source
        partial = [each for each in self.opened.get(device, ()) if event.ts - (each[0] or 0) <= WITHIN]
        if event.type == "door_open":
            partial.append([event.ts, None])
        elif event.type == "door_close":
            partial = [each for each in partial if each[1] is None]
        else:
            celsius = event["celsius"]
            for each in partial:
                if each[1] is None:
                    each[1] = celsius
                elif celsius >= each[1] + RISE:
                    yield event.derive("overheated", device=device, rise=celsius - each[1])
                    partial = []
                    break
        self.opened[device] = partial


def pattern() -> sl.Pattern:
    opened, closed = sl.Step("door_open"), sl.Step("door_close")
    first, warm = sl.Step("temperature", name="first"), sl.Step("temperature", name="warm")
    warm = warm.where(warm.celsius >= first.celsius + RISE)
    output = {"device": opened.source, "rise": warm.celsius - first.celsius}
    return sl.Pattern("overheated", opened >> first >> ~closed >> warm, within=WITHIN, key="source", output=output)


def table(events: int) -> pa.Table:
    """Rows in arrival order."""
    rng = np.random.default_rng(SEED)
    kinds, devices = rng.choice(3, events, p=SHARES), rng.integers(0, DEVICES, events)
    ts = np.arange(events) * 10
    late = np.where(rng.random(events) < 0.06, rng.uniform(0, 200, events), rng.uniform(0, 5, events))
    order = np.argsort(ts + late, kind="stable")
    names = np.array([f"d{n}" for n in range(DEVICES)])
    return pa.table(
        {
            "type": np.array(TYPES)[kinds[order]],
            "ts": ts[order],
            "source": names[devices[order]],
            "seq": order,
            "celsius": np.where(kinds == 2, rng.normal(20, 2, events), np.nan)[order],
        }
    )


def through_engine(detector: sl.Detector, tables: list[pa.Table]) -> tuple[list[sl.Output], int]:
    engine = sl.Engine(sl.Hierarchy([detector]), on_error="fail")
    found = [output for part in tables for output in engine.push(part)]
    found += engine.close()
    assert not engine.quarantined
    return found, len(engine.late)


def bare_loop(rows: pa.Table) -> None:
    detector = Overheated()
    columns = [rows[name].to_pylist() for name in ("type", "ts", "source", "seq", "celsius")]
    for kind, ts, source, seq, celsius in zip(*columns, strict=True):
        for _ in detector.on_event(sl.Event(kind, ts, source, seq, celsius=celsius)):
            pass


def figures(events: int = EVENTS, repeats: int = 3) -> dict[str, float]:
    rows = table(events)
    stamps = rows["ts"].to_numpy()
    in_order = rows.take(np.argsort(stamps, kind="stable"))
    tables = [rows.slice(start, TABLE) for start in range(0, events, TABLE)]
    by_hand, _ = through_engine(Overheated(), tables)
    by_pattern, late = through_engine(pattern(), tables)  # compiles
    works: dict[str, Callable[[], object]] = {
        "argsort_rate": lambda: np.argsort(stamps, kind="stable"),
        "bare_loop_rate": lambda: bare_loop(in_order),
        "event_rate": lambda: through_engine(Overheated(), tables),
        "pattern_rate": lambda: through_engine(pattern(), tables),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        best = {name: min(best[name], cpu_seconds(work)) for name, work in works.items()}
    rates = {name: events / seconds for name, seconds in best.items()}
    expected, found = ({(each.event.ts, each.event["device"], each.event["rise"]) for each in some} for some in
                       (by_hand, by_pattern))  # fmt: skip
    return {
        **rates,
        "pattern_to_event": rates["pattern_rate"] / rates["event_rate"],
        "pattern_to_argsort": rates["pattern_rate"] / rates["argsort_rate"],
        "matches": len(found),
        "late": late,
        "recall": len(found & expected) / len(expected),
        "precision": len(found & expected) / len(found),
    }


def main(argv: list[str] | None = None) -> int:
    options = parser("patterns", __doc__)
    options.add_argument("--events", type=int, default=EVENTS, help="number of events")
    options.add_argument("--keys", type=int, default=keyed_detectors.KEYS, help="number of keys of the keyed detector")
    options.add_argument("--repeats", type=int, default=3, help="rounds of which the best counts")
    given = options.parse_args(argv)
    keyed = keyed_detectors.figures(given.keys, given.repeats)
    print_figures({**figures(given.events, given.repeats), **keyed}, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
