"""Each α looks the same in every figure: grey waits, blue is fixed (the darker, the bolder), orange adapts."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from slackline.report.page import ACCENT
from slackline.report.speculation.model import ADAPTIVE, PLAIN, Run, SpeculationReport

WAITS = "#8a949e"
#: Light to dark, so that they can be told apart in grey, too.
_FIXED = ("#7fb8dd", "#4f98cc", "#2a78b8", "#174f87", "#0b2a52")
_SYMBOLS = ("square", "diamond", "triangle-down", "cross", "x", "pentagon")


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and marker of a setting, and whether it is shown before one asks for it."""

    color: str
    symbol: str
    shown: bool = True


def looks(report: SpeculationReport) -> dict[float | str, Look]:
    """Per setting of α. Of the fixed ones only the boldest that still waits is shown at first: more would be a mess."""
    settings = {run.alpha for run in report.runs}
    fixed = sorted((alpha for alpha in settings if not isinstance(alpha, str) and alpha != PLAIN), reverse=True)
    example = min((alpha for alpha in fixed if alpha > 0), default=fixed[0] if fixed else None)
    found: dict[float | str, Look] = {PLAIN: Look(WAITS, "circle-open"), ADAPTIVE: Look(ACCENT, "circle")}
    for number, alpha in enumerate(fixed):
        shade = _FIXED[number * (len(_FIXED) - 1) // max(len(fixed) - 1, 1)]
        found[alpha] = Look(shade, _SYMBOLS[number % len(_SYMBOLS)], alpha == example)
    return found


def busy_text(busy: float | None) -> str:
    return "-" if busy is None else f"{busy:.2f}"


def hover_name(run: Run) -> str:
    return escape(f"{run.label}, {run.policy}")
