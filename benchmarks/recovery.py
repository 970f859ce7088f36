"""How `auto` recovers from bursts and outages on generated streams.

    slackline bench recovery --json

An event per ms on average, from ten sources, with exponential delays of 2 ms in the mean.

- ``burst``: so many events are held up once and arrive together; ``back`` is after how many times 1 / target events,
  from the last late event on, K stays within twice its usual value.
- ``recurring``: a burst every 2 / target events; ``over`` is the late share over the target, ``second_half`` that of
  the second half.
- ``outage``: all sources are cut off for 10 s and then deliver one after the other, or one of them is away for 30 s;
  ``late`` is the late share of the delayed events, ``wait_ratio`` the mean wait from twice the outage later on over the
  one before.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _figures import parser
from slackline.study.policies import Outcome, replay

Floats = NDArray[np.float64]
GAP, DELAY, SOURCES = 1_000, 2_000, 10
SIZES = (10, 50, 500, 5_000)
RECURRING = (5, 10, 30, 100)
TARGETS = (0.001, 0.005)


def main(argv: list[str] | None = None) -> int:
    asked = parser("recovery", __doc__)
    options = asked.parse_args(argv)
    figures = {
        "burst": [burst(size, target) for target in TARGETS for size in SIZES],
        "recurring": [recurring(size, target) for target in TARGETS for size in RECURRING],
        "outage": [outage(10_000_000, everything=True), outage(30_000_000, everything=False)],
    }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, rows in figures.items():
            for row in rows:
                print(name, *(f"{key}={value:g}" for key, value in row.items()))
    return 0


def _plain(n: int) -> tuple[np.random.Generator, Floats, Floats]:
    rng = np.random.default_rng(1)
    return rng, np.cumsum(rng.exponential(GAP, n)), rng.exponential(DELAY, n)


def _ordered(ts: Any, arrival: Any, target: float, source: Any) -> tuple[Outcome, Any, Any]:
    order = np.argsort(arrival, kind="stable")
    at = arrival[order].astype(np.int64)
    return replay(ts[order].astype(np.int64), source[order], late_target=target, arrival=at), order, at


def burst(size: int, target: float) -> dict[str, Any]:
    """One burst; those of 500 and more are a tenth of the events meanwhile, others all of them."""
    n, begin = int(40 / target) + 6_000 + 12 * size, int(15 / target)
    rng, ts, delay = _plain(n)
    source = rng.integers(0, SOURCES, n)
    every = 10 if size >= 500 else 1
    held = np.zeros(n, dtype=np.bool_)
    held[begin : begin + size * every : every] = True
    until = ts[begin + size * every] + (0 if every > 1 else 5_000_000)
    usual = float(np.median(_ordered(ts, ts + delay, target, source)[0].K[n // 3 :]))  # type: ignore[index]
    result, order, _ = _ordered(ts, np.where(held, until, ts) + delay, target, source)
    late = np.flatnonzero(result.late & held[order])
    above = np.flatnonzero(result.K[late[-1] :] > 2 * usual)  # type: ignore[index]
    return {"size": size, "target": target, "late": len(late), "back": float(above.max(initial=0)) * target}


def recurring(size: int, target: float) -> dict[str, Any]:
    n = int(85 / target)
    rng, ts, delay = _plain(n)
    for begin in range(int(4 / target), n - size - 1, int(2 / target)):
        held = slice(begin, begin + size)
        delay[held] += ts[begin + size] - ts[held] + 0.3 * GAP / target
    late = _ordered(ts, ts + delay, target, rng.integers(0, SOURCES, n))[0].late
    shares = {"over": late.mean() / target, "second_half": late[n // 2 :].mean() / target}
    return {"size": size, "target": target, **{name: float(share) for name, share in shares.items()}}


def outage(length: int, *, everything: bool) -> dict[str, Any]:
    n, target, begin = 200_000, 0.001, 100_000_000
    rng = np.random.default_rng(3)
    ts, source, delay = np.arange(n) * float(GAP), np.arange(n) % SOURCES, rng.exponential(5_000.0, size=n)
    back = begin + length + (50_000.0 * source if everything else 0.0)
    held = (ts >= begin) & (ts + delay < back) & (everything | (source == 3))
    result, order, at = _ordered(ts, np.where(held, back + (ts - begin) / 1_000, ts + delay), target, source)
    waits = result.at - at
    before = waits[(at > begin // 2) & (at < begin)].mean()
    return {
        "sources": SOURCES if everything else 1,
        "late": float(result.late[held[order]].mean()),
        "wait_ratio": float(waits[at > begin + 3 * length].mean() / before),
    }


if __name__ == "__main__":
    raise SystemExit(main())
