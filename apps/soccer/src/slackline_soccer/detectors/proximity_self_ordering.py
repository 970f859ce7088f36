"""Who is near the ball in play, from positions in any order [Thesis, 6.2.1, figures 6.3 and 6.4, A.4].

For comparison only: this is what a detector costs that orders by itself. It listens to everything unsorted, keeps what
it cannot use yet, and relates the positions of the ball to those of each player as soon as both have arrived. It finds
what :class:`~slackline_soccer.detectors.proximity_by_event.ProximityByEvent` finds on the ordered stream, and sooner
for a player whose positions happen to be early. For that it must know what the middleware would have known for it:

- that each transmitter's own positions arrive in order;
- for how long to wait for one that is silent (here: as long as its last position counts), and what to do when it
  comes back: what is older than what was decided already is dropped, and counted;
- that ball positions may go once every player has seen them.

Which ball is in play it learns late, and it applies that to whatever it has not decided yet.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from slackline import Detector, Event
from slackline_soccer.detectors.columns import LONG_AGO
from slackline_soccer.model.events import NEAR, NOT_NEAR
from slackline_soccer.model.match import Match, Player
from slackline_soccer.model.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class Place:
    """One position."""

    ts: int
    sid: int
    x: float
    y: float
    z: float


@dataclass(slots=True)
class Progress:
    """How far one player is decided, and what was the latest position of each of his feet and the ball then."""

    done: int = LONG_AGO  # time stamp of the last positions that were taken
    latest: dict[int, Place] = field(default_factory=dict)
    near: bool = False
    distance: float = 0.0


class ProximitySelfOrdering(Detector):
    """Publishes ``near`` and ``not_near`` per player; orders by itself."""

    listens = ("position", "active_ball")
    publishes = (NEAR, NOT_NEAR)
    unsorted = ("position", "active_ball")
    fixed = ("limits", "players", "player_of", "balls")

    def __init__(self, match: Match) -> None:
        self.limits = Thresholds.of(match)
        self.players = match.players
        self.player_of = {sid: number for number, player in enumerate(match.players) for sid in player.feet}
        self.balls = match.balls
        self.ball: int | None = None
        self.begun: int | None = None  # the first time stamp of all
        self.latest: dict[int, int] = {}  # the last time stamp of each transmitter
        self.waiting: dict[int, deque[Place]] = {sid: deque() for sid in (*match.balls, *self.player_of)}
        self.progress = [Progress() for _ in match.players]
        self.dropped = 0

    def on_event(self, event: Event) -> Iterator[Event]:
        if event.type == "active_ball":
            self.ball = event["ball"]
            return
        sid = event.source
        if not isinstance(sid, int) or sid not in self.waiting:
            return
        place = Place(event.ts, sid, event["x"], event["y"], event["z"])
        if self.begun is None:
            self.begun = place.ts
        if place.ts <= self.latest.get(sid, LONG_AGO):
            self.dropped += 1  # this transmitter's own order is broken
            return
        self.latest[sid] = place.ts
        number = self.player_of.get(sid)
        if number is not None and place.ts <= self.progress[number].done:
            self.dropped += 1  # he was silent for too long; it was decided without him
            return
        self.waiting[sid].append(place)
        if sid == self.ball:
            for other in range(len(self.players)):
                yield from self.correlate(other)
            self.purge_obsolete_ball_positions()
        elif number is not None:
            yield from self.correlate(number)
        else:
            self.purge_unused_ball_positions(sid, place.ts)

    # Which positions can be taken.

    def correlate(self, number: int) -> Iterator[Event]:
        """Take all positions of the player and the ball, in order, up to where none is missing."""
        if self.ball is None:
            return
        progress = self.progress[number]
        limit = self.complete_until(number)
        if limit <= progress.done:
            return
        for now, places in groupby(self.in_order(number, limit), key=lambda place: place.ts):
            progress.latest.update((place.sid, place) for place in places)
            progress.done = now
            yield from self.decide(number, now)

    def complete_until(self, number: int) -> int:
        """Nothing at or before this is to come: not from the ball, nor from a foot that is not given up."""
        assert self.ball is not None
        before = (self.begun or 0) - 1  # until then all is known of transmitters without positions
        known = [self.latest.get(sid, before) for sid in (self.ball, *self.players[number].feet)]
        newest = max(known)
        return min(ts for ts in known if newest - ts <= self.limits.stale)

    def in_order(self, number: int, limit: int) -> list[Place]:
        """The positions between what is decided and the limit; those of the feet are no longer needed after."""
        assert self.ball is not None
        done = self.progress[number].done
        found = []
        for place in reversed(self.waiting[self.ball]):  # the other players need them too: they stay
            if place.ts <= done:
                break
            if place.ts <= limit:
                found.append(place)
        for sid in self.players[number].feet:
            queue = self.waiting[sid]
            while queue and queue[0].ts <= limit:
                found.append(queue.popleft())
        return sorted(found, key=lambda place: place.ts)

    def purge_obsolete_ball_positions(self) -> None:
        """Ball positions that every player has seen."""
        assert self.ball is not None
        queue = self.waiting[self.ball]
        seen_by_all = min(progress.done for progress in self.progress)
        while queue and queue[0].ts <= seen_by_all:
            queue.popleft()

    def purge_unused_ball_positions(self, sid: int, now: int) -> None:
        """Positions of balls that are not in play, once they would no longer count if they were."""
        queue = self.waiting[sid]
        while queue and now - queue[0].ts > self.limits.stale:
            queue.popleft()

    # What they say.

    def decide(self, number: int, now: int) -> Iterator[Event]:
        """Whether the player has come near, or has gone."""
        progress, player = self.progress[number], self.players[number]
        ball = self.fresh(progress, self.ball, now)
        feet = [foot for sid in player.feet if (foot := self.fresh(progress, sid, now)) is not None]
        was = progress.near
        if ball is None or not feet:
            progress.near = False
            if was:
                yield self.event(NOT_NEAR.name, player, now, progress.distance)
            return
        distance, foot = min(((distance_of(ball, foot), foot) for foot in feet), key=lambda found: found[0])
        slack = self.limits.release / self.limits.reach if was else 1.0
        progress.near = distance < self.limits.reach * slack and ball.z < self.limits.height * slack
        progress.distance = distance
        if progress.near != was:
            at = max(min(ball.ts, foot.ts), now - self.limits.apart)
            yield self.event(NEAR.name if progress.near else NOT_NEAR.name, player, at, distance)

    def fresh(self, progress: Progress, sid: int | None, now: int) -> Place | None:
        place = None if sid is None else progress.latest.get(sid)
        return place if place is not None and now - place.ts <= self.limits.stale else None

    def event(self, kind: str, player: Player, ts: int, distance: float) -> Event:
        return Event(kind, ts, ball=self.ball, player=player.name, team=player.team, distance=distance / 1000.0)


def distance_of(ball: Place, foot: Place) -> float:
    """Seen from above, in mm."""
    dx, dy = foot.x - ball.x, foot.y - ball.y
    return math.sqrt(dx * dx + dy * dy)
