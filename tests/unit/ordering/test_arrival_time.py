"""Wall time: it never runs back, and its history errs to one side only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.core.codec import decode, encode
from slackline.core.errors import StateError
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering.arrival_time import BACKWARDS, COUNT, LATEST, LEVELS, SIZE, ArrivalHistory


def lived(now: np.ndarray, clk: np.ndarray) -> ArrivalHistory:
    wall = ArrivalHistory()
    wall.run(now.copy(), clk)
    return wall


def moves(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.integers(0, 4, n)), np.cumsum(rng.integers(0, 7, n))


def test_what_is_recent_is_known_exactly() -> None:
    wall = lived(np.array([10, 20, 20, 35]), np.array([100, 105, 130, 131]))
    assert [wall.clk_at(w) for w in (9, 10, 19, 20, 34, 35, 99)] == [NEVER, 100, 100, 130, 130, 131, 131]
    assert [wall.first_arrival_time(ts) for ts in (0, 100, 101, 130, 131, 132)] == [10, 10, 20, 20, 35, FOREVER]


def test_a_wall_time_that_runs_back_or_is_missing_is_that_of_the_row_before() -> None:
    wall, now = ArrivalHistory(), np.array([NEVER, 50, 40, NEVER, 60])
    wall.run(now, np.array([1, 2, 3, 4, 5]))
    assert now.tolist() == [NEVER, 50, 50, 50, 60]
    assert wall.stats() == {"now": 60, "backwards": 1}
    assert [wall.clk_at(w) for w in (49, 50, 60)] == [NEVER, 4, 5]


def test_there_is_no_history_before_the_clock() -> None:
    wall = ArrivalHistory()
    wall.record(5, NEVER)
    assert (wall.now, wall.clk_at(5), wall.first_arrival_time(0)) == (5, NEVER, FOREVER)


@pytest.mark.parametrize("n", [40, 1_000, 60_000])
def test_history_errs_to_the_safe_side_only_and_not_by_much(n: int) -> None:
    now, clk = moves(n)
    wall = lived(now, clk)
    for at in range(0, n, max(1, n // 500)):
        w, ts = int(now[at]), int(clk[at])
        last = int(np.searchsorted(now, w, side="right")) - 1
        assert wall.clk_at(w) <= clk[last]
        assert wall.first_arrival_time(ts) <= now[np.searchsorted(clk, ts)]
        # Within an eighth of the moves since, twice what is promised, as not each arrival moves both times.
        coarse = (n - at) // 8 + 8
        assert wall.clk_at(w) >= (clk[last - coarse] if last >= coarse else NEVER)
        assert wall.first_arrival_time(ts) >= now[max(0, at - coarse)]


def test_memory_is_bounded_and_the_beginning_is_kept_for_ever() -> None:
    n = 400_000
    wall = lived(np.arange(n), np.arange(n))
    counts = wall.ints[COUNT:]
    assert counts.max() <= SIZE and np.flatnonzero(counts).tolist() == list(range(int((counts > 0).sum())))
    assert wall.first_arrival_time(0) == 0
    assert wall.clk_at(n - 1) == n - 1


def test_the_last_level_folds_in_itself() -> None:
    wall = ArrivalHistory()
    # All levels full, as after more moves than any run has.
    wall.ints[COUNT:], wall.ints[LATEST] = SIZE, LEVELS * SIZE
    wall.reserve(1)
    oldest_first = np.arange(LEVELS * SIZE).reshape(LEVELS, SIZE)[::-1]
    wall.marks[:] = oldest_first[:, :, np.newaxis]
    wall.record(LEVELS * SIZE, LEVELS * SIZE)
    assert wall.ints[COUNT:].max() <= SIZE
    for at in (0, 5, SIZE, 3 * SIZE + 7, LEVELS * SIZE):
        assert wall.first_arrival_time(at) <= at
        assert wall.clk_at(at) <= at
    assert wall.clk_at(LEVELS * SIZE) == LEVELS * SIZE and wall.first_arrival_time(0) == 0
    restored = ArrivalHistory()
    restored.restore(decode(encode(wall.state())))
    assert (restored.marks == wall.marks).all() or restored.clk_at(500) == wall.clk_at(500)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 900), max_size=4), st.integers(1, 900))
def test_cutting_and_saving_change_nothing(seed: int, cuts: list[int], n: int) -> None:
    now, clk = moves(n, seed)
    now[:: 1 + seed % 5] -= seed % 7
    now[now < 0] = NEVER
    whole = lived(now, clk)
    piecewise = ArrivalHistory()
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), n], strict=True):
        piecewise.run(now[start:stop].copy(), clk[start:stop])
        saved, piecewise = piecewise.state(), ArrivalHistory()
        piecewise.restore(decode(encode(saved)))
    stepwise = ArrivalHistory()
    for w, c in zip(now.tolist(), clk.tolist(), strict=True):
        stepwise.record(w, c)
    for other in (piecewise, stepwise):
        assert encode(other.state()) == encode(whole.state())


def test_the_greatest_times_fit() -> None:
    wall = lived(np.array([0, MAX_TS - 1, MAX_TS]), np.array([0, MAX_TS - 1, MAX_TS]))
    assert wall.clk_at(FOREVER) == MAX_TS and wall.first_arrival_time(FOREVER) == FOREVER


@pytest.mark.parametrize(
    ("name", "cell", "value"),
    [
        ("ints", LATEST, 3), ("ints", LATEST, -5), ("ints", BACKWARDS, -1), ("ints", COUNT, 31),
        ("ints", COUNT + 1, 33),
        ("ints", COUNT + 1, -1), ("marks", 0, -1), ("marks", 3, 0), ("marks", 4, MAX_TS), ("marks", 5, 0),
        ("marks", 2, MAX_TS + 1),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_refused(name: str, cell: int, value: int) -> None:
    state = lived(np.arange(100, 1_000), np.arange(900)).state()
    state = {key: array.copy() for key, array in state.items()}
    state[name].reshape(-1)[cell] = value
    with pytest.raises(StateError, match=r"arrival_time\."):
        ArrivalHistory().restore(state)


def test_levels_that_would_overflow_are_refused() -> None:
    state = lived(np.arange(100, 1_000), np.arange(900)).state()
    counts = state["ints"].copy()
    counts[COUNT + 1] += 1
    counts[COUNT + 2] -= 1
    with pytest.raises(StateError, match="not in order of time"):
        ArrivalHistory().restore({**state, "ints": counts})
