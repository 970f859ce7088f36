"""Who is near the ball in play [Thesis, 6.2.1 and A.5].

A player is near once a foot is within a metre of the ball, seen from above, and the ball no higher than a jumping
player gets. He stays near until it is a tenth further away, so that noise at the metre makes no events. The time stamp
is the smaller of those of the two positions, the ball's and the foot's. Positions that are too old say nothing: a
player who is no longer tracked is not near, and no player is near a ball that has vanished.

Positions of one time stamp are one picture, in whatever order they are listed. It is looked at when it is complete, and
that is when a later position comes. Cameras give the ball and all players of a frame one time stamp: a detector that
looked at the new ball and the old players would see a hard kick leave its player a frame too early.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from slackline import Batch, Detector, Event
from slackline_soccer.detectors.columns import LONG_AGO, NONE, Floats, Ints, columns, feet_of, sources
from slackline_soccer.model.events import NEAR, NOT_NEAR
from slackline_soccer.model.match import Match
from slackline_soccer.model.thresholds import Thresholds

KINDS = (NOT_NEAR.name, NEAR.name)

#: Nothing comes closer faster than this (mm/ps: 100 m/s) but for noise (mm): a player far away need not be looked at
#: for a while.
FASTEST, NOISE = 1e-7, 300.0

#: Events that one call of the loop may find; it is called again for more.
ROOM = 256

#: Of the picture: its time stamp, how many players moved in it, and whether the ball did.
NOW, MOVED, BALL = range(3)


@njit(cache=True)
def measure(player, ball, now, feet, place, seen, stale, distance):  # type: ignore[no-untyped-def]
    """Distance of a player's closest foot into ``distance``; that foot, or NONE if none has a recent position."""
    closest, least = NONE, np.inf
    for sid in feet[player]:
        if sid != NONE and now - seen[sid] <= stale:
            dx, dy = place[sid, 0] - place[ball, 0], place[sid, 1] - place[ball, 1]
            d = np.sqrt(dx * dx + dy * dy)
            if d < least:
                closest, least = sid, d
    if closest != NONE:
        distance[player] = least
    return closest


@njit(cache=True)
def look(picture, moved, row, later, ball, feet, lengths, times, place, seen, near, distance, due, found, ints, n):  # type: ignore[no-untyped-def]
    """Look at a picture that is complete, since ``row`` is of a ``later`` time stamp; how many events were found."""
    reach, release, height = lengths
    stale, apart, back = times
    now, all_players = picture[NOW], picture[BALL] == 1
    ball_is_known = now - seen[ball] <= stale
    for number in range(len(near) if all_players else picture[MOVED]):
        player = number if all_players else moved[number]
        was = near[player]
        if now < due[player] or not (ball_is_known or was):
            continue
        foot = measure(player, ball, now, feet, place, seen, stale, distance) if ball_is_known else NONE
        slack = release / reach if was else 1.0
        within = foot != NONE and distance[player] < reach * slack and place[ball, 2] < height * slack
        due[player] = LONG_AGO if within or foot == NONE else now + (distance[player] - reach - NOISE) / FASTEST
        if within == was:
            continue
        near[player] = within
        at = now if foot == NONE else max(min(seen[ball], seen[foot]), now - apart)
        found[n] = distance[player]
        ints[n, 0], ints[n, 1], ints[n, 2], ints[n, 3] = within, player, max(at, later - back), row
        n += 1
    picture[MOVED], picture[BALL] = 0, 0
    return n


@njit(cache=True)
def note(player, picture, moved):  # type: ignore[no-untyped-def]
    """This player moved, too; in the order of the players, whichever is listed first."""
    at = picture[MOVED]
    while at > 0 and moved[at - 1] > player:
        at -= 1
    if at > 0 and moved[at - 1] == player:
        return
    for behind in range(picture[MOVED], at, -1):
        moved[behind] = moved[behind - 1]
    moved[at] = player
    picture[MOVED] += 1


