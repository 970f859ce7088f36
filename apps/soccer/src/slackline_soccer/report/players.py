"""Players: where they were (heat maps) and how they ran.

Heat maps: where a team or a player was, one at a time, chosen from a list.

How the players ran: time per intensity, distance, top speed.
"""

from __future__ import annotations

from html import escape

import numpy as np
import plotly.graph_objects as go

from slackline.report import LEGEND, faded
from slackline_soccer.queries.running import INTENSITIES, LIMITS
from slackline_soccer.report.looks import RUNNING, team_color
from slackline_soccer.report.model import Heat, MatchReport
from slackline_soccer.report.pitch import Plane, draw_lines, pitch


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
