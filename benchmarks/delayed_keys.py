"""Half of the keys are delayed: how many events does each kind of watermark lose, and how long do the others wait?

    slackline bench delayed_keys --json

The stream is that of scenarios/delayed_keys.py, after Keyed Watermarks (FGCS 2025): half of the keys lag behind by up
to 20 s, each by its own amount. For each policy: ``lost``, the share of late events; ``delayed``, that share among the
keys with a lag; ``wait``, the mean time in ms from arrival to release.

- ``flink``: one watermark, the largest event time minus the bound, emitted every 200 ms
- ``spark``: the same, computed at the end of each micro-batch of a second (its results come a micro-batch later still)
- ``keyed``: a watermark per key, each with the bound, as Keyed Watermarks has it
- ``auto``: Slackline with one engine, the key as source
- ``auto_by_key``: Slackline with an engine per key, as ``run --key``

The first three have a bound of 5 s, and one that covers every lag of the stream (``…_all``). Slackline has its default
target of 0.1 %, runs on real engines and is pushed and advanced every 100 ms, which adds some 50 ms to each wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

import slackline as sl
from _figures import parser, print_figures
from scenarios.delayed_keys import HELD, LAG, PERIOD, delayed_keys
from slackline.core.batch import Ints, Mask
from slackline.runtime.keyed import KeyedEngines
from slackline.study.policies import fixed, under_watermark

SEED = 1
BOUND, COVERING = 5_000, LAG + HELD + PERIOD
FLINK, SPARK, TICK = 200, 1_000, 100


class Forward(sl.Detector):
    """Publishes every reading, so that its release is seen."""

    listens, publishes = ("reading",), ("released",)

    def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
        yield event.derive("released", row=event["row"])


def run(keys: int = 100, readings: int = 600) -> dict[str, float]:
    """All policies."""
    stream = delayed_keys(SEED, keys, readings)
    arrival, ts, lag = (stream[name].to_numpy() for name in ("arrival", "ts", "lag"))
    key = stream["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    figures: dict[str, float] = {"events": len(ts), "delayed_share": float(np.mean(lag > 0))}

    def add(name: str, late: Mask, wait: Ints) -> None:
        figures[f"{name}_lost"] = float(np.mean(late))
        figures[f"{name}_delayed"] = float(np.mean(late[lag > 0]))
        figures[f"{name}_wait"] = float(np.mean(wait[~late]))

    for suffix, bound in (("", BOUND), ("_all", COVERING)):
        add(f"flink{suffix}", *_periodic(ts, arrival, bound, FLINK))
        add(f"spark{suffix}", *_periodic(ts, arrival, bound, SPARK))
        add(f"keyed{suffix}", *_by_key(ts, arrival, key, bound))
    add("auto", *_slackline(stream, keyed=False))
    add("auto_by_key", *_slackline(stream, keyed=True))
    return figures


def _periodic(ts: Ints, arrival: Ints, bound: int, period: int) -> tuple[Mask, Ints]:
    """A fixed watermark that is computed from all arrivals of a period at its end."""
    turn = arrival // period
    starts = np.searchsorted(turn, turn)  # the first arrival of the same period
    newest = np.maximum.accumulate(ts)
    watermark = np.where(starts > 0, newest[starts - 1] - bound, -1)
    outcome = under_watermark(ts, watermark)
    # Released at the end of the period whose watermark covers it.
    first = np.searchsorted(newest, ts + bound)
    released = (arrival[np.minimum(first, len(ts) - 1)] // period + 1) * period
    return outcome.late, np.minimum(np.maximum(released, arrival), arrival[-1] + period) - arrival


def _by_key(ts: Ints, arrival: Ints, key: Ints, bound: int) -> tuple[Mask, Ints]:
    late, wait = np.empty(len(ts), np.bool_), np.empty(len(ts), np.int64)
    for one in range(int(key.max()) + 1):
        rows = np.flatnonzero(key == one)
        outcome = fixed(ts[rows], bound)
        late[rows] = outcome.late
        wait[rows] = arrival[rows][np.minimum(outcome.release, len(rows) - 1)] - arrival[rows]
    return late, wait


def _slackline(stream: pa.Table, keyed: bool) -> tuple[Mask, Ints]:
    arrival = stream["arrival"].to_numpy()
    rows = pa.table(
        {
            "type": pa.array(["reading"] * len(stream)),
            "ts": stream["ts"],
            "source": stream["key"],
            "row": np.arange(len(stream)),
        }
    )
    engines = KeyedEngines(sl.Hierarchy([Forward()]), keyed=keyed)
    late, wait = np.ones(len(stream), np.bool_), np.zeros(len(stream), np.int64)

    def note(records: list[Any], now: int) -> None:
        for record in records:
            if record.kind == "event":
                row = record.payload["row"]
                late[row], wait[row] = False, now - arrival[row]

    edges = np.arange(arrival[0], arrival[-1] + 2 * TICK, TICK)
    for now, (start, end) in zip(edges[1:].tolist(), _pairs(np.searchsorted(arrival, edges)), strict=True):
        part = rows.slice(start, end - start)
        if len(part):
            keys = part["source"] if keyed else None
            note(engines.push(part, keys, now=pa.array(arrival[start:end])), now)
        note(engines.advance(now), now)
    note(engines.close(), int(arrival[-1]))
    return late, wait


def _pairs(values: Ints) -> Iterator[tuple[int, int]]:
    return zip(values[:-1].tolist(), values[1:].tolist(), strict=True)


def main(argv: list[str] | None = None) -> int:
    options = parser("delayed_keys", __doc__)
    options.add_argument("--keys", type=int, default=100)
    options.add_argument("--readings", type=int, default=600, help="of each key")
    given = options.parse_args(argv)
    print_figures(run(given.keys, given.readings), given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
