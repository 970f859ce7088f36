"""Query 2 of DEBS 2013: who has the ball, for how long, and how often he hits it.

A player gets the ball when he hits it and keeps it until another one does, it leaves the field, or the game stops:
``possession`` events give all but the last, which ends with the period. Once a second the times so far are published,
per player for the whole game and per team also over windows. A team's share is of the time that either team had the
ball; there is none (None) while no player had it. What happens at the very position that ends a second counts in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slackline import Detector, Event
from slackline_soccer.model.events import HIT, POSSESSION
from slackline_soccer.model.match import Match
from slackline_soccer.queries.events import POSSESSION_PLAYER, POSSESSION_TEAM, SECOND_OVER
from slackline_soccer.queries.windows import Totals
from slackline_soccer.tracking.positions import SECOND

#: In seconds; the whole game comes on top.
WINDOWS = (60, 300, 600, 1200)


class PossessionAnalysis(Detector):
    """Publishes ``possession_player`` and ``possession_team`` at each ``second`` of the game."""

    listens = (HIT, POSSESSION, SECOND_OVER)
    publishes = (POSSESSION_PLAYER, POSSESSION_TEAM)
    fixed = ("match", "periods", "team_of")

    def __init__(self, match: Match) -> None:
        self.match = match
        self.periods = tuple((period.start, period.stop) for period in match.periods)
        self.team_of = {player.name: match.teams.index(player.team) for player in match.players}
        self.holder: str | None = None
        self.since = 0
        self.time = dict.fromkeys(self.team_of, 0)
        self.hits = dict.fromkeys(self.team_of, 0)
        #: Of each team, since the last second was published.
        self.second = [0, 0]
        self.totals = Totals.of((2,), "int64", WINDOWS)

    def on_event(self, event: Event) -> Iterator[Event]:
        if event.type == SECOND_OVER.name:
            self._hold_until(event["at"])
            yield from self._tell(event)
            return
        self._hold_until(event.ts)
        if event.type == POSSESSION.name:
            self.holder = event.get("player")
        elif self.match.period(event.ts) is not None:
            self.hits[event["player"]] += 1

    def _hold_until(self, ts: int) -> None:
        """Credit the holder with the time since the last event, as far as the game was on."""
        if ts <= self.since:
            return
        if self.holder is not None:
            held = sum(max(0, min(ts, stop) - max(self.since, start)) for start, stop in self.periods)
            self.time[self.holder] += held
            self.second[self.team_of[self.holder]] += held
            if any(self.since < stop <= ts for _, stop in self.periods):
                self.holder = None
        self.since = ts

    def _tell(self, second: Event) -> Iterator[Event]:
        at = second["at"]
        self.totals.add(np.array(self.second))
        self.second = [0, 0]
        for player in self.match.players:
            name = player.name
            time, hits = self.time[name] / SECOND, self.hits[name]
            yield second.derive(POSSESSION_PLAYER.name, at, player=name, team=player.team, time=time, hits=hits)
        for window, times in zip(self.totals.windows, self.totals.sums.tolist(), strict=True):
            both = sum(times)
            for team, time in zip(self.match.teams, times, strict=True):
                share = time / both if both else None
                yield second.derive(POSSESSION_TEAM.name, at, team=team, window=window, time=time / SECOND, share=share)
