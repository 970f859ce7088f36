"""The page of a synchronised recording.

*Lanes*: a part of the recording, event by event. A lane per stream has three lines: occurrence, arrival and release. A
segment leads from the upper line to the middle and on to the lower; events that waited for the same stream are released
together, so their lower ends are aligned. *Overview*: mean waits of the whole recording over time, by stream.
*Blocking*: for which stream the others waited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from slackline.core.batch import Ints
from slackline.report.page import ACCENT, FAINT, facts, figure_card, heading, html_page, paragraph, table_card
from slackline.report.summaries import SyncSummary, share_text
from slackline.study import SyncResult
from slackline.study.sync import AT_END, DELIVERED, TIMED_OUT

#: The most streams with a lane; the slowest first.
LANES = 40

LATE = "#c1121f"
TRANSIT = "#b4bdc7"
DISABLED = "rgba(107,119,133,0.28)"
KINDS = {
    DELIVERED: ("#0072b2", "waited until the last stream delivered"),
    TIMED_OUT: (ACCENT, "waited until the timeout"),
    AT_END: ("#b45fa0", "waited until the recording ended"),
}

_LABEL = 26

#: Pixels below a plot, for the axis and the legend.
BELOW = 120

Span = tuple[float, float]


def label(name: str) -> str:
    """A stream's name in a plot: not too long, and no markup."""
    return escape(name if len(name) <= _LABEL else f"{name[: _LABEL - 10]}…{name[-9:]}")


def legend_below(height: float) -> dict[str, Any]:
    """A legend under the title of the axis, where ``height`` is that of the plot and what is below it."""
    return {"orientation": "h", "y": -64 / (height - BELOW), "yanchor": "top", "x": 0, "font": {"size": 13}}


def lane_labels(result: SyncResult) -> dict[int, str]:
    """The streams that have a lane, by number, the slowest first."""
    number = {name: i for i, name in enumerate(result.recording.names)}
    return {
        number[stream.name]: label(stream.name) + (" (dead)" if stream.dead else "")
        for stream in result.streams[:LANES]
    }


def disabled_spans(result: SyncResult, number: int, start: int, end: int, finest: float) -> list[Span]:
    """When a stream was disabled, between two times. Spans closer than ``finest`` are drawn as one."""
    spans: list[Span] = []
    for each in result.disabled:
        since, until = max(each.since, start), min(end if each.until is None else each.until, end)
        if each.stream != number or since > until:
            continue
        if spans and since - spans[-1][1] <= finest:
            spans[-1] = (spans[-1][0], max(until, spans[-1][1]))
        else:
            spans.append((since, until))
    return spans


