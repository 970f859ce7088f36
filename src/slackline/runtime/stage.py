"""Stages: what a worker pushes arrivals into. Keyed engines are one, the synchroniser of a junction is another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from slackline.core.types import EventType
from slackline.runtime.metrics import Metrics, MetricsCollector
from slackline.runtime.output import OutputRecord
from slackline.runtime.schema import Decoder, RecordSchema


class Stage(Protocol):
    """Turns arrivals into output records. A machine without I/O."""

    #: Counts what passes through.
    collector: MetricsCollector
    #: How much of its state the last push had to load.
    loaded: int

    @property
    def types(self) -> Iterable[EventType]:
        """The types of which something is declared."""

    @property
    def timeouts(self) -> object:
        """True where :meth:`expire` is to be called."""

    def decoder(self, schema: RecordSchema) -> Decoder:
        """What turns records into arrivals of this stage."""

    def push(self, arrivals: Any, keys: Any = None, now: Any = None, *, at: int = 0) -> list[OutputRecord]:
        """Process the next arrivals, in the order of arrival. ``at`` is wall time in milliseconds."""

    def advance(self, now: int) -> list[OutputRecord]:
        """Arrival time has passed without arrivals."""

    def expire(self, at: int) -> list[OutputRecord]:
        """Wall time has passed: apply the timeouts that are due."""

    def flush(self, reason: str) -> list[OutputRecord]:
        """Emit all that is buffered; the stream may be continued."""

    def close(self) -> list[OutputRecord]:
        """The stream has ended: emit all that is buffered."""

    def worked(self, start: float, stop: float) -> float | None:
        """The last push took from start to stop, in seconds."""

    def metrics(self) -> Metrics:
        """Metrics of this moment."""

    def save(self) -> tuple[dict[str, Any], list[bytes]]:
        """The state, as the header and the pieces of a checkpoint; ``counts`` in the header are the collector's."""

    def load(self, header: Mapping[str, Any], pieces: Iterable[bytes]) -> None:
        """Resume from a saved state."""


class Pacing(Protocol):
    """Decides how far each source is read, where a stage merges the sources by event time itself.

    The worker then reads all sources side by side, bounded ones too, and a source that fails ends by itself.
    """

    async def wait_for_room(self, source: str, events: int) -> None:
        """So many more events of a source were read: wait until it may be read further."""

    def ended(self, source: str, error: Exception | None) -> list[OutputRecord]:
        """All that a source has delivered was pushed, and nothing more will follow. ``error`` is why it failed."""
