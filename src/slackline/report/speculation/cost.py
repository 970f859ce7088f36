"""What speculation costs: waits against work, full against on-demand retraction, and all runs in a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report.page import FAINT, LEGEND, table_card
from slackline.report.scale import number_text
from slackline.report.speculation.course import ZONE
from slackline.report.speculation.looks import busy_text, hover_name, looks
from slackline.report.speculation.model import ADAPTIVE, Run, SpeculationReport
from slackline.speculation.alpha import LOWER, UPPER

#: Marker of each policy, in the order in which they come.
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
_DASHES = ("dot", "solid", "dash", "dashdot")
#: The first policy has its α above its points, the others below: lines of two policies rarely cross.
_ABOVE, _BELOW = "top right", "bottom left"
TECHNIQUES = {"full": "full", "on_demand": "on demand", "auto": "auto: chooses"}


def costs(report: SpeculationReport) -> list[str]:
    """The costs that are known of at least two runs."""
    known = [run for policy in report.policies for run in report.settings(policy) if run.mean_ms is not None]
    if len(known) < 2:
        return []
    found = ["busy"] if sum(run.busy is not None for run in known) > 1 else []
    return [*found, "replayed"] if any(run.replayed for run in known) else found


def cost_figure(report: SpeculationReport) -> go.Figure:
    """Mean wait against busy factor, and against rows processed again; a line joins the fixed α of a policy."""
    shown = costs(report)
    figure = make_subplots(rows=1, cols=len(shown), shared_yaxes=True, horizontal_spacing=0.04)
    styles = looks(report)
    for column, cost in enumerate(shown, 1):
        for number, policy in enumerate(report.policies):
            runs = [run for run in report.settings(policy) if run.mean_ms is not None and _cost(run, cost) is not None]
            fixed = [run for run in runs if run.alpha != ADAPTIVE]
            figure.add_scatter(
                x=[_cost(run, cost) for run in fixed], y=[run.mean_ms for run in fixed], mode="lines",
                line={"color": FAINT, "width": 1.2, "dash": _DASHES[number % len(_DASHES)]}, hoverinfo="skip",
                showlegend=False, row=1, col=column,
            )  # fmt: skip
            adaptive = [run for run in runs if run.alpha == ADAPTIVE]
            for name, points, size in (("", fixed, 11), (", adaptive α", adaptive, 16)):
                figure.add_scatter(
                    x=[_cost(run, cost) for run in points], y=[run.mean_ms for run in points], mode="markers+text",
                    marker={
                        "color": [styles[run.alpha].color for run in points], "size": size, "opacity": 1,
                        "symbol": _SYMBOLS[number % len(_SYMBOLS)], "line": {"color": "#fff", "width": 1},
                    },
                    text=["" if run in adaptive else f"{run.alpha:g}" for run in points], textfont={"size": 13},
                    textposition=_BELOW if number else _ABOVE, hovertext=[_hover(run) for run in points],
                    hovertemplate="%{hovertext}<extra></extra>", cliponaxis=False, name=escape(policy) + name,
                    showlegend=column == 1 and bool(points), row=1, col=column,
                )  # fmt: skip
        if cost == "busy":
            figure.add_vrect(x0=LOWER, x1=UPPER, row=1, col=column, fillcolor=ZONE, line_width=0, layer="below")
        title = "busy factor" if cost == "busy" else "rows processed again"
        most = max((_cost(run, cost) or 0.0) for run in report.runs)
        figure.update_xaxes(title=title, range=[0, max(1.3 * most, UPPER if cost == "busy" else 1)], row=1, col=column)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="mean wait (ms)", row=1, col=1)
    figure.update_layout(margin={"l": 76, "r": 24, "t": 44, "b": 56}, hovermode="closest", legend=LEGEND)
    return figure


def _cost(run: Run, cost: str) -> float | None:
    return run.busy if cost == "busy" else float(run.replayed)


def _hover(run: Run) -> str:
    return (
        f"<b>{hover_name(run)}</b><br>mean {_ms(run.mean_ms)} ms, p95 {_ms(run.p95_ms)} ms<br>"
        f"busy {busy_text(run.busy)}<br>{run.replays:,} replays of {run.replayed:,} rows"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else number_text(value)


# Taking back.


def touched_figure(group: Sequence[Run]) -> go.Figure:
    """How many events each technique took back or sent again."""
    names = [name for name in ("auto", "on_demand", "full") if any(run.retraction == name for run in group)]
    values = {run.retraction: run.touched or 0 for run in group}
    colors = {"full": "#8a949e", "on_demand": "#2a78b8", "auto": "#0b2a52"}
    figure = go.Figure()
    figure.add_bar(
        x=[values[name] for name in names], y=[TECHNIQUES[name] for name in names], orientation="h", width=0.6,
        marker={"color": [colors[name] for name in names]}, text=[f"{values[name]:,}" for name in names],
        textposition="outside", cliponaxis=False, hovertemplate="%{y}: %{x:,} events<extra></extra>", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(title="events taken back or sent again", rangemode="tozero", fixedrange=True)
    figure.update_yaxes(fixedrange=True, ticks="", showgrid=False)
    figure.update_layout(margin={"l": 130, "r": 84, "t": 16, "b": 56})
    return figure


def touched_text(group: Sequence[Run], whose: str) -> str:
    """The same in words."""
    run = group[0]
    of = f" of {whose}" if whose else ""
    text = f"With {run.setting} under policy {run.policy}"
    values = {one.retraction: one.touched or 0 for one in group}
    if {"full", "on_demand"} <= set(values):
        full, on_demand = values["full"], values["on_demand"]
        text += f", full retraction touched {full:,} events{of}, on demand {on_demand:,}"
        if full and on_demand:
            text += f": {on_demand / full:.2g} times as many" if on_demand > full else f", {_part(on_demand, full)}"
        return text + "."
    return text + f": events{of} that were touched."


def _part(less: int, more: int) -> str:
    """
    >>> _part(8, 100), _part(100, 100)
    ('8.0 % of it', 'just as many')
    """
    return "just as many" if less == more else f"{100 * less / more:.1f} % of it"


# All figures.


def run_table(report: SpeculationReport) -> str:
    styles = looks(report)
    behind = any(run.behind > 0 for run in report.runs)
    header = ["run", "policy", "mean", "p95", "told", "back", "replays", "rows again", "snapshots", "memory", "busy"]
    header += ["behind"] if behind else []
    rows = []
    for run in report.runs:
        counts = (run.inserts, run.retractions, run.replays, run.replayed, run.snapshots)
        label = run.label.replace(run.setting, run.setting.replace(" ", "\u00a0"))  # breaks after it, not within
        row = [label, run.policy, _ms(run.mean_ms), _ms(run.p95_ms), *(f"{count:,}" for count in counts)]
        row += [f"{run.memory_kb:,.0f}", busy_text(run.busy), *([f"{run.behind:.2f}"] if behind else [])]
        rows.append(row)
    marks = {number: "mark" for number, run in enumerate(report.runs) if run.alpha == ADAPTIVE}
    colors = [styles[run.alpha].color for run in report.runs]
    return table_card(header, rows, numeric_from=2, marks=marks, colors=colors)
