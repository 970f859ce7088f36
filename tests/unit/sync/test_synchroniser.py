"""Streams that come and go, fail, are late, or make no sense."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from slackline.core.errors import BufferLimitError, ClosedError, ConfigError, StateError
from slackline.core.event import MAX_TS, Event
from slackline.sync import METHODS, Late, Quarantined, Synchroniser


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def e(source: Any, ts: Any, **payload: Any) -> Event:
    return Event("e", ts=ts, source=source, **payload)


def names(events: list[Event]) -> list[str]:
    return [f"{event.source}{event.ts}" for event in events]


every_method = pytest.mark.parametrize("method", METHODS)


@every_method
def test_an_event_waits_until_every_stream_has_reached_it(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method)
    assert names(sync.push([e("a", 3), e("b", 5)])) == []
    assert sync.owing() == ("c",)
    assert names(sync.push(e("c", 4))) == ["a3"]
    assert (sync.waiting, sync.waiting_of("b"), sync.waiting_of("a")) == (2, 1, 0)
    assert names(sync.close()) == ["c4", "b5"]
    assert sync.owing() == ()


@every_method
def test_events_of_one_tick_go_out_together_by_stream_name(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method)
    assert names(sync.push([e("c", 5), e("a", 5)])) == []
    assert names(sync.push(e("b", 5))) == ["a5", "b5", "c5"]


@every_method
def test_a_stream_may_repeat_a_time_stamp_and_its_events_keep_their_order(method: str) -> None:
    sync = Synchroniser(list("ab"), method=method)
    first = sync.push([e("a", 5, nr=1), e("a", 5, nr=2), e("b", 5, nr=1)])
    assert [(event.source, event["nr"]) for event in first] == [("a", 1), ("b", 1)]
    rest = sync.push([e("b", 7, nr=2), e("a", 7, nr=3)])
    assert [(event.source, event["nr"]) for event in rest] == [("a", 2), ("a", 3), ("b", 2)]
    assert sync.stats()["a"].repeated == 1


# --- streams that come and go ------------------------------------------------------------------------------------


@every_method
def test_what_waits_already_does_not_wait_for_a_stream_that_joins(method: str) -> None:
    sync = Synchroniser(list("ab"), method=method)
    sync.push([e("a", 3), e("a", 6)])
    sync.add("new")
    assert sync.streams == ("a", "b", "new")
    sync.push(e("a", 9))
    assert names(sync.push(e("b", 10))) == ["a3", "a6"]  # a9 came after the newcomer and waits for it
    assert sync.owing() == ("new",)
    assert names(sync.push(e("new", 9))) == ["a9", "new9"]


@every_method
def test_tables_of_different_size_compare_on_what_they_share(method: str) -> None:
    sync = Synchroniser(list("ab"), method=method)
    sync.push(e("a", 8))
    sync.add("new")
    out = sync.push(e("b", 4))  # has a bit for the newcomer, but must not wait longer than a8, which has none
    assert names(out + sync.push(e("b", 9))) == ["b4", "a8"]
    assert sync.owing() == ("a", "new")


@every_method
def test_nobody_waits_for_a_stream_that_was_removed_and_what_of_it_waits_goes_out(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method)
    sync.push([e("a", 3), e("b", 4), e("a", 5)])
    assert names(sync.remove("c")) == ["a3", "b4"]
    assert names(sync.remove("b")) == ["a5"]
    assert sync.stats()["b"].removed and not sync.stats()["b"].disabled
    with pytest.raises(ConfigError, match=r"there is no stream 'b'; there are \['a'\]"):
        sync.push(e("b", 6))


@every_method
def test_a_newcomer_may_have_the_bit_of_a_removed_stream(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method)
    sync.push([e("a", 5), e("b", 2)])
    out = sync.remove("c")
    sync.add("d")  # in the place of c, by which a5 was owed something
    assert names(out + sync.push(e("b", 6))) == ["b2", "a5"]
    assert sync.owing() == ("a", "d")
    sync.check_invariants()


def test_a_stream_that_joins_again_goes_on_counting() -> None:
    sync = Synchroniser(list("ab"))
    sync.push([e("a", 1), e("b", 1), e("b", 2)])
    sync.remove("b")
    sync.add("b")
    sync.push([e("b", 5), e("a", 6)])
    sync.close()
    stats = sync.stats()["b"]
    assert (stats.received, stats.released, stats.removed) == (3, 3, False)
    sync.check_invariants()


def test_readiness_tables_grow_with_the_streams_that_are_there_not_with_those_that_were() -> None:
    sync = Synchroniser(["stays"], method="method2")
    for i in range(200):
        sync.add(f"guest{i}")
        sync.push(e("stays", i))
        sync.remove(f"guest{i}")
    assert sync._method._all == 0b11  # type: ignore[attr-defined]


@every_method
def test_without_streams_nothing_is_waited_for(method: str) -> None:
    sync = Synchroniser(["a"], method=method)
    assert names(sync.push(e("a", 3))) == ["a3"]
    assert sync.remove("a") == []
    assert sync.close() == []


# --- failures ----------------------------------------------------------------------------------------------------


@every_method
def test_an_event_held_longer_than_md_goes_out_at_the_next_step_and_counts_against_who_owed(method: str) -> None:
    clock = Clock()
    sync = Synchroniser(list("abc"), method=method, clock=clock, max_delay=10, max_failures=9)
    sync.push(e("a", 3))
    clock.now = 4
    sync.push(e("b", 5))
    clock.now = 10
    assert sync.step() == []  # ten, not longer than ten
    clock.now = 10.5
    assert names(sync.step()) == ["a3"]
    assert sync.failed == ("c",) and not sync.is_disabled("c")
    assert {name: stats.failures for name, stats in sync.stats().items()} == {"a": 0, "b": 0, "c": 1}
    clock.now = 15
    assert names(sync.step()) == ["b5"]
    assert {name: stats.failures for name, stats in sync.stats().items()} == {"a": 1, "b": 0, "c": 2}


@every_method
def test_older_events_go_out_with_one_that_timed_out_though_they_came_later(method: str) -> None:
    clock = Clock()
    sync = Synchroniser(list("abc"), method=method, clock=clock, max_delay=10)
    sync.push(e("a", 8))
    clock.now = 9
    sync.push(e("b", 2))
    clock.now = 11
    assert names(sync.step()) == ["b2", "a8"]
    assert sync.stats()["c"].failures == 1  # b2 had not waited too long


@every_method
def test_ms_failures_disable_a_stream_until_it_delivers_something_newer(method: str) -> None:
    clock = Clock()
    sync = Synchroniser(list("ab"), method=method, clock=clock, max_delay=1, max_failures=2)
    for ts in (10, 20, 30):
        sync.push(e("a", ts))
        clock.now += 2
        sync.step()
    assert sync.stats()["b"].disabled and sync.stats()["b"].times_disabled == 1
    assert sync.is_disabled("b") and sync.failed == ()  # in the last step nobody failed
    assert sync.stats()["b"].failures == 2  # a30 did not wait for it any more
    assert names(sync.push(e("a", 40))) == ["a40"]
    assert sync.push(e("b", 35)) == []  # older than what was processed: late, and still disabled
    assert sync.stats()["b"].disabled and sync.late == [Late(e("b", 35), 5)]
    assert sync.push(e("b", 45)) == []  # newer: back again, and it waits for the others
    assert not sync.stats()["b"].disabled
    assert names(sync.push(e("a", 50))) == ["b45"]
    assert sync.owing() == ("b",)  # and others wait for it


@every_method
def test_a_stream_that_never_delivers_holds_up_nobody_for_ever(method: str) -> None:
    clock = Clock()
    sync = Synchroniser(["a", "b", "dead"], method=method, clock=clock, max_delay=5, max_failures=3)
    out = []
    for ts in range(100):
        clock.now = ts
        out += sync.push([e("a", ts), e("b", ts)])
    assert len(out) > 190
    assert sync.stats()["dead"].disabled and sync.stats()["dead"].last_ts is None
    assert not sync.stats()["a"].disabled and not sync.stats()["b"].disabled


def test_an_event_of_a_tick_that_has_gone_out_is_not_older_and_comes_after_it() -> None:
    clock = Clock()
    sync = Synchroniser(list("ab"), clock=clock, max_delay=1, max_failures=9)
    sync.push(e("b", 5))
    clock.now = 2
    assert names(sync.step()) == ["b5"]
    assert sync.push(e("a", 5)) == []
    assert sync.late == []
    assert names(sync.push(e("b", 6))) == ["a5"]


@pytest.mark.parametrize("jump", [1e12, -1e12, math.nan])
def test_a_clock_that_jumps_breaks_no_order_and_loses_nothing(jump: float) -> None:
    clock = Clock()
    sync = Synchroniser(list("ab"), clock=clock, max_delay=5)
    out = sync.push([e("a", 1), e("a", 2)])
    clock.now = jump
    out += sync.push([e("b", 3), e("a", 4)]) + sync.step() + sync.close()
    assert names(out) == ["a1", "a2", "b3", "a4"]
    sync.check_invariants()


def test_who_was_waited_for_and_how_long() -> None:
    clock = Clock()
    sync = Synchroniser(["quick", "slow"], clock=clock)
    sync.push([e("quick", 1), e("quick", 2)])
    clock.now = 7
    sync.push(e("slow", 5))
    stats = sync.stats()
    assert (stats["slow"].held_up, stats["slow"].held_up_total) == (2, 14)
    assert (stats["quick"].wait_total, stats["quick"].wait_max, stats["quick"].held_up) == (14, 7, 0)


# --- bad input ---------------------------------------------------------------------------------------------------


@every_method
def test_a_stream_whose_time_stamps_go_back_is_put_in_order_where_that_is_possible_and_late_where_not(
    method: str,
) -> None:
    sync = Synchroniser(list("ab"), method=method)
    out = sync.push([e("a", 5), e("a", 9), e("a", 7), e("b", 6), e("a", 2), e("b", 20), e("a", 20)])
    assert names(out) == ["a5", "b6", "a7", "a9", "a20", "b20"]
    assert [(late.event.ts, late.event.source) for late in sync.late] == [(2, "a")]
    assert (sync.stats()["a"].backwards, sync.stats()["a"].late) == (2, 1)
    sync.check_invariants()


def test_an_event_behind_a_late_one_of_its_stream_is_backwards_too() -> None:
    sync = Synchroniser(list("ab"))
    sync.push([e("a", 5), e("b", 20), e("a", 20), e("a", 11), e("b", 30), e("b", 12), e("b", 9)])
    assert (sync.stats()["a"].backwards, sync.stats()["b"].backwards) == (1, 2)
    sync.remove("b")
    sync.add("b")
    sync.push([e("a", 40), e("b", 15), e("b", 13)])  # all late for a stream that begins anew; the second goes back
    assert sync.stats()["b"].backwards == 3


def test_two_streams_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="there is a stream 'a' already; streams need different names"):
        Synchroniser(["a", "b", "a"])


@pytest.mark.parametrize("source", ["nobody", None, 7, ["a"]])
def test_an_event_of_an_unknown_stream_is_refused_and_changes_nothing_but_what_came_before_it_is_kept(
    source: Any,
) -> None:
    sync = Synchroniser(["a"])
    with pytest.raises(ConfigError, match="there is no stream") as raised:
        sync.push([e("a", 1), e(source, 2), e("a", 3)])
    assert names(raised.value.outputs) == ["a1"]
    assert [event.ts for event in raised.value.refused] == [2, 3]
    assert names(sync.push(e("a", 3))) == ["a3"]


@pytest.mark.parametrize(
    ("ts", "reason"),
    [
        (None, "no whole number"),
        (1.5, "no whole number"),
        (math.nan, "no whole number"),
        ("5", "no whole number"),
        (True, "no whole number"),
        (-1, "negative"),
        (MAX_TS + 1, "absurdly large"),
    ],
)
def test_a_time_stamp_that_cannot_be_goes_to_quarantine_with_its_reason(ts: Any, reason: str) -> None:
    sync = Synchroniser(["a", "b"])
    assert sync.push([e("a", ts), e("a", 1), e("b", 1)]) == [e("a", 1), e("b", 1)]
    ((event, why),) = sync.quarantined
    assert reason in why and event.source == "a"
    assert sync.stats()["a"].quarantined == 1
    sync.check_invariants()


def test_numpy_integers_are_time_stamps() -> None:
    sync = Synchroniser(["a"])
    assert names(sync.push(e("a", np.int64(4)))) == ["a4"]


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"push\(\) takes slackline.Event; got a dict"):
        Synchroniser(["a"]).push([{"ts": 1}])  # type: ignore[list-item]


def test_more_than_max_waiting_is_refused_but_a_stream_that_may_be_owed_is_heard() -> None:
    sync = Synchroniser(list("ab"), max_waiting=3)
    sync.push([e("a", ts) for ts in (1, 2, 3)])
    with pytest.raises(
        BufferLimitError, match="3 events are held, max_waiting=3 allows no more: they wait for 'b'"
    ) as raised:
        sync.push(iter([e("a", 4), e("a", 5)]))
    assert names(raised.value.refused) == ["a4", "a5"]
    sync.check_invariants()
    assert names(sync.push(e("b", 2))) == ["a1", "a2", "b2"]
    assert names(sync.push(e("a", 4))) == []


@pytest.mark.parametrize("method", ["method1", "method2"])
def test_at_the_limit_a_method_lets_go_what_it_holds_longer_than_it_must(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method, max_waiting=3)
    assert sync.push([e("a", 100), e("b", 1), e("c", 200)]) == []
    assert sync.owing() == ()
    out = sync.push([e("b", 2), e("b", 3)])  # would be the fourth and the fifth
    assert names(out)[:2] == ["b1", "b2"]
    sync.check_invariants()


def test_a_generator_that_raises_takes_nothing_with_it() -> None:
    def events() -> Iterator[Event]:
        yield e("a", 1)
        yield e("b", 1)
        raise ValueError("broken")

    sync = Synchroniser(list("ab"))
    with pytest.raises(ValueError, match="broken"):
        sync.push(events())
    assert sync.stats()["a"].received == 0


@pytest.mark.parametrize("what", [5, None])
def test_what_is_neither_an_event_nor_several_is_refused(what: Any) -> None:
    with pytest.raises(ConfigError, match=r"push\(\) takes an event or several; got a"):
        Synchroniser(["a"]).push(what)


def test_what_has_gone_out_is_not_kept_for_time_outs() -> None:
    clock = Clock()
    sync = Synchroniser(list("abc"), clock=clock, max_delay=10**9)
    sync.push(e("a", 10**6))
    for ts in range(20_000):
        sync.push([e("b", ts), e("c", ts)])
    assert sync.waiting < 5
    assert len(sync._held) < 2_000


@every_method
def test_thousands_of_streams_may_come_and_go_and_their_counts_stay(method: str) -> None:
    sync = Synchroniser(["stays"], method=method)
    for i in range(10_050):
        sync.push(e("stays", i))
        sync.add(f"guest{i}")
        sync.push(e(f"guest{i}", i))
        sync.remove(f"guest{i}")
    stats = sync.stats()
    assert len(stats) == 10_002  # the one that stays, those remembered, and the forgotten together
    assert stats[""].released == 50 and sum(each.received for each in stats.values()) == 20_100
    sync.check_invariants()


def test_a_stream_that_leaves_and_comes_back_is_waited_for_from_where_it_is_now() -> None:
    sync = Synchroniser(list("abcd"))
    sync.push([e("a", 100), e("b", 5), e("c", 6), e("d", 7)])
    sync.remove("a")
    sync.push([e("b", 101), e("c", 101), e("d", 101)])
    sync.add("a")
    assert sync.push([e("b", 110), e("c", 110), e("d", 110)]) == []
    assert sync.owing() == ("a",)
    assert names(sync.push(e("a", 105))) == ["a105"]


def test_what_is_set_aside_is_bounded_too_and_drained() -> None:
    sync = Synchroniser(["a"], max_waiting=2)
    sync.push([e("a", 9), e("a", 1), e("a", None)])
    with pytest.raises(BufferLimitError, match=r"were not drained.*Call drain\(\)"):
        sync.push(e("a", 2))
    late, quarantined = sync.drain()
    assert late == [Late(e("a", 1), 8)]
    assert quarantined == [Quarantined(e("a", None), "the time stamp None is no whole number")]
    assert (sync.late, sync.quarantined) == ([], [])
    sync.push(e("a", 2))
    assert sync.stats()["a"].late == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fast"}, "method='fast' is unknown; choose one of"),
        ({"max_delay": 5}, "max_delay=5 needs a clock"),
        ({"max_delay": -1, "clock": Clock()}, "max_delay=-1 cannot be"),
        ({"max_delay": math.nan, "clock": Clock()}, "max_delay=nan cannot be"),
        ({"max_delay": "5", "clock": Clock()}, "max_delay='5' cannot be"),
        ({"max_failures": 0}, "max_failures=0 cannot be"),
        ({"max_waiting": True}, "max_waiting=True cannot be"),
        ({"streams": "abc"}, "streams='abc' is no list of names"),
        ({"streams": 5}, "streams=5 is no list of names"),
        ({"streams": [""]}, "a stream is named by a string; got ''"),
        ({"streams": [3]}, "a stream is named by a string; got 3"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Synchroniser(**options)


def test_nothing_comes_after_the_end() -> None:
    sync = Synchroniser(["a"])
    sync.close()
    with pytest.raises(ClosedError, match="push after close"):
        sync.push(e("a", 1))


# --- states ------------------------------------------------------------------------------------------------------


def test_a_saved_synchroniser_with_a_max_delay_needs_a_clock_again() -> None:
    saved = Synchroniser(["a"], clock=Clock(), max_delay=3).save()
    with pytest.raises(StateError, match="saved with max_delay=3, which needs a clock"):
        Synchroniser.load(saved)


def test_time_between_saving_and_loading_does_not_count_and_the_clock_may_start_anew() -> None:
    clock = Clock()
    clock.now = 1e6
    sync = Synchroniser(list("ab"), clock=clock, max_delay=2)
    sync.push(e("a", 1))
    clock.now += 1.5
    saved = sync.save()
    clock.now = 5  # another machine
    again = Synchroniser.load(saved, clock=clock)
    assert again.step() == []
    clock.now = 6
    assert names(again.step()) == ["a1"]
    assert again.stats()["a"].wait_total == 2.5


def test_a_clock_that_goes_back_makes_no_negative_waits() -> None:
    clock = Clock()
    clock.now = 10
    sync = Synchroniser(list("ab"), clock=clock)
    sync.push(e("a", 1))
    clock.now = 2
    sync.push(e("b", 1))
    assert sync.stats()["a"].wait_total == 0 and sync.stats()["b"].held_up_total == 0


def test_a_restored_synchroniser_without_a_max_delay_keeps_nothing_for_time_outs() -> None:
    sync = Synchroniser(list("ab"))
    sync.push([e("a", ts) for ts in range(50)])
    again = Synchroniser.load(sync.save())
    again.push(e("b", 100))
    assert len(again._held) == 0 and again.waiting == 1


def test_what_was_set_aside_is_saved() -> None:
    sync = Synchroniser(["a"])
    sync.push([e("a", 9), e("a", 1), e("a", -1)])
    again = Synchroniser.load(sync.save())
    assert (again.late, again.quarantined, again.stats()) == (sync.late, sync.quarantined, sync.stats())


@pytest.mark.parametrize("data", [b"", b"nonsense", Synchroniser(["a"]).save()[:-3]])
def test_bytes_that_are_no_synchroniser_are_refused(data: bytes) -> None:
    with pytest.raises(StateError):
        Synchroniser.load(data)
