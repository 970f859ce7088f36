"""What a node wants done by its host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from slackline.cluster.placement import Problem
from slackline.core.outcome import Late, Output, Quarantined


class Notice(NamedTuple):
    """Something that people may want to know; ``level`` as in logging: info, warning, error."""

    level: str
    text: str


class SearchOrder(NamedTuple):
    """A placement to be looked for, for so many seconds, by a solver (None: by the usual one)."""

    problem: Problem
    seconds: float
    seed: int
    solver: str | None = None


@dataclass(slots=True)
class Actions:
    """What came of :meth:`~slackline.cluster.protocol.Node.run`.

    **The host does it in this order**: keep outputs, late and quarantined events; make the checkpoint durable, if there
    is one, with how much was kept (coming back, it cuts off what was kept beyond); then send the messages. So nobody
    hears of anything that a crash could undo.
    """

    outputs: list[Output] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    checkpoint: bytes | None = None
    #: Link and envelope.
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    #: When to call :meth:`~slackline.cluster.protocol.Node.run` again at the latest, if nothing happens before.
    call_at: float | None = None
    #: Links to close.
    cut: list[str] = field(default_factory=list)
    #: To be carried out while everything goes on; then :meth:`~slackline.cluster.protocol.Node.found`.
    search: SearchOrder | None = None
