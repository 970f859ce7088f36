"""Compared with the truth: the ordered stream, and the stream in arrival order.

On the timeline: what was found, dot by dot, in the rings of what is true; and which player had the ball.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from slackline.report import ACCENT, FAINT, LEGEND, share_text, table_card
from slackline_soccer.model.match import Match
from slackline_soccer.report.looks import NEUTRAL, TRUTH, clock, counted, judged_words, seconds, team_color, words
from slackline_soccer.report.model import (
    Mark,
    MatchReport,
    PossessionShare,
    PossessionSpan,
    Sameness,
    Timeline,
    Verdict,
    mistakes,
)


def accuracy_table(verdicts: Sequence[Verdict]) -> str:
    compared = any(v.unordered is not None for v in verdicts)
    header = ["event", "true", "found", "right", "preci\u00adsion", "recall", "F1"]
    rows = []
    for v in verdicts:
        score = v.ordered
        row = [judged_words(v.type), f"{score.true:,}", f"{score.found:,}", f"{score.matched:,}"]
        row += [
            f"{figure:.3f}" if of else "-"
            for figure, of in (
                (score.precision, score.found),
                (score.recall, score.true),
                (score.f1, score.found + score.true),
            )
        ]
        if compared:
            row += [f"{mistakes(score):,}", f"{mistakes(v.unordered):,}" if v.unordered else "-"]
        rows.append(row)
    return table_card(header + (["mis\u00adtakes", "mistakes in arrival order"] if compared else []), rows)


def comparable(sameness: Sequence[Sameness]) -> list[Sameness]:
    """The types that are known in all three streams."""
    return [s for s in sameness if s.unordered_agreement is not None]


def sameness_figure(sameness: Sequence[Sameness]) -> go.Figure:
    """Per event type the agreement with the ordered stream, in arrival order and with Slackline, joined by a line."""
    shown = sorted(comparable(sameness), key=lambda s: (-s.level, s.type))
    names = [f"{words(s.type)}  <b>{s.level}</b>" for s in shown]
    figure = go.Figure()
    for s, name in zip(shown, names, strict=True):
        figure.add_scatter(
            x=[100 * (s.unordered_agreement or 0.0), 100 * s.agreement], y=[name, name], mode="lines",
            line={"color": "#cfd6dd", "width": 4}, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    looks = (
        ("arrival order", "unordered_", NEUTRAL, 17),
        ("Slackline", "", ACCENT, 12),
    )
    for look, prefix, color, size in looks:
        figure.add_scatter(
            x=[100 * getattr(s, f"{prefix}agreement") for s in shown], y=names, mode="markers", name=look,
            marker={"color": color, "size": size}, cliponaxis=False,
            customdata=[[s.ordered, getattr(s, f"{prefix}found"), getattr(s, f"{prefix}same")] for s in shown],
            hovertemplate="%{customdata[0]:,} in the ordered stream, %{customdata[1]:,} found,<br>"
            "%{customdata[2]:,} the same<extra>" + look + "</extra>",
        )  # fmt: skip
    figure.update_xaxes(range=[0, 100], ticksuffix=" %", title="equal to the ordered stream", dtick=25)
    figure.update_xaxes(fixedrange=True)
    figure.update_yaxes(fixedrange=True, range=[-0.6, len(shown) - 0.4])
    figure.update_layout(margin={"l": 158, "r": 24, "t": 44, "b": 56}, legend=LEGEND)
    return figure


def possession_figure(report: MatchReport) -> go.Figure:
    """One bar per way of knowing, split between the teams."""
    rows = [
        (label, shares)
        for label, shares in (
            ("in arrival order", [s.unordered for s in report.possession]),
            ("found", [s.found for s in report.possession]),
            ("true", [s.true for s in report.possession]),
        )
        if all(share is not None for share in shares)
    ]
    figure = go.Figure()
    for number, team in enumerate(share.team for share in report.possession):
        values = [100 * (shares[number] or 0.0) for _, shares in rows]
        figure.add_bar(
            x=values, y=[label for label, _ in rows], orientation="h", name=escape(team), width=0.62,
            marker={"color": team_color(report.match, team)}, text=[f"{value:.1f} %" for value in values],
            textposition="inside", insidetextanchor="middle", textfont={"color": "#fff"},
            hovertemplate="%{x:.1f} %<extra>" + escape(team) + "</extra>",
        )  # fmt: skip
    figure.add_vline(x=50, line={"color": "#fff", "width": 1.5, "dash": "dot"})
    figure.update_xaxes(visible=False, fixedrange=True, range=[0, 100])
    figure.update_yaxes(fixedrange=True, ticks="", showgrid=False)
    figure.update_layout(
        barmode="stack",
        margin={"l": 132, "r": 40, "t": 44, "b": 12},
        legend={**LEGEND, "traceorder": "normal"},
    )
    return figure


def possession_rows(possession: Sequence[PossessionShare]) -> int:
    return 1 + any(s.true is not None for s in possession) + any(s.unordered is not None for s in possession)


def conclusion(report: MatchReport) -> str:
    """The conclusion of the page: are the events right, were positions late, and what happens without ordering."""
    parts = []
    if report.sameness:
        parts.append(_same(report.sameness))
    if report.late is not None:
        share = f" ({share_text(report.late / report.positions)})" if report.positions else ""
        parts.append(
            f"{counted(report.late, 'position was late', 'positions were late')}{share}."
            if report.late
            else "No position was late."
        )
    if report.verdicts and not report.approaches:  # whose sentences say the same
        true, right = (sum(getattr(v.ordered, name) for v in report.verdicts) for name in ("true", "matched"))
        invented = sum(v.ordered.found - v.ordered.matched for v in report.verdicts)
        parts.append(
            f"Of the {true:,} events that truly happened, {right:,} were found, and {invented or 'none'} invented."
        )
    return " ".join(parts)


def _same(sameness: Sequence[Sameness]) -> str:
    ordered, found, same = (sum(getattr(s, name) for s in sameness) for name in ("ordered", "found", "same"))
    if ordered == found == same:
        text = f"All {found:,} events that Slackline published equal those of the ordered stream, field by field."
    else:
        text = (
            f"{same:,} of the {found:,} events that Slackline published equal those of the ordered stream ({ordered:,} "
            f"events), field by field."
        )
    known = [s for s in sameness if s.unordered_same is not None]
    if known:
        text += f" In arrival order {sum(s.unordered_same or 0 for s in known):,} do."
    return text


#: The rows from top to bottom; types that are not here are not on the timeline.
ROWS = ("goal", "blocked_shot", "shot", "offside", "double_pass", "pass", "hit", "ball_left")
#: From here on minutes are easier to read than seconds.
_LONG = 180.0
_SHIFT = 0.17


def rows_of(timeline: Timeline) -> list[str]:
    """The types that something happened in."""
    types = {mark.type for mark in (*timeline.found, *timeline.true)}
    return [kind for kind in ROWS if kind in types]


def height_of(timeline: Timeline) -> int:
    bands = bool(timeline.possession) + bool(timeline.true_possession)
    return 130 + 52 * (len(rows_of(timeline)) + bands)


def timeline_figure(report: MatchReport) -> go.Figure:
    timeline, match = report.timeline or Timeline(), report.match
    kinds = rows_of(timeline)
    figure = go.Figure()
    axis = _Axis(match, timeline)
    bands = [
        (name, spans)
        for name, spans in (("possession, true", timeline.true_possession), ("possession, found", timeline.possession))
        if spans
    ]
    for row, (_, spans) in enumerate(bands):
        _add_band(figure, axis, row, spans)
    rows = {kind: len(bands) + number for number, kind in enumerate(reversed(kinds))}
    for team in (*match.teams, None):
        _add_truth(figure, axis, rows, team, [m for m in timeline.true if m.type in rows and m.team == team])
        _add_found(figure, axis, rows, team, [m for m in timeline.found if m.type in rows and m.team == team])
    _add_counts(figure, timeline, rows)
    labels = [name for name, _ in bands] + [judged_words(kind) for kind in reversed(kinds)]
    figure.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=labels, range=[-0.6, len(labels) - 0.4], fixedrange=True,
        showgrid=True, ticks="", tickfont={"size": 13},
    )  # fmt: skip
    figure.update_xaxes(title=f"match time ({axis.unit})", range=axis.range)
    figure.update_layout(
        margin={"l": 128, "r": 66, "t": 48, "b": 56}, barmode="overlay", bargap=0, hovermode="closest",
        legend=LEGEND,
    )  # fmt: skip
    return figure


class _Axis:
    """Match time in seconds, or in minutes if it is long."""

    def __init__(self, match: Match, timeline: Timeline) -> None:
        self.match = match
        times = [mark.ts for mark in (*timeline.found, *timeline.true)]
        times += [t for span in (*timeline.possession, *timeline.true_possession) for t in (span.start, span.stop)]
        low, high = seconds(match, min(times)), seconds(match, max(times))
        self.unit, self._factor = ("min", 1 / 60) if high - low > _LONG else ("s", 1.0)
        room = 0.01 * (high - low)
        self.range = [self._factor * (min(low, 0.0) - room), self._factor * (high + room)]

    def at(self, ts: float) -> float:
        return self._factor * seconds(self.match, ts)

    def length(self, span: PossessionSpan) -> float:
        return self.at(span.stop) - self.at(span.start)


def _add_band(figure: go.Figure, axis: _Axis, row: int, spans: Sequence[PossessionSpan]) -> None:
    for team in (*axis.match.teams, None):
        ours = [span for span in spans if span.team == team]
        if not ours:
            continue
        figure.add_bar(
            base=[axis.at(span.start) for span in ours], x=[axis.length(span) for span in ours], y=[row] * len(ours),
            orientation="h", width=0.62, showlegend=False,
            marker={"color": team_color(axis.match, team) if team else "#e6eaee", "line": {"width": 0}},
            text=[_span_text(axis.match, span) for span in ours], textposition="none",
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip


def _span_text(match: Match, span: PossessionSpan) -> str:
    who = escape(span.player or span.team or "out of play")
    team = f", {escape(span.team)}" if span.player and span.team else ""
    return f"<b>{who}</b>{team}<br>{clock(match, span.start)} to {clock(match, span.stop)}"


def _level(axis: _Axis, rows: dict[str, int], mark: Mark) -> float:
    """A row has a lane for each team, so that marks do not cover each other."""
    teams = axis.match.teams
    lane = {teams[0]: _SHIFT, teams[1]: -_SHIFT}.get(mark.team or "", 0.0)
    return rows[mark.type] + lane


def _add_truth(figure: go.Figure, axis: _Axis, rows: dict[str, int], team: str | None, marks: Sequence[Mark]) -> None:
    if not marks:
        return
    first = team == axis.match.teams[0]
    figure.add_scatter(
        x=[axis.at(mark.ts) for mark in marks], y=[_level(axis, rows, mark) for mark in marks], mode="markers",
        name="true", legendgroup="true", showlegend=first,
        marker={"symbol": "circle-open", "size": 11, "color": TRUTH, "line": {"width": 1.1}, "opacity": 0.75},
        text=[_mark_text(axis.match, mark, "true") for mark in marks], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _add_found(figure: go.Figure, axis: _Axis, rows: dict[str, int], team: str | None, marks: Sequence[Mark]) -> None:
    if not marks:
        return
    figure.add_scatter(
        x=[axis.at(mark.ts) for mark in marks], y=[_level(axis, rows, mark) for mark in marks], mode="markers",
        name=f"found: {escape(team)}" if team else "found", showlegend=bool(team),
        marker={"size": 7, "color": team_color(axis.match, team) if team else NEUTRAL},
        text=[_mark_text(axis.match, mark, "found") for mark in marks], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _mark_text(match: Match, mark: Mark, how: str) -> str:
    who = ", ".join(escape(name) for name in (mark.player, mark.team) if name)
    return f"<b>{words(mark.type)}</b>, {how}<br>{clock(match, mark.ts)}{f'<br>{who}' if who else ''}"


def _add_counts(figure: go.Figure, timeline: Timeline, rows: dict[str, int]) -> None:
    """How many at the end of each row: found, and true if that is known."""
    found, true = (Counter(mark.type for mark in marks) for marks in (timeline.found, timeline.true))
    for kind, row in rows.items():
        text = f"{found[kind]:,} of {true[kind]:,}" if timeline.true else f"{found[kind]:,}"
        figure.add_annotation(
            x=1.005, xref="paper", xanchor="left", y=row, showarrow=False, text=text,
            font={"size": 13, "color": FAINT},
        )  # fmt: skip
