"""How late positions arrive, per kind of transmitter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report import LEGEND, number_text, share_text, table_card
from slackline_soccer.report.looks import ms
from slackline_soccer.report.model import Delays

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
