"""How the runs went over stream time: waits, α and load; and what was told and taken back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report.page import INK, LEGEND, faded
from slackline.report.speculation.looks import Look, hover_name, looks
from slackline.report.speculation.model import ADAPTIVE, PLAIN, Run, SpeculationReport
from slackline.speculation.alpha import LOWER, UPPER

#: The target zone of the busy factor; green, and a band, so that it is no run.
ZONE = "rgba(0,158,115,0.22)"


def panels(report: SpeculationReport) -> list[str]:
    """What can be drawn, from top to bottom."""
    found = []
    if any(run.told for run in report.runs):
        found.append("wait")
    if any(run.moments and run.alpha != PLAIN for run in report.runs):
        found.append("alpha")
    if any(moment.busy is not None for run in report.runs for moment in run.moments):
        found.append("busy")
    return found


_HEIGHTS = {"wait": 300, "alpha": 150, "busy": 170}
_TITLES = {"wait": "told after (ms)", "alpha": "α", "busy": "busy factor"}


def height_of(report: SpeculationReport) -> int:
    return 120 + sum(_HEIGHTS[panel] + 16 for panel in panels(report))


def course_figure(report: SpeculationReport) -> go.Figure:
    """One column per policy; all columns have the same scales."""
    rows, columns = panels(report), report.policies
    figure = make_subplots(
        rows=len(rows), cols=len(columns), shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.03,
        vertical_spacing=0.03, row_heights=[_HEIGHTS[row] for row in rows],
        column_titles=[f"policy {escape(policy)}" for policy in columns],
    )  # fmt: skip
    styles = looks(report)
    named: set[str] = set()
    for column, policy in enumerate(columns, 1):
        if "wait" in rows:
            _add_gains(figure, report, policy, {"row": rows.index("wait") + 1, "col": column})
        for run in report.settings(policy):
            pen = _Pen(figure, run, styles[run.alpha], named)
            for row, panel in enumerate(rows, 1):
                place = {"row": row, "col": column}
                if panel == "wait":
                    pen.waits(report, place)
                elif panel == "alpha":
                    pen.alpha(place)
                else:
                    pen.busy(place)
        if "busy" in rows:
            _add_zone(figure, rows.index("busy") + 1, column)
    for row, panel in enumerate(rows, 1):
        figure.update_yaxes(title=_TITLES[panel], row=row, col=1)
        figure.update_yaxes(rangemode="tozero", row=row)
        if panel == "alpha":
            figure.update_yaxes(range=[-0.05, 1.08], tickvals=[0, 0.5, 1], row=row)
        elif panel == "busy":
            most = max(moment.busy or 0.0 for run in report.runs for moment in run.moments)
            figure.update_yaxes(range=[0, 1.05 * max(most, 1.0)], row=row)
    figure.update_xaxes(title="stream time (s)", row=len(rows))
    _finish(figure)
    return figure


def _finish(figure: go.Figure) -> None:
    figure.update_layout(
        margin={"l": 76, "r": 24, "t": 66, "b": 56}, hovermode="closest",
        legend={**LEGEND, "y": 1.0, "yref": "container", "yanchor": "top", "traceorder": "normal"},
    )  # fmt: skip


def _add_zone(figure: go.Figure, row: int, column: int) -> None:
    figure.add_hrect(y0=LOWER, y1=UPPER, row=row, col=column, fillcolor=ZONE, line_width=0, layer="below")


def _add_gains(figure: go.Figure, report: SpeculationReport, policy: str, place: dict[str, int]) -> None:
    """A line from plain to adaptive for each event that both told: what was gained."""
    plain, adaptive = (report.run(policy, alpha) for alpha in (PLAIN, ADAPTIVE))
    if plain is None or adaptive is None:
        return
    before = {told.at: told.wait for told in plain.told if told.type == report.kind}
    x: list[float | None] = []
    y: list[float | None] = []
    for told in adaptive.told:
        if told.type == report.kind and told.at in before:
            x += [told.at, told.at, None]
            y += [before[told.at], told.wait, None]
    if x:
        figure.add_scatter(
            x=x, y=y, mode="lines", line={"color": "#cfd6dd", "width": 1.5}, hoverinfo="skip", showlegend=False, **place
        )


class _Pen:
    """Draws one run; the legend names a setting once."""

    def __init__(self, figure: go.Figure, run: Run, look: Look, named: set[str]) -> None:
        self.figure, self.run, self.look, self.named = figure, run, look, named

    def _group(self) -> dict[str, Any]:
        """Shown and hidden together with the rest of the setting."""
        visible = True if self.look.shown else "legendonly"
        return {"legendgroup": self.run.setting, "showlegend": False, "visible": visible}

    def _named(self) -> dict[str, Any]:
        """The first of these is in the legend."""
        new = self.run.setting not in self.named
        self.named.add(self.run.setting)
        return {**self._group(), "name": self.run.setting, "showlegend": new}

    def waits(self, report: SpeculationReport, place: dict[str, int]) -> None:
        look = self.look
        for main in (False, True):
            shown = [told for told in self.run.told if (told.type == report.kind) == main]
            if not shown:
                continue
            common = self._named() if main else self._group()
            self.figure.add_scatter(
                x=[told.at for told in shown], y=[told.wait for told in shown], mode="markers",
                marker={
                    "color": look.color, "symbol": look.symbol, "size": 9 if main else 4,
                    "opacity": 1 if main else 0.55, "line": {"width": 1.6 if "open" in look.symbol else 0},
                },
                text=[escape(report.called(told.type)) for told in shown],
                hovertemplate="%{text}, at %{x:,.1f} s<br>told %{y:,.0f} ms later<extra>"
                f"{hover_name(self.run)}</extra>", **common, **place,
            )  # fmt: skip

    def alpha(self, place: dict[str, int]) -> None:
        moments = self.run.moments
        if not moments:
            return
        x = [moment.at for moment in moments]
        line = {"color": self.look.color, "width": 2, "shape": "hv"}
        spread = any(moment.highest_alpha > moment.alpha for moment in moments)
        if spread:
            self.figure.add_scatter(
                x=x, y=[moment.highest_alpha for moment in moments], mode="lines", line={**line, "width": 0},
                hoverinfo="skip", **self._group(), **place,
            )  # fmt: skip
        self.figure.add_scatter(
            x=x, y=[moment.alpha for moment in moments], mode="lines", line=line,
            fill="tonexty" if spread else None, fillcolor=faded(self.look.color, 0.18) if spread else None,
            customdata=[moment.highest_alpha for moment in moments],
            hovertemplate="α %{y:.3f} at %{x:,.1f} s; the most cautious detector %{customdata:.3f}<extra>"
            f"{hover_name(self.run)}</extra>", **self._named(), **place,
        )  # fmt: skip

    def busy(self, place: dict[str, int]) -> None:
        shown = [moment for moment in self.run.moments if moment.busy is not None]
        if not shown:
            return
        self.figure.add_scatter(
            x=[moment.at for moment in shown], y=[moment.busy for moment in shown], mode="lines",
            line={"color": self.look.color, "width": 1.8}, customdata=[moment.behind for moment in shown],
            hovertemplate="busy %{y:.2f} at %{x:,.1f} s, %{customdata:.2f} s behind<extra>"
            f"{hover_name(self.run)}</extra>", **self._named(), **place,
        )  # fmt: skip


# What was told and taken back.


def told_runs(report: SpeculationReport) -> list[str]:
    """The settings that told anything over time; empty if nobody took back."""
    of = [run for policy in report.policies for run in report.settings(policy) if run.moments]
    if not any(moment.retractions for run in of for moment in run.moments):
        return []
    order = sorted({run.alpha for run in of}, key=lambda a: (isinstance(a, str), 0 if isinstance(a, str) else -a))
    return [next(run.setting for run in of if run.alpha == alpha) for alpha in order]


def told_figure(report: SpeculationReport) -> go.Figure:
    """One row per setting, one column per policy: told above the axis, taken back below."""
    rows, columns = told_runs(report), report.policies
    figure = make_subplots(
        rows=len(rows), cols=len(columns), shared_xaxes=True, shared_yaxes="all", horizontal_spacing=0.03,
        vertical_spacing=0.14 / len(rows), column_titles=[f"policy {escape(policy)}" for policy in columns],
    )  # fmt: skip
    named: set[str] = set()
    for column, policy in enumerate(columns, 1):
        for run in report.settings(policy):
            if run.setting in rows:
                _add_told(figure, run, {"row": rows.index(run.setting) + 1, "col": column}, named)
    for row, setting in enumerate(rows, 1):
        words_of = setting if "=" in setting else setting.replace(" ", "<br>")
        figure.update_yaxes(title={"text": words_of, "font": {"size": 13}}, row=row, col=1)
    figure.update_xaxes(title="stream time (s)", row=len(rows))
    figure.update_layout(barmode="relative", bargap=0.12)
    _finish(figure)
    return figure


def _add_told(figure: go.Figure, run: Run, place: dict[str, int], named: set[str]) -> None:
    seconds, counts = per_second(run)
    middle = [second + 0.5 for second in seconds]
    for name, values, color in (
        ("told", [inserts for inserts, _, _ in counts], "#7fb8dd"),
        ("taken back", [-retractions for _, retractions, _ in counts], "#b3261e"),
    ):
        figure.add_bar(
            x=middle, y=values, name=name, legendgroup=name, showlegend=name not in named, width=0.88,
            marker={"color": color, "line": {"width": 0}}, customdata=[abs(value) for value in values],
            hovertemplate=f"%{{customdata:,}} {name} around %{{x:,.1f}} s<extra>{hover_name(run)}</extra>", **place,
        )  # fmt: skip
        named.add(name)
    name = "became certain"
    figure.add_scatter(
        x=middle, y=[finals for _, _, finals in counts], mode="lines", name=name, legendgroup=name,
        showlegend=name not in named, line={"color": INK, "width": 1.4, "shape": "hvh"},
        hovertemplate=f"%{{y:,}} became certain<extra>{hover_name(run)}</extra>", **place,
    )  # fmt: skip
    named.add(name)


def per_second(run: Run) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Whole seconds of stream time, and what was told, taken back and became certain in each."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for moment in run.moments:
        # A moment is known by its end: one that ends with the second belongs to it.
        second = -int(-moment.at // 1) - 1
        for number, count in enumerate((moment.inserts, moment.retractions, moment.finals)):
            sums[second][number] += count
    seconds: Sequence[int] = range(min(sums, default=0), max(sums, default=-1) + 1)
    return list(seconds), [(sums[s][0], sums[s][1], sums[s][2]) for s in seconds]
