"""What a trace records of an engine: all that it was given. Replayed, it gives the same decisions (laws 3 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slackline.core.batch import Ints
from slackline.engine.rows import TimeForm


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call of an engine, before it takes effect.

    ``op``        ``push``, ``flush``, ``close``, or ``pool``: use what a pool of several keys knows of delays.
    ``position``  number of arrivals so far.
    ``save``      gives the state of the engine before the call.
    ``rows``      arrivals of a push: events, or an Arrow table, with event times as whole numbers.
    ``times``     their arrival times if known.
    ``form``      the form of event times outside, if they are not whole numbers there.
    ``given``     the reason of a flush, or the state of the pool.
    """

    op: str
    position: int
    save: Callable[[], bytes]
    rows: Sequence[Any] | Any = ()
    times: Ints | None = None
    form: TimeForm | None = None
    given: Any = None


class Recorder(Protocol):
    """Where a traced engine (:attr:`slackline.Engine.trace`) records its calls."""

    def record(self, call: Recorded) -> None:
        """Record a call."""
