"""The units of time, and what a position is: transmitter, ps, mm, µm/s, µm/s², direction of v scaled to 10,000.

Time stamps are picoseconds, as the RedFIR system gives them.
"""

from __future__ import annotations

import pyarrow as pa

SECOND = 10**12
MILLISECOND = 10**9


MEASURES = ("x", "y", "z", "v", "a", "vx", "vy", "vz")
CANONICAL = pa.schema([("sid", pa.int64()), ("ts", pa.int64()), *((name, pa.float32()) for name in MEASURES)])
