"""What a study says in a sentence; the command line prints it, so it needs no plots."""

from __future__ import annotations

from slackline.report.scale import Scale, number_text, params_text, share_text
from slackline.study import PolicyResult, StudyResult

#: In the order in which they are preferred when they do equally well.
POLICIES = ("auto", "ready", "slack", "quantile", "max_slack", "fixed")
#: Policies whose names say too little.
WORDS = {"fixed": "fixed watermark", "max_slack": "maximal K-slack", "quantile": "sliding quantile"}


def verdict(result: StudyResult) -> str:
    """Which policy wins, in a sentence: the cheapest that loses no more events than the default."""
    scale = Scale.of_study(result)
    default = result.default
    able = [
        p for p in (result.cheapest(policy) for policy in POLICIES) if p is not None and p.waits.mean_wait is not None
    ]
    if default.waits.mean_wait is None or not able:
        return "Default auto delivers no event in time, so there is nothing to compare."
    winner = min(able, key=lambda p: (p.waits.mean_wait, not p.is_default))
    lost = share_text(default.waits.late_share) if default.waits.late_share else "no"
    as_it_comes = f"{lost} late events and {scale.with_unit(default.waits.mean_wait)} mean wait"
    rival = result.cheapest("fixed")
    if winner is rival:
        return (
            f"Only hindsight beats auto here: a fixed watermark with the one right {params_text(rival, result.unit)} "
            f"would wait {scale.with_unit(rival.waits.mean_wait)}; auto, as it comes, has {as_it_comes}."
        )
    start = (
        f"auto wins as it comes: {as_it_comes}"
        if winner.is_default
        else f"{_name(winner, result.unit)} wins: {scale.with_unit(winner.waits.mean_wait)} mean wait with "
        f"{share_text(winner.waits.late_share)} late events; auto as it comes has {as_it_comes}"
    )
    if rival is None:
        return f"{start}. No fixed watermark loses as few events."
    # How many times as long as auto: the factor a user saves by not choosing a watermark.
    return (
        f"{start}. The cheapest fixed watermark that loses no more events "
        f"({params_text(rival, result.unit)}) waits "
        f"{scale.with_unit(rival.waits.mean_wait)}{_times(rival.waits.mean_wait, default.waits.mean_wait)}."
    )


def _times(longer: float | None, shorter: float | None) -> str:
    return f", {number_text(longer / shorter)} times as long as auto" if longer and shorter else ""


def _name(p: PolicyResult, unit: str) -> str:
    return f"{WORDS.get(p.policy, p.policy)} ({params_text(p, unit)})" if params_text(p, unit) else p.policy
