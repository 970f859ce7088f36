"""What a junction has counted, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackline.sync import StreamStats


@dataclass(frozen=True, slots=True)
class AdapterStats:
    """An adapter: ``state`` is ``reading``, ``ended``, ``failed``, ``removed`` or ``stopped``.

    ``error`` says why it failed. ``counts`` are its own, e.g. ``taken``, ``rejected``, ``reconnects``, ``reopened``.
    """

    state: str
    error: str | None
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JunctionStats:
    """A junction, while it runs or after.

    ``fed`` events were given to the sink, ``queued`` lie in the output queue (at most ``queue_peak`` ever did),
    ``waiting`` in the synchroniser. ``late`` and ``quarantined`` ones were set aside. ``streams`` is what the
    synchroniser counted for each stream.
    """

    fed: int
    queued: int
    queue_peak: int
    waiting: int
    late: int
    quarantined: int
    adapters: Mapping[str, AdapterStats]
    streams: Mapping[str, StreamStats]
