"""The page on speculation: earlier results, retractions, and their cost. Each part only if there is data.

A :class:`SpeculationReport` has runs over the same stream, each with its own α; :func:`speculation_page` renders it.
Each α has the same colour in every figure: grey is plain buffering, blue a fixed α (the darker, the smaller), orange
adapts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report.page import (
    ACCENT,
    FAINT,
    INK,
    LEGEND,
    facts,
    faded,
    figure_card,
    heading,
    html_page,
    paragraph,
    table_card,
)
from slackline.report.summaries import number_text
from slackline.speculation.alpha import LOWER, UPPER

#: What runs are compared with, and the run that sets α by itself.
PLAIN, ADAPTIVE = 1.0, "auto"


@dataclass(frozen=True, slots=True)
class Detection:
    """An event of the final result: when it occurred (s of stream time), and the delay of its lasting emission (ms)."""

    type: str
    at: float
    wait: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A run over the interval that ends ``at`` (s of stream time), half a second long as a rule.

    ``alpha``, ``highest_alpha``   of the node, and of the detector that speculates least.
    ``busy``                       busy time over elapsed time; None if not measured.
    ``behind``                     how far the process lags behind what has arrived (s).
    ``inserts, retractions, finals``   events emitted, retracted and finalised in the interval.
    """

    at: float
    alpha: float = 1.0
    highest_alpha: float = 1.0
    busy: float | None = None
    behind: float = 0.0
    inserts: int = 0
    retractions: int = 0
    finals: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its setting, its figures, and its timeline. None: not known.

    ``alpha`` is a number or ``"auto"``, ``retraction`` as in :class:`slackline.Speculation`. ``mean_ms`` and ``p95_ms``
    are waits of the report's kind of event, ``busy`` is the mean, ``memory_kb`` the most that snapshots took,
    ``replayed`` counts rows that were processed again, ``touched`` events that were retracted or emitted again.

    >>> Run("slack", 1.0).label, Run("auto", 0.25, "full").label, Run("auto", "auto").label
    ('plain buffering', 'α = 0.25, full retraction', 'adaptive α')
    """

    policy: str
    alpha: float | str
    retraction: str | None = None
    mean_ms: float | None = None
    p95_ms: float | None = None
    inserts: int = 0
    retractions: int = 0
    replays: int = 0
    replayed: int = 0
    snapshots: int = 0
    memory_kb: float = 0.0
    busy: float | None = None
    touched: int | None = None
    detections: Sequence[Detection] = ()
    moments: Sequence[Moment] = ()

    @property
    def setting(self) -> str:
        """α in words."""
        if self.alpha == ADAPTIVE:
            return "adaptive α"
        return "plain buffering" if self.alpha == PLAIN else f"α = {self.alpha:g}"

    @property
    def label(self) -> str:
        chosen = {"full": ", full retraction", "on_demand": ", on-demand retraction"}
        return self.setting + chosen.get(self.retraction or "", "")

    @property
    def behind(self) -> float:
        """The furthest that the process lagged behind (s)."""
        return max((moment.behind for moment in self.moments), default=0.0)


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """What the page shows.

    ``kind`` is the event type that the waits of the runs are about; other types in ``detections`` are drawn smaller.
    ``same_answer``: whether every changelog nets out to the result of plain buffering. ``touched_by``: whose events
    the runs' ``touched`` counts; ``words`` has event types in plain words, in the plural.
    """

    title: str
    runs: Sequence[Run] = ()
    text: str = ""
    kind: str = "pass"
    same_answer: bool | None = None
    touched_by: str = ""
    notes: Sequence[str] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    def called(self, kind: str) -> str:
        """An event type in plain words."""
        return self.words.get(kind, kind.replace("_", " "))

    @property
    def many(self) -> str:
        """What the page is about, in plain words."""
        return self.called(self.kind)

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(run.policy for run in self.runs))

    def settings(self, policy: str) -> list[Run]:
        """The runs of a policy, one per α: from plain buffering to α = 0, then adaptive."""
        first: dict[float | str, Run] = {}
        for run in self.runs:
            if run.policy == policy:
                first.setdefault(run.alpha, run)
        return sorted(first.values(), key=_by_alpha)

    def run(self, policy: str, alpha: float | str) -> Run | None:
        return next((run for run in self.settings(policy) if run.alpha == alpha), None)

    def retractions(self) -> list[list[Run]]:
        """Groups of runs that differ in the retraction technique only."""
        groups: dict[tuple[str, float | str], dict[str, Run]] = {}
        for run in self.runs:
            if run.touched is not None and run.retraction is not None:
                groups.setdefault((run.policy, run.alpha), {}).setdefault(run.retraction, run)
        return [list(group.values()) for group in groups.values() if len(group) > 1]


def _by_alpha(run: Run) -> tuple[bool, float]:
    return (True, 0.0) if isinstance(run.alpha, str) else (False, -run.alpha)


WAITS = "#8a949e"
#: Light to dark, so that they differ in grey, too.
_FIXED = ("#7fb8dd", "#4f98cc", "#2a78b8", "#174f87", "#0b2a52")
_ALPHA_SYMBOLS = ("square", "diamond", "triangle-down", "cross", "x", "pentagon")


@dataclass(frozen=True, slots=True)
class Style:
    """Colour and marker of a setting, and whether it is visible at first."""

    color: str
    symbol: str
    shown: bool = True


def styles_of(report: SpeculationReport) -> dict[float | str, Style]:
    """Per setting of α. Of the fixed ones only the boldest that still waits is shown at first: more would be a mess."""
    settings = {run.alpha for run in report.runs}
    fixed = sorted((alpha for alpha in settings if not isinstance(alpha, str) and alpha != PLAIN), reverse=True)
    example = min((alpha for alpha in fixed if alpha > 0), default=fixed[0] if fixed else None)
    found: dict[float | str, Style] = {PLAIN: Style(WAITS, "circle-open"), ADAPTIVE: Style(ACCENT, "circle")}
    for number, alpha in enumerate(fixed):
        shade = _FIXED[number * (len(_FIXED) - 1) // max(len(fixed) - 1, 1)]
        found[alpha] = Style(shade, _ALPHA_SYMBOLS[number % len(_ALPHA_SYMBOLS)], alpha == example)
    return found


def busy_text(busy: float | None) -> str:
    return "-" if busy is None else f"{busy:.2f}"


def hover_name(run: Run) -> str:
    return escape(f"{run.label}, {run.policy}")


#: The target zone of the busy factor; green, and a band, so that it is no run.
ZONE = "rgba(0,158,115,0.22)"


def panels(report: SpeculationReport) -> list[str]:
    """What can be drawn, from top to bottom."""
    found = []
    if any(run.detections for run in report.runs):
        found.append("wait")
    if any(run.moments and run.alpha != PLAIN for run in report.runs):
        found.append("alpha")
    if any(moment.busy is not None for run in report.runs for moment in run.moments):
        found.append("busy")
    return found


_HEIGHTS = {"wait": 300, "alpha": 150, "busy": 170}
_TITLES = {"wait": "emitted after (ms)", "alpha": "α", "busy": "busy factor"}


def height_of(report: SpeculationReport) -> int:
    return 120 + sum(_HEIGHTS[panel] + 16 for panel in panels(report))


def timeline_figure(report: SpeculationReport) -> go.Figure:
    """One column per policy; all columns have the same scales."""
    rows, columns = panels(report), report.policies
    figure = make_subplots(
        rows=len(rows), cols=len(columns), shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.03,
        vertical_spacing=0.03, row_heights=[_HEIGHTS[row] for row in rows],
        column_titles=[f"policy {escape(policy)}" for policy in columns],
    )  # fmt: skip
    styles = styles_of(report)
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
    """A line from plain to adaptive for each event that both emitted: the gain."""
    plain, adaptive = (report.run(policy, alpha) for alpha in (PLAIN, ADAPTIVE))
    if plain is None or adaptive is None:
        return
    before = {each.at: each.wait for each in plain.detections if each.type == report.kind}
    x: list[float | None] = []
    y: list[float | None] = []
    for each in adaptive.detections:
        if each.type == report.kind and each.at in before:
            x += [each.at, each.at, None]
            y += [before[each.at], each.wait, None]
    if x:
        figure.add_scatter(
            x=x, y=y, mode="lines", line={"color": "#cfd6dd", "width": 1.5}, hoverinfo="skip", showlegend=False, **place
        )


class _Pen:
    """Draws one run; the legend names a setting once."""

    def __init__(self, figure: go.Figure, run: Run, style: Style, named: set[str]) -> None:
        self.figure, self.run, self.style, self.named = figure, run, style, named

    def _group(self) -> dict[str, Any]:
        """Shown and hidden together with the rest of the setting."""
        visible = True if self.style.shown else "legendonly"
        return {"legendgroup": self.run.setting, "showlegend": False, "visible": visible}

    def _named(self) -> dict[str, Any]:
        """The first of these is in the legend."""
        new = self.run.setting not in self.named
        self.named.add(self.run.setting)
        return {**self._group(), "name": self.run.setting, "showlegend": new}

    def waits(self, report: SpeculationReport, place: dict[str, int]) -> None:
        style = self.style
        for main in (False, True):
            shown = [each for each in self.run.detections if (each.type == report.kind) == main]
            if not shown:
                continue
            common = self._named() if main else self._group()
            self.figure.add_scatter(
                x=[each.at for each in shown], y=[each.wait for each in shown], mode="markers",
                marker={
                    "color": style.color, "symbol": style.symbol, "size": 9 if main else 4,
                    "opacity": 1 if main else 0.55, "line": {"width": 1.6 if "open" in style.symbol else 0},
                },
                text=[escape(report.called(each.type)) for each in shown],
                hovertemplate="%{text}, at %{x:,.1f} s<br>emitted %{y:,.0f} ms later<extra>"
                f"{hover_name(self.run)}</extra>", **common, **place,
            )  # fmt: skip

    def alpha(self, place: dict[str, int]) -> None:
        moments = self.run.moments
        if not moments:
            return
        x = [moment.at for moment in moments]
        line = {"color": self.style.color, "width": 2, "shape": "hv"}
        spread = any(moment.highest_alpha > moment.alpha for moment in moments)
        if spread:
            self.figure.add_scatter(
                x=x, y=[moment.highest_alpha for moment in moments], mode="lines", line={**line, "width": 0},
                hoverinfo="skip", **self._group(), **place,
            )  # fmt: skip
        self.figure.add_scatter(
            x=x, y=[moment.alpha for moment in moments], mode="lines", line=line,
            fill="tonexty" if spread else None, fillcolor=faded(self.style.color, 0.18) if spread else None,
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
            line={"color": self.style.color, "width": 1.8}, customdata=[moment.behind for moment in shown],
            hovertemplate="busy %{y:.2f} at %{x:,.1f} s, %{customdata:.2f} s behind<extra>"
            f"{hover_name(self.run)}</extra>", **self._named(), **place,
        )  # fmt: skip


# Insertions and retractions.


def changed_settings(report: SpeculationReport) -> list[str]:
    """The settings with a timeline; empty if no run has retractions."""
    of = [run for policy in report.policies for run in report.settings(policy) if run.moments]
    if not any(moment.retractions for run in of for moment in run.moments):
        return []
    order = sorted({run.alpha for run in of}, key=lambda a: (isinstance(a, str), 0 if isinstance(a, str) else -a))
    return [next(run.setting for run in of if run.alpha == alpha) for alpha in order]


def changes_figure(report: SpeculationReport) -> go.Figure:
    """One row per setting, one column per policy: insertions above the axis, retractions below."""
    rows, columns = changed_settings(report), report.policies
    figure = make_subplots(
        rows=len(rows), cols=len(columns), shared_xaxes=True, shared_yaxes="all", horizontal_spacing=0.03,
        vertical_spacing=0.14 / len(rows), column_titles=[f"policy {escape(policy)}" for policy in columns],
    )  # fmt: skip
    named: set[str] = set()
    for column, policy in enumerate(columns, 1):
        for run in report.settings(policy):
            if run.setting in rows:
                _add_changes(figure, run, {"row": rows.index(run.setting) + 1, "col": column}, named)
    for row, setting in enumerate(rows, 1):
        words_of = setting if "=" in setting else setting.replace(" ", "<br>")
        figure.update_yaxes(title={"text": words_of, "font": {"size": 13}}, row=row, col=1)
    figure.update_xaxes(title="stream time (s)", row=len(rows))
    figure.update_layout(barmode="relative", bargap=0.12)
    _finish(figure)
    return figure


def _add_changes(figure: go.Figure, run: Run, place: dict[str, int], named: set[str]) -> None:
    seconds, counts = per_second(run)
    middle = [second + 0.5 for second in seconds]
    for name, values, color in (
        ("emitted", [inserts for inserts, _, _ in counts], "#7fb8dd"),
        ("retracted", [-retractions for _, retractions, _ in counts], "#b3261e"),
    ):
        figure.add_bar(
            x=middle, y=values, name=name, legendgroup=name, showlegend=name not in named, width=0.88,
            marker={"color": color, "line": {"width": 0}}, customdata=[abs(value) for value in values],
            hovertemplate=f"%{{customdata:,}} {name} around %{{x:,.1f}} s<extra>{hover_name(run)}</extra>", **place,
        )  # fmt: skip
        named.add(name)
    name = "final"
    figure.add_scatter(
        x=middle, y=[finals for _, _, finals in counts], mode="lines", name=name, legendgroup=name,
        showlegend=name not in named, line={"color": INK, "width": 1.4, "shape": "hvh"},
        hovertemplate=f"%{{y:,}} final<extra>{hover_name(run)}</extra>", **place,
    )  # fmt: skip
    named.add(name)


def per_second(run: Run) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Whole seconds of stream time, and the insertions, retractions and final events in each."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for moment in run.moments:
        # A moment is known by its end: one that ends with the second belongs to it.
        second = -int(-moment.at // 1) - 1
        for number, count in enumerate((moment.inserts, moment.retractions, moment.finals)):
            sums[second][number] += count
    seconds: Sequence[int] = range(min(sums, default=0), max(sums, default=-1) + 1)
    return list(seconds), [(sums[s][0], sums[s][1], sums[s][2]) for s in seconds]


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
    styles = styles_of(report)
    for column, cost in enumerate(shown, 1):
        for number, policy in enumerate(report.policies):
            runs = [
                run for run in report.settings(policy) if run.mean_ms is not None and _cost_of(run, cost) is not None
            ]
            fixed = [run for run in runs if run.alpha != ADAPTIVE]
            figure.add_scatter(
                x=[_cost_of(run, cost) for run in fixed], y=[run.mean_ms for run in fixed], mode="lines",
                line={"color": FAINT, "width": 1.2, "dash": _DASHES[number % len(_DASHES)]}, hoverinfo="skip",
                showlegend=False, row=1, col=column,
            )  # fmt: skip
            adaptive = [run for run in runs if run.alpha == ADAPTIVE]
            for name, points, size in (("", fixed, 11), (", adaptive α", adaptive, 16)):
                figure.add_scatter(
                    x=[_cost_of(run, cost) for run in points], y=[run.mean_ms for run in points], mode="markers+text",
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
        most = max((_cost_of(run, cost) or 0.0) for run in report.runs)
        figure.update_xaxes(title=title, range=[0, max(1.3 * most, UPPER if cost == "busy" else 1)], row=1, col=column)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title="mean wait (ms)", row=1, col=1)
    figure.update_layout(margin={"l": 76, "r": 24, "t": 44, "b": 56}, hovermode="closest", legend=LEGEND)
    return figure


def _cost_of(run: Run, cost: str) -> float | None:
    return run.busy if cost == "busy" else float(run.replayed)


def _hover(run: Run) -> str:
    return (
        f"<b>{hover_name(run)}</b><br>mean {_ms(run.mean_ms)} ms, p95 {_ms(run.p95_ms)} ms<br>"
        f"busy {busy_text(run.busy)}<br>{run.replays:,} replays of {run.replayed:,} rows"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else number_text(value)


# Retraction techniques.


def touched_figure(group: Sequence[Run]) -> go.Figure:
    """How many events each technique retracted or emitted again."""
    names = [name for name in ("auto", "on_demand", "full") if any(run.retraction == name for run in group)]
    values = {run.retraction: run.touched or 0 for run in group}
    colors = {"full": "#8a949e", "on_demand": "#2a78b8", "auto": "#0b2a52"}
    figure = go.Figure()
    figure.add_bar(
        x=[values[name] for name in names], y=[TECHNIQUES[name] for name in names], orientation="h", width=0.6,
        marker={"color": [colors[name] for name in names]}, text=[f"{values[name]:,}" for name in names],
        textposition="outside", cliponaxis=False, hovertemplate="%{y}: %{x:,} events<extra></extra>", showlegend=False,
    )  # fmt: skip
    figure.update_xaxes(title="events retracted or emitted again", rangemode="tozero", fixedrange=True)
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
    styles = styles_of(report)
    behind = any(run.behind > 0 for run in report.runs)
    header = [
        "run",
        "policy",
        "mean",
        "p95",
        "emitted",
        "retracted",
        "replays",
        "rows again",
        "snapshots",
        "memory",
        "busy",
    ]
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


def speculation_page(report: SpeculationReport) -> str:
    """The whole page, one file that fetches nothing."""
    body = [heading(report.title, 1)]
    if report.text:
        body.append(paragraph(report.text, "sub"))
    for part in (_facts, _conclusion, _timeline, _changes, _cost, _touched, _table):
        body += part(report)
    body += [paragraph(f"Note: {note}", "note") for note in report.notes]
    return html_page(report.title, body)


def _pairs(report: SpeculationReport) -> list[tuple[Run, Run]]:
    """Plain buffering and adaptive speculation under the same policy, where both have a mean."""
    pairs = ((report.run(policy, PLAIN), report.run(policy, ADAPTIVE)) for policy in report.policies)
    return [(a, b) for a, b in pairs if a and b and a.mean_ms is not None and b.mean_ms is not None]


def _facts(report: SpeculationReport) -> list[str]:
    items = []
    for plain, adaptive in _pairs(report):
        items += [
            (f"{number_text(plain.mean_ms or 0)} ms", f"mean wait, {plain.policy}, plain buffering"),
            (f"{number_text(adaptive.mean_ms or 0)} ms", f"mean wait, {adaptive.policy}, adaptive α"),
        ]
    return [facts(items)] if items else []


def _conclusion(report: SpeculationReport) -> list[str]:
    """The conclusion: how much earlier, at which load, and whether the result is right."""
    parts = []
    for plain, adaptive in _pairs(report):
        busy = f", at a busy factor of {busy_text(adaptive.busy)}" if adaptive.busy is not None else ""
        parts.append(
            f"Under policy {plain.policy}, {report.many} are emitted {number_text(plain.mean_ms or 0)} ms after "
            f"they occurred; with adaptive speculation after {number_text(adaptive.mean_ms or 0)} ms, "
            f"{_change(plain.mean_ms or 0, adaptive.mean_ms or 0)}{busy}."
        )
    if report.same_answer is not None:
        parts.append(
            "The insertions and retractions of every run net out to exactly the result of plain buffering."
            if report.same_answer
            else "But not every run nets out to the result of plain buffering: something is wrong."
        )
    return [paragraph(" ".join(parts), "verdict")] if parts else []


def _change(before: float, after: float) -> str:
    """
    >>> _change(400, 100), _change(100, 110), _change(0, 0)
    ('75 % sooner', '10 % later', 'no sooner')
    """
    share = round(100 * (1 - after / before)) if before else 0
    return f"{share} % sooner" if share > 0 else f"{-share} % later" if share < 0 else "no sooner"


def _timeline(report: SpeculationReport) -> list[str]:
    shown = panels(report)
    if not shown:
        return []
    texts = []
    if "wait" in shown:
        others = sorted({each.type for run in report.runs for each in run.detections} - {report.kind})
        small = f", small ones {' and '.join(report.called(kind) for kind in others)}" if others else ""
        texts.append(
            "Top: the delay of the first lasting emission of each event; the lower, the earlier. Large marks are "
            f"{report.many}{small}; a line leads from plain buffering down to adaptive α."
        )
    if "alpha" in shown:
        texts.append(
            "α is the share of the usual wait that remains: 1 is plain buffering, 0 does not wait. Adaptive α is "
            "halved while CPU is available and reset to 1 on overload; the shaded band reaches up to "
            "the detector that speculates least."
        )
    if "busy" in shown:
        texts.append(
            "The busy factor is the share of busy time. Adaptive α aims at the green zone; above 1 the "
            "process cannot keep up with the stream."
        )
    hidden = any(not style.shown for style in styles_of(report).values())
    click = " Click on a name to show or hide a run." if hidden else ""
    return [
        heading("Waits, α, and load"),
        *(paragraph(text) for text in texts[:-1]),
        paragraph(texts[-1] + click),
        figure_card(timeline_figure(report), height_of(report)),
    ]


def _changes(report: SpeculationReport) -> list[str]:
    rows = changed_settings(report)
    if not rows:
        return []
    return [
        heading("Insertions and retractions"),
        paragraph(
            "Events per second of stream time. Above the axis insertions, below it retractions; the line is final "
            "events. Where bars exceed the line, early results were corrected."
        ),
        figure_card(changes_figure(report), 120 + 120 * len(rows)),
    ]


def _cost(report: SpeculationReport) -> list[str]:
    shown = costs(report)
    if not shown:
        return []
    busy = " The green band is the target zone." if "busy" in shown else ""
    again = (
        " Rows processed again are the same on every machine, except under adaptive α, which follows the load."
        if "replayed" in shown
        else ""
    )
    return [
        heading("The cost of earlier results"),
        paragraph(
            f"One point per run: the lower, the earlier are {report.many} emitted; the further right, the more "
            f"work. The number at a point is its α, and lines join the fixed ones from plain buffering (1) on."
            f"{busy}{again}"
        ),
        figure_card(cost_figure(report), 420),
    ]


def _touched(report: SpeculationReport) -> list[str]:
    groups = report.retractions()
    if not groups:
        return []
    parts = [
        heading("Retraction techniques"),
        paragraph(
            "When an older event arrives, full retraction retracts all outputs after it, and the levels above start "
            "again. On-demand retraction replays first, and emits only what has changed."
        ),
    ]
    for group in groups:
        parts += [
            paragraph(touched_text(group, report.touched_by)),
            figure_card(touched_figure(group), 84 + 44 * len(group)),
        ]
    return parts


def _table(report: SpeculationReport) -> list[str]:
    if not report.runs:
        return []
    behind = any(run.behind > 0 for run in report.runs)
    lag = (
        " Behind: how far the process lagged behind the stream at most (s); waits do not contain it." if behind else ""
    )
    return [
        heading("All runs"),
        run_table(report),
        paragraph(
            f"Mean and p95: stream time from when one of the {report.many} occurred to its first lasting "
            f"emission (ms). Rows again: rows that detectors processed once more. Memory: the most "
            f"that snapshots took (kB). "
            f"Busy: processing time by stream time.{lag}",
            "note",
        ),
    ]
