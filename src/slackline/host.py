"""What a process gives to the machines, which have no clock of their own: its time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from slackline.speculation import config


@dataclass(frozen=True, slots=True)
class Speculation(config.Speculation):
    __doc__ = config.Speculation.__doc__

    clock: config.Clock | None = field(default=time.monotonic, compare=False)
