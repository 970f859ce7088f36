"""Query 3 of DEBS 2013: where each player is, as shares of time per cell of four grids and over five windows.

Ten times a second each player's place is noted: the mean of the last positions of his feet. A foot silent for a
second does not count; a player with no other is not *seen*. The share of a cell is the number of notes in it over
the number of notes of the player in the window. So the shares of a map add up to 1, less the time he spent outside the
field, which is in no cell.

A cell is numbered by its place ``across`` the field (from the low side) and ``along`` it (from goal 0), whichever way
the field lies. It contains its low edges and not its high ones; only the field's own high lines belong to the last
cells.

Twenty maps of 22 players every second are a lot of numbers, so one event per player holds them packed:

- 32x50 and 16x25 are made of whole cells of 64x100: only the finest grid and 8x13 are published;
- ``seen`` counts the notes per window (1, 5, 10, 20 minutes, whole game);
- ``sizes`` has the number of cells that are not empty, of the finest grid per window and then of 8x13 per window;
  ``cells`` and ``counts`` hold their numbers (``across * cells along + along``) and the notes in them, one map after
  the other, as little-endian bytes of 16 and 32 bits.

:func:`slackline_soccer.queries.tables.heatmap_table` unfolds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from slackline import Batch, ConfigError, Detector, Event
from slackline_soccer.detectors.columns import columns, sources
from slackline_soccer.model.match import Match
from slackline_soccer.queries.clock import MINUTE, WHOLE_GAME, GameClock, Minutes
from slackline_soccer.queries.events import HEATMAP

Array = npt.NDArray[Any]
Found = list[tuple[int, Event]]

#: Cells across and along the field.
FINE, COARSE = (64, 100), (8, 13)
GRIDS = (COARSE, (16, 25), (32, 50), FINE)
#: In seconds.
WINDOWS = (60, 300, 600, 1200, WHOLE_GAME)
#: Notes per second.
NOTES = 10

#: What is noted instead of a cell.
OUTSIDE, UNSEEN = -1, -2

FINE_CELLS, COARSE_CELLS = FINE[0] * FINE[1], COARSE[0] * COARSE[1]
CELLS = FINE_CELLS + COARSE_CELLS


@njit(cache=True)
def _hear(source, across, along, start, stop, number, place, silent):  # type: ignore[no-untyped-def]
    """The last positions of feet."""
    for row in range(start, stop):
        sid = source[row]
        if 0 <= sid < len(number) and number[sid] >= 0:
            foot = number[sid]
            place[foot, 0], place[foot, 1] = across[row], along[row]
            silent[foot] = 0


@njit(cache=True)
def _note(place, silent, first, stop, ground, noted):  # type: ignore[no-untyped-def]
    """The cells (fine, coarse) that the player with these feet is in."""
    low_across, high_across, low_along, high_along = ground
    across, along, known = 0.0, 0.0, 0
    for foot in range(first, stop):
        if silent[foot] < NOTES:
            across += place[foot, 0]
            along += place[foot, 1]
            known += 1
    if known == 0:
        noted[:] = UNSEEN
        return
    u = (across / known - low_across) / (high_across - low_across)
    w = (along / known - low_along) / (high_along - low_along)
    if not (0.0 <= u <= 1.0 and 0.0 <= w <= 1.0):
        noted[:] = OUTSIDE
        return
    noted[0] = min(int(u * FINE[0]), FINE[0] - 1) * FINE[1] + min(int(w * FINE[1]), FINE[1] - 1)
    noted[1] = min(int(u * COARSE[0]), COARSE[0] - 1) * COARSE[1] + min(int(w * COARSE[1]), COARSE[1] - 1)


@njit(cache=True)
def advance(source, across, along, start, stop, at, number, slots, first, ground, place, silent, second):  # type: ignore[no-untyped-def]
    """Take rows and note each player's cell at the ticks among them, in slot ``slots[tick]`` of the second."""
    row = start
    for tick in range(len(at)):
        until = min(at[tick], stop)
        _hear(source, across, along, row, until, number, place, silent)
        row = until
        for player in range(len(first) - 1):
            _note(place, silent, first[player], first[player + 1], ground, second[slots[tick], player])
        for foot in range(len(silent)):
            silent[foot] = min(silent[foot] + 1, NOTES)
    _hear(source, across, along, row, stop, number, place, silent)


@njit(cache=True)
def count(notes, by, seen, cells):  # type: ignore[no-untyped-def]
    """Add notes (by = 1) to a window's counts, or take them off (by = -1)."""
    for tick in range(notes.shape[0]):
        for player in range(notes.shape[1]):
            fine, coarse = notes[tick, player]
            if fine != UNSEEN:
                seen[player] += by
            if fine >= 0:
                cells[player, fine] += by
                cells[player, FINE_CELLS + coarse] += by