@njit(cache=True)
def track(  # type: ignore[no-untyped-def]
    start, source, ts, x, y, z, ball, player_of, feet, lengths, times,
    picture, moved, place, seen, near, distance, due, found, ints,
):  # fmt: skip
    """Goes through the rows until ``found`` is full or they end; the next row, and how many events were found."""
    stale = times[0]
    players, n = len(near), 0
    for row in range(start, len(ts)):
        if n + players > len(found):
            return row, n
        if ts[row] > picture[NOW]:
            if ball != NONE and (picture[BALL] or picture[MOVED]):
                n = look(
                    picture, moved, row, ts[row], ball, feet, lengths, times, place, seen, near, distance, due,
                    found, ints, n,
                )  # fmt: skip
            picture[NOW] = ts[row]
        sid = source[row]
        if not 0 <= sid < len(player_of):
            continue
        player, now = player_of[sid], ts[row]
        if player == NONE and place[sid, 3] == 0.0:
            continue
        place[sid, 0], place[sid, 1], place[sid, 2] = x[row], y[row], z[row]
        if now - seen[sid] > stale:  # a foot that was not there when the player was last looked at
            due[max(player, 0)] = LONG_AGO
        seen[sid] = now
        if sid == ball:
            picture[BALL] = 1
        elif player != NONE and ball != NONE:
            note(player, picture, moved)
    return len(ts), n


class Proximity(Detector):
    """Publishes ``near`` and ``not_near`` per player."""

    listens = ("position", "active_ball")
    publishes = (NEAR, NOT_NEAR)
    fixed = ("match", "feet", "lengths", "times")

    def __init__(self, match: Match) -> None:
        limits = Thresholds.of(match)
        players = len(match.players)
        self.match = match
        self.feet = feet_of(match)
        self.lengths = (limits.reach, limits.release, limits.height)
        self.max_backdate = limits.apart + limits.step
        self.times = (limits.stale, limits.apart, self.max_backdate)
        self.ball = NONE
        self.picture = np.array([LONG_AGO, 0, 0], dtype=np.int64)
        self.moved = np.zeros(players, dtype=np.int64)
        #: By transmitter: x, y, z in mm, and whether it is a ball.
        self.place = np.zeros((len(match.foot_of), 4))
        self.place[list(match.balls), 3] = 1.0
        self.seen = np.full(len(match.foot_of), LONG_AGO, dtype=np.int64)
        self.near = np.zeros(players, dtype=np.bool_)
        self.distance = np.full(players, 1e9)
        self.due = np.full(players, LONG_AGO, dtype=np.int64)  # before that a player cannot be near

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        found, ints = np.empty(ROOM), np.empty((ROOM, 4), dtype=np.int64)
        limits: list[Any] = [self.feet, self.lengths, self.times]
        state: list[Any] = [self.place, self.seen, self.near, self.distance, self.due, found, ints]
        if batch.type == "active_ball":
            if self.ball != NONE:  # up to here it was the other ball
                n = look(*[self.picture, self.moved, 0, int(batch.ts[0]), self.ball, *limits, *state, 0])
                yield from self._events(ints[:n], found[:n])
            self.ball = int(batch["ball"][-1])
            self.due[:] = LONG_AGO
            return
        given: list[Any] = [sources(batch), batch.ts, *columns(batch, "x", "y", "z"), self.ball, self.match.foot_of]
        given += [*limits, self.picture, self.moved, *state]
        row = 0
        while row < len(batch):
            row, n = track(row, *given)
            yield from self._events(ints[:n], found[:n])

    def _events(self, ints: Ints, found: Floats) -> Iterator[tuple[int, Event]]:
        for (kind, number, at, cause), distance in zip(ints.tolist(), found.tolist(), strict=True):
            player = self.match.players[number]
            event = Event(
                KINDS[kind], ts=at, ball=self.ball, player=player.name, team=player.team, distance=distance / 1000.0
            )
            yield cause, event
