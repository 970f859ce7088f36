"""What a node asks its host to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from slackline.cluster.placement import Problem
from slackline.core.outcome import Late, Output, Quarantined


class Notice(NamedTuple):
    """A log message; ``level`` as in logging: info, warning, error."""

    level: str
    text: str


class SearchOrder(NamedTuple):
    """A placement problem to solve, for so many seconds, by a solver (None: the default one)."""

    problem: Problem
    seconds: float
    seed: int
    solver: str | None = None


@dataclass(slots=True)
class Actions:
    """The result of :meth:`~slackline.cluster.protocol.Node.run`.

    **The host carries them out in this order**: write outputs, late and quarantined events; make the checkpoint
    durable, if there is one, together with the length of what was written (after a restart it discards what was
    written beyond); then send the messages. So no peer receives anything that a crash could undo.
    """

    outputs: list[Output] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    checkpoint: bytes | None = None
    #: Link and envelope.
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    #: When to call :meth:`~slackline.cluster.protocol.Node.run` again at the latest.
    call_at: float | None = None
    #: Links to close.
    close: list[str] = field(default_factory=list)
    #: To be carried out in the background; then :meth:`~slackline.cluster.protocol.Node.found`.
    search: SearchOrder | None = None
