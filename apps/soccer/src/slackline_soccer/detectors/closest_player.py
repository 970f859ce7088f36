"""Who was at the ball when it turned.

Several players may be near, but one of them hit it. It is whose foot was closest; and as a ball is pushed away from
the foot that hits it, a foot that the ball was pushed towards counts as up to twice as far away. In a duel, with a foot
on either side of the ball, this decides: a player closer than a ball's radius is at it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import columns, keep_latest, no_feet, sources
from slackline_soccer.model.events import CLOSEST
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import BALL_RADIUS, Thresholds


class ClosestPlayer(Detector):
    """Publishes ``closest`` for each turn of a ball, if a foot was within reach."""

    listens = ("position", "ball_turned")
    publishes = (CLOSEST,)
    fixed = ("match", "sids", "reach", "stale")

    def __init__(self, match: Match) -> None:
        limits = Thresholds.of(match)
        self.match = match
        self.sids = np.array([sid for player in match.players for sid in player.feet], dtype=np.int64)
        self.reach = limits.release
        self.stale = limits.stale
        self.place, self.seen = no_feet(match)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "position":
            x, y = columns(batch, "x", "y")
            keep_latest(sources(batch), batch.ts, x, y, self.match.foot_of, self.place, self.seen)
            return
        for row, turn in enumerate(batch):
            yield from ((row, event) for event in self._closest(turn))

    def _closest(self, turn: Event) -> Iterator[Event]:
        away = np.array([turn["x"], turn["y"]]) - self.place[self.sids]  # from each foot to the ball
        push = np.array([turn["push_x"], turn["push_y"]])
        distance = np.hypot(away[:, 0], away[:, 1])
        cosine = away @ push / np.maximum(distance * np.hypot(*push), 1e-9)
        within = (distance < self.reach) & (turn.ts - self.seen[self.sids] <= self.stale)
        if not within.any():
            return
        apart = np.maximum(distance, BALL_RADIUS) * (1.5 - 0.5 * cosine)
        foot = int(np.argmin(np.where(within, apart, np.inf)))
        player = self.match.players[self.match.foot_of[self.sids[foot]]]
        yield turn.derive(
            CLOSEST.name,
            ball=turn["ball"],
            player=player.name,
            team=player.team,
            distance=float(distance[foot]) / 1000.0,
        )
