"""Shots and passes on the pitch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import atan2, degrees
from typing import Any

import plotly.graph_objects as go

from slackline.report import faded
from slackline_soccer.model.match import Match
from slackline_soccer.report.looks import clock, team_color
from slackline_soccer.report.model import MatchReport, Mistakes, PassLine, Place, Shot
from slackline_soccer.report.pitch import Plane, draw_lines, pitch

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