def boxes(spans: Iterable[tuple[Span, Span]]) -> tuple[list[float | None], list[float | None]]:
    """Rectangles, each given by its extent in x and in y, as one filled line."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for (left, right), (low, high) in spans:
        xs += [left, right, right, left, left, None]
        ys += [low, low, high, high, low, None]
    return xs, ys


#: Height of the rails above the middle of a lane.
HAPPENED, ARRIVED, WENT_OUT = 0.36, 0.0, -0.36
#: Events per lane, and the fewest and most in all.
PER_LANE, FEWEST, MOST = 40, 120, 800


@dataclass(frozen=True, slots=True)
class Window:
    """Events from ``first`` to before ``last``, in the order of arrival."""

    first: int
    last: int
    whole: bool


def best_window(result: SyncResult) -> Window:
    """The part with the longest waits, most late events, and streams disabled or enabled."""
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


def lanes_figure(result: SyncResult, summary: SyncSummary, window: Window) -> tuple[go.Figure, int]:
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
        ((summary.since_start(since), summary.since_start(until)), (lane[number] - 0.45, lane[number] + 0.45))
        for number in labels
        for since, until in disabled_spans(result, number, int(start - room), int(end + room), room / 20)
    ]
    if spans:
        xs, ys = boxes(spans)
        figure.add_scatter(
            x=xs, y=ys, fill="toself", mode="none", fillcolor=DISABLED, hoverinfo="skip", name="disabled"
        )
    y = lane[stream.source[rows]].astype(float)
    happened, arrived = _x(summary, stream.ts[rows]), _x(summary, stream.arrival[rows])
    late = result.is_late[rows]
    _lines(figure, happened[~late], arrived[~late], y[~late], HAPPENED, ARRIVED, TRANSIT, "in transit", 1)
    for how, (color, name) in KINDS.items():
        of_kind = ~late & (result.how[rows] == how)
        out = _x(summary, result.released_at[rows[of_kind]])
        _lines(figure, arrived[of_kind], out, y[of_kind], ARRIVED, WENT_OUT, color, name, 1.4)
    _lines(figure, happened[late], arrived[late], y[late], HAPPENED, ARRIVED, LATE, "", 1.4)
    _marks(figure, result, summary, rows[~late], arrived[~late], y[~late], False)
    _marks(figure, result, summary, rows[late], arrived[late], y[late], True)
    ordered = sorted(labels, key=lambda number: lane[number])
    figure.update_yaxes(
        tickvals=list(range(len(ordered))), ticktext=[labels[number] for number in ordered], showgrid=False,
        range=[-0.6, len(ordered) - 0.4], automargin=True,
    )  # fmt: skip
    for boundary in range(1, len(ordered)):
        figure.add_hline(y=boundary - 0.5, line={"color": "#dfe4e9", "width": 1})
    figure.update_xaxes(
        title=f"time since the first arrival ({summary.times.name})",
        range=[summary.since_start(start - room), summary.since_start(end + room)],
    )
    height = 10 + BELOW + (90 if len(ordered) <= 6 else 62 if len(ordered) <= 14 else 34) * len(ordered)
    figure.update_layout(margin={"l": 40, "r": 20, "t": 10, "b": BELOW}, legend=legend_below(height - 10))
    return figure, height


def _x(summary: SyncSummary, times: Ints) -> np.ndarray:
    return np.array([summary.since_start(time) for time in times.tolist()])


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
    figure: go.Figure, result: SyncResult, summary: SyncSummary, rows: Ints, x: np.ndarray, lane: np.ndarray, late: bool
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
        text=[_hover(result, summary, row) for row in rows.tolist()],
        hovertemplate="%{text}<extra></extra>",
        name="late" if late else "arrived",
    )


def _hover(result: SyncResult, summary: SyncSummary, row: int) -> str:
    stream = result.recording.stream
    awaited = summary.waited_for(row)
    return (
        f"<b>{label(result.recording.names[stream.source[row]])}</b>, ts {stream.ts[row]}<br>"
        f"arrived at {summary.moment(float(stream.arrival[row]))}<br>"
        + (
            "late: older than the last released event"
            if result.is_late[row]
            else f"waited {summary.waits.with_unit(float(result.wait[row]))}"
            + (f" for {escape(awaited)}" if awaited else "")
        )
    )


BINS = 160
#: So many streams have a bar.
BARS = 20


def overview_figure(result: SyncResult, summary: SyncSummary, window: Window) -> tuple[go.Figure, int]:
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
        mean = summary.waits.factor * np.where(count > 0, total / np.maximum(count, 1), np.nan)
    order = list(labels)[::-1]
    figure = go.Figure()
    shown = mean[order]
    top = float(np.nanquantile(shown, 0.99)) if np.isfinite(shown).any() else 0.0
    figure.add_heatmap(
        x=[summary.since_start(start + (i + 0.5) * width) for i in range(BINS)],
        y=list(range(len(order))),
        z=shown,
        zmin=0,
        zmax=top or 1,
        colorscale=[[0, "#e3f0f9"], [0.35, "#7fb8de"], [0.7, "#0072b2"], [1, "#00304d"]],
        colorbar={"title": {"text": f"mean wait<br>({summary.waits.name})", "font": {"size": 13}}, "thickness": 14},
        hovertemplate="at %{x:.4g} " + summary.times.name + ": %{z:.4g} " + summary.waits.name + "<extra></extra>",
        ygap=2,
    )
    place = {number: i for i, number in enumerate(order)}
    spans = [
        ((summary.since_start(since), summary.since_start(max(until, since + width / 3))), (i + 0.28, i + 0.46))
        for number, i in place.items()
        for since, until in disabled_spans(result, number, start, end, width)
    ]
    if spans:
        xs, ys = boxes(spans)
        figure.add_scatter(
            x=xs, y=ys, fill="toself", mode="none", fillcolor=DISABLED.replace("0.28", "0.95"), hoverinfo="skip",
            name="disabled: no event waits for this stream",
        )  # fmt: skip
    _late(figure, result, summary, place, column, start, width)
    if not window.whole:
        left, right = (summary.since_start(int(stream.arrival[i])) for i in (window.first, window.last - 1))
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
    figure.update_xaxes(title=f"time since the first arrival ({summary.times.name})", showgrid=False)
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
    figure: go.Figure, result: SyncResult, summary: SyncSummary, place: dict[int, int], column: np.ndarray, start: int,
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
            x=[summary.since_start(start + (i + 0.5) * width) for _, i in cells],
            y=[place[number] - 0.3 for number, _ in cells],
            mode="markers",
            marker={"color": LATE, "symbol": "x", "size": 7},
            text=[f"{count:,} late" for count in cells.values()],
            hovertemplate="%{text}<extra></extra>",
            name="late events",
        )


def blocked_figure(result: SyncResult, summary: SyncSummary) -> tuple[go.Figure, int]:
    """How long the others waited for each stream, all waits added up. And the height of the plot."""
    shown = [stream for stream in result.streams if stream.blocked.all_time > 0][:BARS][::-1]
    figure = go.Figure()
    of_kind = {DELIVERED: "until it delivered", TIMED_OUT: "until the timeout", AT_END: "until the recording ended"}
    for how, (color, _) in KINDS.items():
        times = [stream.blocked.times[how] for stream in shown]
        if any(times):
            figure.add_bar(
                y=[label(stream.name) for stream in shown],
                x=[summary.sums.value(time) for time in times],
                orientation="h",
                marker={"color": color},
                name=of_kind[how],
                customdata=[f"{stream.blocked.events[how]:,}" for stream in shown],
                hovertemplate="%{y}: %{customdata} events, %{x:,.4g} " + summary.sums.name + "<extra></extra>",
            )
    figure.update_xaxes(title=f"waiting for it, all events together ({summary.sums.name})", rangemode="tozero")
    figure.update_yaxes(automargin=True, type="category", showgrid=False)
    figure.update_layout(
        barmode="stack",
        bargap=0.35,
        showlegend=True,
        margin={"l": 40, "r": 20, "t": 40, "b": 56},
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "font": {"size": 13}, "traceorder": "normal"},
    )
    return figure, 120 + 30 * max(len(shown), 2)


#: So many streams are in the table.
ROWS = 200


def sync_page(result: SyncResult, title: str = "recorded streams") -> str:
    """The whole page, one file that fetches nothing."""
    summary = SyncSummary(result)
    window = best_window(result)
    return html_page(
        f"Slackline sync: {title}",
        [
            heading(f"Many streams in one order: {title}", 1),
            paragraph(summary.headline(), "sub"),
            _facts(result, summary),
            paragraph(summary.slowest(), "verdict"),
            *[paragraph(sentence, "verdict") for sentence in summary.dead()],
            *_lanes(result, summary, window),
            *_overview(result, summary, window),
            *_blocked(result, summary),
            heading("All figures by stream"),
            *_table(result, summary),
            *[paragraph(f"Note: {note}", "note") for note in [*summary.notes(), *summary.warnings()]],
        ],
    )


def _facts(result: SyncResult, summary: SyncSummary) -> str:
    dead = sum(stream.dead for stream in result.streams)
    return facts(
        [
            (
                f"{share_text(result.out_of_order / len(result))} → {result.out_of_order_after:,}",
                "events out of order, on arrival and after",
            ),
            (f"{len(result.late):,}", "late events"),
            (summary.waits.with_unit(result.waits.mean), "mean wait"),
            (summary.waits.with_unit(result.waits.p99), "wait that 99 % stay below"),
            (f"{dead:,} of {len(result.streams):,}", "streams dead"),
        ]
    )


def _lanes(result: SyncResult, summary: SyncSummary, window: Window) -> list[str]:
    figure, height = lanes_figure(result, summary, window)
    extent = (
        "All events are shown."
        if window.whole
        else f"Shown are {window.last - window.first:,} of {len(result):,} events, with the longest waits, late "
        f"events, and streams that are disabled or enabled."
    )
    occurred = "occurred" if result.recording.recorded_arrival else "occurred (here also its arrival)"
    return [
        heading("Every event waits until all streams have reached its time"),
        paragraph(
            f"One lane per stream{_worst(result, LANES)}. Each line is an event: it begins at the top of its lane when "
            f"it {occurred}, passes the dot in the middle when it arrived, and ends at the bottom when it was "
            f"released, in order. A long slope below the dot is a long wait. {extent}"
        ),
        figure_card(figure, height),
    ]


def _overview(result: SyncResult, summary: SyncSummary, window: Window) -> list[str]:
    figure, height = overview_figure(result, summary, window)
    return [
        heading("How long events waited, over the whole recording"),
        paragraph(
            f"The darker, the longer events of this stream waited that arrived then; white is silence"
            f"{_worst(result, LANES)}. A stream that is pale while the others are dark is the one they wait for."
        ),
        figure_card(figure, height),
    ]


def _blocked(result: SyncResult, summary: SyncSummary) -> list[str]:
    if not result.streams[0].blocked.all_time:
        return []
    figure, height = blocked_figure(result, summary)
    return [
        heading("Which streams blocked the others"),
        paragraph(
            f"The time that events of other streams waited for this one, added up{_worst(result, BARS)}. What "
            f"waited for several streams counts for each."
        ),
        figure_card(figure, height),
    ]


def _worst(result: SyncResult, shown: int) -> str:
    there = len(result.streams)
    return f" (the {shown} of {there:,} that blocked longest)" if there > shown else ""


def _table(result: SyncResult, summary: SyncSummary) -> list[str]:
    shown = result.streams[:ROWS]
    waits, sums = summary.waits, summary.sums
    rows = [
        [
            stream.name,
            *[f"{count:,}" for count in (stream.events, stream.late, stream.backwards)],
            waits.text(stream.wait.mean),
            waits.text(stream.wait.max),
            f"{stream.failures:,}",
            f"{stream.blocked.all_events:,}",
            sums.text(stream.blocked.all_time),
            summary.state(stream),
        ]
        for stream in shown
    ]
    header = [
        "stream",
        "events",
        "late",
        "out of order",
        f"wait ({waits.name})",
        f"longest ({waits.name})",
        "failures",
        "blocked",
        f"for ({sums.name})",
        "state",
    ]
    marks = {i: "mark" for i, stream in enumerate(shown) if stream.dead}
    note = (
        "Out of order: arrived after a newer event of the same stream. Wait: the mean, and the longest. Failures: "
        "events that timed out waiting for this stream. Blocked: events of others that waited for this stream, "
        "and the sum of their waits."
    )
    if len(result.streams) > ROWS:
        note += f" The {ROWS} streams that blocked longest, of {len(result.streams):,}; --json has all."
    return [table_card(header, rows, numeric_from=1, marks=marks), paragraph(note, "note")]
