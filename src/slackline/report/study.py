"""The page of a study: late share against mean wait, so that one look tells which policy wins."""

from __future__ import annotations

from html import escape
from math import log10

import plotly.graph_objects as go

from slackline.report.page import ACCENT, FAINT, facts, figure_card, heading, html_page, paragraph, table_card
from slackline.report.scale import Scale, params_text, share_text
from slackline.report.verdict import WORDS, verdict
from slackline.study import PolicyResult, StudyResult

#: Colour and marker of each policy, in the order of the legend.
LOOKS = {
    "auto": (ACCENT, "circle"),
    "ready": ("#009e73", "diamond"),
    "slack": ("#0072b2", "triangle-up"),
    "quantile": ("#b45fa0", "triangle-down"),
    "max_slack": ("#3ba3d0", "square"),
    "fixed": ("#7b8794", "x"),
}


def study_page(result: StudyResult, title: str = "recorded stream") -> str:
    """The whole page."""
    scale = Scale.of_study(result)
    return html_page(
        f"Slackline study: {title}",
        [
            heading(f"Which policy suits {title}?", 1),
            paragraph(
                f"{result.rows:,} events of {result.sources:,} sources; {share_text(result.late_share)} of "
                f"the events arrive out of order.",
                "sub",
            ),
            *study_parts(result, scale),
            heading("All figures"),
            _table(result, scale),
            paragraph(
                "Late: arrived too late to be delivered in order. Wait: arrival time at release minus "
                "arrival time of the event; late events have no wait. Clairvoyant: knows the future, "
                "releases an event when the last one not after it has arrived, loses nothing.",
                "note",
            ),
            *[paragraph(f"Note: {warning}.", "note") for warning in result.warnings],
        ],
    )


def study_parts(result: StudyResult, scale: Scale) -> list[str]:
    """Key figures, verdict and plot; also part of other pages."""
    return [
        _facts(result, scale),
        paragraph(verdict(result), "verdict"),
        figure_card(_figure(result, scale), 560),
    ]


def _facts(result: StudyResult, scale: Scale) -> str:
    default, best, rival = result.default.waits, result.clairvoyant, result.cheapest("fixed")
    items = [
        (scale.with_unit(default.mean_wait), "mean wait, default auto"),
        (share_text(default.late_share), "late events, default auto"),
        (scale.with_unit(best.mean_wait), "mean wait, clairvoyant"),
    ]
    if rival is not None:
        items.append((scale.with_unit(rival.waits.mean_wait), "mean wait, best fixed watermark"))
    return facts(items)


def _figure(result: StudyResult, scale: Scale) -> go.Figure:
    """Both axes logarithmic; zero has a place of its own at the lower end of each."""
    waits = [p.waits.mean_wait for p in result.policies if p.waits.mean_wait] + [result.clairvoyant.mean_wait]
    left = min((scale.value(w) for w in waits if w), default=1.0) / 2.5
    low = 100 * 0.4 / result.rows
    figure = go.Figure()
    for policy, (color, symbol) in LOOKS.items():
        shown = [
            p for p in result.policies if p.policy == policy and p.waits.mean_wait is not None and not p.is_default
        ]
        shown.sort(key=lambda p: (p.waits.mean_wait or 0, -p.waits.late_share))
        figure.add_scatter(
            x=[max(scale.value(p.waits.mean_wait or 0), left) for p in shown],
            y=[max(100 * p.waits.late_share, low) for p in shown],
            mode="lines+markers" if policy in ("fixed", "auto") else "markers",
            line={"color": color, "width": 1, "dash": "dot"},
            marker={"color": color, "symbol": symbol, "size": 8 if policy == "fixed" else 11},
            text=[_hover(p, result.unit, scale) for p in shown],
            hovertemplate="%{text}<extra></extra>",
            name="auto, other time-outs" if policy == "auto" else WORDS.get(policy, policy),
        )
    _highlight(figure, result, scale, left, low)
    if result.clairvoyant.mean_wait is not None:
        bound = max(scale.value(result.clairvoyant.mean_wait), left)
        figure.add_vline(x=bound, line={"color": FAINT, "width": 1.5, "dash": "dash"})
        # Annotations, unlike lines, take the logarithm as their place on a logarithmic axis.
        figure.add_annotation(
            x=log10(bound), y=1, yref="paper", yanchor="bottom", showarrow=False,
            text="clairvoyant: loses nothing", font={"color": FAINT, "size": 13},
        )  # fmt: skip
    right = max([scale.value(w) for w in waits if w] + [left])
    top = max([100 * p.waits.late_share for p in result.policies] + [10 * low])
    places = [t for t in (10.0**e for e in range(-7, 3)) if 2 * low < t <= top * 2]
    figure.update_yaxes(
        type="log", title="late events (%)", range=[log10(low / 1.6), log10(top * 2)],
        tickvals=[low, *places], ticktext=["0", *[f"{t:g}" for t in places]],
    )  # fmt: skip
    places = [t for t in (m * 10.0**e for e in range(-9, 15) for m in (1, 2, 5)) if left * 1.2 < t <= right * 2]
    figure.update_xaxes(
        type="log", title=f"mean wait ({scale.name})", range=[log10(left / 1.4), log10(right * 2)],
        tickvals=[left, *places], ticktext=["0", *[f"{t:,.10g}" for t in places]],
    )  # fmt: skip
    figure.update_layout(
        margin={"l": 76, "r": 24, "t": 40, "b": 110},
        legend={"orientation": "h", "y": -0.2, "x": 0.5, "xanchor": "center"},
    )
    return figure


