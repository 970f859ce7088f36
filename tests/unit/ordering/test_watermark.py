"""What the compiled loops are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.core import types

from slackline.core.time import NEVER
from slackline.ordering import records, watermark
from slackline.ordering.input import Evidence, SensorInput
from slackline.ordering.watermark import AUTO, SLACK


@pytest.mark.parametrize(
    ("policy", "target", "loop"),
    [(SLACK, None, watermark.run_slack), (AUTO, None, watermark.run_ready), (AUTO, 0.001, watermark.run_target)],
)
def test_no_class_of_ours_gets_into_the_signatures_that_numba_keeps(
    policy: int, target: float | None, loop: Any
) -> None:
    """Its cache reads them before it looks whether they are of this release: a class that is gone would be an error."""
    input = SensorInput("a", 0, Evidence(policy, late_target=target), is_clock=True)
    one = np.zeros(1, dtype=np.int64)
    input.sources.slots_of(one, ["s"])
    input.step(input.slot_of("s"), 1, 0, NEVER, 1)
    input.run(one, one, one + 2, 1, 1, one + 2, (one, one))
    for function in (records.step, loop):
        assert function.signatures
        assert not any(isinstance(kind, types.BaseTuple) for signature in function.signatures for kind in signature)