@njit(cache=True)
def pack(cells):  # type: ignore[no-untyped-def]
    """The cells of each player's maps that are not empty: their numbers, their counts, and how many per map."""
    windows, players, _ = cells.shape
    game = windows - 1  # whatever is in another window is in the whole game
    fullest = 0
    for player in range(players):
        for cell in range(CELLS):
            fullest += cells[game, player, cell] > 0
    numbers = np.empty(fullest * windows, dtype=np.uint16)
    counts = np.empty(fullest * windows, dtype=np.uint32)
    sizes = np.zeros((players, 2 * windows), dtype=np.int64)
    visited = np.empty(CELLS, dtype=np.int64)
    n = 0
    for player in range(players):
        here, fine = 0, 0
        for cell in range(CELLS):
            if cells[game, player, cell] > 0:
                visited[here] = cell
                here += 1
                fine += cell < FINE_CELLS
        for grid in range(2):
            low, high, base = (0, fine, 0) if grid == 0 else (fine, here, FINE_CELLS)
            for window in range(windows):
                begin = n
                for i in range(low, high):
                    notes = cells[window, player, visited[i]]
                    if notes > 0:
                        numbers[n], counts[n] = visited[i] - base, notes
                        n += 1
                sizes[player, grid * windows + window] = n - begin
    return numbers[:n], counts[:n], sizes


class HeatMaps(Detector):
    """Publishes ``heatmap`` for each player every ``every`` seconds."""

    listens = ("position",)
    publishes = (HEATMAP,)
    # The counts of the windows follow from the notes of the last minutes; they are not copied but counted anew.
    fixed = ("match", "every", "number", "first", "ground", "seen", "cells")

    def __init__(self, match: Match, every: int = 1) -> None:
        if every < 1:
            raise ConfigError(f"every must be a whole number of seconds, at least 1; got every={every!r}.")
        self.match = match
        self.every = every
        self.number, self.first = match.numbered_feet
        self.ground = (*match.field.sides, *match.field.ends)
        players, feet = len(match.players), int(self.first[-1])
        # Megabytes of zeros: made when they are needed, so that a detector travels light to where it runs.
        self.seen = np.zeros((0, players), dtype=np.int64)
        self.cells = np.zeros((0, players, CELLS), dtype=np.int32)
        self.clock = GameClock.of(match, NOTES)
        self.place = np.zeros((feet, 2))
        self.silent = np.full(feet, NOTES, dtype=np.int64)
        self.second = np.full((NOTES, players, 2), UNSEEN, dtype=np.int16)
        self.minutes = Minutes.of((NOTES, players, 2), "int16", keep=max(WINDOWS) // MINUTE)
        #: The whole game at the end of the last full minute: notes per player; cells that are not empty, their counts.
        self.game = (np.zeros(players, dtype=np.int64).tobytes(), b"", b"")

    def on_batch(self, batch: Batch) -> Found:
        if not len(self.cells):
            self._clear()
        found: Found = []
        x, y = columns(batch, "x", "y")
        field = self.match.field
        across, along, source = field.across(x, y), field.along(x, y), sources(batch)
        for stretch in self.clock.stretches(batch.ts):
            for piece in stretch.pieces(NOTES):
                advance(
                    source, across, along, piece.start, piece.stop, piece.at, self.number, piece.number % NOTES,
                    self.first, self.ground, self.place, self.silent, self.second,
                )  # fmt: skip
                if piece.full:
                    self._end_second()
                    if piece.number[-1] % (NOTES * self.every) == 0:
                        found += self._maps(int(piece.at[-1]), int(piece.grid[-1]))
            if stretch.over:
                self.silent[:] = NOTES
                if (self.second != UNSEEN).any():
                    self._end_second()
                if not self.clock.ends_on_time(stretch.period, self.every):
                    found += self._maps(stretch.stop, self.clock.stops[stretch.period])
        return found

    def _clear(self) -> None:
        players = len(self.match.players)
        self.seen = np.zeros((len(WINDOWS), players), dtype=np.int64)
        self.cells = np.zeros((len(WINDOWS), players, CELLS), dtype=np.int32)

    def _end_second(self) -> None:
        for number, window in enumerate(WINDOWS):
            count(self.second, 1, self.seen[number], self.cells[number])
            leaving = self.minutes.leaving(window // MINUTE) if window != WHOLE_GAME else None
            if leaving is not None:
                count(leaving, -1, self.seen[number], self.cells[number])
        if self.minutes.add(self.second):
            visited = np.flatnonzero(self.cells[-1])
            counts = self.cells[-1].ravel()[visited]
            self.game = (self.seen[-1].tobytes(), visited.tobytes(), counts.tobytes())
        self.second[:] = UNSEEN

    def _maps(self, row: int, ts: int) -> Found:
        numbers, counts, sizes = pack(self.cells)
        numbers, counts = numbers.astype("<u2", copy=False), counts.astype("<u4", copy=False)
        ends = np.cumsum(sizes.sum(axis=1)).tolist()
        seen, start, found = self.seen.T.tolist(), 0, []
        for player, of_player, size, end in zip(self.match.players, seen, sizes.tolist(), ends, strict=True):
            payload = {
                "player": player.name,
                "team": player.team,
                "seen": of_player,
                "sizes": size,
                "cells": numbers[start:end].tobytes(),
                "counts": counts[start:end].tobytes(),
            }
            found.append((row, Event.of(HEATMAP.name, ts, None, None, payload)))
            start = end
        return found

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._clear()
        seen, visited, counts = self.game
        self.seen[-1] = np.frombuffer(seen, dtype=np.int64)
        self.cells[-1].ravel()[np.frombuffer(visited, dtype=np.int64)] = np.frombuffer(counts, dtype=np.int32)
        for number, window in enumerate(WINDOWS):
            whole = window == WHOLE_GAME
            kept = self.minutes.under_way() if whole else self.minutes.seconds(window // MINUTE)
            count(kept.reshape(-1, *kept.shape[2:]), 1, self.seen[number], self.cells[number])
