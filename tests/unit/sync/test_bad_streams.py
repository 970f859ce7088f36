"""Streams and events that make no sense, and limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from tests.unit.sync.world import WallTime, e, every_method, names

from slackline.core.errors import BufferLimitError, ClosedError, ConfigError
from slackline.core.event import Event
from slackline.core.time import MAX_TS
from slackline.sync import Late, Quarantined, Synchroniser


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
    "ts", [None, 1.5, math.nan, math.inf, "5", True, np.bool_(True), -1, -1.0, MAX_TS + 1, 2.0**63, [5]]
)
def test_a_bad_time_stamp_goes_to_quarantine_with_its_reason(ts: Any) -> None:
    sync = Synchroniser(["a", "b"])
    assert sync.push([e("a", ts), e("a", 1), e("b", 1)]) == [e("a", 1), e("b", 1)]
    (aside,) = sync.quarantined
    assert aside.reason == "bad time stamp" and aside.detail == f"ts={ts!r} is not a whole number from 0 to 2**62"
    assert aside.event.source == "a" and (aside.detector, aside.position) == (None, None)
    assert sync.stats()["a"].quarantined == 1
    sync.check_invariants()


@pytest.mark.parametrize("ts", [4, 4.0, np.int64(4), np.uint8(4), np.float32(4), Decimal(4)])
def test_any_whole_number_is_a_time_stamp_and_goes_out_as_an_int(ts: Any) -> None:
    sync = Synchroniser(["a"])
    (event,) = sync.push(Event("e", ts=ts, source="a", seq=7, x=1))
    assert event == Event("e", ts=4, source="a", seq=7, x=1) and type(event.ts) is int


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"push\(\) expects slackline.Event; got a dict"):
        Synchroniser(["a"]).push([{"ts": 1}])  # type: ignore[list-item]


def test_more_than_max_waiting_is_refused_but_a_stream_that_may_be_owed_is_read() -> None:
    sync = Synchroniser(list("ab"), max_waiting=3)
    sync.push([e("a", ts) for ts in (1, 2, 3)])
    with pytest.raises(
        BufferLimitError, match="3 events are buffered, max_waiting=3 allows no more: they wait for 'b'"
    ) as raised:
        sync.push(iter([e("a", 4), e("a", 5)]))
    assert names(raised.value.refused) == ["a4", "a5"]
    sync.check_invariants()
    assert names(sync.push(e("b", 2))) == ["a1", "a2", "b2"]
    assert names(sync.push(e("a", 4))) == []


@pytest.mark.parametrize("method", ["method1", "method2"])
def test_at_the_limit_a_method_releases_events_that_it_holds_longer_than_it_must(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method, max_waiting=3)
    assert sync.push([e("a", 100), e("b", 1), e("c", 200)]) == []
    assert sync.owing() == ()
    out = sync.push([e("b", 2), e("b", 3)])  # would be the fourth and the fifth
    assert names(out)[:2] == ["b1", "b2"]
    sync.check_invariants()


@every_method
def test_an_event_overtaken_by_one_that_the_limit_releases_is_late(method: str) -> None:
    sync = Synchroniser(["s0", "s1"], method=method, max_waiting=8)
    arrivals = [("s0", 6), ("s0", 7), ("s0", 9), ("s0", 14), ("s1", 2), ("s0", 16), ("s1", 2), ("s1", 2), ("s1", 1)]
    out = sync.push([e(name, ts) for name, ts in arrivals]) + sync.close()
    assert [event.ts for event in out] == [2, 2, 2, 6, 7, 9, 14, 16]
    assert [late.event.ts for late in sync.late] == [1]
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
    with pytest.raises(ConfigError, match=r"push\(\) expects an event or an iterable of events; got a"):
        Synchroniser(["a"]).push(what)


def test_what_has_gone_out_is_not_kept_for_time_outs() -> None:
    now = WallTime()
    sync = Synchroniser(list("abc"), now=now, max_delay=10**9)
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
    assert quarantined == [Quarantined(e("a", None), "bad time stamp", "ts=None is not a whole number from 0 to 2**62")]
    assert (sync.late, sync.quarantined) == ([], [])
    sync.push(e("a", 2))
    assert sync.stats()["a"].late == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fast"}, "method='fast' is unknown; choose one of"),
        ({"max_delay": 5}, "max_delay=5 needs a clock"),
        ({"max_delay": -1, "now": WallTime()}, "max_delay=-1 is not valid"),
        ({"max_delay": math.nan, "now": WallTime()}, "max_delay=nan is not valid"),
        ({"max_delay": "5", "now": WallTime()}, "max_delay='5' is not valid"),
        ({"max_failures": 0}, "max_failures=0 is not valid"),
        ({"max_waiting": True}, "max_waiting=True is not valid"),
        ({"streams": "abc"}, "streams='abc' is not valid; it must be a list of names"),
        ({"streams": 5}, "streams=5 is not valid; it must be a list of names"),
        ({"streams": [""]}, "the name of a stream must be a string that is not empty; got ''"),
        ({"streams": [3]}, "the name of a stream must be a string that is not empty; got 3"),
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
