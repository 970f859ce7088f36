"""A page about a detector that moved: K, latency and forwarded packets around the move, by method [Thesis, 5.1.4]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report.page import ACCENT, FAINT, facts, figure_card, heading, html_page, paragraph, table_card

_NAMES = {"cooperative": "cooperative handover", "snapshot": "snapshot alone", "classic": "forwarded ordered stream"}
_COLORS = {"cooperative": ACCENT, "snapshot": "#6b7785", "classic": "#1f5fa8"}


class MovedAt(NamedTuple):
    """The moved detector at one moment: its K and how far behind the clock it is, in ms; packets forwarded so far."""

    at: float
    K: float
    behind: float | None
    forwarded: int


def migration_page(moments: Mapping[str, Sequence[MovedAt]], moved_at: float, figures: Mapping[str, Any]) -> str:
    """The page; ``figures`` are those of ``slackline bench migrate``."""
    share = figures["forwarded_cooperative"] / max(1, figures["forwarded_classic"])
    equal = "the same as" if figures["net_equal"] else "NOT the same as"
    single = figures["single_move"]
    rows = [
        [_NAMES[method], *(str(single[method][key]) for key in ("misdetections", "late", "forwarded"))]
        for method in moments
    ]
    return html_page(
        "A detector that moves",
        [
            heading("A detector that moves while it runs", 1),
            paragraph(
                f"Pass moved {figures['handovers']} times in {figures['seconds']:g} s of a simulated match; what three "
                f"nodes found is {equal} what one engine found.",
                "verdict",
            ),
            facts(
                [
                    (str(figures["misdetections_cooperative"]), "wrong or missing passes, cooperative"),
                    (str(figures["misdetections_snapshot"]), "the same, snapshot alone"),
                    (f"{100 * share:.2g} %", "of the packets that the classic method forwards"),
                    (f"{figures['mean_added_latency_ms']:.1f} ms", "later in the mean than without moves"),
                ]
            ),
            heading("Around one move"),
            paragraph(
                "From n2 to n3, where all inputs take longer, under slack, where K is measured at each node. Time 0 is "
                "when the move was asked for."
            ),
            figure_card(_around(moments, moved_at), 720),
            table_card(["method", "wrong or missing passes", "late events", "packets forwarded"], rows),
            paragraph("slackline bench migrate --html FILE makes this page.", "note"),
        ],
    )


def _around(moments: Mapping[str, Sequence[MovedAt]], moved_at: float) -> go.Figure:
    titles = ("K, ms", "how far behind the clock, ms", "packets forwarded")
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=titles)
    for method, series in moments.items():
        x = [moment.at - moved_at for moment in series]
        values = ([m.K for m in series], [m.behind for m in series], [m.forwarded for m in series])
        for row, y in enumerate(values, start=1):
            line = {"color": _COLORS[method], "width": 2, "shape": "hv"}
            trace = go.Scatter(x=x, y=y, name=_NAMES[method], line=line, showlegend=row == 1, legendgroup=method)
            figure.add_trace(trace, row=row, col=1)
    figure.add_vline(x=0, line={"color": FAINT, "dash": "dot", "width": 1})
    figure.update_xaxes(title_text="seconds since the move was asked for", row=3, col=1)
    figure.update_layout(
        legend={"orientation": "h", "y": 1.06, "yanchor": "bottom", "x": 0.5, "xanchor": "center"},
        margin={"l": 70, "r": 20, "t": 70, "b": 50},
    )
    return figure
