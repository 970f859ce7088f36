"""What a user may say about speculation."""

from __future__ import annotations

from dataclasses import dataclass

from slackline.core.check import number, one_of, whole_number
from slackline.core.errors import ConfigError
from slackline.speculation.retraction import CHOICES


@dataclass(frozen=True, slots=True)
class Speculation:
    """How far detectors run ahead of what is certain.

    ``alpha``          α, from 0 (an event is processed as it arrives) to 1 (plain buffering): the part of the usual
                       wait that is waited; ``"auto"`` sets it from how busy the process is, which the engine measures
                       by the ``now`` it is given.
    ``retraction``     what happens to events that were made too early when something earlier arrives: ``"full"``
                       takes them all back at once, ``"on_demand"`` replays first and takes back what really changed,
                       ``"auto"`` chooses per detector by what it costs.
    ``snapshot_every`` rows between two snapshots of a detector's state. Fewer snapshots cost less, and make
                       replays longer.
    ``max_snapshots``  how many snapshots of one detector are kept; beyond that their spacing doubles.

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
                raise ConfigError(f"alpha={self.alpha!r} is not valid; it is a number from 0 to 1, or 'auto'.")
        else:
            number("alpha", self.alpha, 0, 1)
        one_of("retraction", self.retraction, CHOICES)
        whole_number("snapshot_every", self.snapshot_every, 1)
        whole_number("max_snapshots", self.max_snapshots, 1)
