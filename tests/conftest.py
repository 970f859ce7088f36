"""Shared settings: property tests repeat to the bit in CI and are not timed."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("thorough", settings.get_profile("default"), derandomize=False, max_examples=1000)
# While something is broken: the first failing world, not the smallest.
settings.register_profile("first", settings.get_profile("default"), phases=[Phase.generate], report_multiple_bugs=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
