"""What a user may say about detectors that are held up."""

from __future__ import annotations

from dataclasses import dataclass

from slackline.core.check import positive, text, whole_number
from slackline.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Pause:
    """When there is too much to do, hold up detectors that can wait, so that the others are in time [Thesis, 7.3].

    ``share``   the share of time that the engine may work, less than 1; beyond it detectors are held up.
    ``memory``  events per detector that wait in memory meanwhile; what is more waits on disk.
    ``keep``    events per detector that may wait at all; who has more is held up no longer.
    ``folder``  where on disk; the system's folder for temporary files, unless given.
    """

    share: float = 0.9
    memory: int = 100_000
    keep: int = 10_000_000
    folder: str | None = None

    def __post_init__(self) -> None:
        positive("share", self.share, 1)
        if self.share == 1:
            raise ConfigError(
                "share=1 is not valid: who may work all the time has never too much to do. Take 0.9, say."
            )
        whole_number("memory", self.memory, 0)
        whole_number("keep", self.keep, 1)
        if self.folder is not None:
            text("folder", self.folder)
