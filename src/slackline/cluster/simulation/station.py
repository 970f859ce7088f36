"""A node in the simulated network, and what its host keeps of it: local arrivals, outputs, the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from slackline.cluster.actions import Actions, SearchOrder
from slackline.cluster.placement import Solution
from slackline.cluster.simulation.cpu import Cpu
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.outcome import Late, Output, Quarantined


class Machine(Protocol):
    """What the network drives: :class:`slackline.cluster.protocol.Node`, or anything with these."""

    #: The share of time that its host works; where a host has a processor, it says so.
    busy: float

    @property
    def is_ready(self) -> bool: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def has_left(self) -> bool: ...
    @property
    def has_ended(self) -> bool: ...
    @property
    def failed(self) -> str | None: ...
    def push(self, arrivals: Any, now: float, wall: Any = None) -> None: ...
    def end(self, now: float) -> None: ...
    def link_up(self, link: str, now: float) -> None: ...
    def link_down(self, link: str, now: float) -> None: ...
    def receive(self, link: str, data: bytes, now: float) -> None: ...
    def migrate(self, detector: str, to: str, now: float) -> str: ...
    def leave(self, now: float) -> None: ...
    def found(self, search: SearchOrder, solution: Solution | str, now: float) -> None: ...
    def run(self, now: float) -> Actions: ...
    def check_invariants(self) -> None: ...


#: A node out of its checkpoint.
Load = Callable[[bytes], Machine]


class Arrivals(NamedTuple):
    """Local arrivals at a time; ``wall`` as the ``now`` of :meth:`slackline.Engine.push`."""

    at: float
    rows: Sequence[Event] | pa.Table
    wall: Any = None


class Found(NamedTuple):
    """An output and the virtual time at which its node gave it."""

    at: float
    output: Output


@dataclass(slots=True)
class HostMemory:
    """What a host has kept of a node's results."""

    outputs: list[Found] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)

    def add(self, actions: Actions, now: float) -> None:
        """Keep what came of a run."""
        self.outputs += [Found(now, output) for output in actions.outputs]
        self.late += actions.late
        self.quarantined += actions.quarantined

    @property
    def lengths(self) -> tuple[int, int, int]:
        """How much is kept of each."""
        return len(self.outputs), len(self.late), len(self.quarantined)

    def cut(self, lengths: tuple[int, int, int]) -> None:
        """Forget what was kept beyond."""
        outputs, late, quarantined = lengths
        del self.outputs[outputs:], self.late[late:], self.quarantined[quarantined:]


class Checkpoint(NamedTuple):
    """A node's checkpoint, with what its host noted: how much of the feed was in, and how much was kept."""

    state: bytes | None
    fed: int
    lengths: tuple[int, int, int]


#: That of a host that has none: everything begins anew.
NONE_YET = Checkpoint(None, 0, (0, 0, 0))


