"""K: grows at once, shrinks with the window, margin of λ·σ."""

from __future__ import annotations

import math

import numpy as np

from slackline.core.time import NEVER
from slackline.ordering import delays as d


class Window:
    """The delays of one type; each is measured by a clock update of its own."""

    def __init__(self, margin: float = 0.0, block: int = 4) -> None:
        self.ints, self.floats = d.empty_window()
        self.margin, self.block = margin, block
        self.clk = 1_000

    def take(self, *measured: int, step: int = 1) -> int:
        for delay in measured:
            self.ints, self.floats, _ = d.with_room(self.ints, self.floats, 1, self.block)
            d.note(self.ints, self.floats, self.clk + step - delay, self.clk)
            self.clk += step
            d.measure(self.ints, self.floats, self.clk, self.margin, self.block)
        return self.K

    @property
    def K(self) -> int:
        return int(self.ints[d.K])


def test_K_is_the_largest_delay_and_grows_at_once() -> None:
    window = Window()
    assert [window.take(5), window.take(3), window.take(9), window.take(1)] == [5, 5, 9, 9]


def test_K_shrinks_when_the_window_has_moved_on() -> None:
    window = Window(block=4)
    window.take(100)
    assert window.take(*[5] * 30, step=10) == 100
    assert window.take(*[5] * 300, step=50) == 5


def test_the_window_spans_many_times_the_largest_delay_however_fast_measurements_come() -> None:
    window = Window(block=4)
    window.take(1_000)
    start = window.clk
    while window.take(1) == 1_000 + 0:
        assert window.clk - start < 100_000
    assert window.clk - start >= 16 * 1_000


def test_the_margin_is_so_many_standard_deviations() -> None:
    rng = np.random.default_rng(3)
    measured = rng.integers(0, 100, 200).tolist()
    window = Window(margin=2.0, block=1_000)
    assert window.take(*measured) == max(measured) + math.ceil(2.0 * np.std(measured))


def test_events_that_arrive_between_two_updates_are_measured_together() -> None:
    window = Window(margin=1.0, block=100)
    for ts in (990, 995, 1_000):
        d.note(window.ints, window.floats, ts, window.clk)
    d.measure(window.ints, window.floats, 1_010, 1.0, 100)
    assert 20 + math.ceil(np.std([20, 15, 10])) == window.K
    assert window.ints[d.MEASURED] == 3


def test_an_early_event_has_no_delay() -> None:
    window = Window()
    assert window.take(-50) == 0


def test_before_the_first_clock_event_nothing_is_measured() -> None:
    ints, floats = d.empty_window()
    d.note(ints, floats, 10, NEVER)
    d.note(ints, floats, 4, NEVER)
    assert ints[d.K] == 0
    d.measure(ints, floats, 12, 0.0, 64)
    assert ints[d.K] == 8
