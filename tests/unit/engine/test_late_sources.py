"""Sources of which far more events are late than the target allows are reported."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from slackline import Detector, Engine, Event, Hierarchy


class Echo(Detector):
    listens, publishes = ("reading",), ("seen",)

    def on_event(self, event: Event) -> Any:
        yield event.derive("seen")


def readings(n: int = 8_000) -> list[Event]:
    """One event in a hundred is of a source with 2 s delay, shuffled among the others by 20 ms."""
    chance = random.Random(6)
    made = []
    for ts in range(0, 10 * n, 10):
        slow = chance.random() < 0.01
        delay = chance.uniform(1_000, 2_000) if slow else chance.uniform(0, 20)
        made.append((ts + delay, Event("reading", ts=ts, source="slow" if slow else f"s{chance.randrange(9)}")))
    return [event for _, event in sorted(made, key=lambda each: each[0])]


@pytest.mark.parametrize("form", ["events", "table"])
def test_a_slow_source_is_reported_with_its_share(form: str) -> None:
    given = readings()
    engine = Engine(Hierarchy([Echo()]), late_target=0.01)
    if form == "table":
        rows = [{"type": "reading", "ts": event.ts, "source": event.source} for event in given]
        engine.push(pa.Table.from_pylist(rows))
    else:
        for event in given:
            engine.push([event])
    late = engine.drain().late
    (found,) = engine.stats()["types"]["reading"]["late_sources"]
    assert len(late) <= 1.2 * 0.01 * len(given), "the target is kept over all sources"
    assert found["source"] == "slow"
    assert found["late"] == sum(item.event.source == "slow" for item in late)
    assert found["share"] > 0.5
    assert found["of_all_late"] > 0.5
    restored = Engine.load(engine.save(), Hierarchy([Echo()]))
    assert restored.stats()["types"]["reading"]["late_sources"] == [found]


def test_no_source_is_reported_where_all_are_alike() -> None:
    engine = Engine(Hierarchy([Echo()]), late_target=0.01)
    engine.push([event for event in readings() if event.source != "slow"])
    assert engine.stats()["types"]["reading"]["late_sources"] == []
