"""Many streams in one order: streams that come and go, and states that are saved."""

from __future__ import annotations

import pytest
from tests.unit.sync.world import WallTime, e, every_method, names

from slackline.core.errors import ConfigError, StateError
from slackline.sync import Synchroniser


@every_method
def test_an_event_waits_until_every_stream_has_reached_it(method: str) -> None:
    sync = Synchroniser(list("abc"), method=method)
    assert names(sync.push([e("a", 3), e("b", 5)])) == []
    assert sync.owing() == ("c",)
    assert names(sync.push(e("c", 4))) == ["a3"]
    assert (sync.waiting, sync.stats()["b"].waiting, sync.stats()["a"].waiting) == (2, 1, 0)
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
def test_no_event_waits_for_a_removed_stream_and_its_own_are_released(method: str) -> None:
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


def test_a_stream_that_joins_again_continues_its_counts() -> None:
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


# --- states ------------------------------------------------------------------------------------------------------


def test_a_saved_synchroniser_with_a_max_delay_needs_now_again() -> None:
    saved = Synchroniser(["a"], now=WallTime(), max_delay=3).save()
    with pytest.raises(StateError, match="max_delay=3 needs a clock, which is not saved"):
        Synchroniser.load(saved)


def test_time_between_saving_and_loading_does_not_count_and_now_may_start_anew() -> None:
    now = WallTime()
    now.time = 1e6
    sync = Synchroniser(list("ab"), now=now, max_delay=2)
    sync.push(e("a", 1))
    now.time += 1.5
    saved = sync.save()
    now.time = 5  # another machine
    again = Synchroniser.load(saved, now=now)
    assert again.step() == []
    now.time = 6
    assert names(again.step()) == ["a1"]
    assert again.stats()["a"].wait_total == 2.5


def test_a_time_that_goes_back_makes_no_negative_waits() -> None:
    now = WallTime()
    now.time = 10
    sync = Synchroniser(list("ab"), now=now)
    sync.push(e("a", 1))
    now.time = 2
    sync.push(e("b", 1))
    assert sync.stats()["a"].wait_total == 0 and sync.stats()["b"].blocked_total == 0


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


def test_options_given_to_load_override_those_saved() -> None:
    now = WallTime()
    sync = Synchroniser(list("ab"), method="method1", max_waiting=1)
    sync.push(e("a", 1))
    again = Synchroniser.load(sync.save(), now=now, method="watermark", max_waiting=9, max_delay=2)
    assert again.push([e("a", 2), e("a", 3)]) == []
    now.time = 3
    assert names(again.step()) == ["a1", "a2", "a3"]


def test_an_option_unknown_to_load_is_refused() -> None:
    with pytest.raises(ConfigError, match="option='max_wait' is unknown; choose one of"):
        Synchroniser.load(Synchroniser(["a"]).save(), max_wait=3)
