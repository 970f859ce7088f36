"""The pitch: any field, drawn from goal to goal in metres, with the lines of the laws of the game."""

from __future__ import annotations

from math import acos, cos, pi, sin
from typing import Any

import numpy as np
import plotly.graph_objects as go

from slackline_soccer.model.field import Field

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

    >>> from slackline_soccer.model.field import DEBS_2013, FULL_SIZE
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
