"""What a study says in a few sentences; the command line prints it, so it needs no plots."""

from __future__ import annotations

from slackline.report.scale import number_text, params_text, share_text, time_text
from slackline.study import STEADY, PolicyResult, StudyResult

#: In the order in which they are preferred when they do equally well.
POLICIES = ("auto", "ready", "slack", "quantile", "max_slack", "fixed")
#: Policies whose names say too little.
WORDS = {"fixed": "fixed watermark", "max_slack": "maximal K-slack", "quantile": "sliding quantile"}
#: Mean waits that differ by no more are as good as equal.
LIKE = 1.1


def disorder(result: StudyResult) -> str:
    """How much of the stream is out of order, in a sentence."""
    if not result.late_share:
        return "All events arrive in order."
    return f"{share_text(result.late_share)} of the events arrive out of order."


def verdict(result: StudyResult) -> str:
    """What to choose: `auto` as it comes, or the cheapest watermark that loses no more events; and who beats both."""
    wait = result.default.waits.mean_wait
    if wait is None:
        return "Default auto delivers no event in time, so there is nothing to compare."
    rival = result.cheapest("fixed")
    if rival is None:
        return f"No fixed watermark loses as few events as auto, which {_figures(result.default, result)}."
    watermark = rival.waits.mean_wait or 0
    auto = f"slackline's auto {_figures(result.default, result)}"
    needs = f"for {_late(result.default.waits.late_share)} withWatermark needs {_bound(rival, result)}"
    on_average = f"waits {time_text(watermark, result.unit)} on average"
    winner = _winner(wait, watermark)
    if rival.params["bound"] == 0:
        text = f"Not waiting at all is best here: withWatermark of 0 has {_late(rival.waits.late_share)}; {auto}."
    elif winner == "auto":
        less = f", {number_text(watermark / wait)} times less" if wait else ""
        text = f"Take auto as it comes: {needs} and {on_average}; slackline waits {time_text(wait, result.unit)}{less}."
    elif winner == "fixed":
        watermark_has = f"withWatermark of {_bound(rival, result)} {_figures(rival, result)}"
        text = f"A fixed watermark is better here: {watermark_has}; {auto}."
    else:
        text = (
            f"A fixed watermark is as good here: {needs}, found with hindsight, and {on_average}; slackline finds out "
            f"by itself and waits {time_text(wait, result.unit)}."
        )
    return text + _once_learnt(result, winner) + _better_still(result, min(wait, watermark))


def _winner(auto: float, watermark: float) -> str:
    return "auto" if auto * LIKE < watermark else "fixed" if watermark * LIKE < auto else "none"


def _once_learnt(result: StudyResult, winner: str) -> str:
    """What the steady figures say if they say something else: a bad start is not all there is to a stream."""
    rival = result.cheapest("fixed", steady=True)
    late, wait = result.default.waits.steady_late_share, result.default.waits.steady_mean_wait
    if rival is None or late is None or wait is None:
        return ""
    watermark = rival.waits.steady_mean_wait or 0
    steady = _winner(wait, watermark)
    if steady == winner:
        return ""
    who = {"auto": "slackline waits less", "fixed": "a watermark waits less", "none": "both wait alike"}[steady]
    return (
        f" After the first {STEADY:,} arrivals {who}: with {_late(late)} slackline {time_text(wait, result.unit)}, "
        f"withWatermark of {_bound(rival, result)} {time_text(watermark, result.unit)}."
    )


def _better_still(result: StudyResult, wait: float) -> str:
    """A policy, or another target, that waits clearly less than both and loses no more."""
    able = [p for policy in POLICIES if (p := result.cheapest(policy)) is not None]
    best = min(able, key=lambda p: p.waits.mean_wait or 0)
    if (best.waits.mean_wait or 0) * LIKE >= wait:
        return ""
    return f" Least of all waits {_name(best, result.unit)}: it {_figures(best, result)}."


def _figures(p: PolicyResult, result: StudyResult) -> str:
    return f"has {_late(p.waits.late_share)} and waits {time_text(p.waits.mean_wait or 0, result.unit)} on average"


def _late(share: float) -> str:
    return f"{share_text(share)} late events" if share else "no late events"


def _bound(p: PolicyResult, result: StudyResult) -> str:
    return time_text(p.params["bound"], result.unit)


def _name(p: PolicyResult, unit: str) -> str:
    return f"{WORDS.get(p.policy, p.policy)} ({params_text(p, unit)})" if params_text(p, unit) else p.policy
