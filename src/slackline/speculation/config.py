"""What a user may say about speculation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slackline.core.errors import ConfigError

TECHNIQUES = ("auto", "full", "on_demand")

#: Seconds, from any origin; only differences count.
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Speculation:
    """How far detectors run ahead of what is certain.

    ``alpha``          α, from 0 (an event is processed as it arrives) to 1 (plain buffering): the part of the usual
                       wait that is waited; ``"auto"`` sets it from how busy the process is.
    ``retraction``     what happens to events that were made too early when something earlier arrives: ``"full"``
                       takes them all back at once, ``"on_demand"`` replays first and takes back what really changed,
                       ``"auto"`` chooses per detector by what it costs.
    ``snapshot_every`` rows between two snapshots of a detector's state. Fewer snapshots cost less, and make
                       replays longer.
    ``max_snapshots``  how many snapshots of one detector are kept; beyond that their spacing doubles.
    ``clock``          where ``"auto"`` reads seconds from; the process's own clock unless given.

    >>> Speculation(alpha=0.5).retraction
    'auto'
    """

    alpha: float | str = "auto"
    retraction: str = "auto"
    snapshot_every: int = 256
    max_snapshots: int = 256
    clock: Clock | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        number = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool)
        if not (number and 0 <= float(self.alpha) <= 1) and self.alpha != "auto":
            raise ConfigError(f"alpha={self.alpha!r} cannot be; it is a number from 0 to 1, or 'auto'.")
        if self.retraction not in TECHNIQUES:
            raise ConfigError(f"retraction={self.retraction!r} is unknown; choose one of {list(TECHNIQUES)}.")
        for option in ("snapshot_every", "max_snapshots"):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{option}={value!r} cannot be; it must be a whole number of at least 1.")
        if self.clock is not None and not callable(self.clock):
            raise ConfigError(f"clock={self.clock!r} cannot be called; pass a function that returns seconds.")
