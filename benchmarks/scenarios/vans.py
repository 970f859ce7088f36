"""A fleet of delivery vans whose reports come over a mobile network: many keys, each with few events.

A van reports its position and speed about every ten seconds, and when its door opens or closes, which is rare. Reports
travel for a second or two; one in 500 is lost, sent again and overtaken. In a dead zone a van keeps its
reports and sends them in one go when it is back, together with some that had got through already (duplicates). Some
vans have clocks that are far off.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackline.core.check import whole_number

#: Milliseconds.
SECOND = 1_000
REPORT_EVERY = 10 * SECOND
#: How far off the clock of a van may be.
SKEW = 90 * SECOND

SCHEMA = pa.schema(
    {
        "arrival": pa.int64(),
        "van": pa.string(),
        "ts": pa.int64(),
        "type": pa.string(),
        "source": pa.string(),
        "seq": pa.int64(),
        "speed": pa.float64(),
        "open": pa.bool_(),
    }
)

_Row = tuple[int, str, int, str, str, int, float | None, bool | None]


def vans(seed: int, number: int = 200, reports: int = 200, skewed: int = 10) -> pa.Table:
    """The reports of a fleet in the order of arrival; ``reports`` of each van, and ``skewed`` vans with wrong clocks.

    Columns: ``arrival`` and ``ts`` (milliseconds), ``van``, ``type`` (position, door), ``source`` (gps, door), ``seq``
    (of the source), ``speed`` (m/s, of positions), ``open`` (of doors). A report that comes twice has one ``seq``.
    """
    whole_number("number", number, 0)
    whole_number("reports", reports, 1)
    whole_number("skewed", skewed, 0, number)
    rows: list[_Row] = []
    for van in range(number):
        rng = np.random.default_rng([seed, 8, van])
        off = int(rng.integers(-SKEW, SKEW + 1)) if van < skewed else 0
        rows += _van(rng, f"van-{van:03d}", reports, off)
    rows.sort()
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def _van(rng: np.random.Generator, name: str, reports: int, off: int) -> list[_Row]:
    """One van: it starts some time within ten minutes, drives, stops, and is in a dead zone now and then."""
    start = 1_000 * SECOND + int(rng.integers(0, 600 * SECOND))
    doors = max(1, reports // 25)
    speeds, stops = _drive(rng, reports - 2 * doors)
    times = start + REPORT_EVERY * np.arange(len(speeds)) + rng.integers(-300, 301, len(speeds))
    events: list[tuple[int, str, str, float | None, bool | None]] = []
    for ts, speed in zip(times.tolist(), speeds.tolist(), strict=True):
        events.append((ts, "position", "gps", round(speed, 1), None))
    for at in sorted(rng.choice(stops, doors).tolist()):
        opened = start + REPORT_EVERY * at + int(rng.integers(1 * SECOND, 9 * SECOND))
        events.append((opened, "door", "door", None, True))
        events.append((opened + int(rng.integers(5 * SECOND, 20 * SECOND)), "door", "door", None, False))
    events.sort(key=lambda event: event[:2])
    zones = _dead_zones(rng, start, int(times[-1]))
    seq = {"gps": 0, "door": 0}
    rows: list[_Row] = []
    for ts, kind, source, speed, is_open in events:
        arrival, again = _arrival(rng, ts, zones)
        row = (name, ts + off, kind, source, seq[source], speed, is_open)
        rows.append((arrival, *row))
        if again is not None:
            rows.append((again, *row))
        seq[source] += 1
    return rows


def _drive(rng: np.random.Generator, n: int) -> tuple[np.ndarray, list[int]]:
    """Speeds of ``n`` reports, and those of them at which the van stands."""
    speeds = np.empty(n)
    stops = [0]
    at = 0
    while at < n:
        cruise, drive, stand = rng.uniform(8, 24), int(rng.integers(6, 15)), int(rng.integers(3, 6))
        speeds[at : at + drive] = np.maximum(rng.normal(cruise, 2.5, len(speeds[at : at + drive])), 3)
        at += drive
        speeds[at : at + stand] = rng.uniform(0, 0.5, len(speeds[at : at + stand]))
        stops += range(min(at, n - 1), min(at + stand - 2, n - 1))
        at += stand
    return speeds, stops


def _dead_zones(rng: np.random.Generator, start: int, end: int) -> list[tuple[int, int]]:
    zones = []
    at = start + int(rng.integers(120 * SECOND, 500 * SECOND))
    while at < end:
        zones.append((at, at + int(rng.integers(30 * SECOND, 180 * SECOND))))
        at += int(rng.integers(500 * SECOND, 900 * SECOND))
    return zones


def _arrival(rng: np.random.Generator, ts: int, zones: list[tuple[int, int]]) -> tuple[int, int | None]:
    """When a report gets through, and perhaps once more."""
    travel = 200 + int(rng.exponential(600))
    for start, end in zones:
        if start <= ts < end:  # kept, and sent in order, one every 50 ms
            return end + 200 + (ts - start) // 200, None
        if start - 15 * SECOND <= ts < start:  # not acknowledged, so sent again
            return ts + travel, end + 100
    if rng.random() < 0.002:
        return ts + travel + int(rng.integers(8 * SECOND, 30 * SECOND)), None
    return ts + travel, ts + travel + 2 * SECOND if rng.random() < 0.01 else None
