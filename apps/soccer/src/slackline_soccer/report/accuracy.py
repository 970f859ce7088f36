"""Compared with the truth: the ordered stream, and the stream in arrival order."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from slackline.report import ACCENT, LEGEND, share_text, table_card
from slackline_soccer.report.looks import NEUTRAL, counted, judged_words, team_color, words
from slackline_soccer.report.model import MatchReport, PossessionShare, Sameness, Verdict, mistakes


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
