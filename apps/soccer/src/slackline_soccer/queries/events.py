"""What the queries publish. Lengths in m, times in s, speeds in m/s; places in mm, time stamps in ps.

Where a query has something to say of all players many times a second, one event holds it for all of them, as columns:
an event costs some 7 µs from detector to output, and 50 a second are a good deal cheaper than 50 a second and player.
:mod:`slackline_soccer.queries.tables` gives rows.
"""

from __future__ import annotations

from slackline import EventType

#: A full second of a period is over, ``number`` since its start, ``at`` that time; ``ts`` is when it was noticed.
SECOND_OVER = EventType("second", at=int, period=int, number=int)

#: Query 1, 50 times a second: the current runs, a column of one entry per player each. They last until ``ts``.
RUNNING = EventType(
    "running", player=object, team=object, intensity=object, start=object, distance=object, speed=object, top=object
)
#: Query 1, when a run has ended: ``speed`` is its mean, ``top`` the highest speed over one second in it.
RUN = EventType("run", player=str, team=str, intensity=str, start=int, stop=int, distance=float, speed=float, top=float)
#: Query 1, every second: ``time`` and ``distance`` by player, window and intensity, as nested lists.
RUNNING_TOTAL = EventType("running_total", player=object, team=object, window=object, time=object, distance=object)

#: Query 2, every second: how long each player had the ball so far, and how often he hit it.
POSSESSION_PLAYER = EventType("possession_player", player=str, team=str, time=float, hits=int)
#: Query 2, every second and window: how long a team had the ball, and its share of the time either team had.
POSSESSION_TEAM = EventType("possession_team", team=str, window=int, time=float, share=float)

#: Query 3, every second and player: see :mod:`slackline_soccer.queries.heatmap`.
HEATMAP = EventType("heatmap", player=str, team=str, seen=object, sizes=object, cells=object, counts=object)

#: Query 4: where the ball of a shot is and how it moves.
SHOT_MOTION = EventType(
    "shot_motion",
    player=str,
    team=str,
    goal=int,
    ball=int,
    shot_at=int,
    x=float,
    y=float,
    z=float,
    vx=float,
    vy=float,
    vz=float,
    speed=float,
    acceleration=float,
)

ALL = (SECOND_OVER, RUNNING, RUN, RUNNING_TOTAL, POSSESSION_PLAYER, POSSESSION_TEAM, HEATMAP, SHOT_MOTION)
