"""The players' feet, numbered for compiled loops: those of one player are next to each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slackline_soccer.model.match import Match

Ints = npt.NDArray[np.int64]


def numbered_feet(match: Match) -> tuple[Ints, Ints]:
    """``(number, first)``: the number of a transmitter's foot, -1 for all others; a player's first foot.

    Player ``p`` (in ``match.players``) has the feet ``first[p]`` up to ``first[p + 1]``.
    """
    number = np.full(max(match.sids) + 1, -1, dtype=np.int64)
    feet = [sid for player in match.players for sid in player.feet]
    number[feet] = np.arange(len(feet))
    first = np.cumsum([0, *(len(player.feet) for player in match.players)])
    return number, first
