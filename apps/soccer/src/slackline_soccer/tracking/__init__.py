"""What any application on tracked players shares; it imports nothing from the rest of the package.

Here are the units of time, and ``CANONICAL``, the one form that positions take, whatever they were read from:
transmitter, ps (as the RedFIR system gives them), mm, µm/s, µm/s², direction of v scaled to 10,000.

``game``       who wears which transmitter, when the game is on, and the rectangle that is played on.
``mapping``    what a user says about a file: which object is the ball, which is whose player, and the units.
``units``      what the numbers of a file mean, recognised where the mapping does not say.
``files``      CSV and Parquet in pieces; what cannot be read is counted by ``SetAside``.
``motion``     speed, acceleration and direction from positions alone.
``tracks``     a tracking file opened: all of the above put together.
"""

from __future__ import annotations

import pyarrow as pa

SECOND = 10**12
MILLISECOND = 10**9


MEASURES = ("x", "y", "z", "v", "a", "vx", "vy", "vz")
CANONICAL = pa.schema([("sid", pa.int64()), ("ts", pa.int64()), *((name, pa.float32()) for name in MEASURES)])
