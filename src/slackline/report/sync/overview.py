"""The whole recording at a glance: waits over time, stream by stream; and who was waited for."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from slackline.report.page import FAINT
from slackline.report.sync.lanes import Window
from slackline.report.sync.looks import ASLEEP, BELOW, KINDS, LATE, asleep, boxes, label, lane_labels, legend_below
from slackline.report.sync.words import SyncWords
from slackline.study import SyncResult
from slackline.study.sync_result import AT_END, DELIVERED, TIMED_OUT

BINS = 160
#: So many streams have a bar.
BARS = 20


def overview_figure(result: SyncResult, words: SyncWords, window: Window) -> tuple[go.Figure, int]:
    """Mean wait of what arrived, by stream and time; disabled times in grey, late events in red. And its height."""
    stream = result.recording.stream
    labels = lane_labels(result)
    start, end = int(stream.arrival[0]), int(stream.arrival[-1])
    width = max(end - start, 1) / BINS
    column = np.minimum((stream.arrival - start) // width, BINS - 1).astype(np.int64)
    cell = stream.source * BINS + column
    size = len(result.recording.names) * BINS
    in_time = ~result.is_late
    count = np.bincount(cell[in_time], minlength=size).reshape(-1, BINS)
    total = np.bincount(cell[in_time], result.wait[in_time], minlength=size).reshape(-1, BINS)
    with np.errstate(invalid="ignore"):
        mean = words.waits.factor * np.where(count > 0, total / np.maximum(count, 1), np.nan)
    order = list(labels)[::-1]
    figure = go.Figure()
    shown = mean[order]
    top = float(np.nanquantile(shown, 0.99)) if np.isfinite(shown).any() else 0.0
    figure.add_heatmap(
        x=[words.since_start(start + (i + 0.5) * width) for i in range(BINS)],
        y=list(range(len(order))),
        z=shown,
        zmin=0,
        zmax=top or 1,
        colorscale=[[0, "#e3f0f9"], [0.35, "#7fb8de"], [0.7, "#0072b2"], [1, "#00304d"]],
        colorbar={"title": {"text": f"mean wait<br>({words.waits.name})", "font": {"size": 13}}, "thickness": 14},
        hovertemplate="at %{x:.4g} " + words.times.name + ": %{z:.4g} " + words.waits.name + "<extra></extra>",
        ygap=2,
    )
    place = {number: i for i, number in enumerate(order)}
    spans = [
        ((words.since_start(since), words.since_start(max(until, since + width / 3))), (i + 0.28, i + 0.46))
        for number, i in place.items()
        for since, until in asleep(result, number, start, end, width)
    ]
    if spans:
        xs, ys = boxes(spans)
        figure.add_scatter(
            x=xs, y=ys, fill="toself", mode="none", fillcolor=ASLEEP.replace("0.28", "0.95"), hoverinfo="skip",
            name="disabled: nobody waits for this stream",
        )  # fmt: skip
    _late(figure, result, words, place, column, start, width)
    if not window.whole:
        left, right = (words.since_start(int(stream.arrival[i])) for i in (window.first, window.last - 1))
        figure.add_vrect(
            x0=left, x1=right, line={"color": "#1f2933", "width": 1.2, "dash": "dot"}, fillcolor="rgba(0,0,0,0)"
        )
        figure.add_annotation(
            x=(left + right) / 2, y=1, yref="paper", yanchor="bottom", showarrow=False,
            text="shown above", font={"size": 12, "color": FAINT},
        )  # fmt: skip
    figure.update_yaxes(
        tickvals=list(range(len(order))), ticktext=[labels[number] for number in order], automargin=True,
        showgrid=False, range=[-0.6, len(order) - 0.4],
    )  # fmt: skip
    figure.update_xaxes(title=f"time since the first arrival ({words.times.name})", showgrid=False)
    legend = bool(spans) or bool(len(result.late))
    below = BELOW if legend else 60
    height = 30 + below + (44 if len(order) <= 14 else 26) * len(order)
    figure.update_layout(
        margin={"l": 40, "r": 20, "t": 30, "b": below},
        legend=legend_below(height - 30),
        showlegend=legend,
    )
    return figure, height


def _late(
    figure: go.Figure, result: SyncResult, words: SyncWords, place: dict[int, int], column: np.ndarray, start: int,
    width: float,
) -> None:  # fmt: skip
    """One mark per stream and bin, however many events are late there."""
    source = result.recording.stream.source
    cells: dict[tuple[int, int], int] = {}
    for row in result.late.tolist():
        number = int(source[row])
        if number in place:
            cell = (number, int(column[row]))
            cells[cell] = cells.get(cell, 0) + 1
    if cells:
        figure.add_scatter(
            x=[words.since_start(start + (i + 0.5) * width) for _, i in cells],
            y=[place[number] - 0.3 for number, _ in cells],
            mode="markers",
            marker={"color": LATE, "symbol": "x", "size": 7},
            text=[f"{count:,} late" for count in cells.values()],
            hovertemplate="%{text}<extra></extra>",
            name="late events: set aside",
        )


def held_up_figure(result: SyncResult, words: SyncWords) -> tuple[go.Figure, int]:
    """How long the others waited for each stream, all waits added up. And the plot's height."""
    shown = [stream for stream in result.streams if stream.held_up.all_time > 0][:BARS][::-1]
    figure = go.Figure()
    of_kind = {DELIVERED: "until it delivered", TIMED_OUT: "until the time-out", AT_END: "until the recording ended"}
    for how, (color, _) in KINDS.items():
        times = [stream.held_up.times[how] for stream in shown]
        if any(times):
            figure.add_bar(
                y=[label(stream.name) for stream in shown],
                x=[words.sums.value(time) for time in times],
                orientation="h",
                marker={"color": color},
                name=of_kind[how],
                customdata=[f"{stream.held_up.events[how]:,}" for stream in shown],
                hovertemplate="%{y}: %{customdata} events, %{x:,.4g} " + words.sums.name + "<extra></extra>",
            )
    figure.update_xaxes(title=f"waiting for it, all events together ({words.sums.name})", rangemode="tozero")
    figure.update_yaxes(automargin=True, type="category", showgrid=False)
    figure.update_layout(
        barmode="stack",
        bargap=0.35,
        showlegend=True,
        margin={"l": 40, "r": 20, "t": 40, "b": 56},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "font": {"size": 13}, "traceorder": "normal"},
    )
    return figure, 120 + 30 * max(len(shown), 2)
