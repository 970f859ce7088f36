"""The host of a node in the simulated network: its processor, local input, results and last checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from slackline.cluster.interface import Actions
from slackline.cluster.protocol import Node
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.outcome import Late, Output, Quarantined

#: Seconds over which the CPU load of a node is measured.
INTERVAL = 1.0


class BusyInterval(NamedTuple):
    """The processor was busy from one virtual time to another."""

    start: float
    stop: float


class Cpu:
    """The processor of a simulated host, one core: work takes virtual time.

    A detector reports its cost with :meth:`work`, to the processor of the host where it runs, so each host has its own
    hierarchy. Messages and outputs of a node leave when the work is done; input that arrives meanwhile waits. Pass
    ``now=cpu.now`` to the node, so that it measures the CPU time of each detector, as a node on a real host does.

    ``speed``: factor by which the processor is faster than the reported costs; infinite for unlimited CPU.

    >>> cpu = Cpu(speed=2.0)
    >>> cpu.work(0.5), cpu.now()
    (None, 0.25)
    >>> cpu.begin(at=1.0), cpu.loads(until=2.0, every=0.5)
    (BusyInterval(start=1.0, stop=1.25), [0.0, 0.0, 0.5, 0.0])
    """

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ConfigError(
                f"speed={speed} is not valid; it must be more than 0 (1: the CPU time that detectors report)."
            )
        self.speed = speed
        #: In order of time; no two overlap.
        self.busy_intervals: list[BusyInterval] = []
        self._worked = self._begun = 0.0
        # Work done at the last measurement of the load, and its time.
        self._measured, self._since = 0.0, 0.0

    def __deepcopy__(self, memo: dict[int, Any]) -> Cpu:
        """Hierarchies copy their detectors; all copies share the processor of the host."""
        return self

    def work(self, seconds: float) -> None:
        """Add work that takes so many seconds at speed 1."""
        self._worked += seconds / self.speed

    def now(self) -> float:
        """CPU time so far, in seconds."""
        return self._worked

    def begin(self, at: float) -> BusyInterval:
        """Process the work that was added since the last call, from ``at`` on."""
        interval = BusyInterval(at, at + self._worked - self._begun)
        self._begun = self._worked
        if interval.stop > interval.start:
            self.busy_intervals.append(interval)
        return interval

    def share(self, now: float) -> float | None:
        """The CPU load since the last measurement; None within :data:`INTERVAL` of it."""
        if now - self._since < INTERVAL:
            return None
        share = (self._begun - self._measured) / (now - self._since)
        self._measured, self._since = self._begun, now
        return share

    def loads(self, until: float, every: float = INTERVAL) -> list[float]:
        """The CPU load in each interval, from virtual time 0 on."""
        loads = [0.0] * math.ceil(until / every)
        for start, stop in self.busy_intervals:
            for nth in range(int(start / every), min(len(loads), math.ceil(stop / every))):
                loads[nth] += max(0.0, min(stop, (nth + 1) * every) - max(start, nth * every)) / every
        return loads


#: Restores a node from its checkpoint.
LoadNode = Callable[[bytes], Node]


class Arrivals(NamedTuple):
    """Local input that arrives at a virtual time; ``wall`` as the ``now`` of :meth:`slackline.Engine.push`."""

    at: float
    rows: Sequence[Event] | pa.Table
    wall: Any = None


class TimedOutput(NamedTuple):
    """An output, and the virtual time at which its node emitted it."""

    at: float
    output: Output


@dataclass(slots=True)
class HostResults:
    """The outputs, late events and quarantined events of a node."""

    outputs: list[TimedOutput] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)

    def add(self, actions: Actions, now: float) -> None:
        """Append the results of a run."""
        self.outputs += [TimedOutput(now, output) for output in actions.outputs]
        self.late += actions.late
        self.quarantined += actions.quarantined

    @property
    def lengths(self) -> tuple[int, int, int]:
        """The number of outputs, late events and quarantined events."""
        return len(self.outputs), len(self.late), len(self.quarantined)

    def truncate(self, lengths: tuple[int, int, int]) -> None:
        """Drop all results beyond these lengths."""
        outputs, late, quarantined = lengths
        del self.outputs[outputs:], self.late[late:], self.quarantined[quarantined:]


class HostCheckpoint(NamedTuple):
    """A node's checkpoint with the host's positions: batches pushed, and lengths of the results."""

    state: bytes | None
    pushed: int
    lengths: tuple[int, int, int]


#: Before the first checkpoint: start from scratch.
NO_CHECKPOINT = HostCheckpoint(None, 0, (0, 0, 0))


class SimulatedHost:
    """Runs one node.

    Input is pushed in order, each batch at its time or when the node is ready for it; none is dropped. After a crash
    the results are truncated to the last checkpoint, and the input is replayed from there. While the processor is busy,
    deliveries to the node wait.
    """

    def __init__(self, name: str, make: Callable[[], Node], load: LoadNode | None, cpu: Cpu | None = None) -> None:
        self.name = name
        self._make, self._load = make, load
        #: The processor; None: work takes no time.
        self.cpu = cpu
        #: Whether the processor is busy with the last run.
        self.is_working = False
        self._waiting: list[Callable[[], None]] = []
        #: None while the node is down.
        self.node: Node | None = make()
        self.results = HostResults()
        self.checkpoint = NO_CHECKPOINT
        #: The number of checkpoints so far.
        self.checkpoints = 0
        #: When the node asked to run, when the host wakes it, and how often in a row that was without a delay.
        self.call_at: float | None = None
        self.wake_at: float | None = None
        self.at_once = 0
        #: Whether the node has ended: it left, was rejected, or crashed without a restart.
        self.has_stopped = False
        #: Whether it has left the cluster.
        self.has_left = False
        #: Whether it crashed without a restart, and others are to resume the node.
        self.is_lost = False
        #: Whether another host has resumed the node from its checkpoint.
        self.is_fenced = False
        #: The last incarnation of the node.
        self.incarnation = self.node.incarnation
        self._input: tuple[Arrivals, ...] | None = None
        # Batches pushed, plus one after the end of input.
        self._pushed = 0

    def feed(self, arrivals: Iterable[Arrivals]) -> None:
        """Set the node's input, in order of time; it ends after the last batch."""
        if self._input is not None:
            raise ConfigError(f"node {self.name!r} has input already; pass all its arrivals in one call of feed().")
        batches = tuple(arrivals)
        if any(later.at < earlier.at for earlier, later in pairwise(batches)):
            raise ConfigError(f"the input of node {self.name!r} goes back in time; sort its arrivals by time.")
        self._input = batches

    @property
    def is_fed(self) -> bool:
        """Whether all input was pushed, and its end."""
        return self._input is None or self._pushed > len(self._input)

    @property
    def remaining(self) -> int:
        """The number of batches that were not pushed yet."""
        return 0 if self._input is None else max(0, len(self._input) - self._pushed)

    @property
    def next_at(self) -> float | None:
        """When the next batch arrives; the end of input comes with the last batch."""
        if self._input is None or self.is_fed:
            return None
        return self._input[min(self._pushed, len(self._input) - 1)].at if self._input else 0.0

    def push_due(self, now: float) -> bool:
        """Push the next batch, or the end of input, if it is due and the node accepts it; returns whether it did."""
        node, at = self.node, self.next_at
        if node is None or at is None or at > now or not node.is_ready or node.is_full:
            return False
        assert self._input is not None
        if self._pushed < len(self._input):
            batch = self._input[self._pushed]
            node.push(batch.rows, now, batch.wall)
        else:
            node.end(now)
        self._pushed += 1
        return True

    def deliver(self, call: Callable[[], None]) -> bool:
        """Call the node now, or when the processor is idle; returns whether it was now."""
        if self.is_working:
            self._waiting.append(call)
            return False
        call()
        return True

    def run(self, now: float) -> tuple[Actions, float]:
        """Run the node; returns its actions, and when the processor has done the work."""
        node, cpu = self.node, self.cpu
        assert node is not None and not self.is_working
        if cpu is None:
            return node.run(now), now
        share = cpu.share(now)
        node.busy = node.busy if share is None else share
        actions, done = node.run(now), cpu.begin(now).stop
        self.is_working = done > now
        return actions, done

    def finish_work(self) -> None:
        """The processor is idle: make the deliveries that waited."""
        self.is_working = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def record(self, actions: Actions, now: float) -> None:
        """Store results first, then the checkpoint that refers to them; messages are sent afterwards.

        What a fenced host writes is not in the store: its files are those of an earlier epoch.
        """
        if self.is_fenced:
            return
        self.results.add(actions, now)
        if actions.checkpoint is not None:
            self.checkpoint = HostCheckpoint(actions.checkpoint, self._pushed, self.results.lengths)
            self.checkpoints += 1

    def crash(self) -> None:
        """The node's memory is lost; results and checkpoint are not."""
        self.node = self.call_at = self.wake_at = None
        self.is_working, self._waiting = False, []

    def restart(self, forget: bool) -> None:
        """Restore the node from its last checkpoint; without one, or with ``forget``, start from scratch."""
        checkpoint = NO_CHECKPOINT if forget else self.checkpoint
        if checkpoint.state is None:
            self.node = self._make()
        elif self._load is None:
            raise ConfigError(f"node {self.name!r} has a checkpoint but no load= function; pass one to add().")
        else:
            self.node = self._load(checkpoint.state)
        self.incarnation = self.node.incarnation
        self.checkpoint = checkpoint
        self.results.truncate(checkpoint.lengths)
        self._pushed = checkpoint.pushed

    def succeeded_by(self, key: str) -> SimulatedHost:
        """Another host that resumes the node from the last checkpoint, with its results and input; this one is fenced.

        If the node still runs here, its results are discarded from now on.
        """
        successor = SimulatedHost(key, self._make, self._load, self.cpu)
        successor.results, self.results = self.results, HostResults()
        successor.checkpoint, successor._input = self.checkpoint, self._input
        successor.restart(forget=False)
        self.is_fenced = True
        self.has_stopped = self.has_stopped or self.node is None
        return successor

    def waits_for(self) -> str:
        """What the node waits for, as text; empty if it has nothing left to do."""
        node = self.node
        if self.is_working:
            return f"{self.name} is busy"
        if self.is_lost and not self.is_fenced:
            return f"{self.name} is down until another node resumes it"
        if self.has_stopped or (self.is_fed and node is not None and node.has_ended):
            return ""
        if node is None:
            return f"{self.name} is down, with {self.remaining} batches of input left"
        if self.is_fed:
            return f"{self.name} has all its input, but has not processed it"
        why = "is not ready" if not node.is_ready else "is full" if node.is_full else "is running"
        return f"{self.name} {why}, with {self.remaining} batches of input left"
