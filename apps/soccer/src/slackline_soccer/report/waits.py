"""Delays of positions per kind of transmitter; latency per level, type and detector; K over time.

Approaches to disorder side by side: what each gets wrong, and how long it waits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from slackline.report import ACCENT, LEGEND, faded, number_text, share_text, table_card
from slackline_soccer.model.match import Match
from slackline_soccer.report.looks import NEUTRAL, POLICIES, counted, ms, seconds, words
from slackline_soccer.report.model import Approach, Delays, EventWait, MatchReport, PolicyWaits

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


_COLORS = ("#7a3e9d", "#2a9d8f", "#b8860b", "#5b6770")
_BINS = 90
_LEAST = 0.05  # ms; what is faster is drawn here, a logarithmic axis has no zero


def drawable(delays: Sequence[Delays]) -> list[Delays]:
    """Those with a delay at all."""
    return [kind for kind in delays if len(kind.delays) and float(np.max(kind.delays)) > 0]


def delay_figure(delays: Sequence[Delays]) -> go.Figure:
    """Above: how the delays are spread. Below: the share with a longer delay."""
    shown = drawable(delays)
    figure = make_subplots(rows=2, cols=1, vertical_spacing=0.2)
    in_ms = [np.maximum(ms(np.asarray(kind.delays, dtype=np.float64)), _LEAST) for kind in shown]
    low, high = min(float(d.min()) for d in in_ms), max(float(d.max()) for d in in_ms)
    edges = np.geomspace(low / 1.05, high * 1.05, _BINS + 1)
    for kind, values, color in zip(shown, in_ms, _COLORS, strict=False):
        counts, _ = np.histogram(values, edges)
        figure.add_scatter(
            x=edges.round(4), y=(100 * np.append(counts, 0) / len(values)).round(4), row=1, col=1,
            mode="lines", line={"color": color, "width": 1.5, "shape": "hv"}, fill="tozeroy", name=kind.kind,
            legendgroup=kind.kind, hovertemplate=f"%{{y:.2f}} % near %{{x:.3~g}} ms<extra>{kind.kind}</extra>",
        )  # fmt: skip
        left = 1 - np.searchsorted(np.sort(values), edges, side="right") / len(values)
        some = left > 0
        figure.add_scatter(
            x=edges[some].round(4), y=(100 * left[some]), row=2, col=1, mode="lines",
            line={"color": color, "width": 2}, name=kind.kind, legendgroup=kind.kind, showlegend=False,
            hovertemplate=f"%{{y:.3~g}} % need longer than %{{x:.3~g}} ms<extra>{kind.kind}</extra>",
        )  # fmt: skip
    ticks = [t for t in (m * 10.0**e for e in range(-2, 6) for m in (1, 3)) if low / 1.05 <= t <= high * 1.05]
    for row in (1, 2):
        figure.update_xaxes(
            type="log", title="arrival minus occurrence (ms)", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks],
            row=row, col=1, fixedrange=True,
        )  # fmt: skip
    figure.update_yaxes(title="share of positions (%)", rangemode="tozero", row=1, col=1, fixedrange=True)
    shares = [t for t in (10.0**e for e in range(-5, 3)) if t >= 50 / max(len(d) for d in in_ms)]
    figure.update_yaxes(
        type="log", title="longer delay (%)", tickvals=shares, ticktext=[f"{t:g}" for t in shares], row=2, col=1,
        fixedrange=True,
    )  # fmt: skip
    figure.update_layout(
        margin={"l": 76, "r": 24, "t": 44, "b": 56},
        legend=LEGEND,
        showlegend=True,
    )
    return figure


def lesson(delays: Sequence[Delays]) -> str:
    """The medians by kind, the smallest first."""
    middles = sorted((float(np.median(ms(kind.delays))), kind.kind) for kind in drawable(delays))
    if len(middles) < 2:
        return ""
    (soon, first), *_, (late, last) = middles
    return (
        f"Half of the positions of {first} arrive within {number_text(soon)} ms, half of those of {last} within "
        f"{number_text(late)} ms. So the former overtake the latter."
    )


def delay_table(delays: Sequence[Delays]) -> str:
    header = ["transmitters", "positions", "out of order", "median (ms)", "p99 (ms)", "p99.9 (ms)", "largest (ms)"]
    rows = []
    for kind in delays:
        figures = np.quantile(ms(np.asarray(kind.delays, dtype=np.float64)), [0.5, 0.99, 0.999, 1.0])
        share = "-" if kind.out_of_order is None else share_text(kind.out_of_order)
        rows.append([kind.kind, f"{len(kind.delays):,}", share, *(number_text(float(f)) for f in figures)])
    return table_card(header, rows)


#: Per kind of approach: what it is called in the legend, and its look.
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "arrival": ("arrival order", {"marker": {"color": "#b3261e", "symbol": "x", "size": 13}}),
    "fixed": (
        "fixed watermark",
        {"marker": {"color": NEUTRAL, "size": 11}, "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}},
    ),
    "slackline": ("Slackline", {"marker": {"color": ACCENT, "symbol": "star", "size": 19}}),
}


def approach_table(approaches: Sequence[Approach], positions: int | None) -> str:
    """One row each, Slackline's marked; the bound comes last."""
    header = ["approach", "right", "missed", "invented", "late positions", "mean wait for a hit"]
    rows = [
        [
            one.name,
            f"{one.right:,} of {one.true:,}",
            f"{one.missed:,}",
            f"{one.invented:,}",
            share_text(one.late / positions) if positions and one.late else f"{one.late:,}",
            f"{number_text(ms(one.wait))} ms",
        ]
        for one in approaches
    ]
    marks = {"slackline": "mark", "bound": "last"}
    return table_card(header, rows, marks={n: marks[a.kind] for n, a in enumerate(approaches) if a.kind in marks})


