"""Heat maps: where a team or a player was, one at a time, chosen from a list."""

from __future__ import annotations

from html import escape

import numpy as np
import plotly.graph_objects as go

from slackline.report import faded
from slackline_soccer.report.looks import team_color
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
    return [0.0, *[step for step in steps if top / 40 < step <= top]]
