"""Offside: who got the pass stood offside when it was played (Law 11).

That is: in the opponents' half, nearer to their goal line than both the ball and the last opponent but one. So the
places of all players are kept at each hit, and looked at when a pass turns out to have begun with that hit. A ball that
is put into play from the line (throw-in, corner, goal kick) has no offside; it is known by where it was played.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import NONE, Floats, columns, feet_of, keep_latest, no_feet, sources
from slackline_soccer.model.events import OFFSIDE
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds

#: Hits that are kept: a pass begins with the hit before its last.
KEPT = 4
#: A ball played from nearer to a line (mm) was put into play from there.
AT_THE_LINE = 500.0


@dataclass(frozen=True, slots=True)
class HitScene:
    """A hit: when, where *along* the ball was, whether from the line, and where *along* each player was."""

    ts: int
    ball: float
    from_line: bool
    players: Floats


class Offside(Detector):
    """Publishes ``offside`` for the receiver of a successful pass."""

    listens = ("position", "hit", "pass")
    publishes = (OFFSIDE,)
    fixed = ("match", "stale", "number", "feet")

    def __init__(self, match: Match) -> None:
        self.match = match
        self.stale = Thresholds.of(match).stale
        self.number = {player.name: number for number, player in enumerate(match.players)}
        self.feet = feet_of(match)
        self.place, self.seen = no_feet(match)
        self.moments: list[HitScene] = []

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        if batch.type == "position":
            x, y = columns(batch, "x", "y")
            keep_latest(sources(batch), batch.ts, x, y, self.match.foot_of, self.place, self.seen)
            return
        for row, event in enumerate(batch):
            if event.type == "hit":
                self.moments = [*self.moments[1 - KEPT :], self._moment(event)]
            elif (by := self._offside_by(event)) > 0.0:
                yield (
                    row,
                    event.derive(
                        OFFSIDE.name,
                        player=event["to"],
                        team=event["team"],
                        passer=event["player"],
                        kicked_at=event["kicked_at"],
                        by=by / 1000.0,
                    ),
                )

    def _moment(self, hit: Event) -> HitScene:
        field = self.match.field
        ball = field.along(hit["x"], hit["y"])
        across = field.across(hit["x"], hit["y"])
        inward = min(ball - field.ends[0], field.ends[1] - ball, across - field.sides[0], field.sides[1] - across)
        fresh = (self.feet != NONE) & (hit.ts - self.seen[self.feet] <= self.stale)
        along = np.where(fresh, self.place[self.feet, 0 if field.lengthwise == "x" else 1], 0.0).sum(axis=1)
        players = np.where(fresh.any(axis=1), along / np.maximum(fresh.sum(axis=1), 1), np.nan)
        return HitScene(hit.ts, float(ball), bool(inward < AT_THE_LINE), players)

    def _offside_by(self, event: Event) -> float:
        """How far (mm) the receiver was beyond the offside line; 0 if he was not, or if it is not known."""
        moment = next((moment for moment in self.moments if moment.ts == event["kicked_at"]), None)
        goal = self.match.attacks(event["team"], event["kicked_at"])
        if moment is None or moment.from_line or goal is None or not event["successful"]:
            return 0.0
        forward = 1.0 if goal == 1 else -1.0
        receiver = forward * moment.players[self.number[event["to"]]]
        opponents = [
            forward * moment.players[number]
            for number, player in enumerate(self.match.players)
            if player.team != event["team"] and not np.isnan(moment.players[number])
        ]
        if np.isnan(receiver) or len(opponents) < 2:
            return 0.0
        half_way = forward * sum(self.match.field.ends) / 2
        return max(0.0, float(receiver - max(half_way, forward * moment.ball, sorted(opponents)[-2])))
