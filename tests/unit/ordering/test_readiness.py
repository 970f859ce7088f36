"""Sources that deliver, owe, leap, fail and return."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackline.core.time import FOREVER, NEVER
from slackline.ordering import readiness as r


class Sources:
    """A few sources of one type, by number."""

    def __init__(self, n: int = 4) -> None:
        self.rows, self.tree = np.tile(r.UNKNOWN, (n, 1)), np.full(2 * n, FOREVER, dtype=np.int64)

    def send(self, source: int, *ts: int, overdue: int = NEVER) -> None:
        for t in ts:
            r.arrive(self.rows, self.tree, source, t, overdue)

    def watermark(self, clk: int = NEVER, timeout: int = 10**9) -> int:
        return int(r.least_watermark(self.rows, self.tree, clk, timeout))

    def __getitem__(self, key: tuple[int, int]) -> int:
        return int(self.rows[key])


def test_without_known_sources_there_is_no_evidence() -> None:
    assert Sources().watermark() == FOREVER


def test_a_new_source_may_send_its_last_time_stamp_again() -> None:
    sources = Sources()
    sources.send(0, 50)
    assert sources.watermark() == 49


def test_a_regular_source_owes_nothing_until_its_smallest_gap_has_passed() -> None:
    sources = Sources()
    sources.send(0, *range(0, 10_000, 100))
    assert sources.watermark() == 9_900 + 96 - 1  # the gap of 100, shaved by 4 %


def test_the_watermark_is_the_least_over_the_sources() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    sources.send(1, *range(0, 500, 100))
    assert sources.watermark() == 400 + 95
    sources.send(1, 500, 600, 700, 800, 900, 1000)
    assert sources.watermark() == 900 + 95


def test_one_glitch_does_not_spoil_the_gap() -> None:
    sources = Sources()
    sources.send(0, *range(0, 10_000, 100))
    sources.send(0, 9_901)
    sources.send(0, *range(10_000, 12_000, 100))
    assert sources.watermark() == 11_900 + 95


def test_an_irregular_source_is_trusted_for_its_smallest_recent_gap_only() -> None:
    rng = np.random.default_rng(1)
    sources = Sources()
    gaps = rng.integers(1, 100, 200)
    sources.send(0, *np.cumsum(gaps).tolist())
    assert sources.watermark() - int(gaps.sum()) < 10


def test_a_source_that_owes_too_long_is_disabled_and_taken_back_when_it_returns() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    sources.send(1, *range(0, 2_000, 100))
    assert sources.watermark(clk=1_900, timeout=950) == 995  # within the timeout: it delays all others
    assert sources.watermark(clk=1_900, timeout=750) == 995  # skipped, but not given up yet
    assert sources[0, r.DISABLED] == 0
    assert sources.watermark(clk=1_900, timeout=500) == 1_995  # the timeout and three usual gaps: given up
    assert (sources[0, r.DISABLED], sources[0, r.TIMES_DISABLED]) == (1, 1)
    sources.send(0, 2_000, overdue=1_400)
    assert (sources[0, r.DISABLED], sources[0, r.SKIPPED]) == (0, 1)
    assert sources.watermark(clk=2_000, timeout=500) == 1_500  # what it leapt over may follow, up to the timeout
    assert sources.watermark(clk=2_500, timeout=500) == 1_995  # the source that sends no more is disabled
    assert sources[0, r.LOST] == 1


def test_a_leap_longer_than_the_timeout_makes_late_only_what_the_timeout_has_passed() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    sources.send(0, 2_000)
    assert sources.watermark(clk=2_000, timeout=600) == 1_400
    sources.send(0, *range(1_900, 1_400, -100))
    assert sources[0, r.DISORDER] == 0  # events that fill in a leap, the newest first, are no disorder
    assert sources.watermark(clk=2_100, timeout=600) == 1_500
    assert sources.watermark(clk=2_600, timeout=600) == 2_095  # the timeout has passed the leap: the rest is lost


def test_a_source_that_comes_after_the_time_out_is_counted_as_skipped() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    sources.send(0, 1_000, overdue=900)
    assert sources[0, r.SKIPPED] == 0
    sources.send(0, 1_100, overdue=1_200)
    assert sources[0, r.SKIPPED] == 1


def test_when_all_are_given_up_there_is_no_evidence_left() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    assert sources.watermark(clk=50_000, timeout=10) == FOREVER


def test_a_leap_holds_the_source_back_until_what_it_leapt_over_has_come() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    before = sources.watermark()
    sources.send(0, 1_300)  # 1000, 1100 and 1200 are missing
    assert sources.watermark() == before
    sources.send(0, 1_100, 1_000)
    assert sources.watermark() == before
    sources.send(0, 1_200)
    assert sources.watermark() == 1_300 + 95


def test_a_leap_that_is_not_filled_in_ends_with_the_time_out_and_is_remembered() -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    for n in range(r.LOSSES):
        sources.send(0, 1_300 + 1_000 * n)
        assert sources[0, r.MISSING] > 0
        sources.watermark(clk=3_000 + 1_000 * n, timeout=100)
        sources.send(0, *range(1_400 + 1_000 * n, 2_000 + 1_000 * n, 100))
    assert sources[0, r.LOST] == r.LOSSES
    sources.send(0, 20_000)  # it just loses events: believed at once
    assert sources[0, r.MISSING] == 0


def test_a_source_that_keeps_stepping_back_is_as_far_behind_as_it_stepped() -> None:
    sources = Sources()
    for start in range(0, 1_000, 100):
        sources.send(0, start + 50, start)
    assert sources.watermark() == 950 - 76
    sources.send(0, *range(2_000, 30_000, 100))  # it behaves again
    assert sources.watermark(clk=29_900, timeout=100) == 29_900 + 95


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=60), st.booleans())
def test_the_tree_gives_the_least_of_its_leaves_also_after_growing(arrivals: list[tuple[int, int]], grow: bool) -> None:
    sources = Sources(16)
    if grow:
        sources.rows, sources.tree = r.with_room(sources.rows, len(sources.rows), 2 * len(sources.rows))
    now = 0
    for source, step in arrivals:
        now += step
        sources.send(source, now)
    if not grow:
        sources.rows, sources.tree = r.with_room(sources.rows, len(sources.rows), 2 * len(sources.rows))
    assert sources.watermark() == min(sources.tree[len(sources.rows) :], default=FOREVER)


@pytest.mark.parametrize("clk", [NEVER, 0])
def test_without_a_clock_no_source_is_given_up(clk: int) -> None:
    sources = Sources()
    sources.send(0, *range(0, 1_000, 100))
    assert sources.watermark(clk=clk, timeout=1) == 995
