"""Streams that owe too long: timeouts, failures, the time."""

from __future__ import annotations

import math

import pytest
from tests.unit.sync.world import WallTime, e, every_method, names

from slackline.sync import Late, Synchroniser


@every_method
def test_an_event_held_longer_than_md_is_released_at_the_next_step_and_counts_against_its_stream(
    method: str,
) -> None:
    now = WallTime()
    sync = Synchroniser(list("abc"), method=method, now=now, max_delay=10, max_failures=9)
    sync.push(e("a", 3))
    now.time = 4
    sync.push(e("b", 5))
    now.time = 10
    assert sync.step() == []  # ten, not longer than ten
    now.time = 10.5
    assert names(sync.step()) == ["a3"]
    assert sync.failed == ("c",) and not sync.is_disabled("c")
    assert {name: stats.failures for name, stats in sync.stats().items()} == {"a": 0, "b": 0, "c": 1}
    now.time = 15
    assert names(sync.step()) == ["b5"]
    assert {name: stats.failures for name, stats in sync.stats().items()} == {"a": 1, "b": 0, "c": 2}


@every_method
def test_older_events_go_out_with_one_that_timed_out_though_they_came_later(method: str) -> None:
    now = WallTime()
    sync = Synchroniser(list("abc"), method=method, now=now, max_delay=10)
    sync.push(e("a", 8))
    now.time = 9
    sync.push(e("b", 2))
    now.time = 11
    assert names(sync.step()) == ["b2", "a8"]
    assert sync.stats()["c"].failures == 1  # b2 had not waited too long


@every_method
def test_ms_failures_disable_a_stream_until_it_delivers_something_newer(method: str) -> None:
    now = WallTime()
    sync = Synchroniser(list("ab"), method=method, now=now, max_delay=1, max_failures=2)
    for ts in (10, 20, 30):
        sync.push(e("a", ts))
        now.time += 2
        sync.step()
    assert sync.stats()["b"].disabled and sync.stats()["b"].times_disabled == 1
    assert sync.is_disabled("b") and sync.failed == ()  # in the last step no stream failed
    assert sync.stats()["b"].failures == 2  # a30 did not wait for it any more
    assert names(sync.push(e("a", 40))) == ["a40"]
    assert sync.push(e("b", 35)) == []  # older than what was processed: late, and still disabled
    assert sync.stats()["b"].disabled and sync.late == [Late(e("b", 35), 5)]
    assert sync.push(e("b", 45)) == []  # newer: back again, and it waits for the others
    assert not sync.stats()["b"].disabled
    assert names(sync.push(e("a", 50))) == ["b45"]
    assert sync.owing() == ("b",)  # and others wait for it


@every_method
def test_a_stream_that_never_delivers_delays_no_other_for_ever(method: str) -> None:
    now = WallTime()
    sync = Synchroniser(["a", "b", "dead"], method=method, now=now, max_delay=5, max_failures=3)
    out = []
    for ts in range(100):
        now.time = ts
        out += sync.push([e("a", ts), e("b", ts)])
    assert len(out) > 190
    assert sync.stats()["dead"].disabled and sync.stats()["dead"].last_ts is None
    assert not sync.stats()["a"].disabled and not sync.stats()["b"].disabled


def test_an_event_of_a_tick_that_has_gone_out_is_not_older_and_comes_after_it() -> None:
    now = WallTime()
    sync = Synchroniser(list("ab"), now=now, max_delay=1, max_failures=9)
    sync.push(e("b", 5))
    now.time = 2
    assert names(sync.step()) == ["b5"]
    assert sync.push(e("a", 5)) == []
    assert sync.late == []
    assert names(sync.push(e("b", 6))) == ["a5"]


@pytest.mark.parametrize("jump", [1e12, -1e12, math.nan])
def test_a_time_that_jumps_breaks_no_order_and_loses_nothing(jump: float) -> None:
    now = WallTime()
    sync = Synchroniser(list("ab"), now=now, max_delay=5)
    out = sync.push([e("a", 1), e("a", 2)])
    now.time = jump
    out += sync.push([e("b", 3), e("a", 4)]) + sync.step() + sync.close()
    assert names(out) == ["a1", "a2", "b3", "a4"]
    sync.check_invariants()


def test_streams_that_were_waited_for_and_how_long() -> None:
    now = WallTime()
    sync = Synchroniser(["quick", "slow"], now=now)
    sync.push([e("quick", 1), e("quick", 2)])
    now.time = 7
    sync.push(e("slow", 5))
    stats = sync.stats()
    assert (stats["slow"].blocked, stats["slow"].blocked_total) == (2, 14)
    assert (stats["quick"].wait_total, stats["quick"].wait_max, stats["quick"].blocked) == (14, 7, 0)
