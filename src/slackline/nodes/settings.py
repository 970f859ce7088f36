"""The numbers of a node."""

from __future__ import annotations

from dataclasses import dataclass

from slackline.core.check import number, whole_number


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How patient a node is, and how much it keeps. Times are in seconds.

    ``checkpoint_every``  how often a checkpoint is asked for; None: never, and what a crash takes is gone.
    ``beat``              how often a node says that it is there.
    ``lost_after``        a peer that has said nothing for so long is lost.
    ``reorder``           how long a gap in a type's numbers may close by itself before it is asked for, or given up.
    ``keep``              events that are kept per type for those who have not acknowledged them.
    ``window``            events of a type that may be on their way to one subscriber.
    """

    checkpoint_every: float | None = None
    beat: float = 1.0
    lost_after: float = 5.0
    reorder: float = 0.05
    keep: int = 1_000_000
    window: int = 200_000

    def __post_init__(self) -> None:
        for name in ("beat", "lost_after", "reorder"):
            number(name, getattr(self, name), 0)
        if self.checkpoint_every is not None:
            number("checkpoint_every", self.checkpoint_every, 0)
        whole_number("keep", self.keep, 1)
        whole_number("window", self.window, 1)
