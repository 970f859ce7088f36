"""What the locating system makes of true places: noise, filtered velocity and acceleration, RedFIR columns.

The figures are read off the DEBS 2013 excerpt (``shared/data/debs2013``). A ball at rest wanders by 6 to 8 mm (z: 17)
within 0.1 s, its velocity is off by 0.07 m/s and its acceleration by 6 m/s² in the mean, 25 at most; a rolling one's by
20 m/s² in the mean. A hit that changes the velocity by 5.6 m/s shows as a pulse of 262 m/s², 20 ms wide and a few ms
behind the contact: that is a filter of two poles at 7 ms. Heights are off by up to half a metre, constantly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quality:
    """How well a kind of transmitter is followed; times in s, the rest in m, m/s and m/s²."""

    velocity_pole: float
    acceleration_pole: float
    place_noise: tuple[float, float, float]
    place_memory: float
    velocity_noise: float
    velocity_memory: float
    acceleration_noise: float
    moving_noise: float


BALL = Quality(0.002, 0.007, (0.006, 0.0075, 0.017), 0.12, 0.09, 0.006, 3.8, 10.5)
WORN = Quality(0.012, 0.030, (0.010, 0.009, 0.025), 0.15, 0.06, 0.05, 0.8, 0.6)

#: What one transmitter carries from one position to the next: last place 0:3, two poles of velocity 3:9, last velocity
#: 9:12, two poles of acceleration 12:18, noise of place, velocity and acceleration 18:27, and whether it began 27.
MEMORY = 28

Columns = dict[str, NDArray[Any]]
#: What is measured, and as which type it is written.
MEASURED = {name: "i4" for name in ("x", "y", "z")} | {name: "i8" for name in ("v", "a")}
MEASURED |= {name: "i2" for name in ("vx", "vy", "vz", "ax", "ay", "az")}


class Receiver:
    """Turns true places of some transmitters into measured rows; remembers each transmitter's filters."""

    def __init__(self, quality: Quality, offsets: Floats, periods: Ints) -> None:
        self._offsets = offsets
        self._memory = np.zeros((len(offsets), MEMORY))
        self._periods = (periods * 1e-12).astype(np.float64)
        self._place_noise = np.array(quality.place_noise)
        self._levels = np.array([quality.velocity_noise, quality.acceleration_noise, quality.moving_noise])
        # What is kept from one position to the next: two filters, two noises, and what the noises take in afresh.
        poles = (quality.velocity_pole, quality.acceleration_pole, quality.place_memory, quality.velocity_memory)
        kept = np.exp(-self._periods[:, None] / np.array(poles))
        self._keeps = np.column_stack([kept, np.sqrt(1 - kept[:, 2:] ** 2)])

    def measure(self, firsts: Ints, places: Floats, moves: Floats | None, noise: NDArray[np.float32]) -> Columns:
        """The columns x to az of rows that follow those of the call before.

        Rows ``firsts[s]`` to ``firsts[s + 1]`` are of transmitter ``s``. ``moves`` are true velocities where they are
        known; otherwise they follow from the places.
        """
        out = np.empty((len(places), len(MEASURED)))
        _measure(
            firsts,
            places,
            np.empty((0, 3)) if moves is None else moves,
            noise,
            self._periods,
            self._keeps,
            self._offsets,
            self._place_noise,
            self._levels,
            self._memory,
            out,
        )
        return {name: out[:, n].astype(kind) for n, (name, kind) in enumerate(MEASURED.items())}


@njit(cache=True)
def _measure(
    firsts: Ints,
    places: Floats,
    moves: Floats,
    noise: NDArray[np.float32],
    periods: Floats,
    keeps: Floats,
    offsets: Floats,
    place_noise: Floats,
    levels: Floats,
    memory: Floats,
    out: Floats,
) -> None:
    for s in range(len(firsts) - 1):
        m, keep, dt = memory[s], keeps[s], periods[s]
        for row in range(firsts[s], firsts[s + 1]):
            if m[27] == 0.0:
                _wake(m, places[row], moves[row] if len(moves) else np.zeros(3))
            for axis in range(3):
                v = moves[row, axis] if len(moves) else (places[row, axis] - m[axis]) / dt
                m[axis] = places[row, axis]
                m[3 + axis] += (1 - keep[0]) * (v - m[3 + axis])
                m[6 + axis] += (1 - keep[0]) * (m[3 + axis] - m[6 + axis])
                a = (v - m[9 + axis]) / dt
                m[9 + axis] = v
                m[12 + axis] += (1 - keep[1]) * (a - m[12 + axis])
                m[15 + axis] += (1 - keep[1]) * (m[12 + axis] - m[15 + axis])
            _write(m, keep, noise[row], offsets[s], place_noise, levels, out[row])


@njit(cache=True)
def _wake(m: Floats, place: Floats, move: Floats) -> None:
    m[0:3] = place
    m[3:6] = move
    m[6:9] = move
    m[9:12] = move
    m[27] = 1.0


@njit(cache=True)
def _write(
    m: Floats,
    keep: Floats,
    noise: NDArray[np.float32],
    offset: Floats,
    place_noise: Floats,
    levels: Floats,
    out: Floats,
) -> None:
    """One measured row: filtered values plus noise that remembers, in the units of the system."""
    moving = min(1.0, math.sqrt(m[6] ** 2 + m[7] ** 2 + m[8] ** 2) / 5.0)
    # Noise alone never looks like a hit: in motion, where there is most, it stays below twice its usual size.
    limit = 4.0 - 2.0 * moving
    v2, a2 = 0.0, 0.0
    for axis in range(3):
        m[18 + axis] = keep[2] * m[18 + axis] + keep[4] * noise[axis]
        m[21 + axis] = keep[3] * m[21 + axis] + keep[5] * noise[3 + axis]
        m[24 + axis] = keep[3] * m[24 + axis] + keep[5] * noise[6 + axis]
        v = m[6 + axis] + levels[0] * (1.0 + 3.0 * moving) * m[21 + axis]
        a = m[15 + axis] + (levels[1] + levels[2] * moving) * limit * math.tanh(m[24 + axis] / limit)
        out[axis] = round(1000.0 * (m[axis] + offset[axis] + place_noise[axis] * m[18 + axis]))
        out[5 + axis], out[8 + axis] = v, a
        v2 += v * v
        a2 += a * a
    v, a = math.sqrt(v2), math.sqrt(a2)
    out[3], out[4] = round(1e6 * v), round(1e6 * a)
    for axis in range(3):
        out[5 + axis] = round(10_000.0 * out[5 + axis] / max(v, 1e-9))
        out[8 + axis] = round(10_000.0 * out[8 + axis] / max(a, 1e-9))
