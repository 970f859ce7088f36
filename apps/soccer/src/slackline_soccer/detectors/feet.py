"""Where everybody's feet are: the latest position of each, kept by those who look at them only now and then."""

from __future__ import annotations

import numpy as np
from numba import njit

from slackline_soccer.detectors.columns import LONG_AGO, Floats, Ints
from slackline_soccer.model.match import Match

NOBODY = -1


def feet_of(match: Match) -> Ints:
    """The transmitters on each player's feet, a row per player, filled up with NOBODY."""
    feet = np.full((len(match.players), max(len(player.feet) for player in match.players)), NOBODY, dtype=np.int64)
    for number, player in enumerate(match.players):
        feet[number, : len(player.feet)] = player.feet
    return feet


def no_feet(match: Match) -> tuple[Floats, Ints]:
    """By transmitter: x and y in mm, and when that was (never)."""
    return np.zeros((len(match.foot_of), 2)), np.full(len(match.foot_of), LONG_AGO, dtype=np.int64)


@njit(cache=True)
def keep_latest(source, ts, x, y, foot_of, place, seen):  # type: ignore[no-untyped-def]
    """Take over the positions of feet among the rows."""
    for row in range(len(ts)):
        sid = source[row]
        if 0 <= sid < len(foot_of) and foot_of[sid] >= 0:
            place[sid, 0], place[sid, 1] = x[row], y[row]
            seen[sid] = ts[row]
