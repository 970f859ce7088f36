"""What is drawn on the pitch: shots and passes, heat maps; and how the players ran.

The pitch is any field, drawn from goal to goal in metres, with the lines of the laws of the game.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import acos, atan2, cos, degrees, pi, sin
from typing import Any

import numpy as np
import plotly.graph_objects as go

from slackline.report import LEGEND, faded
from slackline_soccer.model.match import Field, Match
from slackline_soccer.queries.running import INTENSITIES, LIMITS
from slackline_soccer.report.looks import RUNNING, clock, team_color
from slackline_soccer.report.model import Heat, MatchReport, Mistakes, PassLine, Place, Shot

GRASS = ("#eef4ea", "#e7efe2")
LINE = "#93a58d"
STRIPES = 14
#: Room around the lines, for the goals and for balls that are out, in metres.
MARGIN = 3.0

_CIRCLE = 9.15
_SPOT = 11.0
_GOAL_AREA = 5.5
_CORNER = 1.0
_GOAL_DEPTH = 2.0

Line = list[tuple[float, float]]


class Plane:
    """Where the places of a field are on paper: metres from its centre, goal 0 on the left.

    A field that lies along y is turned, not mirrored: what is left of a player stays left of him.

    >>> from slackline_soccer.model.match import DEBS_2013, FULL_SIZE
    >>> Plane(FULL_SIZE).point(52_500.0, -34_000.0)
    (52.5, -34.0)
    >>> Plane(DEBS_2013).point(0.0, 33_965.0)[1]
    26.2415
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self.turn = 1.0 if field.lengthwise == "x" else -1.0
        self._middle = sum(field.ends) / 2, sum(field.sides) / 2
        self.half = field.length / 2000, field.width / 2000

    def h(self, along: Any) -> Any:
        return (along - self._middle[0]) / 1000

    def v(self, across: Any) -> Any:
        return self.turn * (across - self._middle[1]) / 1000

    def point(self, x: float, y: float) -> tuple[float, float]:
        return self.h(self.field.along(x, y)), self.v(self.field.across(x, y))

    def goal(self, number: int) -> tuple[float, float]:
        """The middle of a goal, on its line."""
        goal = self.field.goals[number]
        return self.h(goal.line), self.v((goal.left + goal.right) / 2)

    def grid(self, grid: Any) -> Any:
        """A grid of cells (across, along) as rows from the bottom of the page to its top."""
        cells = np.asarray(grid)
        return cells if self.turn > 0 else cells[::-1]


def pitch(field: Field) -> tuple[go.Figure, Plane]:
    """A figure with nothing on it but the field, and the plane to draw on."""
    plane = Plane(field)
    figure = go.Figure()
    length, width = plane.half
    for stripe in range(STRIPES):
        step = 2 * length / STRIPES
        figure.add_shape(
            type="rect", layer="below", x0=stripe * step - length, x1=(stripe + 1) * step - length, y0=-width,
            y1=width, fillcolor=GRASS[stripe % 2], line={"width": 0},
        )  # fmt: skip
    figure.update_xaxes(range=[-length - MARGIN, length + MARGIN], visible=False, fixedrange=True, constrain="domain")
    figure.update_yaxes(
        range=[-width - MARGIN, width + MARGIN], visible=False, fixedrange=True, scaleanchor="x", scaleratio=1,
        constrain="domain",
    )  # fmt: skip
    return figure, plane


