"""Is the simulated match like real ones? Small plots and a few figures, simulated beside recorded."""

from __future__ import annotations

from html import escape
from math import ceil
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from slackline.report import FAINT, LEGEND, number_text, share_text, table_card
from slackline_soccer.plausibility import Distribution, Figure, Plausibility

COLUMNS = 1
_SIMULATED = "#9ec6bd"
_RECORDED = "#1f2933"


def drawable(plausibility: Plausibility) -> list[Distribution]:
    """Those with something on both sides."""
    return [d for d in plausibility.distributions if d.simulated_count and d.recorded_count]


def height_of(plausibility: Plausibility) -> int:
    return 60 + 265 * ceil(len(drawable(plausibility)) / COLUMNS)


def plausibility_figure(plausibility: Plausibility) -> go.Figure:
    shown = drawable(plausibility)
    rows = ceil(len(shown) / COLUMNS)
    figure = make_subplots(
        rows=rows, cols=COLUMNS, subplot_titles=[_title(d) for d in shown], horizontal_spacing=0.08,
        vertical_spacing=0.36 / rows,
    )  # fmt: skip
    looks: dict[str, dict[str, Any]] = {
        "simulated": {"fill": "tozeroy", "line": {"color": _SIMULATED, "width": 1, "shape": "hv"}},
        "recorded": {"line": {"color": _RECORDED, "width": 1.8, "shape": "hv"}},
    }
    for number, distribution in enumerate(shown):
        for name, look in looks.items():
            shares = 100 * np.array(getattr(distribution, name))
            figure.add_scatter(
                x=distribution.edges, y=np.append(shares, shares[-1]).round(3), mode="lines", name=name,
                legendgroup=name, showlegend=number == 0, row=number // COLUMNS + 1, col=number % COLUMNS + 1, **look,
                hovertemplate=f"%{{y:.1f}} % from %{{x:.3~g}} {escape(distribution.unit)} on<extra>{name}</extra>",
            )  # fmt: skip
    figure.update_xaxes(fixedrange=True)
    figure.update_yaxes(rangemode="tozero", fixedrange=True, ticksuffix=" %")
    figure.update_annotations(font={"size": 14})
    figure.update_layout(
        margin={"l": 56, "r": 24, "t": 88, "b": 32}, legend={**LEGEND, "y": 1.0, "yref": "container", "yanchor": "top"}
    )
    return figure


def _title(distribution: Distribution) -> str:
    counts = f"{distribution.simulated_count:,} simulated, {distribution.recorded_count:,} recorded"
    return (
        f"<b>{escape(distribution.name)} ({escape(distribution.unit)})</b><br><span style='font-size:12px;"
        f"color:{FAINT}'>{counts}: {escape(distribution.source)}</span>"
    )


def plausibility_table(plausibility: Plausibility) -> str:
    """A number each of the simulated match and of every recorded one."""
    games = list(dict.fromkeys(name for figure in plausibility.figures for name in figure.recorded))
    rows = [
        [
            f"{figure.name}, {figure.unit}" if figure.unit else figure.name,
            _text(figure, figure.simulated),
            *(_text(figure, figure.recorded[name]) if name in figure.recorded else "-" for name in games),
        ]
        for figure in plausibility.figures
    ]
    return table_card(["figure", "simulated", *games], rows)


def _text(figure: Figure, value: float) -> str:
    """A share in per cent, anything else as it is."""
    return share_text(value) if "share" in f"{figure.name} {figure.unit}" else number_text(value)


def notes(plausibility: Plausibility) -> list[str]:
    """What is to be known about the comparison, each thing once."""
    said = [(d.name, d.note) for d in plausibility.distributions] + [(f.name, f.note) for f in plausibility.figures]
    by_note: dict[str, list[str]] = {}
    for name, note in said:
        if note:
            by_note.setdefault(note, []).append(name)
    return [f"{', '.join(names).capitalize()}. {note}" for note, names in by_note.items()]
