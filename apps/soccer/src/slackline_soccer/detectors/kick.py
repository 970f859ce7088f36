"""A hit sends the ball on its way: it is a metre from where it was hit, and so its path shows where it is headed.

This is the waiting that query 4 of DEBS 2013 asks for, done once for all who want to know what became of a hit. A touch
that leaves the ball at the foot, or that is followed by the next hit within the metre, is no kick.

The velocity counts once the ball has left the foot, over the last two thirds of the metre: the mean of what was
measured there and of the way covered. One measured velocity alone is too noisy to decide, from 25 m, on which side of a
post the ball will pass. Tracking data has a frame or two there, and velocities that come from many frames: then the
last of them has to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import columns, sources
from slackline_soccer.model.events import KICK
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds

#: Which share of the metre it takes to leave the foot.
FOOT = 1 / 3
#: So many positions it takes to do better than the last of them.
FEW = 5
#: What is kept of the way since: positions, when (ps) and where (mm) it began, the sum of velocities (m/s).
COUNT, SINCE, PLACE, SUM = 0, 1, slice(2, 5), slice(5, 8)


@njit(cache=True)
def row_on_its_way(source, ts, x, y, z, v, vx, vy, vz, ball, place, hit_at, way, kept):  # type: ignore[no-untyped-def]
    """The first row at which the ball is so far from where it was hit; the number of rows if none."""
    for row in range(len(source)):
        if source[row] != ball:
            continue
        dx, dy, dz = x[row] - place[0], y[row] - place[1], z[row] - place[2]
        distance = np.sqrt(dx * dx + dy * dy + dz * dz)
        if distance < FOOT * way:
            continue
        if kept[COUNT] == 0.0:
            kept[SINCE] = ts[row] - hit_at
            kept[2], kept[3], kept[4] = x[row], y[row], z[row]
        scale = v[row] * 1e-10  # µm/s and a direction scaled to 10,000, to m/s
        kept[COUNT] += 1.0
        kept[5] += vx[row] * scale
        kept[6] += vy[row] * scale
        kept[7] += vz[row] * scale
        if distance >= way:
            return row
    return len(source)


class Kick(Detector):
    """Publishes ``kick`` when the ball has gone a metre since it was hit."""

    listens = ("position", "hit")
    publishes = (KICK,)
    fixed = ("way", "timeout")

    def __init__(self, match: Match) -> None:
        limits = Thresholds.of(match)
        self.way = limits.way
        self.timeout = limits.on_its_way
        #: The hit that is waited for, if any, and the way of the ball since it left the foot.
        self.hit: Event | None = None
        self.kept = np.zeros(8)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "hit":
            self.hit = batch.event(len(batch) - 1)
            self.kept[:] = 0.0
            return
        hit = self.hit
        if hit is None:
            return
        rows = batch.slice(0, int(np.searchsorted(batch.ts, hit.ts + self.timeout, side="right")))
        given: list[Any] = [sources(rows), rows.ts, *columns(rows, "x", "y", "z", "v", "vx", "vy", "vz")]
        given += [hit["ball"], (hit["x"], hit["y"], hit["z"]), hit.ts, self.way, self.kept]
        row = row_on_its_way(*given)
        if row < len(rows):
            yield row, self._kick(hit, rows.event(row))
        if row < len(rows) or len(rows) < len(batch):
            self.hit = None

    def _kick(self, hit: Event, position: Event) -> Event:
        place = np.array([position["x"], position["y"], position["z"]])
        if self.kept[COUNT] >= FEW:
            took = (position.ts - hit.ts - self.kept[SINCE]) * 1e-9  # ps, and places are in mm
            velocity = (self.kept[SUM] / self.kept[COUNT] + (place - self.kept[PLACE]) / took) / 2
        else:
            velocity = np.array([position["vx"], position["vy"], position["vz"]]) * position["v"] * 1e-10
        vx, vy, vz = velocity.tolist()
        return position.derive(
            KICK.name,
            ball=hit["ball"],
            player=hit["player"],
            team=hit["team"],
            hit_at=hit.ts,
            vx=vx,
            vy=vy,
            vz=vz,
            x=position["x"],
            y=position["y"],
            z=position["z"],
        )
