import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.study import RecordedStream, SyncRecording, synchronise_recording
from slackline.study.sync import AT_END, DELIVERED, TIMED_OUT, Disabled
from slackline.sync import METHODS, Synchroniser


def recorded(*rows, names=None):
    """Rows are (arrival, ts, stream), in the order of arrival."""
    names = tuple(names or sorted({name for _, _, name in rows}))
    arrival, ts, source = (np.array(column, np.int64) for column in zip(*_numbered(rows, names), strict=True))
    stream = RecordedStream(arrival, ts, source, "ms")
    return SyncRecording(names, stream, np.arange(len(rows)), (), True, {}, None, (), ())


def _numbered(rows, names):
    return [(arrival, ts, names.index(name)) for arrival, ts, name in rows]


def of(result, name):
    return next(stream for stream in result.streams if stream.name == name)


def test_events_wait_for_the_stream_that_is_behind():
    result = synchronise_recording(recorded((10, 5, "a"), (12, 3, "b"), (20, 7, "b"), (25, 9, "a")))
    ts = result.recording.stream.ts
    assert ts[result.order].tolist() == [3, 5, 7, 9]
    assert result.wait.tolist() == [10, 0, 5, 0]
    assert [result.waited_for(row) for row in range(4)] == [("b",), (), ("a",), ("b",)]
    assert result.how.tolist() == [DELIVERED, DELIVERED, DELIVERED, AT_END]
    assert (result.out_of_order, result.out_of_order_after, len(result.late)) == (1, 0, 0)


def test_blocked_time_is_reported_by_stream_and_the_worst_comes_first():
    result = synchronise_recording(recorded((10, 5, "a"), (12, 3, "b"), (20, 7, "b"), (25, 9, "a")))
    assert [stream.name for stream in result.streams] == ["b", "a"]
    assert of(result, "b").blocked.times == (10, 0, 0) and of(result, "b").blocked.events == (1, 0, 0)
    assert of(result, "a").blocked.times == (5, 0, 0)


def test_what_the_end_releases_is_counted_apart():
    result = synchronise_recording(recorded((1, 1, "a"), (5, 2, "a"), (9, 1, "b")))
    assert (result.waits.events, result.waits.max) == (2, 8)
    assert (result.at_end.events, result.at_end.mean, result.waited_for_at_end) == (1, 4.0, ("b",))
    assert of(result, "b").blocked.times == (8, 0, 4)


def test_a_time_out_strikes_at_its_moment_and_not_at_the_next_arrival():
    rows = [(0, 0, "a"), (0, 0, "b"), (10, 10, "a"), (500, 500, "a"), (500, 500, "b")]
    result = synchronise_recording(recorded(*rows), max_delay=20)
    assert result.released_at[2] == 31  # one tick after it had waited for 20
    assert result.how[2] == TIMED_OUT and result.waited_for(2) == ("b",)
    assert of(result, "b").failures == 1


def test_several_time_outs_between_two_arrivals_strike_one_by_one():
    rows = [(0, 0, "a"), (0, 0, "b"), (10, 10, "a"), (15, 15, "a"), (500, 500, "b")]
    result = synchronise_recording(recorded(*rows), max_delay=20, max_failures=9)
    assert result.released_at[2:4].tolist() == [31, 36]
    assert of(result, "b").failures == 2


def test_a_disabled_stream_is_reported_with_its_time_until_it_is_enabled():
    rows = [(0, 0, "a"), (0, 0, "b"), (10, 10, "a"), (12, 12, "a"), (100, 100, "a"), (101, 101, "b"), (102, 102, "a")]
    result = synchronise_recording(recorded(*rows), max_delay=5, max_failures=2)
    assert result.disabled == (Disabled(1, 18, 101),)
    assert of(result, "b").state == "live" and of(result, "b").times_disabled == 1
    assert result.wait[4] == 0  # no event waited for b then


def test_a_stream_that_falls_silent_is_dead_and_stays_disabled():
    rows = [(0, 0, "b"), *((t, t, "a") for t in range(10, 400, 10))]
    result = synchronise_recording(recorded(*rows), max_delay=15, max_failures=1)
    b = of(result, "b")
    assert (b.state, b.dead, b.disabled_since, b.last_arrival) == ("disabled", True, 26, 0)
    assert not of(result, "a").dead


def test_a_stream_that_ends_with_the_recording_is_not_dead():
    rows = [*((t, t, name) for t in range(0, 1000, 10) for name in "ab"), (1001, 1001, "a"), (1020, 1020, "a")]
    result = synchronise_recording(recorded(*rows), max_delay=5, max_failures=1)
    assert of(result, "b").state == "disabled" and not of(result, "b").dead


def test_without_max_delay_everybody_waits_for_a_stream_that_never_delivers():
    result = synchronise_recording(recorded((1, 1, "a"), (9, 9, "a"), names=("a", "ghost")))
    assert result.waits.events == 0 and result.at_end.events == 2
    ghost = of(result, "ghost")
    assert (ghost.state, ghost.dead, ghost.blocked.times) == ("never delivered", True, (0, 0, 8))
    assert result.waited_for_at_end == ("ghost",)


