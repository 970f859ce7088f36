"""The page of a match, from the play to the waiting: each part only if there is something to show."""

from __future__ import annotations

import plotly.graph_objects as go

from slackline.report import facts, figure_card, heading, html_page, paragraph
from slackline_soccer.report import accuracy, hierarchy, pitch, plausibility, waits
from slackline_soccer.report.looks import counted, listed
from slackline_soccer.report.model import MatchReport


def match_page(report: MatchReport) -> str:
    """The whole page, one file that fetches nothing."""
    body = [heading(report.title, 1)]
    if report.text:
        body.append(paragraph(report.text, "sub"))
    if report.facts:
        body.append(facts(report.facts))
    body += [paragraph(text, "verdict") for text in (waits.comparison(report), accuracy.conclusion(report)) if text]
    for part in (
        _approaches,
        _play,
        _heat,
        _timeline,
        _accuracy,
        _possession,
        _running,
        _hierarchy,
        _waits,
        _delays,
        _plausibility,
    ):
        body += part(report)
    body += [paragraph(f"Note: {note}", "note") for note in report.notes]
    body += [paragraph(line, "note") for line in report.attributions]
    return html_page(report.title, body)


def _card(figure: go.Figure, height: int | str) -> str:
    """Figures of this page can be read on a phone."""
    return figure_card(figure, height, min_width=320)


def _approaches(report: MatchReport) -> list[str]:
    if not report.approaches:
        return []
    parts = [
        heading("What ordering is for"),
        paragraph(
            "The same detectors on the same stream, in four ways: in arrival order; behind a fixed watermark, as in "
            "Flink and Spark, which is the largest event time minus a constant and drops later arrivals; with "
            "Slackline, which measures the delays; and clairvoyantly (the bound): each event is released when the "
            "last earlier position has arrived, which can be known only afterwards. A detected event is right if an "
            "event of the same type and players truly happened within a tenth of a second."
        ),
        waits.approach_table(report.approaches, report.positions),
        _card(waits.approach_figure(report.approaches), 400),
    ]
    if report.mistakes:
        parts += [
            heading("In arrival order, on the pitch", 3),
            paragraph(
                "Passes and shots that the detectors miss or invent without ordering: a late position shows a player "
                "where he no longer is, so that the wrong player, or none, was at the ball."
            ),
            _card(pitch.mistakes_figure(report), _pitch_height(report)),
        ]
    return parts


def _play(report: MatchReport) -> list[str]:
    if not (report.shots or report.passes):
        return []
    height = _pitch_height(report)
    lost = sum(not one.successful for one in report.passes)
    parts = [f"{counted(len(report.passes), 'pass', 'passes')} ({lost:,} lost)"] if report.passes else []
    parts += [counted(len(report.shots), "shot on goal", "shots on goal")] if report.shots else []
    how = (
        " An arrow is a pass that reached a fellow player, a dotted line one that did not." if report.passes else ""
    ) + (" The mark of a shot is where it was hit, and its shape shows how it ended." if report.shots else "")
    return [
        heading("The match"),
        paragraph(f"{' and '.join(parts)}, as the detectors found them.{how} Point at a mark for player and time."),
        _card(pitch.play_figure(report), height),
    ]


def _pitch_height(report: MatchReport, more: int = 100) -> str:
    """So that the field fills the width of a card, at most 1000 pixels; ``more`` is for what is around it."""
    field = report.match.field
    shape = (field.width + 6000) / (field.length + 6000)
    return f"calc({shape:.3f} * min(100vw, 1000px) + {more}px)"


def _heat(report: MatchReport) -> list[str]:
    if not pitch.has_heat(report):
        return []
    return [
        heading("Where they were", 3),
        paragraph(
            "The share of the time spent in each cell of the field: the darker, the longer. Choose a team or a player "
            "from the list."
        ),
        _card(pitch.heat_figure(report), _pitch_height(report, 40)),
    ]


def _timeline(report: MatchReport) -> list[str]:
    line = report.timeline
    if line is None or not (accuracy.rows_of(line) or line.possession or line.true_possession):
        return []
    rings = (
        " A ring is an event that truly happened, a dot one that was found: a dot in its ring is right, an empty ring "
        "was missed, a dot without a ring was invented."
        if line.true
        else ""
    )
    return [
        heading("What happened when"),
        paragraph(
            f"Every event over match time, with a lane for each team.{rings} Drag to look closer, "
            f"double-click to go back."
        ),
        _card(accuracy.timeline_figure(report), accuracy.height_of(line)),
    ]


def _accuracy(report: MatchReport) -> list[str]:
    shown = accuracy.comparable(report.sameness)
    if not (report.verdicts or shown):
        return []
    parts = [heading("Is it right?")]
    if report.verdicts:
        parts += [
            paragraph(
                "What the detectors found, against what truly happened: the same type, the same players, and no more "
                "than a tenth of a second apart."
            ),
            accuracy.accuracy_table(report.verdicts),
        ]
    if shown:
        parts += [
            heading("Agreement with the ordered stream", 3),
            paragraph(
                "The same detectors on three streams: the perfectly ordered one, the one ordered by Slackline, and the "
                "one in arrival order. Shown is how many events equal those of the perfectly ordered stream, field by "
                "field. The bold number is the level."
            ),
            _card(accuracy.sameness_figure(report.sameness), 110 + 32 * len(shown)),
        ]
    return parts


