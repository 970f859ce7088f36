"""What the compiled loops are made of."""

from __future__ import annotations

import inspect

import numpy as np
from numba.core import types
from numba.core.registry import CPUDispatcher

from slackline.ordering import clock, delays, duplicates, frontier, readiness, store
from slackline.ordering.channel import Evidence, SensorChannel


def test_no_class_of_ours_gets_into_the_signatures_that_numba_keeps() -> None:
    """Its cache reads them before it looks whether they are of this release: a class that is gone would be an error."""
    channel = SensorChannel("a", 0, Evidence(), is_clock=True)
    slots = channel.slots_of(np.zeros(3, dtype=np.int64), ["s"])
    channel.step(0, 1, 0, -1, 1)
    channel.run(slots[:1], slots[:1], slots[:1] + 2, 1, 1, slots[:1] + 2)
    seen = 0
    for module in (clock, delays, duplicates, frontier, readiness, store):
        for name, function in inspect.getmembers(module, lambda member: isinstance(member, CPUDispatcher)):
            for signature in function.signatures:
                seen += 1
                assert not any(isinstance(kind, types.BaseTuple) for kind in signature), f"{name}{signature}"
    assert seen > 5
