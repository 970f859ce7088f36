"""The page of a study: late share against mean wait, by policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from math import inf, log10

import plotly.graph_objects as go

from slackline.report.page import ACCENT, FAINT, facts, figure_card, heading, html_page, paragraph, table_card
from slackline.report.summaries import (
    POLICY_NAMES,
    Scale,
    count_text,
    disorder,
    late_sources_text,
    params_text,
    share_text,
    verdict,
)
from slackline.study import FIXED, STEADY, PolicyFigures, PolicyResult, StudyResult

#: Colour and marker of each policy, in the order of the legend.
STYLES = {
    "auto": (ACCENT, "circle"),
    "ready": ("#009e73", "diamond"),
    "slack": ("#0072b2", "triangle-up"),
    "quantile": ("#b45fa0", "triangle-down"),
    "max_slack": ("#3ba3d0", "square"),
    "percentile": ("#c77700", "pentagon"),
    "adwin": ("#8c6d31", "hexagon"),
    "aqkslack": ("#9467bd", "star-diamond"),
    "fixed": ("#7b8794", "x"),
    "timer": ("#4a5568", "cross"),
}
PUBLISHED = ("percentile", "adwin", "aqkslack")
#: A published policy that waits so many times as long as all others is not in a plot.
FAR = 3
#: Policies with a parameter that trades waits for late events: their points make a curve.
CURVES = {
    "auto": "late_target",
    "quantile": "q",
    "percentile": "q",
    "adwin": "threshold",
    "aqkslack": "coverage",
    "fixed": "bound",
    "timer": "delay",
}


def study_page(result: StudyResult, title: str = "recorded stream") -> str:
    """The whole page."""
    scale = Scale.of_study(result)
    return html_page(
        f"Slackline study: {title}",
        [
            heading(f"Which policy suits {title}?", 1),
            paragraph(
                f"{count_text(result.rows, 'event')} of {count_text(result.sources, 'source')}. {disorder(result)}",
                "sub",
            ),
            _facts(result, scale),
            paragraph(verdict(result), "verdict"),
            *([paragraph(text)] if (text := late_sources_text(result)) else []),
            heading("Late events against waits"),
            paragraph(
                "Each curve is one policy over the values of its parameter. Further left is less waiting, further "
                f"down is fewer late events.{_beyond(result, WHOLE)}",
                "note",
            ),
            figure_card(_Plot.of(result, scale, WHOLE).figure(), 560),
            *_steady(result, scale),
            heading(f"All figures, waits in {scale.name}"),
            _table(result, scale),
            paragraph(
                "Late: arrived too late to be delivered in order. Wait: time of release minus time of arrival of the "
                f"event; late events have no wait. Steady: of the events after the first {STEADY:,} arrivals. "
                "Clairvoyant: knows the future, releases an event when the last one not after it has arrived, loses "
                "nothing.",
                "note",
            ),
            *[paragraph(f"Note: {warning}.", "note") for warning in result.warnings],
        ],
    )


def _steady(result: StudyResult, scale: Scale) -> list[str]:
    if result.clairvoyant.steady_mean_wait is None:
        return []
    return [
        heading("After warm-up"),
        paragraph(
            f"The same for the events after the first {STEADY:,} arrivals: late events and waits during warm-up are "
            f"left out.{_beyond(result, LATER)}",
            "note",
        ),
        figure_card(_Plot.of(result, scale, LATER).figure(), 560),
    ]


def _facts(result: StudyResult, scale: Scale) -> str:
    default, best = result.default.waits, result.clairvoyant
    items = [
        (scale.with_unit(default.mean_wait), "mean wait, default auto"),
        (share_text(default.late_share), "late events, default auto"),
        (scale.with_unit(best.mean_wait), "mean wait, clairvoyant"),
    ]
    if (rival := result.cheapest(*FIXED)) is not None:
        items.append((scale.with_unit(rival.waits.mean_wait), f"mean wait, best {POLICY_NAMES[rival.policy]}"))
    return facts(items)


@dataclass(frozen=True, slots=True)
class _Period:
    """The figures of a plot: those of the whole stream, or the steady ones."""

    late: Callable[[PolicyFigures], float | None]
    wait: Callable[[PolicyFigures], float | None]


WHOLE = _Period(lambda waits: waits.late_share, lambda waits: waits.mean_wait)
LATER = _Period(lambda waits: waits.steady_late_share, lambda waits: waits.steady_mean_wait)


def _furthest(result: StudyResult, period: _Period) -> float:
    """The longest mean wait in a plot: published policies may wait so long that the others could not be told apart."""
    ours = [period.wait(p.waits) or 0 for p in result.policies if p.policy not in PUBLISHED]
    return FAR * max(ours, default=0) or inf


def _beyond(result: StudyResult, period: _Period) -> str:
    """Which policies are not in the plot because they wait too long, in a sentence."""
    far = {p.policy for p in result.policies if (period.wait(p.waits) or 0) > _furthest(result, period)}
    names = ", ".join(POLICY_NAMES.get(policy, policy) for policy in STYLES if policy in far)
    return f" Too far right to be shown: {names}." if far else ""


@dataclass(frozen=True, slots=True)
class _Plot:
    """Late share against mean wait. Both axes are logarithmic; zero has a place of its own at the lower end of each."""

    result: StudyResult
    scale: Scale
    period: _Period
    left: float
    right: float
    low: float
    top: float

    @classmethod
    def of(cls, result: StudyResult, scale: Scale, period: _Period) -> _Plot:
        furthest = _furthest(result, period)
        all_figures = [*[p.waits for p in result.policies], result.clairvoyant]
        waits = [scale.value(wait) for wait in map(period.wait, all_figures) if wait and wait <= furthest]
        late = [100 * share for share in map(period.late, all_figures) if share]
        low = 100 * 0.4 / result.rows
        left = min(waits, default=1.0) / 2.5
        return cls(result, scale, period, left, max([left, *waits]), low, max([10 * low, *late]))

    def figure(self) -> go.Figure:
        figure = go.Figure()
        for policy in reversed(STYLES):  # the first on top
            self._add(figure, policy)
        self._add_targets(figure)
        self._add_default(figure)
        self._add_clairvoyant(figure)
        places = [t for t in (10.0**e for e in range(-7, 3)) if 2 * self.low < t <= self.top * 2]
        figure.update_yaxes(
            type="log", title="late events (%)", range=[log10(self.low / 1.6), log10(self.top * 2)],
            tickvals=[self.low, *places], ticktext=["0", *[f"{t:g}" for t in places]],
        )  # fmt: skip
        figure.update_xaxes(
            type="log", title=f"mean wait ({self.scale.name})", range=[log10(self.left / 1.4), log10(self.right * 2)],
            tickvals=[self.left, *_round(self.left * 1.2, self.right * 2)],
            ticktext=["0", *[f"{t:,.10g}" for t in _round(self.left * 1.2, self.right * 2)]],
        )  # fmt: skip
        figure.update_layout(
            margin={"l": 76, "r": 24, "t": 40, "b": 110},
            legend={"orientation": "h", "y": -0.2, "x": 0.5, "xanchor": "center", "traceorder": "reversed"},
        )
        return figure

    def _place(self, waits: PolicyFigures) -> tuple[float, float]:
        wait, late = self.period.wait(waits) or 0, self.period.late(waits) or 0
        return max(self.scale.value(wait), self.left), max(100 * late, self.low)

    def _add(self, figure: go.Figure, policy: str) -> None:
        """The points of a policy; a curve where it has a parameter."""
        furthest = _furthest(self.result, self.period)
        shown = [
            p
            for p in self.result.policies
            if p.policy == policy
            and not p.is_default
            and (wait := self.period.wait(p.waits)) is not None
            and wait <= furthest
        ]
        if not shown:
            return
        parameter = CURVES.get(policy)
        if parameter is not None:
            shown.sort(key=lambda p: p.params[parameter])
        color, symbol = STYLES[policy]
        places = [self._place(p.waits) for p in shown]
        figure.add_scatter(
            x=[x for x, _ in places],
            y=[y for _, y in places],
            mode="lines+markers" if parameter else "markers",
            line={"color": color, "width": 2.5 if policy == "auto" else 1.5},
            marker={"color": color, "symbol": symbol, "size": 8 if policy in FIXED else 10},
            hovertext=[_hover(p, self.result.unit, self.scale) for p in shown],
            hovertemplate="%{hovertext}<extra></extra>",
            name=POLICY_NAMES.get(policy, policy) + (f", by {parameter}" if parameter else ""),
            cliponaxis=False,
        )

    def _add_targets(self, figure: go.Figure) -> None:
        """The least and the largest target of `auto` beside their points."""
        targets = [
            p for p in self.result.policies if "late_target" in p.params and self.period.wait(p.waits) is not None
        ]
        targets.sort(key=lambda p: p.params["late_target"])
        beside = ({"yshift": -16, "xanchor": "center"}, {"yshift": 12, "xshift": -12, "xanchor": "right"})
        for p, where in zip(targets[:1] + targets[1:][-1:], beside, strict=False):
            x, y = self._place(p.waits)
            figure.add_annotation(
                x=log10(x), y=log10(y), **where, bgcolor="rgba(255,255,255,0.85)",
                text=params_text(p, self.result.unit), showarrow=False, font={"color": ACCENT, "size": 12},
            )  # fmt: skip

    def _add_default(self, figure: go.Figure) -> None:
        default = self.result.default
        if self.period.wait(default.waits) is None:
            return
        x, y = self._place(default.waits)
        figure.add_scatter(
            x=[x],
            y=[y],
            mode="markers",
            marker={"color": ACCENT, "symbol": "star", "size": 22, "line": {"color": "#fff", "width": 1.5}},
            hovertext=[_hover(default, self.result.unit, self.scale)],
            hovertemplate="%{hovertext}<extra></extra>",
            name="auto (default)",
            cliponaxis=False,
        )
        # Annotations, unlike lines, take the logarithm as their place on a logarithmic axis.
        figure.add_annotation(
            x=log10(x), y=log10(y), ax=90, ay=-50, standoff=10, xanchor="center",
            text="<b>auto (default)</b>", font={"color": ACCENT, "size": 15}, bgcolor="rgba(255,255,255,0.85)",
            arrowcolor=ACCENT, arrowwidth=1.2, arrowhead=0,
        )  # fmt: skip

    def _add_clairvoyant(self, figure: go.Figure) -> None:
        if self.period.wait(self.result.clairvoyant) is None:
            return
        bound, _ = self._place(self.result.clairvoyant)
        figure.add_vline(x=bound, line={"color": FAINT, "width": 1.5, "dash": "dash"})
        figure.add_annotation(
            x=log10(bound), y=1, yref="paper", yanchor="bottom", showarrow=False,
            text="clairvoyant: loses nothing", font={"color": FAINT, "size": 13},
        )  # fmt: skip


def _round(low: float, high: float) -> list[float]:
    """Round numbers for an axis, not too many."""
    digits = (1, 2, 5) if high / low < 1e4 else (1,)
    return [t for t in (m * 10.0**e for e in range(-9, 15) for m in digits) if low < t <= high]


def _hover(p: PolicyResult, unit: str, scale: Scale) -> str:
    waits = p.waits
    lines = [
        f"<b>{escape(POLICY_NAMES.get(p.policy, p.policy))}</b> {escape(params_text(p, unit))}",
        f"late {share_text(waits.late_share)}",
        f"wait: mean {scale.with_unit(waits.mean_wait)}, median {scale.with_unit(waits.p50_wait)},",
        f"p99 {scale.with_unit(waits.p99_wait)}, max {scale.with_unit(waits.max_wait)}",
    ]
    later = waits.steady_late_share
    if later is not None:
        lines.append(f"steady: late {share_text(later)}, mean {scale.with_unit(waits.steady_mean_wait)}")
    return "<br>".join(lines)


def _table(result: StudyResult, scale: Scale) -> str:
    """Every policy from few late events to many, the cheaper first."""
    ordered = sorted(result.policies, key=lambda p: (p.waits.late_share, p.waits.mean_wait or 0))
    rows = [_row(POLICY_NAMES.get(p.policy, p.policy), params_text(p, result.unit), p.waits, scale) for p in ordered]
    rows.append(_row("clairvoyant", "knows the future", result.clairvoyant, scale))
    marks = {i: "mark" for i, p in enumerate(ordered) if p.is_default} | {len(ordered): "last"}
    return table_card(
        ["policy", "parameters", "late", "mean wait", "median", "p99", "max", "steady late", "steady mean"],
        rows,
        numeric_from=2,
        marks=marks,
        colors=[STYLES[p.policy][0] for p in ordered] + [None],
    )


def _row(policy: str, params: str, waits: PolicyFigures, scale: Scale) -> list[str]:
    late, later = waits.late_share, waits.steady_late_share
    times = (waits.mean_wait, waits.p50_wait, waits.p99_wait, waits.max_wait)
    return [
        policy,
        params,
        share_text(late),
        *map(scale.text, times),
        "-" if later is None else share_text(later),
        scale.text(waits.steady_mean_wait),
    ]
