"""Values that stand for "nothing yet" in the integer time domain, shared by the compiled loops.

Time stamps go from 0 to ``MAX_TS`` = 2**62. K, time-outs and margins saturate at ``FOREVER``: a larger one could not
wait for longer. So the sum or difference of two of them fits 64 bits, and the kernels form no others.
"""

from __future__ import annotations

from slackline.core.time import MAX_TS

#: Below every time stamp: no clock yet, a input watermark without evidence. Its distance to any time stamp still fits 64 bits.
NEVER = -(2**61)
#: Above every time stamp: a source that holds nobody up, the watermark after the end of the stream, the largest K.
FOREVER = MAX_TS + 1

#: Input watermark evidence, as the compiled loops know the policies.
SLACK, READY, AUTO, ORDERED = 0, 1, 2, 3
#: Arrivals during which ``ready`` and ``auto`` only listen, unless told otherwise.
WARMUP = 32
#: The share of events that may be late under ``auto``, unless another is given.
LATE_TARGET = 0.001
POLICIES = {"slack": SLACK, "ready": READY, "auto": AUTO, "ordered": ORDERED}
