"""What the compiled loops are made of."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core import types

from slackline.ordering import frontier
from slackline.ordering.channel import Evidence, SensorChannel
from slackline.ordering.constants import AUTO, NEVER, SLACK


@pytest.mark.parametrize("policy", [SLACK, AUTO])
def test_no_class_of_ours_gets_into_the_signatures_that_numba_keeps(policy: int) -> None:
    """Its cache reads them before it looks whether they are of this release: a class that is gone would be an error."""
    channel = SensorChannel("a", 0, Evidence(policy), is_clock=True)
    one = np.zeros(1, dtype=np.int64)
    channel.slots_of(one, ["s"])
    known = channel.ints, channel.floats, channel.sources, channel.tree, channel._rules
    frontier.step(*known, 0, 1, 0, NEVER, 1)
    frontier.run.py_func(*known, one, one, one + 2, 1, 1, one + 2, one.copy(), one.copy())
    loop = frontier._run_slack if policy == SLACK else frontier._run_ready
    for function in (frontier.step, loop):
        assert function.signatures
        assert not any(isinstance(kind, types.BaseTuple) for signature in function.signatures for kind in signature)
