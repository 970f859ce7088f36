"""A page about one migration of a detector: K, lag and forwarded packets around it, by method [Thesis, 5.1.4]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report.page import ACCENT, FAINT, facts, figure_card, heading, html_page, paragraph, table_card

_NAMES = {"cooperative": "cooperative handover", "snapshot": "snapshot alone", "classic": "forwarded ordered stream"}
_COLORS = {"cooperative": ACCENT, "snapshot": "#6b7785", "classic": "#1f5fa8"}


class MigrationSample(NamedTuple):
    """The migrating detector at one moment: its K and lag behind stream time, in ms; packets forwarded so far."""

    at: float
    K: float
    behind: float | None
    forwarded: int


def migration_page(
    moments: Mapping[str, Sequence[MigrationSample]], migrated_at: float, figures: Mapping[str, Any]
) -> str:
    """The page; ``figures`` are those of ``slackline bench migrate``."""
    share = figures["forwarded_cooperative"] / max(1, figures["forwarded_classic"])
    equal = "the same as" if figures["net_equal"] else "NOT the same as"
    single = figures["single_migration"]
    rows = [
        [_NAMES[method], *(str(single[method][key]) for key in ("misdetections", "late", "forwarded"))]
        for method in moments
    ]
    return html_page(
        "Migration of a running detector",
        [
            heading("Migration of a running detector", 1),
            paragraph(
                f"Pass migrated {figures['handovers']} times in {figures['seconds']:g} s of a simulated match; the "
                f"outputs of three nodes are {equal} those of one engine.",
                "verdict",
            ),
            facts(
                [
                    (str(figures["misdetections_cooperative"]), "wrong or missing passes, cooperative handover"),
                    (str(figures["misdetections_snapshot"]), "wrong or missing passes, snapshot alone"),
                    (f"{100 * share:.2g} %", "packets forwarded, relative to the forwarded ordered stream"),
                    (f"{figures['mean_added_latency_ms']:.1f} ms", "mean added latency, compared with no migration"),
                ]
            ),
            heading("One migration"),
            paragraph(
                "From n2 to n3, where all inputs take longer, with policy slack, which measures K at each node. "
                "The migration is requested at time 0."
            ),
            figure_card(_around(moments, migrated_at), 720),
            table_card(["method", "wrong or missing passes", "late events", "packets forwarded"], rows),
            paragraph("slackline bench migrate --html FILE makes this page.", "note"),
        ],
    )


def _around(moments: Mapping[str, Sequence[MigrationSample]], migrated_at: float) -> go.Figure:
    titles = ("K, ms", "lag behind stream time, ms", "packets forwarded")
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=titles)
    for method, series in moments.items():
        x = [moment.at - migrated_at for moment in series]
        values = ([m.K for m in series], [m.behind for m in series], [m.forwarded for m in series])
        for row, y in enumerate(values, start=1):
            # Wide below narrow: where methods coincide, both are visible.
            line = {"color": _COLORS[method], "width": 5 if method == "cooperative" else 2, "shape": "hv"}
            trace = go.Scatter(x=x, y=y, name=_NAMES[method], line=line, showlegend=row == 1, legendgroup=method)
            figure.add_trace(trace, row=row, col=1)
    figure.add_vline(x=0, line={"color": FAINT, "dash": "dot", "width": 1})
    figure.update_xaxes(title_text="seconds since the migration was requested", row=3, col=1)
    figure.update_layout(
        legend={"orientation": "h", "y": 1.06, "yanchor": "bottom", "x": 0.5, "xanchor": "center"},
        margin={"l": 70, "r": 20, "t": 70, "b": 50},
    )
    return figure
