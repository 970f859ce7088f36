"""Where the ball in play is: in the field, in a penalty area, in a goal.

The ball is out of the field when all of it has crossed the line, so when its centre is a radius beyond; it is in again
when its centre is (well inside, where positions are noisy). Between the two nothing changes, so noise at the line makes
no events. A goal is entered only from the field, between the posts and under the bar; a ball that rolls in from behind
scores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import Floats, columns, sources
from slackline_soccer.model.events import BALL_ENTERED, BALL_LEFT
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import BALL_RADIUS, Thresholds

NONE = -1
AREAS = ("field", "penalty_0", "penalty_1", "goal_0", "goal_1")
FIELD, PENALTY, GOAL = 0, 1, 3

#: How deep a goal is (mm), with room for the net.
DEPTH = 3_000.0


def areas_of(match: Match) -> Floats:
    """Each area as lowest and highest *along*, *across* and z."""
    field = match.field
    above = np.inf
    rows = [(*field.ends, *field.sides, -above, above)]
    rows += [(*field.penalty_area(end), -above, above) for end in (0, 1)]
    for end, goal in enumerate(field.goals):
        line = field.ends[end]
        reach = (line - DEPTH, line) if end == 0 else (line, line + DEPTH)
        rows.append((*reach, goal.left, goal.right, -above, goal.height))
    return np.array(rows)


@njit(cache=True)
def beyond(area, along, across, z):  # type: ignore[no-untyped-def]
    """How far outside an area a place is; negative inside."""
    flat = max(area[0] - along, along - area[1], area[2] - across, across - area[3])
    return max(flat, area[4] - z, z - area[5])


@njit(cache=True)
def next_crossing(start, source, along, across, z, ball, areas, noise, inside, changed):  # type: ignore[no-untyped-def]
    """The first row from ``start`` on where the ball crosses into or out of areas, marked in ``changed``."""
    for row in range(start, len(source)):
        if source[row] != ball:
            continue
        crossed = False
        was_in_field = inside[FIELD]
        for area in range(len(areas)):
            outside = beyond(areas[area], along[row], across[row], z[row])
            if area < GOAL or inside[area]:
                within = outside <= (BALL_RADIUS if inside[area] else -noise)
            else:  # entered at the moment at which the field is left, and only then
                within = was_in_field and not inside[FIELD] and outside < 0.0
            changed[area] = within != inside[area]
            inside[area] = within
            crossed |= changed[area]
        if crossed:
            return row
    return len(source)


class BallAreas(Detector):
    """Publishes ``ball_entered`` and ``ball_left`` for each area of the field."""

    listens = ("position", "active_ball")
    publishes = (BALL_ENTERED, BALL_LEFT)
    fixed = ("match", "areas", "noise")

    def __init__(self, match: Match) -> None:
        self.match = match
        self.areas = areas_of(match)
        self.noise = Thresholds.of(match).line
        self.ball = NONE
        self.inside = np.zeros(len(AREAS), dtype=np.bool_)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "active_ball":
            self.ball = int(batch["ball"][-1])
            return
        x, y, z = columns(batch, "x", "y", "z")
        field = self.match.field
        given = (
            sources(batch),
            field.along(x, y),
            field.across(x, y),
            z,
            self.ball,
            self.areas,
            self.noise,
            self.inside,
        )
        changed = np.empty(len(AREAS), dtype=np.bool_)
        row = next_crossing(0, *given, changed)
        while row < len(x):
            for area in np.flatnonzero(changed).tolist():
                kind = BALL_ENTERED if self.inside[area] else BALL_LEFT
                where = {"x": float(x[row]), "y": float(y[row]), "z": float(z[row])}
                place: dict[str, Any] = {"ball": self.ball, "area": AREAS[area], **where}
                yield row, Event.of(kind.name, int(batch.ts[row]), None, None, place)
            row = next_crossing(row + 1, *given, changed)
