"""The page of a run: waits and K over time per detector, what came out, what a watermark would have cost.

The input is plain data, so that any host can fill it: an engine's ``stats()`` after each push, or statistics
rows of a Spark query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report.page import facts, figure_card, heading, page, paragraph, table_card
from slackline.report.scale import Scale
from slackline.report.study import study_parts
from slackline.study import UNITS, StudyResult

_COLORS = ("#0072b2", "#d1480b", "#009e73", "#b45fa0", "#c99700", "#3ba3d0", "#7b8794")


@dataclass(frozen=True, slots=True)
class Point:
    """A detector at one moment of stream time: its K, the mean wait since the point before, and counts."""

    clk: int
    slack: float
    wait: float | None
    buffered: int
    late: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """A detector over time."""

    detector: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class RunTable:
    """A table of the page; columns from ``numeric_from`` on are numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric_from: int = 1


@dataclass(frozen=True, slots=True)
class RunSection:
    """One stream of the run. ``unit`` is that of the points; ``study`` tells what watermarks would cost."""

    title: str
    text: str = ""
    unit: str = "us"
    facts: Sequence[tuple[str, str]] = ()
    series: Sequence[Series] = ()
    tables: Sequence[RunTable] = ()
    study: StudyResult | None = None
    attribution: str = ""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything the page of a run shows."""

    title: str
    text: str = ""
    sections: Sequence[RunSection] = ()


def run_page(report: RunReport) -> str:
    """The whole page."""
    body = [heading(report.title, 1)]
    if report.text:
        body.append(paragraph(report.text, "sub"))
    for section in report.sections:
        body += _section(section)
    return page(report.title, body)


def _section(section: RunSection) -> list[str]:
    parts = [heading(section.title)]
    if section.text:
        parts.append(paragraph(section.text))
    if section.facts:
        parts.append(facts(section.facts))
    if any(series.points for series in section.series):
        parts.append(heading("Wait and K over stream time, per detector", 3))
        parts.append(figure_card(_figure(section), 620))
    for table in section.tables:
        if table.title:
            parts.append(heading(table.title, 3))
        parts.append(table_card(table.header, table.rows, numeric_from=table.numeric_from))
    if section.study is not None:
        parts.append(heading("What a fixed watermark would have cost", 3))
        parts += study_parts(section.study, Scale.of_study(section.study))
    if section.attribution:
        parts.append(paragraph(section.attribution, "note"))
    return parts


def _figure(section: RunSection) -> go.Figure:
    """Three plots over the same stream time: mean wait, K, buffered events."""
    points = [point for series in section.series for point in series.points]
    scale = Scale.of([p.wait for p in points] + [p.slack for p in points], section.unit)
    start = min(point.clk for point in points)
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for number, series in enumerate(section.series):
        color = _COLORS[number % len(_COLORS)]
        seconds = [(p.clk - start) / UNITS[section.unit] for p in series.points]
        columns = (
            (
                "mean wait",
                [None if p.wait is None else scale.value(p.wait) for p in series.points],
                scale.name,
            ),
            ("K", [scale.value(p.slack) for p in series.points], scale.name),
            ("buffered", [p.buffered for p in series.points], "events"),
        )
        for row, (what, values, unit) in enumerate(columns, 1):
            figure.add_scatter(
                x=seconds, y=values, row=row, col=1, name=series.detector, legendgroup=series.detector,
                showlegend=row == 1, mode="lines" if len(seconds) > 1 else "markers",
                line={"color": color, "width": 1.8, "shape": "hv" if row > 1 else "linear"},
                hovertemplate=f"{what} %{{y:,.4~g}} {unit} at %{{x:,.1f}} s<extra>%{{fullData.name}}</extra>",
            )  # fmt: skip
    for row, title in enumerate((f"mean wait ({scale.name})", f"K ({scale.name})", "buffered events"), 1):
        figure.update_yaxes(title=title, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title="stream time (s)", row=3, col=1)
    figure.update_layout(
        margin={"l": 84, "r": 24, "t": 48, "b": 56},
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0.5, "xanchor": "center"},
        hovermode="closest",
    )
    return figure
