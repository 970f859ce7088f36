"""Colours, labels and spans of time that the plots of a synchronised recording share."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from slackline.report.page import ACCENT
from slackline.study import SyncResult
from slackline.study.sync_result import AT_END, DELIVERED, TIMED_OUT

#: So many streams have a lane of their own; the worst first.
LANES = 40

LATE = "#c1121f"
TRANSIT = "#b4bdc7"
ASLEEP = "rgba(107,119,133,0.28)"
KINDS = {
    DELIVERED: ("#0072b2", "waited until the last stream delivered"),
    TIMED_OUT: (ACCENT, "waited until the time-out"),
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
    """The streams that have a lane, by number, the worst first."""
    number = {name: i for i, name in enumerate(result.recording.names)}
    return {
        number[stream.name]: label(stream.name) + (" (dead)" if stream.dead else "")
        for stream in result.streams[:LANES]
    }


def asleep(result: SyncResult, number: int, start: int, end: int, finest: float) -> list[Span]:
    """When nobody waited for a stream, between two times. Spans closer than ``finest`` are drawn as one."""
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
