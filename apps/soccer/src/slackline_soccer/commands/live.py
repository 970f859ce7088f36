"""``slackline demo --live``: a simulated match at the speed at which it is played, and a page to watch it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import typer

from slackline.report import LivePage, Panel, stages_of
from slackline.runtime import KeyedEngines, OutputRecord
from slackline_soccer import Match, Simulation, match_hierarchy, match_policy
from slackline_soccer.report.looks import clock
from slackline_soccer.report.pitch import Plane
from slackline_soccer.tracking import SECOND

#: Positions that are pushed at a time: a tenth of a second of match.
PUSH = 3_600
#: Seconds for which passes and shots stay on the pitch.
SHOWN = 6
#: Events that are listed beside the pitch.
LISTED = 8


def watch(simulation: Simulation, port: int) -> None:
    """Run the detectors on the match in this process as its positions arrive, until the match ends."""
    match = simulation.match
    hierarchy = match_hierarchy(match)
    engines = KeyedEngines(hierarchy, {"policy": match_policy(match)}, keyed=False)
    scene = Scene(match)
    script = files("slackline_soccer.report").joinpath("live_pitch.js").read_text(encoding="utf-8")
    page = LivePage(port, "A match, as it is played", stages_of(hierarchy), Panel("The pitch", script))
    typer.echo(f"The page to watch: {page.url} (Ctrl-C ends it)")
    try:
        _play(simulation, engines, scene, page)
    except KeyboardInterrupt:
        return
    finally:
        page.close()
    typer.echo(f"The match has ended after {simulation.seconds:g} s.")


def _play(simulation: Simulation, engines: KeyedEngines, scene: Scene, page: LivePage) -> None:
    reported = 0.0
    ahead: float | None = None  # the clock of this process, compared with that of the match, both in seconds
    for table in simulation.tables(rows=PUSH):
        arrived = table["arrival"][-1].as_py() / SECOND
        if ahead is not None:
            time.sleep(max(0.0, arrived + ahead - time.monotonic()))
        scene.add(table, engines.push(table))
        if ahead is None:  # the first push may have compiled
            ahead = time.monotonic() - arrived
        page.show_panel(scene.drawn())
        if time.monotonic() - reported >= 1.0:
            reported = time.monotonic()
            page(replace(engines.metrics(), ts_per_second=SECOND))


class Scene:
    """Where players and ball are, and what was detected last, as the page draws it; lengths in metres."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self._plane = Plane(match.field)
        size = max(match.sids) + 1
        self._places = np.full((size, 2), np.nan)
        self._ball = match.balls[0]
        self._clk = match.periods[0].start
        self._hits: dict[str, tuple[int, float, float]] = {}  # of each player the last: when and where
        self._lines: deque[dict[str, Any]] = deque(maxlen=20)
        self._listed: deque[str] = deque(maxlen=LISTED)

    def add(self, positions: pa.Table, records: list[OutputRecord]) -> None:
        """Positions that arrived, and what the detectors found."""
        sid, x, y = (positions[name].to_numpy() for name in ("sid", "x", "y"))
        self._places[sid] = np.column_stack((x, y))
        self._clk = max(self._clk, int(positions["ts"].to_numpy().max()))
        for record in records:
            if record.kind == "event" and record.payload is not None and record.ts is not None:
                self._found(str(record.type), record.ts, record.payload)

    def _found(self, kind: str, ts: int, event: Any) -> None:
        if kind == "active_ball":
            self._ball = event["ball"]
        elif kind == "hit":
            self._hits[event["player"]] = ts, event["x"], event["y"]
        elif kind == "pass" and (hit := self._hits.get(event["player"])) and hit[0] == event["kicked_at"]:
            end = f"to {event['to'] or 'out'}" if event["successful"] else "lost"
            self._line(ts, event, hit, (event["x"], event["y"]), f"pass, {event['player']}, {end}")
        elif kind == "shot":
            self._line(ts, event, (ts, event["x"], event["y"]), None, f"shot, {event['player']}")
        elif kind in ("goal", "blocked_shot", "double_pass", "offside"):
            self._list(ts, f"{kind.replace('_', ' ')}, {event['player']}")

    def _line(
        self, ts: int, event: Any, hit: tuple[int, float, float], to: tuple[float, float] | None, text: str
    ) -> None:
        end = self._plane.goal(event["goal"]) if to is None else self._plane.point(*to)
        team = self._match.teams.index(event["team"])
        self._lines.append({"ts": ts, "team": team, "line": [*self._plane.point(*hit[1:]), *end], "shot": to is None})
        self._list(ts, text)

    def _list(self, ts: int, text: str) -> None:
        self._listed.appendleft(f"{clock(self._match, ts)} {text}")

    def drawn(self) -> dict[str, Any]:
        """The scene of this moment, as JSON takes it."""
        players = []
        for player in self._match.players:
            x, y = self._places[list(player.feet)].mean(axis=0)
            if not np.isnan(x):
                team = self._match.teams.index(player.team)
                players.append([*self._plane.point(float(x), float(y)), team, player.name])
        ball = self._places[self._ball]
        shown = [each for each in self._lines if self._clk - each["ts"] < SHOWN * SECOND]
        return {
            "clock": clock(self._match, self._clk),
            "half": self._plane.half,
            "players": players,
            "ball": None if np.isnan(ball[0]) else self._plane.point(float(ball[0]), float(ball[1])),
            "lines": [{name: each[name] for name in ("team", "line", "shot")} for each in shown],
            "events": list(self._listed),
        }
