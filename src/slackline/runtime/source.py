"""Sources: where records come from. Implement one to connect a system that Slackline does not know.

A source delivers batches of records and says where it is. The worker stores that position in its checkpoints and gives
it back after a restart, so a source that can :meth:`~Source.seek` is read exactly once, together with a sink that
commits checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from slackline.core.errors import SlacklineError, StateError
from slackline.core.event import Event
from slackline.runtime.output import BadRecord

#: A batch of records: mappings of field names to values, Arrow rows, events that are complete already, and in their
#: place among the others records that could not be read.
Records: TypeAlias = Sequence[Mapping[str, Any] | Event | BadRecord] | pa.Table | pa.RecordBatch


class SourceError(SlacklineError):
    """A source cannot be read, or not any further."""


class Source(ABC):
    """Delivers records, in the order of arrival.

    ``name``     identifies the source: in checkpoints, in the quarantine, and as the ``source`` of events that name
                 none. Two sources of one worker have different names.
    ``live``     whether records are delivered as they happen. Only then is the arrival time evidence of delays.
    ``multiplexed``  whether the records are of several streams, each of which delivers in order and is named by the
                 source of its records. A :class:`~slackline.runtime.Junction` takes any other source as one stream.
    ``partitioned``  whether the records are of several partitions, and a batch of one. When they are read again, those
                 of each follow in the same order, but which partition the next batch is of may differ.
    ``bounded``  whether the source ends by itself. Several bounded sources are merged by event time; all others are
                 read side by side, as they deliver.

    >>> class Numbers(Source):
    ...     name, bounded = "numbers", True
    ...     def __init__(self):
    ...         self.next = 0
    ...     async def batches(self):
    ...         while self.next < 10:
    ...             self.next += 5
    ...             yield [{"ts": ts} for ts in range(self.next - 5, self.next)]
    ...     def position(self):
    ...         return self.next
    ...     def seek(self, position):
    ...         self.next = position
    """

    name: str
    live: bool = False
    bounded: bool = False
    multiplexed: bool = False
    partitioned: bool = False

    @abstractmethod
    def batches(self) -> AsyncIterator[Records]:
        """Deliver records until the source ends. Called once, after :meth:`seek` if there is a position to resume from.

        The iterator is asked for the next batch only when there is room for it, so a source that waits at ``yield`` has
        back pressure. It raises :class:`SourceError` where it cannot continue.
        """

    def position(self) -> Any:
        """Where to resume: behind all batches delivered so far. None: this source cannot resume.

        Plain data (None, bool, int, float, str, bytes, lists and dicts of these).
        """
        return None

    def seek(self, position: Any) -> None:
        """Resume from a position that :meth:`position` returned in an earlier run. Called before :meth:`batches`.

        The same records must follow in the same order; where batches end may differ.
        """
        raise StateError(f"source {self.name!r} returned the position {position!r} but does not implement seek().")

    def take_part(self, part: int, parts: int) -> None:
        """Deliver only the partitions whose number modulo ``parts`` is ``part``: other nodes read the others.

        Called before :meth:`seek`, if the source is ``partitioned``.
        """
        raise NotImplementedError

    def describe(self) -> str:
        """What the source is, in a few words, for the plan of a run."""
        return type(self).__name__

    async def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release what the source holds. Called once, also after a failure."""
