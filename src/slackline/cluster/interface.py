"""What a host and its node exchange: the settings of the node, and the actions that it asks its host for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from slackline.cluster.placement import Problem
from slackline.core.check import number, one_of, positive, whole_number
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Late, Output, Quarantined

#: How the placement of detectors is optimised.
OPTIMISES = ("master", "neighbours")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Timeouts and limits of a node. Times are in seconds.

    ``checkpoint_every``    time between checkpoints; None: none are made, and a crash loses the state.
    ``heartbeat_interval``  time between heartbeats to each peer.
    ``session_timeout``     a peer from which nothing was received for so long is lost.
    ``gap_timeout``         time after which a gap in the offsets of a type is requested again, or given up.
    ``retention``           events of a type that are retained for subscribers that have not acknowledged them.
    ``window``              events of a type that may be in flight to one subscriber.
    ``limit``               the share of a core that detectors may use here, for placement and load shedding.
    ``stays``               detectors that must run here.
    ``optimise``            optimisation of the placement: ``"master"``: this node optimises it for the whole cluster,
                            if it is the master; ``"neighbours"``: each node for its own detectors; None: not this node.
    ``search_every``        time between two searches of a master; each takes ``search_seconds`` and is done by
                            ``solver`` (None: the one that is best in our measurements).
    ``together``            whether a master migrates all detectors of a plan at once, or step by step.
    ``sheds``               whether the node migrates detectors elsewhere before it is overloaded.
    ``bus``                 what retains everything that is sent, such as ``kafka/matches``, the same on all nodes: a
                            log per type, which the host appends to and reads. None: nodes send events to each other.
    ``idle_timeout``        where a part of the clock type enters (``Hierarchy.in_parts``): time without arrivals after
                            which stream time there follows the other parts, which otherwise wait for it.
    ``failover_after``      time after which a lost node is resumed by another one, from the shared checkpoint store;
                            None: lost nodes are waited for.
    """

    checkpoint_every: float | None = None
    heartbeat_interval: float = 1.0
    session_timeout: float = 5.0
    gap_timeout: float = 0.05
    retention: int = 1_000_000
    window: int = 200_000
    limit: float = 0.8
    stays: tuple[str, ...] = ()
    optimise: str | None = None
    search_every: float = 10.0
    search_seconds: float = 3.0
    solver: str | None = None
    together: bool = False
    sheds: bool = False
    failover_after: float | None = None
    idle_timeout: float = 10.0
    bus: str | None = None

    def __post_init__(self) -> None:
        for name in ("heartbeat_interval", "session_timeout", "gap_timeout", "idle_timeout"):
            number(name, getattr(self, name), 0)
        if self.checkpoint_every is not None:
            number("checkpoint_every", self.checkpoint_every, 0)
        if self.failover_after is not None:
            number("failover_after", self.failover_after, 0)
            if self.checkpoint_every is None:
                raise ConfigError(
                    "failover_after needs checkpoints, from which a lost node is resumed; give checkpoint_every."
                )
        whole_number("retention", self.retention, 1)
        whole_number("window", self.window, 1)
        number("limit", self.limit, 0)
        positive("search_every", self.search_every)
        positive("search_seconds", self.search_seconds)
        if self.optimise is not None:
            one_of("optimise", self.optimise, OPTIMISES)

    def check(self, hierarchy: Hierarchy) -> None:
        """A ConfigError if the settings do not fit a hierarchy."""
        unknown = sorted(set(self.stays) - set(hierarchy.names))
        if unknown:
            raise ConfigError(f"stays={unknown}: not in the application, which has {', '.join(hierarchy.names)}.")


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


class Append(NamedTuple):
    """A record for the log of a type.

    ``epoch``  a greater one fences those of lower ones: the log takes no more of theirs.
    ``next``   the offset after the record's events, for :meth:`~slackline.cluster.protocol.Node.appended`.
    """

    type: str
    epoch: tuple[int, int]
    record: bytes
    next: int


class Takeover(NamedTuple):
    """A lost node that the host resumes, and its incarnation that was lost; None: since this node has restarted
    meanwhile, that is not known."""

    node: str
    incarnation: int | None


@dataclass(slots=True)
class Actions:
    """The result of :meth:`~slackline.cluster.protocol.Node.run`.

    **The host carries them out in this order**: write outputs, late and quarantined events; make the checkpoint
    durable, if there is one, together with the length of what was written (after a restart it discards what was
    written beyond); then append to logs and send the messages. So no peer receives anything that a crash could undo.
    """

    outputs: list[Output] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    checkpoint: bytes | None = None
    #: Link and envelope.
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    #: For the logs of a bus that retains, in this order.
    appends: list[Append] = field(default_factory=list)
    #: Logs to read: by type, from which offset on (0: from the newest record on), and nothing of it that was read
    #: before; None: no longer.
    reads: dict[str, int | None] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    #: When to call :meth:`~slackline.cluster.protocol.Node.run` again at the latest.
    call_at: float | None = None
    #: Links to close.
    close: list[str] = field(default_factory=list)
    #: To be carried out in the background; then :meth:`~slackline.cluster.protocol.Node.found`.
    search: SearchOrder | None = None
    #: Lost nodes to be resumed from the shared checkpoint store, beside this one.
    takeovers: list[Takeover] = field(default_factory=list)
