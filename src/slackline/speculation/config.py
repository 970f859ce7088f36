"""The options of speculation."""

from __future__ import annotations

from dataclasses import dataclass

from slackline.core.check import number, one_of, whole_number
from slackline.core.errors import ConfigError
from slackline.speculation.retraction import CHOICES


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative execution: detectors process events before the watermark passes them, and retract wrong results.

    ``alpha``          α from 0 (process on arrival) to 1 (no speculation): the fraction of the waiting time that is
                       waited. ``"auto"`` (default) adapts it to CPU load, which the engine measures by its option
                       ``now``.
    ``retraction``     how early results are retracted when an earlier event arrives: ``"full"`` retracts all of them at
                       once, ``"on_demand"`` replays first and retracts only what changed, ``"auto"`` (default) chooses
                       the cheaper one per detector.
    ``snapshot_every`` rows between two snapshots of a detector's state (default 256). Fewer snapshots cost less and
                       make replays longer.
    ``max_snapshots``  maximum number of snapshots per detector (default 256); beyond it their spacing doubles.

    >>> Speculation(alpha=0.5).retraction
    'auto'
    """

    alpha: float | str = "auto"
    retraction: str = "auto"
    snapshot_every: int = 256
    max_snapshots: int = 256

    def __post_init__(self) -> None:
        if isinstance(self.alpha, str):
            if self.alpha != "auto":
                raise ConfigError(f"alpha={self.alpha!r} is not valid; it must be a number from 0 to 1, or 'auto'.")
        else:
            number("alpha", self.alpha, 0, 1)
        one_of("retraction", self.retraction, CHOICES)
        whole_number("snapshot_every", self.snapshot_every, 1)
        whole_number("max_snapshots", self.max_snapshots, 1)
