"""Sinks: where output records go. Implement one to connect a system that Slackline does not know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from slackline.core.errors import SlacklineError
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.output import OutputRecord


class SinkError(SlacklineError):
    """A sink cannot be written to, and another attempt would not help."""


class FencedError(SinkError):
    """Another process has taken over: nothing more may be written, sent or committed by this one."""


class Sink(ABC):
    """Takes output records.

    A sink with ``commits = True`` stores checkpoints together with what was written: after a crash it discards whatever
    was written behind the last checkpoint, and the worker processes that input again. So results are exactly once.
    A sink without delivers at least once within one run, and stores nothing.
    """

    commits: bool = False

    def open(self) -> Checkpoint | None:
        """Get ready; return the last committed checkpoint, None if there is none. Called once, before all else."""
        return None

    @abstractmethod
    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take records, in order. Waits while the receiver cannot take more."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make everything written so far and the checkpoint durable, both or neither. Only where ``commits``."""
        raise NotImplementedError

    def describe(self) -> str:
        """What the sink is, in a few words, for the plan of a run."""
        return type(self).__name__

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Nothing more will be written. Called once, also after a failure."""