class Station:
    """A node, and what its host does for it.

    The feed is pushed in order, each part at its time or when the node is ready for it; nothing of it is dropped. After
    a crash, results are cut to what was noted with the last checkpoint, and the feed goes on from there. While its
    processor works, what comes waits.
    """

    def __init__(self, name: str, make: Callable[[], Machine], load: Load | None, cpu: Cpu | None = None) -> None:
        self.name = name
        self._make, self._load = make, load
        #: The processor that its detectors charge; None: work takes no time.
        self.cpu = cpu
        #: Whether the processor works off what the last run took; and what has come in the meantime, in order.
        self.is_working = False
        self._waiting: list[Callable[[], None]] = []
        self.machine: Machine | None = make()
        self.kept = HostMemory()
        self.checkpoint = NONE_YET
        #: How often there was a checkpoint.
        self.checkpoints = 0
        #: When the node wants to be called, when its host wakes it, and how often in a row that was to be at once.
        self.call_at: float | None = None
        self.wake_at: float | None = None
        self.at_once = 0
        #: Whether the node is gone for good: left, turned away, or crashed and not to come back.
        self.has_stopped = False
        self._feed: tuple[Arrivals, ...] | None = None
        # Parts that were pushed; one more when the end was told.
        self._fed = 0

    def feed(self, arrivals: Iterable[Arrivals]) -> None:
        """What arrives here, in order of time, and then ends."""
        if self._feed is not None:
            raise ConfigError(f"node {self.name!r} has a feed already; give all its arrivals at once.")
        feed = tuple(arrivals)
        if any(later.at < earlier.at for earlier, later in pairwise(feed)):
            raise ConfigError(f"the feed of node {self.name!r} goes back in time; give its arrivals in order of time.")
        self._feed = feed

    @property
    def is_fed(self) -> bool:
        """Whether the whole feed was pushed, and its end told."""
        return self._feed is None or self._fed > len(self._feed)

    @property
    def unfed(self) -> int:
        """How many parts of the feed were not pushed yet."""
        return 0 if self._feed is None else max(0, len(self._feed) - self._fed)

    @property
    def next_at(self) -> float | None:
        """When the next part of the feed arrives; the end comes with the last part."""
        if self._feed is None or self.is_fed:
            return None
        return self._feed[min(self._fed, len(self._feed) - 1)].at if self._feed else 0.0

    def push_due(self, now: float) -> bool:
        """Push the next part of the feed, or tell its end, if it is time and the node takes it; whether that was so."""
        machine, at = self.machine, self.next_at
        if machine is None or at is None or at > now or not machine.is_ready or machine.is_full:
            return False
        assert self._feed is not None
        if self._fed < len(self._feed):
            part = self._feed[self._fed]
            machine.push(part.rows, now, part.wall)
        else:
            machine.end(now)
        self._fed += 1
        return True

    def give(self, stimulus: Callable[[], None]) -> bool:
        """Let something come to the node, now or when it has done its work; whether it was now."""
        if self.is_working:
            self._waiting.append(stimulus)
            return False
        stimulus()
        return True

    def run(self, now: float) -> tuple[Actions, float]:
        """Let the node run, and say what came of it, and when all that is done."""
        machine, cpu = self.machine, self.cpu
        assert machine is not None and not self.is_working
        if cpu is None:
            return machine.run(now), now
        share = cpu.share(now)
        machine.busy = machine.busy if share is None else share
        actions, done = machine.run(now), cpu.begin(now).stop
        self.is_working = done > now
        return actions, done

    def rest(self) -> None:
        """The work is done: what has come in the meantime comes to the node."""
        self.is_working = False
        waiting, self._waiting = self._waiting, []
        for stimulus in waiting:
            stimulus()

    def keep(self, actions: Actions, now: float) -> None:
        """Results first, then the checkpoint that rests on them; who sends messages does it afterwards."""
        self.kept.add(actions, now)
        if actions.checkpoint is not None:
            self.checkpoint = Checkpoint(actions.checkpoint, self._fed, self.kept.lengths)
            self.checkpoints += 1

    def crash(self) -> None:
        """The node is lost; what its host keeps is not."""
        self.machine = self.call_at = self.wake_at = None
        self.is_working, self._waiting = False, []

    def come_back(self, forget: bool) -> None:
        """The node as it was at its last checkpoint; as new if there is none, or with ``forget``."""
        noted = NONE_YET if forget else self.checkpoint
        if noted.state is None:
            self.machine = self._make()
        elif self._load is None:
            raise ConfigError(f"node {self.name!r} has a checkpoint, but was added without load=; say how to load it.")
        else:
            self.machine = self._load(noted.state)
        self.checkpoint = noted
        self.kept.cut(noted.lengths)
        self._fed = noted.fed

    def waits_for(self) -> str:
        """What the node waits for, in words; empty if nothing is left to do."""
        machine = self.machine
        if self.is_working:
            return f"{self.name} works"
        if self.has_stopped or (self.is_fed and machine is not None and machine.has_ended):
            return ""
        if machine is None:
            return f"{self.name} is down, with {self.unfed} parts of its feed to come"
        if self.is_fed:
            return f"{self.name} is fed, but not through"
        why = "is not ready" if not machine.is_ready else "is full" if machine.is_full else "goes on"
        return f"{self.name} {why}, with {self.unfed} parts of its feed to come"
