"""What a position is: transmitter, ps, mm, µm/s, µm/s², direction of v scaled to 10,000."""

import pyarrow as pa

MEASURES = ("x", "y", "z", "v", "a", "vx", "vy", "vz")
CANONICAL = pa.schema([("sid", pa.int64()), ("ts", pa.int64()), *((name, pa.float32()) for name in MEASURES)])
