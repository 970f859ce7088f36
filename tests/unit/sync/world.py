"""What the tests of the synchroniser share: a time to be set, short events, all methods."""

from __future__ import annotations

from typing import Any

import pytest

from slackline.core.event import Event
from slackline.sync import METHODS


class WallTime:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def e(source: Any, ts: Any, **payload: Any) -> Event:
    return Event("e", ts=ts, source=source, **payload)


def names(events: list[Event]) -> list[str]:
    return [f"{event.source}{event.ts}" for event in events]


every_method = pytest.mark.parametrize("method", METHODS)