def _highlight(figure: go.Figure, result: StudyResult, scale: Scale, left: float, low: float) -> None:
    default = result.default
    if default.waits.mean_wait is None:
        return
    at = max(scale.value(default.waits.mean_wait), left), max(100 * default.waits.late_share, low)
    figure.add_scatter(
        x=[at[0]],
        y=[at[1]],
        mode="markers",
        marker={"color": ACCENT, "symbol": "star", "size": 22, "line": {"color": "#fff", "width": 1.5}},
        hovertext=[_hover(default, result.unit, scale)],
        hovertemplate="%{hovertext}<extra></extra>",
        name="auto (default)",
        cliponaxis=False,
    )
    figure.add_annotation(
        x=log10(at[0]), y=log10(at[1]), ax=90, ay=-50, standoff=10, xanchor="center",
        text="<b>auto, as it comes</b>", font={"color": ACCENT, "size": 15}, bgcolor="rgba(255,255,255,0.85)",
        arrowcolor=ACCENT, arrowwidth=1.2, arrowhead=0,
    )  # fmt: skip


def _hover(p: PolicyResult, unit: str, scale: Scale) -> str:
    waits = p.waits
    return (
        f"<b>{escape(WORDS.get(p.policy, p.policy))}</b> {escape(params_text(p, unit))}<br>"
        f"late {share_text(waits.late_share)}<br>"
        f"wait: mean {scale.with_unit(waits.mean_wait)}, median {scale.with_unit(waits.p50_wait)},<br>"
        f"p99 {scale.with_unit(waits.p99_wait)}, max {scale.with_unit(waits.max_wait)}"
    )


def _table(result: StudyResult, scale: Scale) -> str:
    """Every policy from few late events to many, the cheaper first."""
    ordered = sorted(result.policies, key=lambda p: (p.waits.late_share, p.waits.mean_wait or 0))
    rows = [
        [
            WORDS.get(p.policy, p.policy),
            params_text(p, result.unit),
            share_text(p.waits.late_share),
            *map(scale.text, (p.waits.mean_wait, p.waits.p50_wait, p.waits.p99_wait, p.waits.max_wait)),
        ]
        for p in ordered
    ]
    best = result.clairvoyant
    rows.append(
        [
            "clairvoyant",
            "knows the future",
            "0",
            *map(scale.text, (best.mean_wait, best.p50_wait, best.p99_wait, best.max_wait)),
        ]
    )
    marks = {i: "mark" for i, p in enumerate(ordered) if p.is_default} | {len(ordered): "last"}
    unit = scale.name
    return table_card(
        [
            "policy",
            "parameters",
            "late",
            f"mean wait ({unit})",
            f"median ({unit})",
            f"p99 ({unit})",
            f"max ({unit})",
        ],
        rows,
        numeric_from=2,
        marks=marks,
        colors=[LOOKS[p.policy][0] for p in ordered] + [None],
    )
