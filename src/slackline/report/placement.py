"""The page of a placement: nodes, links and detectors before and after, the search, and the load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.cluster.client import CompletedMigration, PlacementReport
from slackline.cluster.placement import Placement, Problem
from slackline.report.page import (
    ACCENT,
    FAINT,
    GRID,
    INK,
    LEGEND,
    facts,
    figure_card,
    heading,
    html_page,
    paragraph,
    table_card,
)
from slackline.report.summaries import number_text, share_text

_BLUE = "#1f5fa8"
_COLORS = (_BLUE, ACCENT, "#2f8f5b", "#8a5fbf", "#b8860b", "#c2477f", "#4a90a4", "#6b7785")
#: With more nodes or detectors the circles are not readable; a matrix is drawn instead.
MOST_NODES, MOST_DETECTORS = 12, 60
#: With more nodes the latencies beside links would overlap.
MOST_WRITTEN = 5


def placement_page(report: PlacementReport) -> str:
    """The whole page, one file that fetches nothing."""
    problem = report.problem
    title = "Placement of detectors"
    body = [
        heading(title, 1),
        paragraph(_verdict(report), "verdict"),
        facts(
            [
                (_milliseconds(problem.mean_latency(report.before)), "mean latency of a subscription, before"),
                (_milliseconds(problem.mean_latency(report.after)), "after"),
                (f"{number_text(_sent(problem, report.before))}/s", "events between nodes, before"),
                (f"{number_text(_sent(problem, report.after))}/s", "after"),
            ]
        ),
        heading("Before and after"),
        *_network(report),
        heading("Migrations"),
        *_migrations(report),
        heading("Nodes"),
        _nodes(report),
    ]
    if report.histories:
        body += [
            heading("The search"),
            paragraph(
                "The best objective found so far, by solver: the cost of a placement, and what it costs to get there."
            ),
            figure_card(_search(report), 380),
        ]
    if any(report.loads.values()):
        body += [
            heading("Load"),
            paragraph("The CPU load of each node. A dotted line is a migration."),
            figure_card(_loads(report), 380),
        ]
    return html_page(title, [*body, paragraph("slackline place --html FILE makes this page.", "note")])


def _migrating(report: PlacementReport) -> list[str]:
    return [name for name in report.problem.detectors if report.before[name] != report.after[name]]


def _verdict(report: PlacementReport) -> str:
    migrating, problem = _migrating(report), report.problem
    if not migrating:
        return "No migration: no placement was found that is better by more than the cost of migration."
    before, after = problem.cost(report.before), problem.cost(report.after)
    detectors = "One detector migrates" if len(migrating) == 1 else f"{len(migrating)} detectors migrate"
    was = problem.objections(report.before)
    kept = f" Before, {was[0]}." if was and not problem.objections(report.after) else ""
    change = f"{number_text(100 * (1 - after / before))} % less" if before and after <= before else "more"
    return f"{detectors}; the cost φ changes from {before:.4g} to {after:.4g}, {change}.{kept}"


def _milliseconds(seconds: float) -> str:
    return f"{number_text(1000 * seconds)} ms"


def _sent(problem: Problem, placement: Placement) -> float:
    """Events per second between nodes."""
    return sum(rate for pair, rate in _between(problem, placement).items() if pair[0] != pair[1])


def _between(problem: Problem, placement: Placement) -> dict[tuple[str, str], float]:
    """Events per second from node to node."""
    at = {**problem.ingress, **placement}
    sums: dict[tuple[str, str], float] = {}
    for publisher, subscriber, events in problem.subscriptions:
        pair = at[publisher], at[subscriber]
        sums[pair] = sums.get(pair, 0.0) + events
    return sums


# The picture.


def _network(report: PlacementReport) -> list[str]:
    problem = report.problem
    if len(problem.nodes) > MOST_NODES or len(problem.detectors) > MOST_DETECTORS:
        return [
            paragraph("Events per second from node to node; what stays on a node is left out."),
            figure_card(_matrices(report), 520),
        ]
    return [
        paragraph(
            "A circle is a node, a dot a detector (a square is a sensor type, where it enters), a line a subscription: "
            "grey on one node, blue between nodes, the wider the more events. Detectors that migrate are orange. "
            "Dotted lines are links, with their latencies."
        ),
        figure_card(_circles(report), 600),
    ]


def _circles(report: PlacementReport) -> go.Figure:
    figure = make_subplots(rows=1, cols=2, subplot_titles=("before", "after"), horizontal_spacing=0.02)
    migrating = set(_migrating(report))
    for column, placement in enumerate((report.before, report.after), start=1):
        traces, labels = _drawn(report.problem, placement, migrating)
        for trace in traces:
            figure.add_trace(trace, row=1, col=column)
        for label in labels:
            figure.add_annotation(label, row=1, col=column)
    span = {"range": [-1.5, 1.5], "visible": False}
    figure.update_xaxes(**span)
    figure.update_yaxes(**span, scaleanchor="x")
    figure.update_layout(showlegend=False, margin={"l": 10, "r": 10, "t": 40, "b": 10})
    return figure


def _drawn(
    problem: Problem, placement: Placement, migrating: set[str]
) -> tuple[list[go.Scatter], list[go.layout.Annotation]]:
    """One of the two pictures, and its labels."""
    centres = {name: _around(nth, len(problem.nodes), 1.0) for nth, name in enumerate(problem.nodes)}
    radius = min(0.42, 0.9 * math.sin(math.pi / max(2, len(problem.nodes))))
    at = {**problem.ingress, **placement}
    spots = {}
    for node, (x, y) in centres.items():
        here = [name for name, where in at.items() if where == node]
        for nth, name in enumerate(here):
            dx, dy = _around(nth, len(here), 0.62 * radius) if len(here) > 1 else (0.0, 0.0)
            spots[name] = x + dx, y + dy
    sensors = list(problem.ingress)
    names = [name for name in spots if name in problem.detectors]
    links, latencies = _links(problem, centres)
    traces = [
        *links,
        *(_circle(node, centres[node], radius, problem, placement) for node in problem.nodes),
        *_lines(problem, at, spots),
        _dots(sensors, spots, FAINT, "square", [f"{name}, a sensor type" for name in sensors]),
        _dots(
            names, spots, [ACCENT if name in migrating else INK for name in names], "circle",
            [f"{name}, {share_text(problem.detectors[name])} of a core" for name in names],
        ),
    ]  # fmt: skip
    labels = [_label(*spots[name], name, 11, INK, yshift=14) for name in (*sensors, *names)]
    return traces, [*latencies, *labels, *_node_labels(centres, radius, problem, placement)]


def _label(x: float, y: float, text: str, size: int, color: str, **more: Any) -> go.layout.Annotation:
    """A text that stays readable on top of lines."""
    return go.layout.Annotation(
        x=x, y=y, text=text, font={"size": size, "color": color}, showarrow=False, borderpad=1,
        bgcolor="rgba(255, 255, 255, 0.85)", **more,
    )  # fmt: skip


def _around(nth: int, count: int, radius: float) -> tuple[float, float]:
    angle = math.pi / 2 - 2 * math.pi * nth / max(1, count)
    return radius * math.cos(angle), radius * math.sin(angle)


def _links(
    problem: Problem, centres: Mapping[str, tuple[float, float]]
) -> tuple[list[go.Scatter], list[go.layout.Annotation]]:
    """Links and their latencies; with many nodes the latencies are shown only on hover."""
    share = 0.5 if len(centres) < 4 else 0.6  # of four nodes and more, links cross in the middle
    links, labels = [], []
    for (one, another), seconds in problem.latencies.items():
        if one != another and {one, another} <= centres.keys():
            (x1, y1), (x2, y2) = centres[one], centres[another]
            x, y = share * x1 + (1 - share) * x2, share * y1 + (1 - share) * y2
            links.append(
                go.Scatter(
                    x=[x1, x, x2], y=[y1, y, y2], mode="lines",
                    hovertext=f"{one} to {another}: {_milliseconds(seconds)}", hoverinfo="text",
                    line={"color": "#cfd6dd", "width": 1, "dash": "dot"},
                )
            )  # fmt: skip
            if len(centres) <= MOST_WRITTEN:
                labels.append(_label(x, y, _milliseconds(seconds), 11, FAINT))
    return links, labels


def _circle(
    node: str, centre: tuple[float, float], radius: float, problem: Problem, placement: Placement
) -> go.Scatter:
    edge = [_around(nth, 60, radius) for nth in range(61)]
    over = problem.loads(placement)[node] > problem.nodes[node]
    return go.Scatter(
        x=[centre[0] + x for x, _ in edge], y=[centre[1] + y for _, y in edge], mode="lines", fill="toself",
        fillcolor="#fdf1ea" if over else "#f5f7f9", line={"color": ACCENT if over else GRID, "width": 2},
        hoverinfo="skip",
    )  # fmt: skip


def _lines(problem: Problem, at: Mapping[str, str], spots: Mapping[str, tuple[float, float]]) -> list[go.Scatter]:
    most = max((each.events for each in problem.subscriptions), default=0.0)
    lines = []
    for publisher, subscriber, events in problem.subscriptions:
        (x1, y1), (x2, y2) = spots[publisher], spots[subscriber]
        local = at[publisher] == at[subscriber]
        width = 1 + 4 * math.log1p(events) / math.log1p(most) if most > 0 else 1
        lines.append(
            go.Scatter(
                x=[x1, (x1 + x2) / 2, x2], y=[y1, (y1 + y2) / 2, y2], mode="lines", hoverinfo="text", opacity=0.55,
                text=f"{publisher} to {subscriber}: {number_text(events)} events/s",
                line={"color": "#b6c0ca" if local else _BLUE, "width": width},
            )
        )  # fmt: skip
    return lines


def _dots(
    names: Sequence[str],
    spots: Mapping[str, tuple[float, float]],
    color: Any,
    symbol: str,
    texts: Sequence[str],
) -> go.Scatter:
    return go.Scatter(
        x=[spots[name][0] for name in names], y=[spots[name][1] for name in names],
        mode="markers", hovertext=texts, hoverinfo="text", marker={"color": color, "size": 9, "symbol": symbol},
    )  # fmt: skip


def _node_labels(
    centres: Mapping[str, tuple[float, float]], radius: float, problem: Problem, placement: Placement
) -> list[go.layout.Annotation]:
    """The name of each node, its load and its limit, below its circle."""
    loads = problem.loads(placement)
    texts = {node: f"<b>{node}</b> {100 * loads[node]:.0f} of {100 * problem.nodes[node]:.0f} %" for node in centres}
    return [_label(x, y - radius - 0.1, texts[node], 12, INK) for node, (x, y) in centres.items()]


def _matrices(report: PlacementReport) -> go.Figure:
    figure = make_subplots(rows=1, cols=2, subplot_titles=("before", "after"), horizontal_spacing=0.1)
    names = list(report.problem.nodes)
    for column, placement in enumerate((report.before, report.after), start=1):
        between = _between(report.problem, placement)
        events = [[None if a == b else between.get((a, b)) for b in names] for a in names]
        figure.add_trace(
            go.Heatmap(x=names, y=names, z=events, coloraxis="coloraxis", hovertemplate="%{y} to %{x}: %{z}/s"),
            row=1, col=column,
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(coloraxis={"colorscale": [[0, "#f5f7f9"], [1, _BLUE]]}, margin={"l": 70, "r": 20, "t": 50})
    return figure


# The tables.


def _migrations(report: PlacementReport) -> list[str]:
    if not report.changes:
        return [paragraph("None.")]
    made = {migration.detector: _made(migration) for migration in report.migrations}
    rows = [
        [each.detector, each.source, each.to, each.why, f"{each.gain:.3g}", made.get(each.detector, "-")]
        for each in report.changes
    ]
    return [table_card(["detector", "from", "to", "why", "gain", "took"], rows, numeric_from=4)]


def _made(migration: CompletedMigration) -> str:
    return migration.error or _milliseconds(migration.seconds)


def _nodes(report: PlacementReport) -> str:
    problem = report.problem
    loads = [problem.loads(placement) for placement in (report.before, report.after)]
    rows = []
    for node, limit in problem.nodes.items():
        latencies = [
            seconds for (a, b), seconds in problem.latencies.items() if node in (a, b) and {a, b} <= set(problem.nodes)
        ]
        nearest = _milliseconds(min(latencies)) if latencies else "-"
        rows.append([node, nearest, share_text(limit), *(share_text(load[node]) for load in loads)])
    return table_card(["node", "latency to the nearest", "limit", "CPU needed before", "after"], rows)


# Over time.


def _search(report: PlacementReport) -> go.Figure:
    figure = go.Figure()
    for color, (solver, history) in zip(_COLORS, report.histories.items(), strict=False):
        x, y = [each.seconds for each in history], [each.objective for each in history]
        line = {"color": color, "width": 2, "shape": "hv"}
        figure.add_trace(go.Scatter(x=x, y=y, name=solver, mode="lines+markers", line=line, marker={"size": 4}))
    if report.bound is not None:
        line = {"color": FAINT, "dash": "dash", "width": 1}
        figure.add_hline(y=report.bound, line=line, annotation_text="lower bound")
    figure.update_xaxes(title_text="seconds", type="log")
    figure.update_yaxes(title_text="objective")
    figure.update_layout(legend=LEGEND, margin={"l": 80, "r": 20, "t": 50, "b": 50})
    return figure


def _loads(report: PlacementReport) -> go.Figure:
    figure = go.Figure()
    for nth, (node, series) in enumerate(report.loads.items()):
        color = _COLORS[nth % len(_COLORS)]
        x, y = [each.at for each in series], [100 * each.load for each in series]
        figure.add_trace(go.Scatter(x=x, y=y, name=node, mode="lines", line={"color": color, "width": 2}))
    for migration in report.migrations:
        figure.add_vline(x=migration.at, line={"color": FAINT, "dash": "dot", "width": 1})
    limit = max(report.problem.nodes.values(), default=1.0)
    figure.add_hline(y=100 * limit, line={"color": ACCENT, "dash": "dash", "width": 1}, annotation_text="limit")
    figure.update_xaxes(title_text="seconds")
    figure.update_yaxes(title_text="load, %", rangemode="tozero")
    figure.update_layout(legend=LEGEND, margin={"l": 70, "r": 20, "t": 50, "b": 50})
    return figure
