"""The numbers of a node."""

from __future__ import annotations

from dataclasses import dataclass

from slackline.core.check import number, one_of, positive, whole_number
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy

#: Who may improve where detectors run.
OPTIMISES = ("master", "neighbours")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How patient a node is, and how much it keeps. Times are in seconds.

    ``checkpoint_every``  how often a checkpoint is asked for; None: never, and what a crash takes is gone.
    ``beat``              how often a node says that it is there.
    ``lost_after``        a peer that has said nothing for so long is lost.
    ``reorder``           how long a gap in a type's numbers may close by itself before it is asked for, or given up.
    ``keep``              events that are kept per type for those who have not acknowledged them.
    ``window``            events of a type that may be on their way to one subscriber.
    ``limit``             the share of a core that detectors may use here, for those who decide where they run.
    ``stays``             detectors that are to run here and nowhere else.
    ``optimise``          who improves where detectors run: ``"master"``, this node for all, if it is elected;
                          ``"neighbours"``, each node for its own detectors; None: not this node.
    ``search_every``      seconds between two searches of a master; each takes ``search_seconds`` and is done by
                          ``solver`` (None: the one that is best in our measurements).
    ``together``          whether a master has detectors moved all at once, or step by step.
    ``sheds``             whether the node gives detectors away before there is too much to do.
    """

    checkpoint_every: float | None = None
    beat: float = 1.0
    lost_after: float = 5.0
    reorder: float = 0.05
    keep: int = 1_000_000
    window: int = 200_000
    limit: float = 0.8
    stays: tuple[str, ...] = ()
    optimise: str | None = None
    search_every: float = 10.0
    search_seconds: float = 3.0
    solver: str | None = None
    together: bool = False
    sheds: bool = False

    def __post_init__(self) -> None:
        for name in ("beat", "lost_after", "reorder"):
            number(name, getattr(self, name), 0)
        if self.checkpoint_every is not None:
            number("checkpoint_every", self.checkpoint_every, 0)
        whole_number("keep", self.keep, 1)
        whole_number("window", self.window, 1)
        number("limit", self.limit, 0)
        positive("search_every", self.search_every)
        positive("search_seconds", self.search_seconds)
        if self.optimise is not None:
            one_of("optimise", self.optimise, OPTIMISES)

    def check(self, hierarchy: Hierarchy) -> None:
        """Refuse what does not fit a hierarchy."""
        strange = sorted(set(self.stays) - set(hierarchy.names))
        if strange:
            raise ConfigError(f"stays={strange}: not in the application, which has {', '.join(hierarchy.names)}.")
