"""Devices with a radio link that breaks now and then: many keys, each with few events and rare, long delays.

A device takes a reading every ten seconds, which travels for up to two seconds. During an outage of 15 to 90 seconds it
stores its readings. Afterwards it sends them newest first (``newest``), all at once (``shuffled``), or one by one after
a pause, while live readings go first (``backfill``).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackline.core.check import one_of, whole_number

#: Milliseconds.
SECOND = 1_000
READING_EVERY = 10 * SECOND
OUTAGE = 15 * SECOND, 90 * SECOND

RESENDS = ("newest", "shuffled", "backfill")

SCHEMA = pa.schema(
    {"arrival": pa.int64(), "device": pa.string(), "ts": pa.int64(), "type": pa.string(), "value": pa.float64()}
)


def devices(
    seed: int, number: int = 200, readings: int = 340, outages: float = 1.3, resend: str = "shuffled", start: int = 60
) -> pa.Table:
    """The readings of all devices in the order of arrival.

    ``outages``  how many a device has, on average.
    ``resend``   how stored readings come: newest, shuffled or backfill.
    ``start``    devices start within so many seconds.
    """
    whole_number("number", number, 1)
    whole_number("readings", readings, 1)
    one_of("resend", resend, RESENDS)
    parts = []
    for each in range(number):
        rng = np.random.default_rng([seed, 24, each])
        ts = 1_000 * SECOND + int(rng.integers(0, start * SECOND)) + READING_EVERY * np.arange(readings)
        ts = ts + rng.integers(-200, 201, readings)
        parts.append((_arrivals(rng, ts, outages, resend), np.full(readings, each), ts, rng.normal(20, 1, readings)))
    arrival, device, ts, value = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((ts, device, arrival))
    names = pa.array([f"device-{n:03d}" for n in range(number)])
    columns = [
        pa.array(arrival[order]),
        names.take(pa.array(device[order])),
        pa.array(ts[order]),
        pa.array(["reading"] * len(order)),
        pa.array(value[order].round(2)),
    ]
    return pa.table(columns, SCHEMA)


def _arrivals(rng: np.random.Generator, ts: np.ndarray, outages: float, resend: str) -> np.ndarray:
    """When the readings of one device arrive."""
    arrival = ts + rng.integers(100, 2 * SECOND, len(ts))
    span = int(ts[-1] - ts[0])
    for _ in range(rng.poisson(outages)):
        begin = int(ts[0]) + int(rng.integers(0, span))
        end = begin + int(rng.integers(*OUTAGE))
        stored = np.flatnonzero((ts >= begin) & (ts < end))
        if resend == "newest":
            arrival[stored] = end + 300 * np.arange(1, len(stored) + 1)[::-1]
        elif resend == "shuffled":
            arrival[stored] = end + rng.integers(100, 3 * SECOND, len(stored))
        else:
            arrival[stored] = end + 12 * SECOND + 2 * SECOND * np.arange(len(stored))
    return arrival
