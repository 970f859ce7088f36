"""One way in: whatever its form, what is pushed is taken, refused or raised by the same rule. Each failed once."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engine.feeding import Copy, engine

import slackline as sl
from slackline.core.errors import ConcurrentUseError


class Keep(sl.Detector):
    """Keeps all that it sees."""

    listens: Any = ("a",)

    def __init__(self) -> None:
        self.got: list[sl.Event] = []

    def on_event(self, event: sl.Event) -> None:
        self.got.append(event)


def seen(*pushes: Any, kind: sl.Detector | None = None, **options: Any) -> list[sl.Event]:
    target = engine(kind or Keep(), clock="a", **options)
    for pushed in pushes:
        target.push(pushed)
    target.close()
    (detector,) = target.detectors.values()
    return detector.got


# A push takes all or nothing.


def test_a_table_of_views_is_taken_like_any_other() -> None:
    columns = {
        "ts": [1, 2],
        "source": pa.array(["s", "t"], pa.string_view()),
        "raw": pa.array([b"x", None], pa.binary_view()),
    }
    runs = pa.array([5, 5])
    table = pa.table({**columns, "n": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), runs[:1])})
    assert seen(table) == [sl.Event("a", 1, "s", raw=b"x", n=5), sl.Event("a", 2, "t", n=5)]


def test_a_push_that_raises_has_taken_nothing() -> None:
    class Strict(Keep):
        listens = ("a", sl.EventType("b", n="int8"))

    target = engine(Strict(), clock="a")
    rows = {"type": ["a", "a", "b"], "ts": [1, -5, 2], "source": ["s"] * 3, "seq": [0, 1, 0]}
    before = target.save()
    for wrong in ({"n": ["x"] * 3}, {}):
        with pytest.raises(sl.SlacklineError):
            target.push(pa.table({**rows, **wrong}))
    with pytest.raises(sl.SlacklineError):
        target.push([sl.Event("a", 1, "s", 0), ("a",)])  # type: ignore[list-item]
    assert target.save() == before
    target.push(pa.table({**rows, "n": [1, 1, 1]}))
    target.close()
    assert [event.ts for event in target.detectors["Strict"].got] == [1, 2]  # type: ignore[attr-defined]
    assert len(target.quarantined) == 1


# Values.


@pytest.mark.parametrize("form", ["events", "table"])
def test_a_declared_integer_never_wraps(form: str) -> None:
    class Narrow(Keep):
        listens = (sl.EventType("a", n="int8", u="uint8"),)

    rows = [(1, 300, 0), (2, -1, 0), (3, -129, 0), (4, 127, 255), (5, 0, -1), (6, 0, 256)]
    target = engine(Narrow(), clock="a")
    if form == "events":
        target.push([sl.Event("a", ts, n=n, u=u) for ts, n, u in rows])
    else:
        target.push(pa.table({"ts": [r[0] for r in rows], "n": [r[1] for r in rows], "u": [r[2] for r in rows]}))
    target.close()
    assert [(e.ts, e["n"], e["u"]) for e in target.detectors["Narrow"].got] == [(2, -1, 0), (4, 127, 255)]  # type: ignore[attr-defined]
    assert [(item.event.ts, item.reason) for item in target.quarantined] == [(ts, "bad value") for ts in (1, 3, 5, 6)]
    assert target.quarantined[0].detail == "field 'n' is 300, which int8 cannot hold"


@pytest.mark.parametrize("size", [1, 100])
def test_the_longest_waits_add_up_and_a_checkpoint_with_them_can_be_loaded(size: int) -> None:
    events = [sl.Event("a", 5, seq=n) for n in range(40)] + [sl.Event("a", 2**62)]
    target = engine(Keep(), clock="a", policy="ordered", max_jump=None)
    for start in range(0, len(events), size):
        target.push(events[start : start + size])
    again = sl.Engine.load(target.save(), target.hierarchy)
    assert again.stats()["detectors"]["Keep"]["wait_mean"] == pytest.approx(2**62)


@pytest.mark.parametrize("n", [1, 50])
def test_an_integer_beyond_all_floats_is_quarantined(n: int) -> None:
    class Typed(Keep):
        listens = (sl.EventType("a", x=float),)

    target = engine(Typed(), clock="a")
    target.push([sl.Event("a", ts, x=10**400 if ts == 0 else 1) for ts in range(n)])
    assert [(each.event.ts, each.reason) for each in target.quarantined] == [(0, "bad value")]


@pytest.mark.parametrize("form", ["events", "table"])
def test_a_declared_type_carries_its_fields_and_no_others(form: str) -> None:
    class Typed(Keep):
        listens = (sl.EventType("a", n=int, x=float, word=str),)

    pushed: Any = [sl.Event("a", 1, n=1, more=2), sl.Event("a", 2, x=1.0)]
    if form == "table":
        pushed = pa.table({"ts": [1, 2], "n": [1, None], "x": [None, 1.0], "word": pa.nulls(2), "more": [2, None]})
    target = engine(Typed(), clock="a")
    target.push(pushed)
    target.close()
    (event,) = target.detectors["Typed"].got  # type: ignore[attr-defined]
    assert event["n"] == 1 and np.isnan(event["x"]) and set(event.payload) == {"n", "x"}
    assert [(item.reason, item.event.ts) for item in target.quarantined] == [("bad value", 2)]


BIG = 2**53 + 1


@pytest.mark.parametrize(
    "later", [pa.array([0.5]), pa.array([1], pa.uint64()), pa.array([True]), pa.array([1], pa.int8()), pa.array(["x"])]
)
def test_values_that_wait_do_not_change_when_a_later_table_has_another_type(later: pa.Array) -> None:
    got = seen(pa.table({"ts": [1, 2], "id": [BIG, 7]}), pa.table({"ts": [3], "id": later}))
    assert [(type(event["id"]), event["id"]) for event in got] == [
        (type(value), value) for value in (BIG, 7, later[0].as_py())
    ]


def test_the_order_of_the_payload_does_not_depend_on_chunks() -> None:
    table = pa.table({"ts": [1, 2, 3], "x": [None, 2, 3], "y": [1.0, 2.0, 3.0]})
    whole, cut = (
        seen(table, policy=sl.Auto(warmup=50)),
        seen(table.slice(0, 1), table.slice(1), policy=sl.Auto(warmup=50)),
    )
    assert [list(event.payload) for event in whole] == [list(event.payload) for event in cut]
    assert [list(event.payload) for event in whole] == [["y"], ["x", "y"], ["x", "y"]]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.duration("ns"), pa.time64("ns"), pa.timestamp("ns", "Europe/Berlin")]
)
def test_nanoseconds_are_exact_and_can_be_saved(kind: pa.DataType) -> None:
    value = 1_700_000_000_123_456_789 % (86_399 * 10**9) if pa.types.is_time(kind) else 1_700_000_000_123_456_789
    nested = pa.StructArray.from_arrays([pa.array([value], kind)], ["at"])
    target = engine(Keep(), clock="a")
    target.push(pa.table({"ts": [1], "x": pa.array([value], kind), "nested": nested}))
    (waiting,) = target.buffered()["Keep"]
    (again,) = sl.Engine.load(target.save(), target.hierarchy).buffered()["Keep"]
    assert again == waiting and type(again["x"]) is type(waiting["x"])
    assert waiting["x"].astype(np.int64) == value == waiting["nested"]["at"].astype(np.int64)


# Numbers.


@pytest.mark.parametrize("form", ["events", "table"])
@pytest.mark.parametrize(("field", "reason"), [("ts", "bad time stamp"), ("seq", "bad sequence number")])
@pytest.mark.parametrize("value", [2**62 + 1, 2**63 - 1, 2**63, -1])
def test_numbers_beyond_2_to_62_are_quarantined_whatever_the_form(
    form: str, field: str, reason: str, value: int
) -> None:
    rows = {"ts": [1, 2], "seq": [0, 1], "source": ["s", "s"]}
    rows[field][1] = value
    target = engine(Keep(), clock="a")
    if form == "events":
        target.push([sl.Event("a", rows["ts"][i], "s", rows["seq"][i]) for i in range(2)])
    else:
        target.push(pa.table({**rows, field: pa.array(rows[field], pa.uint64() if value >= 2**63 else pa.int64())}))
    (item,) = target.quarantined
    assert item.reason == reason and item.detail == f"{field}={value} is not a whole number from 0 to 2**62"


def test_a_whole_number_of_any_kind_is_a_time_stamp_and_comes_back_as_an_integer() -> None:
    from decimal import Decimal

    events = [
        sl.Event("a", ts, source, seq)
        for ts, source, seq in ((np.int16(1), np.int64(5), np.uint8(0)), (2.0, "s", Decimal(3)))
    ]
    got = seen(events)  # type: ignore[arg-type]
    assert [(e.ts, e.source, e.seq) for e in got] == [(1, 5, 0), (2, "s", 3)]
    assert all(type(number) is int for e in got for number in (e.ts, e.seq))
    target = engine(Keep(), clock="a")
    target.push(pa.table({"type": ["a", "what"], "ts": [1.0, 2.0]}))
    assert type(target.quarantined[0].event.ts) is int


@pytest.mark.parametrize("policy", ["ordered", "slack", "ready", "auto"])
@pytest.mark.parametrize("top", [2**62, 2**62 - 1, 2**61 + 1, 2**61, 2**60])
def test_the_greatest_time_stamps_are_kept_in_order(policy: str, top: int) -> None:
    early = {"ready": sl.Ready(warmup=0), "auto": sl.Auto(warmup=0)}
    target = engine(Keep(), clock="a", policy=early.get(policy, policy), max_jump=None)
    for ts in (1, top, 2, 3, top):
        target.push([sl.Event("a", ts, source="s")])
    target.close()
    got = [event.ts for event in target.detectors["Keep"].got]  # type: ignore[attr-defined]
    assert got == sorted(got)
    assert sorted(got + [late.event.ts for late in target.late]) == [1, 2, 3, top, top]


def test_a_margin_of_absurd_delays_does_not_overflow() -> None:
    class Low(sl.Detector):
        listens, publishes, max_backdate = ("a", "c"), ("b",), 50

        def on_event(self, event: sl.Event) -> Any:
            yield event.derive("b", ts=max(0, event.ts - 5))

    class High(Keep):
        listens = ("b", "c")

    target = engine(Low(), High(), clock=("a", "c"), policy=sl.Slack(margin=3.7))
    for ts in (1, 2**62, 0, 1, 2**62):
        target.push(sl.Event("a", ts))
        target.push(sl.Event("c", ts))
    target.close()
    target.check_invariants()


# Use.


def test_an_engine_used_by_several_threads_says_so_and_loses_nothing_that_it_took() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    target = engine(Copy(), policy="slack")
    found: list[sl.Output] = []
    taken, refused = [0] * 4, [0] * 4

    def work(number: int) -> None:
        for i in range(2000):
            try:
                found.extend(target.push(sl.Event("in", 4 * i + number, source=number, seq=i)))
                taken[number] += 1
            except ConcurrentUseError:
                refused[number] += 1

    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    found += target.close()
    assert sum(refused) > 0 and target.stats()["arrivals"] == sum(taken)
    assert len({output.id for output in found}) == len(found) == sum(taken) - len(target.late)


def test_a_detector_that_pushes_into_its_own_engine_fails() -> None:
    class Loop(Copy):
        def on_event(self, event: sl.Event) -> Any:
            targets[0].push(event)
            yield event.derive("out")

    targets: list[sl.Engine] = []
    targets.append(engine(Loop(), policy="slack"))
    with pytest.raises(sl.SlacklineError, match="one thread at a time and never from its own detectors"):
        targets[0].push([sl.Event("in", 1), sl.Event("in", 5)])
