"""Who is near the ball in play, one event at a time [Thesis, A.5]: for comparison only.

This is what one writes who need not care for speed, since the order is the middleware's business. It finds the ``near``
and ``not_near`` of :class:`~slackline_soccer.detectors.proximity.Proximity`. Beside it stands
:class:`~slackline_soccer.detectors.proximity_self_ordering.ProximitySelfOrdering`, which does the ordering itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from slackline import Detector, Event
from slackline_soccer.detectors.columns import LONG_AGO
from slackline_soccer.model.events import NEAR, NOT_NEAR
from slackline_soccer.model.match import Match, Player
from slackline_soccer.model.thresholds import Thresholds


class ProximityByEvent(Detector):
    """Publishes ``near`` and ``not_near`` per player."""

    listens = ("position", "active_ball")
    publishes = (NEAR, NOT_NEAR)
    fixed = ("limits", "players", "player_of")

    def __init__(self, match: Match) -> None:
        self.limits = Thresholds.of(match)
        self.max_backdate = self.limits.apart + self.limits.step
        self.players = match.players
        self.player_of = {sid: player for player in match.players for sid in player.feet}
        self.ball: int | None = None
        self.latest: dict[int, Event] = {}  # of each transmitter
        self.now = LONG_AGO  # the time stamp of the positions that came last
        self.moved: set[str] = set()  # whose distance to the ball they may change
        self.near: dict[str, float] = {}  # distance of those who are near

    def on_event(self, event: Event) -> Iterator[Event]:
        if event.type == "active_ball":
            yield from self.look(event.ts)
            self.ball = event["ball"]
            return
        assert isinstance(event.source, int)
        if event.ts > self.now:  # all positions of the time stamp before have arrived
            yield from self.look(event.ts)
            self.now = event.ts
        self.latest[event.source] = event
        if event.source == self.ball:
            self.moved = {player.name for player in self.players}
        elif event.source in self.player_of and self.ball is not None:
            self.moved.add(self.player_of[event.source].name)

    def look(self, later: int) -> Iterator[Event]:
        """Players who have come near, or have left, with the positions of the last time stamp."""
        for player in self.players:
            if player.name in self.moved:
                for event in self.correlate(player, self.now):
                    yield (
                        event
                        if later - event.ts <= self.max_backdate
                        else event.derive(event.type, later - self.max_backdate, **event.payload)
                    )
        self.moved.clear()

    def correlate(self, player: Player, now: int) -> Iterator[Event]:
        """Whether the player has come near, or has gone."""
        was = player.name in self.near
        found = self.closest(player, now)
        if found is None:
            if was:
                yield self.event(NOT_NEAR.name, player, now, self.near.pop(player.name))
            return
        distance, ball, foot = found
        slack = self.limits.release / self.limits.reach if was else 1.0
        within = distance < self.limits.reach * slack and ball["z"] < self.limits.height * slack
        if within:
            self.near[player.name] = distance
        else:
            self.near.pop(player.name, None)
        if within != was:
            at = max(min(ball.ts, foot.ts), now - self.limits.apart)
            yield self.event(NEAR.name if within else NOT_NEAR.name, player, at, distance)

    def closest(self, player: Player, now: int) -> tuple[float, Event, Event] | None:
        """Distance, ball and closest foot; None if one of them has no recent position."""
        ball = self.fresh(self.ball, now)
        feet = [foot for sid in player.feet if (foot := self.fresh(sid, now)) is not None]
        if ball is None or not feet:
            return None
        distance, foot = min(((distance_of(ball, foot), foot) for foot in feet), key=lambda found: found[0])
        return distance, ball, foot

    def fresh(self, sid: int | None, now: int) -> Event | None:
        position = None if sid is None else self.latest.get(sid)
        return position if position is not None and now - position.ts <= self.limits.stale else None

    def event(self, kind: str, player: Player, ts: int, distance: float) -> Event:
        return Event(kind, ts, ball=self.ball, player=player.name, team=player.team, distance=distance / 1000.0)


def distance_of(ball: Event, foot: Event) -> float:
    """Seen from above, in mm."""
    dx, dy = foot["x"] - ball["x"], foot["y"] - ball["y"]
    return math.sqrt(dx * dx + dy * dy)
