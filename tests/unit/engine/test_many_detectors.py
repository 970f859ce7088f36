"""The work for an event follows whom it concerns."""

from __future__ import annotations

from typing import Any

import pytest

import slackline as sl
from slackline.running.operator import Operator


@pytest.mark.parametrize("in_turn", [False, True])
def test_an_event_for_one_of_many_detectors_makes_few_others_look(
    in_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, events = 100, 400
    kinds = [
        type(f"D{i}", (sl.Detector,), {"listens": (f"t{i}",), "on_event": lambda self, event: None}) for i in range(n)
    ]
    engine = sl.Engine(sl.Hierarchy([kind() for kind in kinds], clock=[f"t{i}" for i in range(n)]))
    stream = [sl.Event(f"t{i % n if in_turn else 0}", 10 * i, "s", i) for i in range(1100 + events)]
    engine.push(stream[:1100])  # beyond every warm-up
    looks: list[Any] = []
    look = Operator.evaluate
    monkeypatch.setattr(Operator, "evaluate", lambda each, *args: (looks.append(each), look(each, *args))[1])
    for event in stream[1100:]:
        engine.push(event)
    assert len(looks) < 4 * events
