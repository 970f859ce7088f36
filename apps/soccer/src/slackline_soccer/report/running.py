"""How the players ran: time per intensity, distance, top speed."""

from __future__ import annotations

from html import escape

import plotly.graph_objects as go

from slackline.report import LEGEND
from slackline_soccer.queries.running import INTENSITIES, LIMITS
from slackline_soccer.report.looks import RUNNING, team_color
from slackline_soccer.report.model import MatchReport

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
