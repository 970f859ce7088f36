"""Classic K-slack with K as the largest delay ever: safe after the first mishap, and slow for ever."""

from __future__ import annotations

import numpy as np

from slackline.study.outcome import Ints, Outcome, under_watermark


def max_slack(ts: Ints) -> Outcome:
    """The watermark is the clock minus the largest delay so far; every event is a clock event."""
    clock = np.maximum.accumulate(ts)
    slack = np.maximum.accumulate(clock - ts)
    return under_watermark(ts, clock - slack)
