"""Event types that name their sources, or want finite numbers: what does not fit is set aside, however it came."""

import math
import pickle
from typing import Any

import pyarrow as pa
import pytest

import slackline as sl

PLACE = sl.EventType("place", source="sid", sources=(4, 8), finite=True, x=float, y="float32")


class Seen(sl.Detector):
    listens, publishes = ("place",), ("seen",)
    fixed = ("table",)

    def __init__(self) -> None:
        self.table = [1, 2, 3]
        self.count = 0

    def on_event(self, event: sl.Event) -> Any:
        self.count += 1
        yield event.derive("seen", x=event["x"], count=self.count)


ROWS = [
    (4, 10, 1.0, 1.0),
    (5, 11, 2.0, 1.0),  # 5 is unknown
    (8, 12, math.nan, 1.0),
    (8, 13, 4.0, math.inf),
    (8, 14, 5.0, 1.0),
    (None, 15, 6.0, 1.0),
]


def pushed(form: str, rows: list[tuple[Any, ...]]) -> sl.Engine:
    engine = sl.Engine(sl.Hierarchy([Seen()], clock=(PLACE,)))
    if form == "events":
        engine.push([sl.Event("place", ts, sid, x=x, y=y) for sid, ts, x, y in rows])
    else:
        names = ("sid", "ts", "x", "y")
        engine.push(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}))
    return engine


@pytest.mark.parametrize("form", ["events", "table"])
def test_unknown_sources_and_missing_numbers_are_quarantined_and_the_rest_is_processed(form: str) -> None:
    engine = pushed(form, ROWS)
    assert [output.event["x"] for output in engine.close()] == [1.0, 5.0]
    assert [(item.event.ts, item.reason) for item in engine.quarantined] == [
        (11, "unknown source"),
        (12, "not finite"),
        (13, "not finite"),
        (15, "unknown source"),
    ]


@pytest.mark.parametrize("form", ["events", "table"])
def test_a_quarantined_source_delays_no_other(form: str) -> None:
    rows: list[tuple[Any, ...]] = [(5, 1, 0.0, 0.0)]
    rows += [(sid, 10 * n + sid, 1.0, 1.0) for n in range(100) for sid in (4, 8)]
    engine = pushed(form, rows)
    assert engine.stats()["types"]["place"]["sources"] == 2
    assert engine.stats()["buffered"] < 20


def test_a_table_without_its_source_column_is_an_error() -> None:
    engine = sl.Engine(sl.Hierarchy([Seen()], clock=(PLACE,)))
    with pytest.raises(sl.SlacklineError, match="'sid'"):
        engine.push(pa.table({"ts": [1], "x": [1.0], "y": [1.0]}))


def test_the_type_of_the_clock_is_declared_by_the_clock() -> None:
    assert sl.Hierarchy([Seen()], clock=(PLACE,)).types["place"] is PLACE


def test_two_declarations_that_differ_in_their_sources_are_an_error() -> None:
    class Other(Seen):
        listens, publishes = (sl.EventType("place", source="sid", x=float, y="float32"),), ("other",)

    with pytest.raises(sl.SlacklineError, match="declared twice"):
        sl.Hierarchy([Seen(), Other()], clock=(PLACE,))


def test_an_event_type_survives_the_way_to_a_worker() -> None:
    again = pickle.loads(pickle.dumps(PLACE))
    assert again == PLACE
    assert again.sources == {4, 8}


def test_fixed_attributes_are_no_state_and_survive_a_restore() -> None:
    detector = Seen()
    list(detector.on_event(sl.Event("place", 1, x=1.0)))
    state = detector.snapshot()
    assert state == {"count": 1}
    other = Seen()
    other.restore(state)
    assert (other.count, other.table) == (1, [1, 2, 3])
