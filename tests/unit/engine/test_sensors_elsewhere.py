"""Sensor types that enter at several engines: their progress updates, late events and ends; wrong use is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engine.spread import A, Sees, a, b, engine, hierarchy, of, table

import slackline as sl
from slackline.core.errors import BufferLimitError, ClosedError, ConfigError
from slackline.core.time import FOREVER


@pytest.mark.parametrize("form", [list, table])
def test_news_of_a_sensor_type_is_a_batch_in_the_order_of_arrival(form: Any) -> None:
    here = engine(["a"], policy=sl.Ready(warmup=9))
    stream = [a(10), a(30, "z"), a(20)]
    here.push(form(stream))
    item = of("a", here.host.progress_updates())
    assert isinstance(item.events, sl.Batch) and list(item.events) == stream
    assert item.events["x"].dtype == np.float32 and item.events["word"].dtype == object
    assert (item.back, item.clk, item.K) == (0, 30, here.stats()["types"]["a"]["K"])


def test_events_and_tables_between_two_calls_are_one_progress_update() -> None:
    here, stream = engine(["a"], policy="slack"), [a(ts, f"s{ts % 3}") for ts in range(12)]
    for start, form in ((0, table), (3, list), (6, list), (9, table)):
        here.push(form(stream[start : start + 3]))
    item = of("a", here.host.progress_updates())
    assert isinstance(item.events, sl.Batch) and list(item.events) == stream
    assert item.events["x"].dtype == np.float32


def test_no_progress_is_sent_twice_nor_where_there_is_nothing_new() -> None:
    here = engine(["a"], ["Low", "High"])
    assert [item.type for item in here.host.progress_updates()] == [
        "a",
        "low",
        "high",
    ]  # how far they are, lower levels first
    assert here.host.progress_updates() == []
    here.push(a(10))
    assert [(item.type, item.clk) for item in here.host.progress_updates()] == [("a", 10), ("low", 10), ("high", 10)]
    assert here.host.progress_updates() == []


def test_an_engine_of_all_sensor_types_publishes_the_same_progress() -> None:
    here = sl.Engine(hierarchy(), policy=sl.Auto(warmup=0), detectors=["Low"])
    here.push([a(10), a(20)])
    assert (
        [item.type for item in here.host.progress_updates()]
        == [item.type for item in here.host.progress_updates()]
        == ["low"]
    )


def test_an_engine_that_gets_progress_uses_its_slack_and_measures_nothing() -> None:
    there = engine(["b"], ["Sees"])
    there.push(b(5))
    there.host.end("b")
    seen = there.detectors["Sees"].seen  # type: ignore[attr-defined]
    assert seen == []
    there.host.receive([sl.ProgressUpdate("a", (a(0), a(4), a(90)), (), 4, 0, 95, 33)])
    stats = there.stats()
    assert seen == [("a", 0), ("a", 4)]
    assert (stats["stream_time"], stats["types"]["a"]["events"], stats["types"]["a"]["K"]) == (95, 3, 33)
    there.host.receive([sl.ProgressUpdate("a", (), (), 89, 0, 95)])
    there.host.receive([sl.ProgressUpdate("a", (), (), 60, 0, 99)])  # less than was sent before
    assert seen == [("a", 0), ("a", 4), ("b", 5)] and there.stats()["stream_time"] == 99
    there.host.receive([sl.ProgressUpdate("a", (a(91),), (), 91, 0, 99)])
    assert seen[3:] == [("a", 90), ("a", 91)]


@pytest.mark.parametrize("form", [list, table])
def test_an_engine_with_the_clock_does_not_follow_progress_from_before_its_restart(form: Any) -> None:
    """After a crash an ingress is behind the progress that others have received; nothing is late for that."""
    events = [a(10 * i + (7 * i) % 40, f"s{i % 3}") for i in range(60)]
    here = engine(["a"], ["Low"])
    here.push(form(events[:30]))
    kept = here.save()
    here.push(form(events[30:]))
    lates = [late.event for late in here.late]
    back = sl.Engine.load(kept, hierarchy())
    clk = here.stats()["stream_time"]
    back.host.receive([sl.ProgressUpdate("b", (), (), clk, 0, clk), sl.ProgressUpdate("high", (), (), clk, 0, clk)])
    back.push(form(events[30:]))
    assert [late.event for late in back.late] == lates
    assert (of("a", back.host.progress_updates()).watermark, back.stats()["stream_time"]) == (
        of("a", here.host.progress_updates()).watermark,
        clk,
    )


def test_rows_that_come_as_news_stay_columns() -> None:
    class Fast(sl.Detector):
        listens, publishes = (A,), ("fast",)

        def __init__(self) -> None:
            self.kinds: list[str] = []

        def on_batch(self, batch: sl.Batch) -> Any:
            self.kinds.append(str(batch["x"].dtype))
            yield len(batch) - 1, sl.Event("fast", ts=int(batch.ts[-1]), rows=len(batch))

    def fast() -> sl.Hierarchy:
        return sl.Hierarchy([Fast()], clock="a")

    here = sl.Engine(fast(), sensors=["a"], detectors=[], policy="ordered")
    there = sl.Engine(fast(), sensors=[], policy="ordered")
    here.push(table([a(ts) for ts in range(100)]))
    (found,) = there.host.receive(here.host.progress_updates())
    assert found.event == sl.Event("fast", ts=98, source="Fast", seq=0, rows=99)
    assert there.detectors["Fast"].kinds == ["float32"]  # type: ignore[attr-defined]


def test_by_slack_alone_rows_from_elsewhere_are_arrivals() -> None:
    here, there = engine(["a"], policy=sl.Slack(margin=0)), engine(["b"], ["Sees"], policy=sl.Slack(margin=0))
    here.push([a(100), a(60), a(110)])
    there.host.receive(here.host.progress_updates())
    mine, exported = (each.stats()["types"]["a"] for each in (here, there))
    assert mine["K"] == exported["K"] == 41 and there.stats()["stream_time"] == 110
    there.host.receive([sl.ProgressUpdate("a", (), (), 0, 0, 200)])
    assert there.stats()["stream_time"] == 200


# What is late.


@pytest.mark.parametrize("form", [list, table])
def test_late_events_are_diverted_once_where_they_enter(form: Any) -> None:
    here = engine(["a", "b"], ["Low", "Sees"], policy="ordered")
    here.push(form([a(10), a(20), a(15), a(19), a(20)]))
    assert [(late.event.ts, late.lateness, late.detector, late.position) for late in here.late] == [
        (15, 4, None, 2),
        (19, 0, None, 3),
    ]
    assert [event.ts for event in of("a", here.host.progress_updates()).events] == [10, 20, 20]
    assert here.stats()["types"]["a"]["late"] == 2 and here.stats()["types"]["a"]["events"] == 5
    here.host.end(["a", "b"])
    assert here.detectors["Sees"].seen == [("a", 10), ("a", 20), ("a", 20)]  # type: ignore[attr-defined]


def test_late_events_that_are_requested_are_reported_and_delivered() -> None:
    here = engine(["a", "b"], ["Sees"], policy="ordered", late="deliver")
    there = engine([], ["SeesToo"], policy="ordered", late="deliver")
    for events in ([b(1), a(10), a(20), a(15)], [a(30)]):
        here.push(events)
        there.host.receive([item for item in here.host.progress_updates() if item.type in "ab"])
    assert here.late == there.late == []
    for each in (*here.detectors.values(), *there.detectors.values()):
        assert sorted(each.seen) == [("a", 10), ("a", 15), ("a", 20), ("b", 1)]  # type: ignore[attr-defined]


def test_a_watermark_that_others_rely_on_does_not_move_back() -> None:
    here = engine(["a"], policy=sl.Auto(timeout=10, warmup=0))
    here.push([a(ts) for ts in range(0, 200, 10)])
    exported = of("a", here.host.progress_updates()).watermark
    here.push([a(exported + 1, "new"), a(exported, "new")])  # a source that is far behind
    assert [late.event.ts for late in here.late] == [exported]
    assert of("a", here.host.progress_updates()).watermark >= exported


def test_what_is_in_order_where_it_enters_is_not_late_whatever_comes_elsewhere() -> None:
    here, there = engine(["a"], policy="ordered"), engine(["b"], ["Sees"], policy="ordered")
    here.push([a(10), a(500)])
    there.host.receive(here.host.progress_updates())
    for ts in (5, 30, 30, 400):
        there.push(b(ts))
    assert there.late == [] and there.detectors["Sees"].seen == [("b", 5), ("a", 10), ("b", 30), ("b", 30)]  # type: ignore[attr-defined]


# The end.


@pytest.mark.parametrize("policy", [sl.Auto(warmup=0), sl.Ready(warmup=0), "ordered", "slack"])
@pytest.mark.parametrize("form", [list, table])
def test_the_end_goes_through_all_levels_and_engines(policy: Any, form: Any) -> None:
    first, second, third = (
        engine(["a"], ["Low"], policy=policy),
        engine(["b"], ["High"], policy=policy),
        engine([], ["Top"], policy=policy),
    )
    found = first.push(form([a(ts) for ts in range(10, 100, 10)]))
    found += (
        second.host.receive(first.host.progress_updates())
        + second.push(form([b(200)]))
        + third.host.receive(second.host.progress_updates())
    )
    found += (
        first.host.end("a")
        + second.host.receive(first.host.progress_updates())
        + third.host.receive(second.host.progress_updates())
    )
    assert third.stats()["detectors"]["Top"]["delivered"] < 10
    found += second.host.end(["b"])
    updates = second.host.progress_updates()
    assert [(item.type, item.watermark) for item in updates] == [("b", FOREVER), ("high", FOREVER)]
    found += third.host.receive(updates)
    assert {name: sum(o.detector == name for o in found) for name in ("Low", "High", "Top")} == {
        "Low": 9, "High": 10, "Top": 10,
    }  # fmt: skip
    assert third.host.progress_updates()[-1].watermark == FOREVER


def test_what_has_ended_cannot_be_pushed() -> None:
    here = engine(["a", "b"], ["Sees"])
    here.push([a(10), b(10)])
    here.host.end(["a"])
    before = here.save()
    for more in ([b(20), a(20)], table([b(20), a(20)])):
        with pytest.raises(ClosedError, match=r"push of \['a'\] after end"):
            here.push(more)
    assert here.save() == before
    again = sl.Engine.load(before, hierarchy())
    with pytest.raises(ClosedError):
        again.push(a(20))
    again.push(b(20))
    assert again.host.end("b") == [] and again.buffered()["Sees"] == []


def test_closing_ends_what_enters_here_and_no_more() -> None:
    here, there = engine(["a"]), engine(["b"], ["Sees"])
    here.push([a(10), a(20)])
    there.push(b(15))
    assert there.close() == [] and there.buffered()["Sees"] == [b(15)]
    there.host.receive(here.host.progress_updates())
    here.close()
    there.host.receive(here.host.progress_updates())
    assert there.detectors["Sees"].seen == [("a", 10), ("b", 15), ("a", 20)]  # type: ignore[attr-defined]


def test_a_detector_waits_for_the_end_of_what_it_takes_unsorted_too() -> None:
    class Eager(Sees):
        publishes = ("eager",)
        unsorted = ("b",)

        def on_event(self, event: sl.Event) -> Any:
            yield event.derive("eager")

    here = sl.Engine(sl.Hierarchy([Eager()], clock="a"), sensors=["a", "b"], policy=sl.Auto(warmup=0))
    here.push([a(10), b(5)])
    here.host.end("a")
    assert of("eager", here.host.progress_updates()).watermark < FOREVER
    here.push(b(20))
    here.host.end("b")
    assert of("eager", here.host.progress_updates()).watermark == FOREVER


# Detectors that move.


@pytest.mark.parametrize("form", [list, table])
def test_a_restart_keeps_which_progress_was_sent(form: Any) -> None:
    def loaded(one: sl.Engine) -> sl.Engine:
        return sl.Engine.load(one.save(), hierarchy())

    here, there = engine(["a"]), engine(["b"], ["Sees"])
    here.push(form([a(10), a(20), a(5), a(30)]))
    updates = loaded(here).host.progress_updates()
    assert list(of("a", updates).events) == list(of("a", here.host.progress_updates()).events)
    there.push(form([b(15)]))
    there.host.receive(updates)
    other = loaded(there)
    assert other.buffered() == there.buffered() and other.stats() == there.stats()
    for each in (there, other):
        each.host.end("b")
        each.host.receive([sl.ProgressUpdate("a", (), (), FOREVER, 0, 30)])
    assert [d.seen for d in other.detectors.values()] == [d.seen for d in there.detectors.values()]  # type: ignore[attr-defined]
    assert loaded(other).buffered()["Sees"] == []


# Wrong use.


def batch(events: list[sl.Event], **columns: Any) -> sl.Batch:
    made = sl.Batch.of_events("a", events, A.fields)
    own = {"ts": made.ts, "slots": made.sources[0], "seq": made.seq}
    own |= {name: columns.pop(name) for name in list(columns) if name in own}
    payload = {field: made[field] for field in made.fields} | columns
    payload = {field: column for field, column in payload.items() if column is not None}
    return sl.Batch("a", own["ts"], own["slots"], own["seq"], payload, columns.pop("names", ["s"]))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (sl.ProgressUpdate("b", (b(3),), (), 0, 0, 0), "it enters this engine"),
        (sl.ProgressUpdate("sight", (), (), 0, 0, 0), "'Sees' runs in this engine"),
        (sl.ProgressUpdate("zzz", (), (), 0, 0, 0), "which no detector of the hierarchy publishes or listens to"),
        (sl.ProgressUpdate("a", (b(3),), (), 0, 0, 0), "not all of them are events of this type"),
        (sl.ProgressUpdate("a", (sl.Event("a", 2.5),), (), 0, 0, 0), "integer time stamps"),  # type: ignore[arg-type]
        (sl.ProgressUpdate("a", (sl.Event("a", 3, x=0.5),), (), 0, 0, 0), "contains invalid events"),
        (sl.ProgressUpdate("a", sl.Batch.of_events("b", [b(3)]), (), 0, 0, 0), "batch is of type 'b'"),
        (sl.ProgressUpdate("a", batch([a(3)], x=None), (), 0, 0, 0), "field 'x' is missing"),
        (
            sl.ProgressUpdate("a", batch([a(3)], x=np.array([0.5])), (), 0, 0, 0),
            "'x' is of float64, and declared as float32",
        ),
        (
            sl.ProgressUpdate("a", batch([a(3)], more=np.array([1, 2])[:0]), (), 0, 0, 0),
            "'more' has 0 values for 1 events",
        ),
        (sl.ProgressUpdate("a", batch([a(3)], ts=np.array([-1])), (), 0, 0, 0), "must be from 0 to"),
        (sl.ProgressUpdate("a", batch([a(3)], ts=np.array([3.0])), (), 0, 0, 0), "not int64"),
        (sl.ProgressUpdate("a", batch([a(3)], seq=np.array([-2])), (), 0, 0, 0), "must be from 0 to"),
        (sl.ProgressUpdate("a", batch([a(3)], slots=np.array([1])), (), 0, 0, 0), "that it does not name"),
        (sl.ProgressUpdate("a", sl.Batch("a", *3 * [np.zeros(1, int)], {}, [2.5]), (), 0, 0, 0), "2.5 is neither"),  # type: ignore[arg-type, list-item]
        (sl.ProgressUpdate("a", None, (), 0, 0, 0), "contains invalid events"),  # type: ignore[arg-type]
        (sl.ProgressUpdate("a", (), (), FOREVER + 1, 0, 0), "watermark="),
        (sl.ProgressUpdate("a", (), (), 0, 0, 1.5), "clk=1.5"),  # type: ignore[arg-type]
        (sl.ProgressUpdate("low", (), ("x",), 0, 0, 0), "warnings='x'"),  # type: ignore[arg-type]
        (sl.ProgressUpdate("low", (sl.Event("low", -4),), (), 0, 0, 0), "must be from 0 to"),
        (sl.ProgressUpdate("low", (), (), 0, -1, 0), "back=-1"),
        (sl.ProgressUpdate("low", (), (), 0, 0, 0, -1), "K=-1"),
    ],
)
def test_news_that_cannot_be_is_refused_and_changes_nothing(item: sl.ProgressUpdate, message: str) -> None:
    there = engine(["b"], ["High", "Sees"])
    there.push([b(10), b(20)])
    before = there.save()
    with pytest.raises(ConfigError, match=message):
        there.host.receive([sl.ProgressUpdate("a", (a(3),), (), 0, 0, 3), item])
    assert there.save() == before


def test_what_enters_elsewhere_is_quarantined_if_it_is_pushed() -> None:
    here = engine(["a"])
    for more in ([b(3)], table([b(3)])):
        here.push(more)
    assert [(q.event, q.reason) for q in here.quarantined] == 2 * [(b(3), "unknown type")]
    assert "does not enter this engine (sensors=['a'])" in here.quarantined[0].detail


def test_a_table_without_types_is_of_the_one_type_that_enters() -> None:
    here = engine(["b"])
    here.push(pa.table({"ts": [1, 2]}))
    assert of("b", here.host.progress_updates()).events.ts.tolist() == [1, 2]  # type: ignore[union-attr]


def test_only_sensor_types_can_enter_and_only_what_enters_can_end() -> None:
    with pytest.raises(ConfigError, match=r"sensors=\['low'\] are not sensor types"):
        engine(["a", "low"])
    with pytest.raises(ConfigError, match=r"end\(\): \['b'\] are not sensor types of this engine"):
        engine(["a"]).host.end(["a", "b"])


def test_what_is_not_collected_counts_against_the_limit() -> None:
    here = engine(["a"], max_buffered=3)
    with pytest.raises(BufferLimitError, match=r"call engine.host.progress_updates\(\)"):
        here.push([a(ts) for ts in range(4)])
    assert len(of("a", here.host.progress_updates()).events) == 4
    here.push([a(9)])
