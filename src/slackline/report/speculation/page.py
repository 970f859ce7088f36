"""The page on speculation: earlier answers, what was taken back, and the price. Each part only if there is data."""

from __future__ import annotations

from slackline.report.page import facts, figure_card, heading, html_page, paragraph
from slackline.report.scale import number_text
from slackline.report.speculation import cost, course
from slackline.report.speculation.looks import busy_text, looks
from slackline.report.speculation.model import ADAPTIVE, PLAIN, Run, SpeculationReport


def speculation_page(report: SpeculationReport) -> str:
    """The whole page, one file that fetches nothing."""
    body = [heading(report.title, 1)]
    if report.text:
        body.append(paragraph(report.text, "sub"))
    for part in (_facts, _conclusion, _course, _told, _cost, _touched, _table):
        body += part(report)
    body += [paragraph(f"Note: {note}", "note") for note in report.notes]
    return html_page(report.title, body)


def _pairs(report: SpeculationReport) -> list[tuple[Run, Run]]:
    """Plain buffering and adaptive speculation under the same policy, where both have a mean."""
    pairs = ((report.run(policy, PLAIN), report.run(policy, ADAPTIVE)) for policy in report.policies)
    return [(a, b) for a, b in pairs if a and b and a.mean_ms is not None and b.mean_ms is not None]


def _facts(report: SpeculationReport) -> list[str]:
    items = []
    for plain, adaptive in _pairs(report):
        items += [
            (f"{number_text(plain.mean_ms or 0)} ms", f"mean wait, {plain.policy}, plain buffering"),
            (f"{number_text(adaptive.mean_ms or 0)} ms", f"mean wait, {adaptive.policy}, adaptive α"),
        ]
    return [facts(items)] if items else []


def _conclusion(report: SpeculationReport) -> list[str]:
    """The most important sentences of the page: how much earlier, at which load, and is it right."""
    parts = []
    for plain, adaptive in _pairs(report):
        busy = f", at a busy factor of {busy_text(adaptive.busy)}" if adaptive.busy is not None else ""
        parts.append(
            f"Under policy {plain.policy}, {report.many} are known {number_text(plain.mean_ms or 0)} ms after "
            f"they happened; with adaptive speculation after {number_text(adaptive.mean_ms or 0)} ms, "
            f"{_change(plain.mean_ms or 0, adaptive.mean_ms or 0)}{busy}."
        )
    if report.same_answer is not None:
        parts.append(
            "Whoever applies all that was told and taken back holds, in the end, exactly the answer of plain buffering."
            if report.same_answer
            else "But not every run came to the answer of plain buffering: something is wrong."
        )
    return [paragraph(" ".join(parts), "verdict")] if parts else []


def _change(before: float, after: float) -> str:
    """
    >>> _change(400, 100), _change(100, 110), _change(0, 0)
    ('75 % sooner', '10 % later', 'no sooner')
    """
    share = round(100 * (1 - after / before)) if before else 0
    return f"{share} % sooner" if share > 0 else f"{-share} % later" if share < 0 else "no sooner"


def _course(report: SpeculationReport) -> list[str]:
    shown = course.panels(report)
    if not shown:
        return []
    texts = []
    if "wait" in shown:
        others = sorted({told.type for run in report.runs for told in run.told} - {report.kind})
        small = f", small ones {' and '.join(report.called(kind) for kind in others)}" if others else ""
        texts.append(
            "Top: how long after the fact each event was told, for good; the lower, the earlier. Large marks are "
            f"{report.many}{small}; a line leads from plain buffering down to adaptive α."
        )
    if "alpha" in shown:
        texts.append(
            "α is the part of the usual wait that is still waited: 1 is plain buffering, 0 does not wait. Adaptive α "
            "is halved while the CPU has time to spare and goes back to 1 on overload; the shaded band reaches up to "
            "the detector that speculates least."
        )
    if "busy" in shown:
        texts.append(
            "The busy factor is the share of time spent working. Adaptive α aims at the green zone; above 1 the "
            "process cannot keep up with the stream."
        )
    hidden = any(not look.shown for look in looks(report).values())
    click = " Click on a name to show or hide a run." if hidden else ""
    return [
        heading("Waiting, running ahead, and the load"),
        *(paragraph(text) for text in texts[:-1]),
        paragraph(texts[-1] + click),
        figure_card(course.course_figure(report), course.height_of(report)),
    ]


def _told(report: SpeculationReport) -> list[str]:
    rows = course.told_runs(report)
    if not rows:
        return []
    return [
        heading("What was told, and taken back"),
        paragraph(
            "Events per second of stream time. Above the axis what was told, below it what turned out wrong and was "
            "taken back; the line is what became certain. Where bars rise above the line, guesses were corrected."
        ),
        figure_card(course.told_figure(report), 120 + 120 * len(rows)),
    ]


def _cost(report: SpeculationReport) -> list[str]:
    shown = cost.costs(report)
    if not shown:
        return []
    busy = " The green band is the target zone." if "busy" in shown else ""
    again = (
        " Rows processed again are the same on every machine, except under adaptive α, which follows the load."
        if "replayed" in shown
        else ""
    )
    return [
        heading("What earlier answers cost"),
        paragraph(
            f"One point per run: the lower, the earlier are {report.many} known; the further right, the more "
            f"work. The number at a point is its α, and lines join the fixed ones from plain buffering (1) on."
            f"{busy}{again}"
        ),
        figure_card(cost.cost_figure(report), 420),
    ]


def _touched(report: SpeculationReport) -> list[str]:
    groups = report.retractions()
    if not groups:
        return []
    parts = [
        heading("Two ways to take back"),
        paragraph(
            "When something earlier turns up, full retraction takes back all that was said after it, and everything "
            "above starts anew. On demand does the work again first, and mentions only what really changed."
        ),
    ]
    for group in groups:
        parts += [
            paragraph(cost.touched_text(group, report.touched_by)),
            figure_card(cost.touched_figure(group), 84 + 44 * len(group)),
        ]
    return parts


def _table(report: SpeculationReport) -> list[str]:
    if not report.runs:
        return []
    behind = any(run.behind > 0 for run in report.runs)
    lag = (
        " Behind: how far the process lagged behind the stream at most (s); waits do not contain it." if behind else ""
    )
    return [
        heading("All runs"),
        cost.run_table(report),
        paragraph(
            f"Mean and p95: stream time from when one of the {report.many} happened to when it was first told "
            f"for good (ms). Back: taken back. Rows again: rows that detectors processed once more. Memory: the most "
            f"that snapshots took (kB). "
            f"Busy: processing time by stream time.{lag}",
            "note",
        ),
    ]
