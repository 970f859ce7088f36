"""Latency: per level, per event type, per detector; and K over time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from slackline.report import LEGEND, faded, number_text, table_card
from slackline_soccer.model.match import Match
from slackline_soccer.report.looks import NEUTRAL, POLICIES, ms, seconds, words
from slackline_soccer.report.model import EventWait, PolicyWaits

#: The target for policy auto: the wait of a level-2 event, times this, plus the back-dating along the path.
ALLOWED = 1.3


@dataclass(frozen=True, slots=True)
class Level:
    """A level of the hierarchy under one policy, in ms; what has no figure is None."""

    level: int
    mean: float | None
    largest: float | None
    detection: float | None
    detection_largest: float | None
    back: float


def by_level(waits: PolicyWaits) -> list[Level]:
    """Ordering waits weigh each delivered event, detection waits each event type the same."""
    rows = []
    for level in sorted({d.level for d in waits.detectors} | {e.level for e in waits.events}):
        units = [d for d in waits.detectors if d.level == level and d.delivered]
        types = [e for e in waits.events if e.level == level and e.count]
        delivered = sum(d.delivered for d in units)
        rows.append(
            Level(
                level,
                ms(sum(d.mean * d.delivered for d in units) / delivered) if units else None,
                ms(max(d.largest for d in units)) if units else None,
                ms(sum(e.mean for e in types) / len(types)) if types else None,
                ms(max(e.largest for e in types)) if types else None,
                ms(sum(e.back for e in types) / len(types)) if types else 0.0,
            )
        )
    return rows


def _color(policy: str) -> str:
    return POLICIES.get(policy, NEUTRAL)


def level_figure(waits: Sequence[PolicyWaits]) -> go.Figure:
    """Above: the wait in front of a level's detectors. Below: the latency of its events."""
    titles = ("wait in front of the detectors", "from occurrence to publication")
    figure = make_subplots(rows=2, cols=1, vertical_spacing=0.2, subplot_titles=titles)
    for policy in waits:
        levels = by_level(policy)
        color = _color(policy.policy)
        numbers = [level.level for level in levels]
        for row, pairs in (
            (1, [(level.mean, level.largest) for level in levels]),
            (2, [(level.detection, level.detection_largest) for level in levels]),
        ):
            figure.add_bar(
                x=numbers, y=[mean for mean, _ in pairs], row=row, col=1, name=policy.policy,
                legendgroup=policy.policy, showlegend=row == 1, marker={"color": color}, offsetgroup=policy.policy,
                error_y={
                    "array": [(largest or 0.0) - (mean or 0.0) for mean, largest in pairs],
                    "arrayminus": [0.0] * len(pairs),
                    "type": "data", "symmetric": False, "color": faded("#1f2933", 0.45), "thickness": 1.2, "width": 3,
                },
                customdata=[largest for _, largest in pairs],
                hovertemplate="level %{x}: mean %{y:,.1f} ms, largest %{customdata:,.1f} ms"
                f"<extra>{policy.policy}</extra>",
            )  # fmt: skip
    bound = _bound(waits)
    if bound:
        figure.add_scatter(
            x=[level for level, _ in bound], y=[value for _, value in bound], row=2, col=1, mode="markers",
            name=f"target: {ALLOWED:g} × the wait at level 2,<br>plus the time events are back-dated",
            marker={"symbol": "line-ew", "size": 34, "line": {"color": "#1f2933", "width": 2}},
            hovertemplate="level %{x}: at most %{y:,.1f} ms wanted<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="level of the hierarchy", dtick=1, fixedrange=True)
    figure.update_yaxes(rangemode="tozero", fixedrange=True, ticksuffix=" ms")
    figure.update_layout(
        barmode="group",
        bargap=0.25,
        margin={"l": 76, "r": 24, "t": 66, "b": 56},
        legend={**LEGEND, "y": 1.07},
        showlegend=True,
    )
    return figure


def _bound(waits: Sequence[PolicyWaits]) -> list[tuple[int, float]]:
    """The bound per level above 2, for the policy that it is meant for."""
    auto = next((by_level(policy) for policy in waits if policy.policy == "auto"), [])
    second = next((level.detection for level in auto if level.level == 2), None)
    if second is None:
        return []
    return [(level.level, ALLOWED * second + level.back) for level in auto if level.level > 2 and level.detection]


def _ordered(waits: Sequence[PolicyWaits]) -> list[EventWait]:
    """One entry per event type, the lowest level first."""
    known = {event.type: event for policy in reversed(waits) for event in policy.events if event.count}
    return sorted(known.values(), key=lambda event: (event.level, event.type))


def event_rows(waits: Sequence[PolicyWaits]) -> int:
    return len(_ordered(waits))


def event_figure(waits: Sequence[PolicyWaits]) -> go.Figure:
    """Per event type and policy, from occurrence to publication; the largest back-dating along its path as a mark."""
    types = list(reversed(_ordered(waits)))
    names = [f"{words(event.type).replace(' (', '<br>(')}  <b>{event.level}</b>" for event in types]
    figure = go.Figure()
    for policy in reversed(waits):
        of_type = {event.type: event for event in policy.events}
        shown = [of_type.get(event.type) for event in types]
        figure.add_bar(
            x=[ms(event.mean) if event else None for event in shown], y=names, orientation="h", name=policy.policy,
            legendrank=1 + waits.index(policy),
            marker={"color": _color(policy.policy)},
            customdata=[[event.count, ms(event.largest)] if event else [0, 0] for event in shown],
            hovertemplate="mean %{x:,.1f} ms, largest %{customdata[1]:,.1f} ms, %{customdata[0]:,} events"
            f"<extra>{policy.policy}</extra>",
        )  # fmt: skip
    back = [(name, ms(event.back)) for name, event in zip(names, types, strict=True) if ms(event.back) >= 1]
    if back:
        figure.add_scatter(
            x=[value for _, value in back], y=[name for name, _ in back], mode="markers",
            name="back-dating",
            marker={"symbol": "line-ns", "size": 22, "line": {"color": "#1f2933", "width": 2}},
            hovertemplate="back-dated by up to %{x:,.0f} ms on the path<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="mean wait (ms)", rangemode="tozero", fixedrange=True)
    figure.update_yaxes(fixedrange=True, range=[-0.6, len(types) - 0.4], tickfont={"size": 12})
    figure.update_layout(
        barmode="group", bargap=0.3, margin={"l": 170, "r": 16, "t": 44, "b": 56}, legend=LEGEND,
    )  # fmt: skip
    return figure


def slack_figure(waits: Sequence[PolicyWaits], match: Match) -> go.Figure:
    """K over stream time: of each level the largest, one plot per policy, both on one scale."""
    shown = with_series(waits)
    figure = make_subplots(
        rows=len(shown), cols=1, shared_xaxes=True, shared_yaxes="all", vertical_spacing=0.12,
        subplot_titles=[f"policy {policy.policy}" for policy in shown],
    )  # fmt: skip
    levels = sorted({d.level for policy in shown for d in policy.detectors})
    shades = sample_colorscale("Viridis", [0.92 * n / max(len(levels) - 1, 1) for n in range(len(levels))])
    for row, policy in enumerate(shown, 1):
        for level, shade in zip(levels, shades, strict=True):
            points = _largest(policy, level)
            figure.add_scatter(
                x=[seconds(match, clk) for clk, _ in points], y=[ms(slack) for _, slack in points], row=row, col=1,
                mode="lines" if len(points) > 1 else "markers", name=f"level {level}", legendgroup=str(level),
                showlegend=row == 1, line={"color": shade, "width": 2, "shape": "hv"},
                hovertemplate=f"K %{{y:,.1f}} ms at %{{x:,.1f}} s<extra>level {level}, {policy.policy}</extra>",
            )  # fmt: skip
    figure.update_xaxes(title="match time (s)", row=len(shown), col=1)
    figure.update_yaxes(rangemode="tozero", title="K (ms)")
    figure.update_layout(margin={"l": 76, "r": 24, "t": 66, "b": 56}, legend={**LEGEND, "y": 1.07}, hovermode="closest")
    return figure


def with_series(waits: Sequence[PolicyWaits]) -> list[PolicyWaits]:
    return [policy for policy in waits if any(series.points for series in policy.series)]


def _largest(policy: PolicyWaits, level: int) -> list[tuple[int, float]]:
    """The largest K of a level's detectors at each moment of stream time."""
    of_level = {d.detector for d in policy.detectors if d.level == level}
    largest: dict[int, float] = {}
    for series in policy.series:
        if series.detector in of_level:
            for point in series.points:
                largest[point.clk] = max(point.slack, largest.get(point.clk, 0.0))
    return sorted(largest.items())


def detector_table(waits: Sequence[PolicyWaits]) -> str:
    """Per detector, policy beside policy."""
    levels = {d.detector: d.level for policy in reversed(waits) for d in policy.detectors}
    header = ["detector", "level"]
    for policy in waits:
        header += [f"{policy.policy}: K", "mean", "max", "late"]
    rows = []
    for name, level in sorted(levels.items(), key=lambda item: (item[1], item[0])):
        row = [re.sub("(?<=[a-z])(?=[A-Z])", "\u00ad", name), str(level)]  # names may break between their words
        for policy in waits:
            unit = next((d for d in policy.detectors if d.detector == name), None)
            row += (
                [*(number_text(ms(t)) for t in (unit.slack, unit.mean, unit.largest)), f"{unit.late:,}"]
                if unit
                else ["-"] * 4
            )
        rows.append(row)
    return table_card(header, rows)
