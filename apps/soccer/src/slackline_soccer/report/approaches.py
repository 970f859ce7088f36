"""Approaches to disorder side by side: what each gets wrong, and how long it waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from slackline.report import ACCENT, LEGEND, number_text, share_text, table_card
from slackline_soccer.report.looks import NEUTRAL, counted, ms
from slackline_soccer.report.model import Approach, MatchReport

#: Per kind of approach: what it is called in the legend, and its look.
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "arrival": ("arrival order", {"marker": {"color": "#b3261e", "symbol": "x", "size": 13}}),
    "fixed": (
        "fixed watermark",
        {"marker": {"color": NEUTRAL, "size": 11}, "line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}},
    ),
    "slackline": ("Slackline", {"marker": {"color": ACCENT, "symbol": "star", "size": 19}}),
}


def approach_table(approaches: Sequence[Approach], positions: int | None) -> str:
    """One row each, Slackline's marked; the bound comes last."""
    header = ["approach", "right", "missed", "invented", "late positions", "mean wait for a hit"]
    rows = [
        [
            one.name,
            f"{one.right:,} of {one.true:,}",
            f"{one.missed:,}",
            f"{one.invented:,}",
            share_text(one.late / positions) if positions and one.late else f"{one.late:,}",
            f"{number_text(ms(one.wait))} ms",
        ]
        for one in approaches
    ]
    marks = {"slackline": "mark", "bound": "last"}
    return table_card(header, rows, marks={n: marks[a.kind] for n, a in enumerate(approaches) if a.kind in marks})


def approach_figure(approaches: Sequence[Approach]) -> go.Figure:
    """To the right is late, upwards is wrong; the best place is the lower left corner."""
    figure = go.Figure()
    for kind, (name, look) in LOOKS.items():
        shown = [one for one in approaches if one.kind == kind]
        if not shown:
            continue
        figure.add_scatter(
            x=[ms(one.wait) for one in shown], y=[one.missed + one.invented for one in shown], name=name,
            mode="lines+markers+text" if kind == "fixed" else "markers",
            text=[one.name.rpartition(" of ")[2] for one in shown], textposition="top center",
            customdata=[[one.name, one.missed, one.invented] for one in shown], cliponaxis=False, **look,
            hovertemplate="%{customdata[0]}: %{customdata[1]} missed, %{customdata[2]} invented, "
            "a hit after %{x:,.0f} ms<extra></extra>",
        )  # fmt: skip
    for bound in (one for one in approaches if one.kind == "bound"):
        figure.add_vline(x=ms(bound.wait), line={"color": NEUTRAL, "width": 1.5})
        figure.add_annotation(
            x=ms(bound.wait),
            y=0.5,
            yref="paper",
            xanchor="left",
            showarrow=False,
            text=" bound",
            font={"color": NEUTRAL},
        )
    figure.update_xaxes(title="mean wait for a hit (ms)", rangemode="tozero", fixedrange=True)
    figure.update_yaxes(title="events missed or invented", rangemode="tozero", fixedrange=True)
    figure.update_layout(margin={"l": 64, "r": 24, "t": 44, "b": 56}, legend=LEGEND, showlegend=True)
    return figure


def comparison(report: MatchReport) -> str:
    """The approaches in sentences: what arrival order gets wrong, what watermarks cost, what Slackline does."""
    by_kind = {kind: [one for one in report.approaches if one.kind == kind] for kind in (*LOOKS, "bound")}
    parts = [f"In arrival order the detectors {_outcome(one)}." for one in by_kind["arrival"]]
    for one in by_kind["fixed"]:
        if one.why:
            parts.append(
                f"Behind a {one.name} ({one.why}), which drops {counted(one.late, 'position', 'positions')}, they "
                f"{_outcome(one)}, and publish a hit {ms(one.wait):,.0f} ms after it happened, on average."
            )
    for one in by_kind["slackline"]:
        bound = "".join(f"; no ordering can be faster than {ms(b.wait):,.0f} ms" for b in by_kind["bound"])
        parts.append(f"With Slackline they {_outcome(one)}, and publish a hit after {ms(one.wait):,.0f} ms{bound}.")
    return " ".join(parts)


def _outcome(one: Approach) -> str:
    """
    >>> _outcome(Approach("x", "fixed", true=10, found=9, right=8, wait=0.0)), _outcome(Approach("x", "fixed", 3, 3, 3))
    ('miss 2 of 10 events and invent 1', 'find all 3 events and invent none')
    """
    found = f"miss {one.missed:,} of {one.true:,} events" if one.missed else f"find all {one.true:,} events"
    return f"{found} and invent {one.invented or 'none'}"
