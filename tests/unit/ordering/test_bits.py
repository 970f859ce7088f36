"""Bits of a whole number in compiled code."""

from __future__ import annotations

from numba import njit

from slackline.core.time import FOREVER
from slackline.ordering.bits import bit_count, bit_length


@njit
def bits(number: int) -> tuple[int, int]:
    return bit_count(number), bit_length(number)


def test_bits_are_those_of_the_same_number_in_python() -> None:
    for number in (*range(70), *(2**n + by for n in range(7, 62) for by in (-1, 0, 1)), FOREVER):
        assert bits(number) == (number.bit_count(), number.bit_length())
