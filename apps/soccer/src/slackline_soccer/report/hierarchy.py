"""The hierarchy as a picture: positions at the bottom, and above them what is made of what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from math import ceil

import plotly.graph_objects as go

from slackline.report import FAINT, INK, faded
from slackline_soccer.report.model import DetectorNode

Places = dict[str, tuple[float, int]]

_ROW = 84
#: In one row: more would overlap on a narrow screen.
_BOXES = 3


def height_of(nodes: Sequence[DetectorNode]) -> int:
    return 40 + _ROW * (1 + sum(len(rows) for rows in _rows(nodes).values()))


def _rows(nodes: Sequence[DetectorNode]) -> dict[int, list[int]]:
    """The rows of each level, from the bottom: as many as its boxes need."""
    counts = Counter(node.level for node in nodes)
    rows: dict[int, list[int]] = {}
    first = 1
    for level in sorted(counts):
        rows[level] = list(range(first, first + ceil(counts[level] / _BOXES)))
        first += len(rows[level])
    return rows


def hierarchy_figure(nodes: Sequence[DetectorNode]) -> go.Figure:
    made_by = {kind: node.detector for node in nodes for kind in node.published}
    below = {node.detector: [made_by.get(kind, kind) for kind in node.listens] for node in nodes}
    places = _places(nodes, below)
    figure = go.Figure()
    rows = _rows(nodes)
    sensors = {name for name, (_, row) in places.items() if row == 0}
    edges = [(start, node.detector) for node in nodes for start in dict.fromkeys(below[node.detector])]
    _add_edges(figure, places, [edge for edge in edges if edge[0] in sensors], True)
    _add_edges(figure, places, [edge for edge in edges if edge[0] not in sensors], False)
    for sensor in sensors:
        _add_box(figure, places[sensor], f"<b>{escape(sensor)}s</b>", "#dfe7dc")
    for node in nodes:
        _add_box(figure, places[node.detector], f"<b>{escape(node.detector)}</b>{_counts(node)}", "#fff")
    top = max(row for _, row in places.values())
    figure.update_xaxes(visible=False, range=[0, 1], fixedrange=True)
    figure.update_yaxes(
        range=[-0.45, top + 0.5], tickvals=[(own[0] + own[-1]) / 2 for own in rows.values()],
        ticktext=[f"level {level}" for level in rows], tickfont={"size": 12},
        fixedrange=True, showgrid=False, showline=False,
    )  # fmt: skip
    figure.update_layout(margin={"l": 52, "r": 4, "t": 8, "b": 8}, showlegend=False)
    return figure


def _counts(node: DetectorNode) -> str:
    """How many of what, in small letters."""
    lines = [f"{count:,} × {escape(kind.replace('_', ' '))}" for kind, count in node.published.items() if count]
    return f"<br><span style='font-size:10px;color:{FAINT}'>{'<br>'.join(lines)}</span>" if lines else ""


def _places(nodes: Sequence[DetectorNode], below: dict[str, list[str]]) -> Places:
    """Each level in its rows; a detector is placed, as far as there is room, above its inputs."""
    made = {node.detector for node in nodes}
    sensors = sorted({name for names in below.values() for name in names if name not in made})
    places: Places = {name: ((n + 0.5) / len(sensors), 0) for n, name in enumerate(sensors)}
    for level, rows in _rows(nodes).items():
        found = []
        for node in nodes:
            if node.level == level:
                under = [places[name][0] for name in below[node.detector] if name in made] or [0.5]
                found.append((sum(under) / len(under), node.detector))
        names = [name for _, name in sorted(found)]
        for number, row in enumerate(rows):
            own = names[number :: len(rows)]
            places |= {name: ((n + 0.5) / len(own), row) for n, name in enumerate(own)}
    return places


def _add_edges(figure: go.Figure, places: Places, edges: Sequence[tuple[str, str]], faint: bool) -> None:
    """Curves that leave upwards and arrive from below."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for start, stop in edges:
        (x0, y0), (x1, y1) = places[start], places[stop]
        for step in range(25):
            t = step / 24
            ease = t * t * (3 - 2 * t)
            xs.append(x0 + (x1 - x0) * ease)
            ys.append(y0 + (y1 - y0) * t)
        xs.append(None)
        ys.append(None)
    if xs:
        figure.add_scatter(
            x=xs, y=ys, mode="lines", hoverinfo="skip",
            line={"color": faded("#93a58d", 0.45) if faint else faded("#1f5fa8", 0.4), "width": 1 if faint else 1.6},
        )  # fmt: skip


def _add_box(figure: go.Figure, place: tuple[float, int], text: str, color: str) -> None:
    figure.add_annotation(
        x=place[0], y=place[1], text=text, showarrow=False, bgcolor=color, bordercolor="#cfd6dd", borderpad=3,
        font={"size": 11, "color": INK}, align="center",
    )  # fmt: skip