def approach_figure(approaches: Sequence[Approach]) -> go.Figure:
    """To the right is late, upwards is wrong; the best place is the lower left corner."""
    figure = go.Figure()
    for kind, (name, look) in LOOKS.items():
        shown = [one for one in approaches if one.kind == kind]
        if not shown:
            continue
        figure.add_scatter(
            x=[ms(one.wait) for one in shown], y=[one.missed + one.invented for one in shown], name=name,
            mode="lines+markers+text" if kind == "fixed" else "markers",
            text=[one.name.rpartition(" of ")[2] for one in shown], textposition="top center",
            customdata=[[one.name, one.missed, one.invented] for one in shown], cliponaxis=False, **look,
            hovertemplate="%{customdata[0]}: %{customdata[1]} missed, %{customdata[2]} invented, "
            "a hit after %{x:,.0f} ms<extra></extra>",
        )  # fmt: skip
    for bound in (one for one in approaches if one.kind == "bound"):
        figure.add_vline(x=ms(bound.wait), line={"color": NEUTRAL, "width": 1.5})
        figure.add_annotation(
            x=ms(bound.wait),
            y=0.5,
            yref="paper",
            xanchor="left",
            showarrow=False,
            text=" bound",
            font={"color": NEUTRAL},
        )
    figure.update_xaxes(title="mean wait for a hit (ms)", rangemode="tozero", fixedrange=True)
    figure.update_yaxes(title="events missed or invented", rangemode="tozero", fixedrange=True)
    figure.update_layout(margin={"l": 64, "r": 24, "t": 44, "b": 56}, legend=LEGEND, showlegend=True)
    return figure


def comparison(report: MatchReport) -> str:
    """The approaches in sentences: what arrival order gets wrong, what watermarks cost, what Slackline does."""
    by_kind = {kind: [one for one in report.approaches if one.kind == kind] for kind in (*LOOKS, "bound")}
    parts = [f"In arrival order the detectors {_outcome(one)}." for one in by_kind["arrival"]]
    for one in by_kind["fixed"]:
        if one.why:
            parts.append(
                f"Behind a {one.name} ({one.why}), which drops {counted(one.late, 'position', 'positions')}, they "
                f"{_outcome(one)}, and publish a hit {ms(one.wait):,.0f} ms after it happened, on average."
            )
    for one in by_kind["slackline"]:
        bound = "".join(f"; no ordering can be faster than {ms(b.wait):,.0f} ms" for b in by_kind["bound"])
        parts.append(f"With Slackline they {_outcome(one)}, and publish a hit after {ms(one.wait):,.0f} ms{bound}.")
    return " ".join(parts)


def _outcome(one: Approach) -> str:
    """
    >>> _outcome(Approach("x", "fixed", true=10, found=9, right=8, wait=0.0)), _outcome(Approach("x", "fixed", 3, 3, 3))
    ('miss 2 of 10 events and invent 1', 'find all 3 events and invent none')
    """
    found = f"miss {one.missed:,} of {one.true:,} events" if one.missed else f"find all {one.true:,} events"
    return f"{found} and invent {one.invented or 'none'}"
