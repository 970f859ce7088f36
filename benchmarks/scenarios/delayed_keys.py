"""Keys half of which are delayed, after the evaluation of Keyed Watermarks (Yasser, Arafa, ElHelw, Awad; FGCS 2025).

Each key delivers a reading about once a second. Half of the keys, chosen at random, lag behind by an amount of their
own, up to ``LAG``, for the whole time: they are far away, or their gateway forwards late. Within a key a reading takes
some 50 ms, and one in a hundred up to ``HELD`` longer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackline.core.check import whole_number

#: Milliseconds.
PERIOD, LAG, HELD = 1_000, 20_000, 3_000


def delayed_keys(seed: int, keys: int = 100, readings: int = 600) -> pa.Table:
    """The readings in the order of arrival: ``arrival``, ``ts`` (ms), ``key``, ``seq``, and the ``lag`` of the key."""
    whole_number("keys", keys, 2)
    whole_number("readings", readings, 1)
    rng = np.random.default_rng([seed, 25])
    number = keys * readings
    key, seq = np.repeat(np.arange(keys), readings), np.tile(np.arange(readings), keys)
    delayed = rng.permutation(keys) < keys // 2
    lag = np.where(delayed, rng.integers(0, LAG, keys), 0)[key]
    ts = 1_000_000 + PERIOD * seq + rng.integers(0, PERIOD, number)
    held = np.where(rng.random(number) < 0.01, rng.integers(0, HELD, number), 0)
    arrival = ts + lag + held + rng.exponential(50, number).astype(np.int64)
    table = pa.table({"arrival": arrival, "ts": ts, "key": [f"k{k}" for k in key], "seq": seq, "lag": lag})
    return table.take(pa.array(np.argsort(arrival, kind="stable")))
