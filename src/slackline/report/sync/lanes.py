"""A stretch of the recording, event by event: when it happened, when it arrived, when it went out.

A lane per stream with three rails. A line leads from the upper rail (it happened) to the middle (it arrived) and on to
the lower (it went out). What was held up together goes out together, so the lower ends stand in line.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from slackline.core.batch import Ints
from slackline.report.sync.looks import (
    ASLEEP,
    BELOW,
    KINDS,
    LANES,
    LATE,
    TRANSIT,
    asleep,
    boxes,
    label,
    lane_labels,
    legend_below,
)
from slackline.report.sync.words import SyncWords
from slackline.study import SyncResult

#: Height of the rails above the middle of a lane.
HAPPENED, ARRIVED, WENT_OUT = 0.36, 0.0, -0.36
#: So many events per lane, but not fewer and not more than this in all.
PER_LANE, FEWEST, MOST = 40, 120, 800


@dataclass(frozen=True, slots=True)
class Window:
    """Events from ``first`` to before ``last``, in the order of arrival."""

    first: int
    last: int
    whole: bool


def best_window(result: SyncResult) -> Window:
    """The stretch with the most to see: long waits, late events, streams disabled or enabled."""
    total = len(result)
    size = min(MOST, max(FEWEST, PER_LANE * min(LANES, len(result.recording.names))))
    if total <= size:
        return Window(0, total, True)
    usual = float(np.quantile(result.wait, 0.99)) + 1
    score = np.minimum(result.wait, usual) / usual + 5.0 * result.is_late
    arrival = result.recording.stream.arrival
    for each in result.disabled[:10_000]:
        for time in (each.since, each.until):
            if time is not None:
                score[min(int(np.searchsorted(arrival, time)), total - 1)] += 10
    sums = np.concatenate([[0.0], np.cumsum(score)])
    first = int(np.argmax(sums[size:] - sums[:-size]))
    return Window(first, first + size, False)


def lanes_figure(result: SyncResult, words: SyncWords, window: Window) -> tuple[go.Figure, int]:
    """The plot and its height."""
    stream = result.recording.stream
    labels = lane_labels(result)
    lane = np.full(len(result.recording.names), -1, np.int64)
    lane[list(labels)] = np.arange(len(labels))[::-1]  # the worst is at the top
    rows = np.arange(window.first, window.last)
    rows = rows[lane[stream.source[rows]] >= 0]
    start, end = int(stream.arrival[window.first]), int(stream.arrival[window.last - 1])
    room = max(end - start, 1) * 0.03
    figure = go.Figure()
    spans = [
        ((words.since_start(since), words.since_start(until)), (lane[number] - 0.45, lane[number] + 0.45))
        for number in labels
        for since, until in asleep(result, number, int(start - room), int(end + room), room / 20)
    ]
    if spans:
        xs, ys = boxes(spans)
        figure.add_scatter(
            x=xs, y=ys, fill="toself", mode="none", fillcolor=ASLEEP, hoverinfo="skip", name="disabled: nobody waits"
        )
    y = lane[stream.source[rows]].astype(float)
    happened, arrived = _x(words, stream.ts[rows]), _x(words, stream.arrival[rows])
    late = result.is_late[rows]
    _lines(figure, happened[~late], arrived[~late], y[~late], HAPPENED, ARRIVED, TRANSIT, "on its way", 1)
    for how, (color, name) in KINDS.items():
        of_kind = ~late & (result.how[rows] == how)
        out = _x(words, result.released_at[rows[of_kind]])
        _lines(figure, arrived[of_kind], out, y[of_kind], ARRIVED, WENT_OUT, color, name, 1.4)
    _lines(figure, happened[late], arrived[late], y[late], HAPPENED, ARRIVED, LATE, "", 1.4)
    _marks(figure, result, words, rows[~late], arrived[~late], y[~late], False)
    _marks(figure, result, words, rows[late], arrived[late], y[late], True)
    ordered = sorted(labels, key=lambda number: lane[number])
    figure.update_yaxes(
        tickvals=list(range(len(ordered))), ticktext=[labels[number] for number in ordered], showgrid=False,
        range=[-0.6, len(ordered) - 0.4], automargin=True,
    )  # fmt: skip
    for boundary in range(1, len(ordered)):
        figure.add_hline(y=boundary - 0.5, line={"color": "#dfe4e9", "width": 1})
    figure.update_xaxes(
        title=f"time since the first arrival ({words.times.name})",
        range=[words.since_start(start - room), words.since_start(end + room)],
    )
    height = 10 + BELOW + (90 if len(ordered) <= 6 else 62 if len(ordered) <= 14 else 34) * len(ordered)
    figure.update_layout(margin={"l": 40, "r": 20, "t": 10, "b": BELOW}, legend=legend_below(height - 10))
    return figure, height


def _x(words: SyncWords, times: Ints) -> np.ndarray:
    return np.array([words.since_start(time) for time in times.tolist()])


def _lines(
    figure: go.Figure, left: np.ndarray, right: np.ndarray, lane: np.ndarray, above: float, below: float,
    color: str, name: str, width: float,
) -> None:  # fmt: skip
    if not len(left):
        return
    gap = np.full(len(left), np.nan)
    figure.add_scatter(
        x=np.column_stack([left, right, gap]).ravel(),
        y=np.column_stack([lane + above, lane + below, gap]).ravel(),
        mode="lines",
        line={"color": color, "width": width},
        hoverinfo="skip",
        name=name,
        showlegend=bool(name),
    )


def _marks(
    figure: go.Figure, result: SyncResult, words: SyncWords, rows: Ints, x: np.ndarray, lane: np.ndarray, late: bool
) -> None:
    """Where each event arrived, to point at."""
    if not len(rows):
        return
    size = 9 if late else 4
    figure.add_scatter(
        x=x,
        y=lane + ARRIVED,
        mode="markers",
        marker={"color": LATE if late else "#1f2933", "symbol": "x" if late else "circle", "size": size},
        text=[_hover(result, words, row) for row in rows.tolist()],
        hovertemplate="%{text}<extra></extra>",
        name="late: set aside" if late else "arrived",
    )


def _hover(result: SyncResult, words: SyncWords, row: int) -> str:
    stream = result.recording.stream
    whom = words.whom(row)
    return (
        f"<b>{label(result.recording.names[stream.source[row]])}</b>, ts {stream.ts[row]}<br>"
        f"arrived at {words.moment(float(stream.arrival[row]))}<br>"
        + (
            "late: older than what had gone out"
            if result.is_late[row]
            else f"waited {words.waits.with_unit(float(result.wait[row]))}" + (f" for {escape(whom)}" if whom else "")
        )
    )