def test_without_max_delay_a_stream_that_falls_silent_is_dead_too():
    rows = [(0, 0, "a"), (0, 0, "b"), *((t, t, "a") for t in range(10, 400, 10))]
    result = synchronise_recording(recorded(*rows))
    assert (of(result, "b").state, of(result, "b").dead) == ("silent", True)


def test_a_late_event_is_set_aside_with_its_lateness():
    rows = [(0, 0, "a"), (0, 0, "b"), (10, 10, "a"), (100, 4, "b")]
    result = synchronise_recording(recorded(*rows), max_delay=5)
    assert result.late.tolist() == [3] and result.lateness.tolist() == [6]
    assert of(result, "b").late == 1 and len(result.order) == 3


def test_disorder_within_a_stream_is_counted():
    result = synchronise_recording(recorded((0, 5, "a"), (1, 3, "a"), (2, 9, "b"), (3, 8, "b")))
    assert (of(result, "a").backwards, of(result, "b").backwards) == (1, 1)


def test_the_figures_are_plain_data():
    result = synchronise_recording(recorded((1, 1, "a"), (5, 2, "a"), (9, 1, "b")), max_delay=100)
    figures = result.to_dict()
    assert figures["events"] == 3 and figures["released"] == 3 and figures["arrival"] == "recorded"
    assert figures["streams"][0]["name"] == "b"
    assert figures["streams"][0]["blocked"]["until_delivery"] == {"events": 1, "time": 8}
    assert figures["at_end"]["waited_for"] == ["b"]


def test_an_impossible_delay_is_refused():
    with pytest.raises(ConfigError, match="max_delay"):
        synchronise_recording(recorded((1, 1, "a")), max_delay=-1)


def test_progress_is_reported():
    done = []
    synchronise_recording(recorded((1, 1, "a"), (2, 2, "a")), progress=done.append)
    assert done == [0]


arrivals = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 40), st.sampled_from("abc")), min_size=1, max_size=40
).map(lambda rows: [(sum(gap for gap, _, _ in rows[: i + 1]), ts, name) for i, (_, ts, name) in enumerate(rows)])


def tick_by_tick(recording, **options):
    """A synchroniser that takes a step at every tick: when each row went out, and the order."""
    stream, now = recording.stream, 0
    sync = Synchroniser(recording.names, now=lambda: now, **options)
    released, order = {}, []

    def note(events):
        for event in events:
            released[event.seq] = now
            order.append(event.seq)

    row = 0
    for now in range(int(stream.arrival[-1]) + 1):
        note(sync.step())
        while row < len(stream) and stream.arrival[row] == now:
            name = recording.names[stream.source[row]]
            note(sync.push(Event("", int(stream.ts[row]), source=name, seq=row)))
            row += 1
    note(sync.close())
    return released, order, [late.event.seq for late in sync.late], sync.stats()


@given(rows=arrivals, max_delay=st.none() | st.integers(0, 30), failures=st.integers(1, 3))
def test_stepping_at_deadlines_is_the_same_as_stepping_at_every_tick(rows, max_delay, failures):
    recording = recorded(*rows, names="abcd")
    result = synchronise_recording(recording, max_delay=max_delay, max_failures=failures)
    released, order, late, stats = tick_by_tick(recording, max_delay=max_delay, max_failures=failures)
    assert result.order.tolist() == order and result.late.tolist() == late
    assert {row: int(result.released_at[row]) for row in order} == released
    assert result.stats == stats


@given(rows=arrivals, max_delay=st.none() | st.integers(0, 30), method=st.sampled_from(sorted(METHODS)))
def test_nothing_is_lost_and_every_figure_agrees_with_the_synchronisers_own(rows, max_delay, method):
    result = synchronise_recording(recorded(*rows), max_delay=max_delay, method=method)
    assert sorted([*result.order, *result.late]) == list(range(len(rows)))
    assert result.out_of_order_after == 0
    for stream in result.streams:
        stats = result.stats[stream.name]
        assert stream.released + stream.late == stream.events
        assert stream.blocked.times[DELIVERED] == stats.blocked_total
        mine = np.array([name == stream.name for _, _, name in rows])
        assert result.wait[mine].sum() == stats.wait_total


@given(rows=arrivals)
def test_all_methods_give_the_same_order(rows):
    orders = {tuple(synchronise_recording(recorded(*_in_order(rows)), method=method).order) for method in METHODS}
    assert len(orders) == 1


def _in_order(rows):
    """The same rows, each stream in order in itself: then nothing is late, whatever the method."""
    times = {name: sorted(ts for _, ts, other in rows if other == name) for name in "abc"}
    return [(arrival, times[name].pop(0), name) for arrival, _, name in rows]
