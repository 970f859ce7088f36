"""Detectors that misbehave: the event is quarantined, the rest is processed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.unit.engine.feeding import FORMS, Copy, engine, push

import slackline as sl
from slackline.core.errors import (
    DetectorError,
    NotAnEventError,
)


class Picky(Copy):
    """Raises on time stamps that end in 3, after it has changed its state."""

    def on_event(self, event: sl.Event):
        self.seen.append(event.ts)
        yield event.derive("out")
        if event.ts % 10 == 3:
            raise ValueError("I do not like this")


class PickyBatch(Copy):
    on_event = sl.Detector.on_event

    def on_batch(self, batch: sl.Batch):
        for row, ts in enumerate(batch.ts.tolist()):
            self.seen.append(ts)
            yield row, batch.event(row).derive("out")
            if ts % 10 == 3:
                raise ValueError("I do not like this")


@FORMS
@pytest.mark.parametrize("kind", [Picky, PickyBatch])
def test_quarantine_sets_the_event_aside_and_leaves_the_state_as_before_it(form: str, kind: type[Copy]) -> None:
    target = engine(kind(), on_error="quarantine", policy="slack")
    found = push(target, form, list(range(30))) + push(target, form, list(range(30, 400))) + target.close()
    expected = [ts for ts in range(400) if ts % 10 != 3]
    assert target.detectors[kind.__name__].seen == expected
    assert [output.event.ts for output in found] == expected
    assert [output.event.seq for output in found] == list(range(len(expected)))
    assert [item.event.ts for item in target.quarantined] == list(range(3, 400, 10))
    assert target.quarantined[0].detector == kind.__name__ and target.quarantined[0].position == 3
    assert "I do not like this" in target.quarantined[0].detail


@FORMS
@pytest.mark.parametrize("kind", [Picky, PickyBatch])
def test_a_detector_that_raises_is_an_error_that_names_it_and_the_engine_stays_usable(
    form: str, kind: type[Copy]
) -> None:
    target = engine(kind(), policy="slack")
    with pytest.raises(
        DetectorError, match=f"detector '{kind.__name__}' raised ValueError: I do not like this"
    ) as caught:
        push(target, form, list(range(10)))
    error = caught.value
    assert re.search(r"\(test_bad_detectors\.py, line \d+\) on Event\('in', ts=3\)", str(error))
    assert error.event == sl.Event("in", 3) and error.state_size > 0 and error.failures == 1
    assert [output.event.ts for output in error.outputs] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    found = push(target, form, [20, 21])
    assert [output.event.ts for output in found] == [20, 21]
    assert [item.event.ts for item in target.quarantined] == [3]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (["hit"], "published 'hit' of type str, which is not an event"),
        (7, "returned 7"),
        ("hit", "on_event returned 'hit'"),
        ({"type": "hit"}, "on_event returned"),
        (sl.Event("out", 1), "yield it"),
        ([sl.Event("other", 1)], "of type 'other', which `publishes` does not declare"),
        ([sl.Event("out", -1)], "its ts must be"),
        ([sl.Event("out", 1.5)], "its ts must be"),  # type: ignore[arg-type]
    ],
)
def test_publishing_what_is_no_event_says_what_to_yield(result: Any, message: str) -> None:
    class Strange(Copy):
        def on_event(self, event: sl.Event) -> Any:
            return result

    with pytest.raises(DetectorError, match=message) as caught:
        engine(Strange(), policy="slack").push([sl.Event("in", 1)])
    assert isinstance(caught.value.cause, NotAnEventError)


@pytest.mark.parametrize(
    ("item", "message"), [(sl.Event("out", 1), "pairs"), ((5, sl.Event("out", 1)), "row 5 of a batch")]
)
def test_on_batch_must_yield_rows_and_events(item: Any, message: str) -> None:
    class Strange(Copy):
        on_event = sl.Detector.on_event

        def on_batch(self, batch: sl.Batch) -> Any:
            yield item

    with pytest.raises(DetectorError, match=message):
        engine(Strange(), policy="slack").push([sl.Event("in", 1)])


def test_numpy_time_stamps_of_derived_events_become_plain_integers() -> None:
    class Numpy(Copy):
        def on_event(self, event: sl.Event):
            yield sl.Event("out", ts=np.int64(event.ts))  # type: ignore[arg-type]

    [output] = engine(Numpy(), policy="slack").push([sl.Event("in", 1)])
    assert type(output.event.ts) is int
