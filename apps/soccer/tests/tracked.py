"""A simulated match as a camera system would have seen it: one position per player, 25 frames a second, one ball.

Positions are the mean over a player's limbs, from the simulation without delays; on top comes white noise, and
stretches in which a player is not seen (NaN).
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackline_soccer.tracking import SECOND
from slackline_soccer.tracking.game import Role

RATE = 25


def mapping_entries(match):
    """The objects of :func:`tracking_of`, as a mapping has them."""
    entries = [{"object": "ball", "role": "ball"}]
    for player in match.players:
        role = "goalkeeper" if player.goalkeeper else "player"
        entries.append({"object": player.name, "role": role, "team": player.team})
    return {"objects": entries}


def tracking_of(simulation, *, noise=0.05, gaps=0.01, seed=0, rate=RATE):
    """Columns ts (s), object, x, y, z (m): ``noise`` in m, ``gaps`` the share of time in which one is not seen."""
    rng = np.random.default_rng(seed)
    table, match = simulation.table(), simulation.match
    start, stop = match.periods[0].start, match.periods[0].stop
    step = SECOND // rate
    frames = np.arange(start + step, stop - step, step)
    sid, ts = table["sid"].to_numpy(), table["ts"].to_numpy()
    places = np.column_stack([table[axis].to_numpy() for axis in "xyz"]).astype(float)
    seen = {}
    for number in np.unique(sid).tolist():
        rows = np.flatnonzero(sid == number)
        rows = rows[np.argsort(ts[rows], kind="stable")]
        seen[number] = np.column_stack([np.interp(frames, ts[rows], places[rows, axis]) for axis in range(3)])
    tracks = {"ball": _ball_in_play(simulation.truth, frames, seen)}
    for player in match.players:
        limbs = [s.sid for s in match.sensors if s.wearer == player.name and s.role in (Role.PLAYER, Role.GOALKEEPER)]
        tracks[player.name] = np.mean([seen[limb] for limb in limbs], axis=0)
    columns = []
    for track in tracks.values():
        track = track / 1000 + rng.normal(0, noise, track.shape) if noise else track / 1000
        track[_hidden(rng, len(frames), gaps)] = np.nan
        columns.append(track)
    stacked = np.stack(columns, axis=1).reshape(-1, 3)  # frame by frame, object by object
    return pa.table(
        {
            "ts": np.repeat(frames / SECOND, len(tracks)),
            "object": list(tracks) * len(frames),
            **{axis: stacked[:, n] for n, axis in enumerate("xyz")},
        }
    )


def _ball_in_play(truth, frames, seen):
    changes = truth.filter(pc.equal(truth["type"], "active_ball"))
    balls, since = changes["ball"].to_pylist(), changes["ts"].to_numpy()
    at = np.clip(np.searchsorted(since, frames, side="right") - 1, 0, None)
    return np.array([seen[balls[number]][frame] for frame, number in enumerate(at.tolist())])


def _hidden(rng, frames, share):
    """Frames in which an object is not seen: stretches of up to a second."""
    hidden = np.zeros(frames, dtype=bool)
    while hidden.mean() < share:
        first = rng.integers(0, frames)
        hidden[first : first + rng.integers(1, RATE)] = True
    return hidden
