import pyarrow as pa
import pytest

from slackline.cluster.playback import MOST_ROWS, STEP, Playback


def played(playback, *times):
    """Rows given at each of these times."""
    given = [playback.take(now) for now in times]
    return [0 if table is None else len(table) for table in given]


def table(ts, **columns):
    return pa.table({"ts": pa.array(ts, pa.int64()), **columns})


def test_rows_come_when_their_time_stamps_say():
    playback = Playback(lambda: [table([100, 110, 150]), table([160, 1100])], ["a"], speed=1, per_second=100)
    assert played(playback, 50.0, 50.2, 50.55, 51.0) == [1, 1, 1, 1]
    assert not playback.has_ended
    assert played(playback, 60.5) == [1] and playback.has_ended and playback.position == 5
    assert playback.take(99.0) is None and playback.next_at(99.0) is None


def test_a_row_out_of_order_comes_with_the_one_before_it():
    playback = Playback(lambda: [table([100, 200]), table([120, 210])], ["a"], speed=1, per_second=100)
    assert played(playback, 0.0, 0.5, 1.0, 1.05, 1.1) == [1, 0, 1, 1, 1]


def test_speed_makes_it_faster():
    playback = Playback(lambda: [table(range(0, 1000, 10))], ["a"], speed=10, per_second=100)
    assert played(playback, 0.0, 0.5) == [1, 50]


def test_rows_come_in_steps_and_not_one_by_one():
    playback = Playback(lambda: [table(range(1000))], ["a"], speed=1, per_second=1000)
    assert played(playback, 0.0, 0.001, 0.01, STEP, 1.5 * STEP) == [1, 0, 0, 20, 0]
    assert playback.next_at(1.5 * STEP) == 2 * STEP


def test_who_is_behind_catches_up_and_tells_the_lag():
    playback = Playback(lambda: [table(range(20_000))], ["a"], speed=1, per_second=10_000)
    assert played(playback, 0.0, 1.0) == [1, MOST_ROWS]
    assert playback.next_at(1.0) == 1.0 and playback.lag(1.0) == pytest.approx(0.5, abs=0.001)
    assert played(playback, 1.0) == [MOST_ROWS]
    assert playback.lag(1.0) == pytest.approx(0.0, abs=0.001)


def test_without_a_speed_rows_come_as_they_are_asked_for():
    playback = Playback(lambda: [table([]), table(range(MOST_ROWS + 1)), table([5])], ["a"])
    assert played(playback, 0.0, 0.0, 0.0, 0.0) == [MOST_ROWS, 1, 1, 0]
    assert playback.has_ended


def test_rows_of_a_life_before_are_not_played_again():
    playback = Playback(lambda: [table([1, 2]), table([3, 4]), table([5])], ["a"], position=3)
    given = [playback.take(0.0)["ts"].to_pylist() for _ in range(2)]
    assert given == [[4], [5]] and playback.position == 5 and playback.has_ended
    assert Playback(lambda: [table([1, 2])], ["a"], position=2).take(0.0) is None


def test_rows_of_other_types_are_left_out_but_counted():
    playback = Playback(lambda: [table([1, 2, 3], type=["a", "b", "a"])], ["a"])
    assert playback.take(0.0)["ts"].to_pylist() == [1, 3] and playback.position == 3
