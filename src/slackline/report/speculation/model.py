"""What the page on speculation needs to know: runs over the same stream, each with its own α."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: What runs are compared with, and the run that sets α by itself.
PLAIN, ADAPTIVE = 1.0, "auto"


@dataclass(frozen=True, slots=True)
class Told:
    """An event that stayed: when it happened (s of stream time), and how much later it was first told for good (ms)."""

    type: str
    at: float
    wait: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A run over the interval that ends ``at`` (s of stream time), half a second long as a rule.

    ``alpha``, ``highest_alpha``   of the node, and of the detector that speculates least.
    ``busy``                       time spent working by time passed; None if nobody measured it.
    ``behind``                     how far the process lags behind what has arrived (s).
    ``inserts, retractions, finals``   what was told, taken back, and became certain in the interval.
    """

    at: float
    alpha: float = 1.0
    highest_alpha: float = 1.0
    busy: float | None = None
    behind: float = 0.0
    inserts: int = 0
    retractions: int = 0
    finals: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One way to run: its setting, its figures, and how it went over time. None: not known.

    ``alpha`` is a number or ``"auto"``, ``retraction`` as in :class:`slackline.Speculation`. ``mean_ms`` and ``p95_ms``
    are waits of the report's kind of event, ``busy`` is the mean, ``memory_kb`` the most that snapshots took,
    ``replayed`` counts rows that were processed again, ``touched`` events that were taken back or sent again.

    >>> Run("slack", 1.0).label, Run("auto", 0.25, "full").label, Run("auto", "auto").label
    ('plain buffering', 'α = 0.25, full retraction', 'adaptive α')
    """

    policy: str
    alpha: float | str
    retraction: str | None = None
    mean_ms: float | None = None
    p95_ms: float | None = None
    inserts: int = 0
    retractions: int = 0
    replays: int = 0
    replayed: int = 0
    snapshots: int = 0
    memory_kb: float = 0.0
    busy: float | None = None
    touched: int | None = None
    told: Sequence[Told] = ()
    moments: Sequence[Moment] = ()

    @property
    def setting(self) -> str:
        """α in words."""
        if self.alpha == ADAPTIVE:
            return "adaptive α"
        return "plain buffering" if self.alpha == PLAIN else f"α = {self.alpha:g}"

    @property
    def label(self) -> str:
        chosen = {"full": ", full retraction", "on_demand": ", on-demand retraction"}
        return self.setting + chosen.get(self.retraction or "", "")

    @property
    def behind(self) -> float:
        """The furthest that the process lagged behind (s)."""
        return max((moment.behind for moment in self.moments), default=0.0)


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """What the page shows.

    ``kind`` is the event type that the waits of the runs are about; other types in ``told`` are drawn smaller.
    ``same_answer`` says whether every changelog came to the answer of plain buffering. ``touched_by`` says whose
    events the runs' ``touched`` counts; ``words`` has event types in plain words, in the plural.
    """

    title: str
    runs: Sequence[Run] = ()
    text: str = ""
    kind: str = "pass"
    same_answer: bool | None = None
    touched_by: str = ""
    notes: Sequence[str] = ()
    words: Mapping[str, str] = field(default_factory=dict)

    def called(self, kind: str) -> str:
        """An event type in plain words."""
        return self.words.get(kind, kind.replace("_", " "))

    @property
    def many(self) -> str:
        """What the page is about, in plain words."""
        return self.called(self.kind)

    @property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(run.policy for run in self.runs))

    def settings(self, policy: str) -> list[Run]:
        """The runs of a policy, one per α: from plain buffering to α = 0, then adaptive."""
        first: dict[float | str, Run] = {}
        for run in self.runs:
            if run.policy == policy:
                first.setdefault(run.alpha, run)
        return sorted(first.values(), key=_by_alpha)

    def run(self, policy: str, alpha: float | str) -> Run | None:
        return next((run for run in self.settings(policy) if run.alpha == alpha), None)

    def retractions(self) -> list[list[Run]]:
        """Groups of runs that differ in how they take back, and in nothing else."""
        groups: dict[tuple[str, float | str], dict[str, Run]] = {}
        for run in self.runs:
            if run.touched is not None and run.retraction is not None:
                groups.setdefault((run.policy, run.alpha), {}).setdefault(run.retraction, run)
        return [list(group.values()) for group in groups.values() if len(group) > 1]


def _by_alpha(run: Run) -> tuple[bool, float]:
    return (True, 0.0) if isinstance(run.alpha, str) else (False, -run.alpha)