def _possession(report: MatchReport) -> list[str]:
    if not report.possession:
        return []
    rows = accuracy.possession_rows(report.possession)
    return [
        heading("Possession", 3),
        paragraph("Share of each team in the time in which either team had the ball."),
        _card(accuracy.possession_figure(report), 66 + 44 * rows),
    ]


def _running(report: MatchReport) -> list[str]:
    if not report.runners:
        return []
    return [
        heading("Running"),
        paragraph(
            "How each player spent the time, from standing to sprinting; to the right the distance and the top speed. "
            "From the transmitters on both legs, averaged over a second. Within a team, those who ran most come first."
        ),
        _card(pitch.running_figure(report), 120 + 24 * len(report.runners)),
    ]


def _hierarchy(report: MatchReport) -> list[str]:
    if not report.hierarchy:
        return []
    return [
        heading("From positions to goals"),
        paragraph(
            "Every box is a detector. It listens to the event types at the lower end of its lines and publishes its "
            "own; none of them contains code for ordering. Small figures count published events; grey lines are "
            "positions, blue ones events of other detectors."
        ),
        _card(hierarchy.hierarchy_figure(report.hierarchy), hierarchy.height_of(report.hierarchy)),
    ]


def _waits(report: MatchReport) -> list[str]:
    policies = [policy for policy in report.waits if policy.detectors or policy.events]
    if not policies:
        return []
    names = [policy.policy for policy in policies]
    parts = [
        heading("Latency"),
        paragraph(
            "A shot is derived from a hit, a hit from the players near the ball and from its turns, and these from "
            "positions. In front of each detector of this hierarchy, its input is buffered until it is in order. "
            + _lesson(names)
            + " Bars are means, whiskers reach to the largest."
        ),
        _card(waits.level_figure(policies), 640),
    ]
    if waits.event_rows(policies):
        parts += [
            heading("From occurrence to publication, per event type", 3),
            paragraph(
                "Stream time between the moment an event carries and the moment it is published. Some events are known "
                "only later (a shot, when the ball has gone a metre) and are back-dated to when they began (the mark); "
                "no ordering can avoid that. The bold number is the level."
            ),
            _card(waits.event_figure(policies), 120 + (12 + 13 * len(policies)) * waits.event_rows(policies)),
        ]
    if waits.with_series(policies):
        parts += [
            heading("K over time, per level", 3),
            paragraph(
                "K is the slack computed from recent delays; shown is the largest of each level. "
                + (
                    "Under auto it is only the timeout for transmitters that are behind, and detectors whose inputs "
                    "are all published by other detectors need none; under slack every event waits that long."
                    if set(names) >= {"auto", "slack"}
                    else ""
                )
            ),
            _card(waits.slack_figure(policies, report.match), 120 + 260 * len(waits.with_series(policies))),
        ]
    parts += [
        heading("Every detector", 3),
        waits.detector_table(policies),
        paragraph("K, mean and largest wait of an event in front of the detector, in ms of stream time.", "note"),
    ]
    return parts


def _lesson(policies: list[str]) -> str:
    if set(policies) >= {"auto", "slack"}:
        return (
            "Under slack, the classic policy, each level waits for its own K, and the waits add up. Under auto a "
            "level waits only until the level below has processed its input; only back-dated events add to the latency."
        )
    return f"The run used {listed(f'policy {name}' for name in policies)}."


def _delays(report: MatchReport) -> list[str]:
    if not report.delays:
        return []
    parts = [
        heading("Delays of the positions"),
        paragraph(
            "Arrival time minus event time of a position: the distribution, and the share of positions with a longer "
            f"delay. {waits.lesson(report.delays)}"
        ),
    ]
    if report.delays_from:
        parts.append(paragraph(report.delays_from))
    if waits.drawable(report.delays):
        parts.append(_card(waits.delay_figure(report.delays), 640))
    return [*parts, waits.delay_table(report.delays)]


def _plausibility(report: MatchReport) -> list[str]:
    shown = report.plausibility
    if shown is None or not (plausibility.drawable(shown) or shown.figures):
        return []
    parts = [
        heading("Is the simulated match like a real one?"),
        paragraph(
            "Simulated (filled) and recorded (line), as shares; what lies beyond the right edge is counted in the last "
            "bin."
        ),
    ]
    if plausibility.drawable(shown):
        parts.append(_card(plausibility.plausibility_figure(shown), plausibility.height_of(shown)))
    if shown.figures:
        parts.append(plausibility.plausibility_table(shown))
    return [*parts, *(paragraph(note, "note") for note in (*plausibility.notes(shown), shown.attribution) if note)]