def draw_lines(figure: go.Figure, plane: Plane) -> None:
    """The lines as one trace, so that they lie above a heat map and below marks."""
    horizontal: list[float | None] = []
    vertical: list[float | None] = []
    for line in _lines(plane):
        horizontal += [*(point[0] for point in line), None]
        vertical += [*(point[1] for point in line), None]
    figure.add_scatter(
        x=horizontal, y=vertical, mode="lines", line={"color": LINE, "width": 1.5}, hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip


def _lines(plane: Plane) -> list[Line]:
    length, width = plane.half
    corners = [(-length, -width), (length, -width), (length, width), (-length, width)]
    lines = [
        [*corners, corners[0]],
        [(0.0, -width), (0.0, width)],
        _arc((0.0, 0.0), _CIRCLE, 0, 2 * pi),
        _arc((0.0, 0.0), 0.25, 0, 2 * pi),
    ]
    for h, v in corners:
        start = pi * (0.5 if h > 0 else 0) if v < 0 else pi * (1.0 if h > 0 else 1.5)
        lines.append(_arc((h, v), _CORNER, start, start + pi / 2))
    for end in (0, 1):
        lines += _end(plane, end)
    return lines


def _end(plane: Plane, end: int) -> list[Line]:
    """Penalty area, goal area, spot, arc and goal of one end."""
    inward = 1 if end == 0 else -1
    line = plane.half[0] * -inward
    goal = plane.field.goals[end]
    posts = sorted((plane.v(goal.left), plane.v(goal.right)))
    middle = sum(posts) / 2
    near, far, low, high = plane.field.penalty_area(end)
    depth = (far - near) / 1000
    sides = sorted((plane.v(low), plane.v(high)))
    lines = [
        _box(line, line + inward * depth, *sides),
        _box(line, line + inward * _GOAL_AREA, posts[0] - _GOAL_AREA, posts[1] + _GOAL_AREA),
        _box(line, line - inward * _GOAL_DEPTH, *posts),
        _arc((line + inward * _SPOT, middle), 0.25, 0, 2 * pi),
    ]
    if depth - _SPOT < _CIRCLE:
        reach = acos((depth - _SPOT) / _CIRCLE)
        facing = 0 if end == 0 else pi
        lines.append(_arc((line + inward * _SPOT, middle), _CIRCLE, facing - reach, facing + reach))
    return lines


def _box(line: float, edge: float, low: float, high: float) -> Line:
    return [(line, low), (edge, low), (edge, high), (line, high)]


def _arc(centre: tuple[float, float], radius: float, start: float, stop: float) -> Line:
    steps = max(8, round(24 * (stop - start) / pi))
    angles = [start + (stop - start) * i / steps for i in range(steps + 1)]
    return [(centre[0] + radius * cos(angle), centre[1] + radius * sin(angle)) for angle in angles]


#: The mark at the place of the hit shows how the shot ended.
SYMBOLS = {"goal": "star", "saved": "circle", "blocked": "x", "on target": "triangle-up"}
_LAYOUT: dict[str, Any] = {
    "margin": {"l": 0, "r": 0, "t": 26, "b": 0},
    "legend": {"orientation": "h", "y": -0.01, "yanchor": "top", "x": 0.5, "xanchor": "center"},
    "hovermode": "closest",
}
SIZES = {"goal": 22, "saved": 14, "blocked": 13, "on target": 15}


def play_figure(report: MatchReport) -> go.Figure:
    figure, plane = pitch(report.match.field)
    draw_lines(figure, plane)
    match = report.match
    for team in match.teams:
        ours = [p for p in report.passes if p.team == team]
        for successful in (True, False):
            _add_passes(figure, plane, match, team, [p for p in ours if p.successful is successful])
    _add_offsides(figure, plane, match, [p for p in report.passes if p.offside is not None])
    for team in match.teams:
        _add_flights(figure, plane, match, team, [s for s in report.shots if s.team == team])
        for outcome in SYMBOLS:
            shots = [s for s in report.shots if s.team == team and s.outcome == outcome]
            _add_shots(figure, plane, match, team, outcome, shots)
    _add_directions(figure, report)
    figure.update_layout(**_LAYOUT)
    return figure


#: What was missed, and what was invented: colours of their own, since teams have blue and orange.
MISSED, INVENTED = "#1f2933", "#b3261e"


def mistakes_figure(report: MatchReport) -> go.Figure:
    """Passes and shots that were missed or invented, on top of those that happened."""
    figure, plane = pitch(report.match.field)
    draw_lines(figure, plane)
    match, mistakes = report.match, report.mistakes or Mistakes()
    _add_lines(figure, plane, "pass", report.passes, {"color": faded("#93a58d", 0.8), "width": 1.5})
    for name, color, dash, passes, shots in (
        ("missed", MISSED, "dot", mistakes.missed_passes, mistakes.missed_shots),
        ("invented", INVENTED, "solid", mistakes.invented_passes, mistakes.invented_shots),
    ):
        _add_lines(figure, plane, f"pass, {name}", passes, {"color": color, "width": 2.5, "dash": dash})
        marked = [(one.stop, f"{_pass_text(match, one)}<br>{name}") for one in passes]
        _add_mistakes(figure, plane, f"pass, {name}", marked, color, "circle", False)
        marked = [(one.place, f"{_shot_text(match, one)}<br>{name}") for one in shots]
        _add_mistakes(figure, plane, f"shot, {name}", marked, color, "triangle-up", True)
    _add_directions(figure, report)
    figure.update_layout(**_LAYOUT)
    return figure


def _add_lines(figure: go.Figure, plane: Plane, name: str, passes: Sequence[PassLine], line: dict[str, Any]) -> None:
    """All passes of one kind as one trace, each from kick to reception."""
    if not passes:
        return
    h: list[float | None] = []
    v: list[float | None] = []
    for one in passes:
        (h0, v0), (h1, v1) = plane.point(*one.start), plane.point(*one.stop)
        h += [h0, h1, None]
        v += [v0, v1, None]
    figure.add_scatter(x=h, y=v, mode="lines", name=name, legendgroup=name, hoverinfo="skip", line=line)


def _add_mistakes(
    figure: go.Figure,
    plane: Plane,
    name: str,
    marked: Sequence[tuple[Place, str]],
    color: str,
    symbol: str,
    legend: bool,
) -> None:
    if not marked:
        return
    points = [plane.point(*place) for place, _ in marked]
    figure.add_scatter(
        x=[h for h, _ in points], y=[v for _, v in points], mode="markers", name=name, legendgroup=name,
        showlegend=legend, marker={"color": color, "size": 15 if legend else 9, "symbol": symbol},
        text=[text for _, text in marked], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _add_passes(figure: go.Figure, plane: Plane, match: Match, team: str, passes: Sequence[PassLine]) -> None:
    """All of one kind as one trace: a line from kick to reception, with its head where the ball got to."""
    if not passes:
        return
    color = team_color(match, team)
    arrived = passes[0].successful
    name = f"{escape(team)}: pass" if arrived else f"{escape(team)}: pass, lost"
    line = {"color": faded(color, 0.6 if arrived else 0.45), "width": 1.6, "dash": "solid" if arrived else "dot"}
    _add_lines(figure, plane, name, passes, line)
    figure.add_scatter(
        x=[plane.point(*one.stop)[0] for one in passes],
        y=[plane.point(*one.stop)[1] for one in passes],
        mode="markers", name=name, legendgroup=name, showlegend=False,
        marker={
            "color": color if arrived else "#fff", "size": 8, "symbol": "arrow" if arrived else "circle",
            "angle": [_heading(plane, one) for one in passes] if arrived else 0,
            "line": {"color": color, "width": 0 if arrived else 1.5},
        },
        text=[_pass_text(match, one) for one in passes],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _heading(plane: Plane, one: PassLine) -> float:
    """Degrees clockwise from upward, as markers count them."""
    (h0, v0), (h1, v1) = plane.point(*one.start), plane.point(*one.stop)
    return degrees(atan2(h1 - h0, v1 - v0))


def _pass_text(match: Match, one: PassLine) -> str:
    to = f" to {escape(one.to)}" if one.to else ", out of play"
    length = f", {one.length:.0f} m" if one.length is not None else ""
    lost = "" if one.successful else ", lost"
    offside = f"<br>offside by {one.offside:.1f} m" if one.offside is not None else ""
    return f"<b>Pass</b> {clock(match, one.ts)}<br>{escape(one.player)}{to}{length}{lost}{offside}"


def _add_offsides(figure: go.Figure, plane: Plane, match: Match, passes: Sequence[PassLine]) -> None:
    if not passes:
        return
    points = [plane.point(*one.stop) for one in passes]
    figure.add_scatter(
        x=[h for h, _ in points], y=[v for _, v in points], mode="markers", name="offside",
        marker={"color": "rgba(0,0,0,0)", "size": 17, "symbol": "square", "line": {"color": "#8c1c13", "width": 1.8}},
        text=[_pass_text(match, one) for one in passes], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _add_flights(figure: go.Figure, plane: Plane, match: Match, team: str, shots: Sequence[Shot]) -> None:
    """The way of the ball where it is known; else a straight, dashed line to the goal."""
    color = team_color(match, team)
    for known in (True, False):
        h: list[float | None] = []
        v: list[float | None] = []
        for shot in shots:
            if bool(shot.path) is not known:
                continue
            way = [plane.point(*shot.place), *(plane.point(*place) for place in shot.path)]
            if not known:
                way.append(plane.goal(shot.goal))
            h += [*(point[0] for point in way), None]
            v += [*(point[1] for point in way), None]
        if h:
            figure.add_scatter(
                x=h, y=v, mode="lines", hoverinfo="skip", showlegend=False,
                line={"color": color, "width": 3, "dash": "solid" if known else "dash"},
            )  # fmt: skip


def _add_shots(figure: go.Figure, plane: Plane, match: Match, team: str, outcome: str, shots: Sequence[Shot]) -> None:
    if not shots:
        return
    points = [plane.point(*shot.place) for shot in shots]
    figure.add_scatter(
        x=[h for h, _ in points], y=[v for _, v in points], mode="markers",
        name=f"{escape(team)}: {outcome_name(outcome)}",
        marker={
            "color": team_color(match, team), "size": SIZES[outcome], "symbol": SYMBOLS[outcome],
            "line": {"color": "#fff", "width": 1.2},
        },
        text=[_shot_text(match, shot) for shot in shots], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def outcome_name(outcome: str) -> str:
    return "goal" if outcome == "goal" else f"shot, {outcome}"


def _shot_text(match: Match, shot: Shot) -> str:
    speed = f", {shot.speed * 3.6:.0f} km/h" if shot.speed is not None else ""
    kind = outcome_name(shot.outcome).capitalize()
    return f"<b>{kind}</b> {clock(match, shot.ts)}<br>{escape(shot.player)}, {escape(shot.team)}{speed}"


def _add_directions(figure: go.Figure, report: MatchReport) -> None:
    """The directions of play, if the teams did not change ends."""
    match = report.match
    lows = {period.low for period in match.periods}
    if len(lows) != 1:
        return
    low = lows.pop()
    high = next(team for team in match.teams if team != low)
    for team, text, x, anchor in ((low, f"{escape(low)} ▶", 0, "left"), (high, f"◀ {escape(high)}", 1, "right")):
        figure.add_annotation(
            x=x, y=1, xref="x domain", yref="y domain", xanchor=anchor, yanchor="bottom", showarrow=False,
            text=f"<b>{text}</b>", font={"color": team_color(match, team), "size": 15},
        )  # fmt: skip


def heat_figure(report: MatchReport) -> go.Figure:
    figure, plane = pitch(report.match.field)
    maps = _in_order(report)
    for number, heat in enumerate(maps):
        _add_map(figure, plane, heat, team_color(report.match, heat.team), number == 0)
    draw_lines(figure, plane)
    choices = [
        {
            "label": escape(heat.name if heat.name == heat.team else f"{heat.name} ({heat.team})"),
            "method": "update",
            "args": [{"visible": [*(other is heat for other in maps), True]}],
        }
        for heat in maps
    ]
    figure.update_layout(
        margin={"l": 0, "r": 0, "t": 50, "b": 0},
        updatemenus=[
            {
                "buttons": choices, "x": 0.02, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "bgcolor": "#fff",
                "bordercolor": "#cfd6dd", "pad": {"b": 8}, "font": {"size": 14},
            }
        ],
    )  # fmt: skip
    return figure


def _in_order(report: MatchReport) -> list[Heat]:
    """The teams first, then their players."""
    teams = report.match.teams
    known = [heat for heat in report.heat if np.any(np.asarray(heat.grid) > 0)]
    return sorted(known, key=lambda heat: (heat.name != heat.team, teams.index(heat.team)))


def has_heat(report: MatchReport) -> bool:
    return bool(_in_order(report))


def _add_map(figure: go.Figure, plane: Plane, heat: Heat, color: str, visible: bool) -> None:
    """The share of time per cell; its root gives the colour, or a few cells would outshine the rest."""
    shares = 100 * np.asarray(plane.grid(heat.grid), dtype=np.float32)
    rows, columns = shares.shape
    length, width = plane.half
    root = np.sqrt(shares)
    top = float(root.max())
    marks = [mark for mark in _marks(top**2) if mark <= top**2]
    figure.add_heatmap(
        z=root, customdata=shares, x0=-length + length / columns, dx=2 * length / columns, y0=-width + width / rows,
        dy=2 * width / rows, visible=visible, zmin=0, zmax=top, zsmooth=False, hoverongaps=False,
        colorscale=[[0, faded(color, 0)], [0.15, faded(color, 0.12)], [0.5, faded(color, 0.5)], [1, color]],
        colorbar={
            "title": {"text": "time<br>in cell"}, "thickness": 12, "len": 0.75, "outlinewidth": 0, "x": 1.0,
            "tickvals": [mark**0.5 for mark in marks], "ticktext": [f"{mark:g} %" for mark in marks],
        },
        hovertemplate="%{customdata:.2f} % of the time<extra></extra>",
    )  # fmt: skip


def _marks(top: float) -> list[float]:
    """Four or so round numbers up to the largest share."""
    steps = [m * 10.0**e for e in range(-3, 3) for m in (1, 2, 5)]
    return [0.0, *[step for step in steps if top / 15 < step <= top]]


#: What the classes are called in the legend: with the highest speed of each.
_NAMES = [f"{name} (to {limit:g})" for name, limit in zip(INTENSITIES, LIMITS, strict=False)]
_NAMES = [f"{_NAMES[0][:-1]} km/h)", *_NAMES[1:], f"{INTENSITIES[-1]} (above)"]


def running_figure(report: MatchReport) -> go.Figure:
    """A row per player, the teams one below the other; the axis goes upwards, so the last comes first."""
    match = report.match
    runners = sorted(report.runners, key=lambda r: (match.teams.index(r.team), -r.distance), reverse=True)
    rows = list(range(len(runners)))
    colors = [team_color(match, runner.team) for runner in runners]
    names = [f"<span style='color:{c}'>{escape(r.player)}</span>" for r, c in zip(runners, colors, strict=True)]
    figure = go.Figure()
    for intensity, name, color in zip(INTENSITIES, _NAMES, RUNNING, strict=True):
        spent = [runner.seconds.get(intensity, 0.0) for runner in runners]
        totals = [sum(runner.seconds.values()) or 1.0 for runner in runners]
        figure.add_bar(
            x=[100 * s / t for s, t in zip(spent, totals, strict=True)], y=rows, orientation="h",
            name=name, marker={"color": color}, customdata=spent, width=0.78,
            hovertemplate=f"{intensity}: %{{customdata:.1f}} s, %{{x:.0f}} %<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=[100.0] * len(runners), y=rows, mode="text", textposition="middle right", cliponaxis=False, showlegend=False,
        text=[f"{runner.distance:,.0f} m, {3.6 * runner.top_speed:.0f} km/h" for runner in runners], hoverinfo="skip",
        textfont={"size": 13, "color": colors},
    )  # fmt: skip
    figure.update_xaxes(title="share of time (%)", range=[0, 100], fixedrange=True)
    figure.update_yaxes(tickvals=rows, ticktext=names, range=[-0.6, len(rows) - 0.4], fixedrange=True, ticks="")
    figure.update_layout(
        barmode="stack", margin={"l": 44, "r": 124, "t": 44, "b": 56},
        legend={**LEGEND, "traceorder": "normal"},
    )  # fmt: skip
    return figure
