"""The pytest plugin: fixtures for streams, runs and checks. It is loaded by itself where pytest and Slackline are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("slackline")
    group.addoption(
        "--slackline-seed", type=int, default=0, help="Seed of the cuts and shuffles of slackline_check (default 0)."
    )


@pytest.fixture
def slackline_stream() -> Callable[..., Any]:
    """:func:`slackline.testing.stream`."""
    from slackline.testing import stream

    return stream


@pytest.fixture
def slackline_run() -> Callable[..., Any]:
    """:func:`slackline.testing.run`."""
    from slackline.testing import run

    return run


@pytest.fixture
def slackline_check(request: pytest.FixtureRequest) -> Callable[..., None]:
    """:func:`slackline.testing.check`, with the seed of ``--slackline-seed``."""
    from slackline.testing import check

    seed = request.config.getoption("--slackline-seed")

    def checked(detectors: Any, events: Any) -> None:
        __tracebackhide__ = True
        check(detectors, events, seed=seed)

    return checked
