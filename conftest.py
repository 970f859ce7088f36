"""Shared settings: property tests repeat to the bit in CI and are not timed; in CI nothing is skipped."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("thorough", settings.get_profile("default"), derandomize=False, max_examples=1000)
# What ./run test --quick takes: fewer worlds, the same ones every time.
settings.register_profile("quick", settings.get_profile("default"), max_examples=25)
# While something is broken: the first failing world, not the smallest.
settings.register_profile("first", settings.get_profile("default"), phases=[Phase.generate], report_multiple_bugs=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


#: Rooms whose tests start a broker, start processes that wait for each other, or install packages.
ROOMS = ("kafka", "processes", "packaging")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start Spark, a broker or processes: `./run test` runs them after the others."""
    tests = Path(__file__).parent / "tests"
    for item in items:
        if item.get_closest_marker("spark") or any(tests / room in item.path.parents for room in ROOMS):
            item.add_marker(pytest.mark.external)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped has failed: somebody would believe that it passed."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which in CI means failed: {report.longrepr}"
    return report
