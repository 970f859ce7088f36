"""The state of an engine grows with what it has seen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slackline as sl
from slackline.ordering import target_slack


def detector(number: int) -> Any:
    class Every(sl.Detector):
        listens, publishes = ("a",), (f"x{number}",)

        def __init__(self) -> None:
            self.seen = 0

        def on_event(self, event: sl.Event) -> Iterator[sl.Event]:
            self.seen += 1
            if self.seen % 10 == 0:
                yield event.derive(f"x{number}", seen=self.seen)

    Every.__name__ = f"Every{number}"
    return Every()


def saved(detectors: int, events: int = 40, **options: Any) -> int:
    """The size of an engine that has seen so many events, each up to three steps late."""
    engine = sl.Engine(sl.Hierarchy([detector(n) for n in range(detectors)], clock="a"), **options)
    rng = random.Random(1)
    for n in sorted(range(events), key=lambda n: n + 3 * rng.random()):
        engine.push([sl.Event("a", 100 * n + rng.randrange(20), "s", n)])
    return len(engine.save())


@pytest.mark.parametrize("policy", ["auto", "slack", "ready"])
def test_an_engine_that_has_seen_little_has_a_small_state(policy: str) -> None:
    one = saved(1, policy=policy)
    assert one <= 3_000
    assert saved(5, policy=policy) - one <= 4 * 1_000


def test_the_buckets_in_use_give_the_same_slack_in_any_order_of_delays() -> None:
    """A bucket is inserted where it belongs; the weights of the others stay with them."""
    rng = np.random.default_rng(4)
    delays = rng.permutation(np.concatenate([2 ** np.arange(60), rng.integers(0, 10_000, 200)]))
    found = []
    for some in (delays, np.sort(delays), np.sort(delays)[::-1]):
        ints, floats = target_slack.empty_state()
        for delay in some.tolist():
            floats, room = target_slack.with_room(ints, floats, 1)
            assert room >= 1
            target_slack.count_delay(ints, floats, delay, 0, 0.0)
        used = int(ints[target_slack.USED])
        assert used == len({target_slack.bucket_of(int(delay)) for delay in (0, *delays)})
        weights = target_slack.trimmed(ints, floats)[target_slack.HISTOGRAM :]
        found.append((ints[target_slack.BITS :].tolist(), weights.tolist()))
        assert weights[::2].sum() == len(delays)
    assert found[0] == found[1] == found[2]
