"""The simulated network: a discrete-event simulation of nodes, hosts and links, deterministic for its seed.

It drives real nodes (:class:`slackline.cluster.protocol.Node`) as a host does: it calls them when a packet or input
arrives or when they asked to run, stores their results, and carries their messages over links. Events at the same
virtual time happen in the order in which they were scheduled.

**Links** are simulated TCP: packets take time, queue for bandwidth, and arrive in order. A lost packet is retransmitted
after a timeout: it arrives later, and so does everything behind it on that link. A packet is lost for good only when
its connection breaks. All times are virtual, in seconds. A :class:`Link` configures one direction; a
:class:`LinkDirection` is one in use, with its own random generator, so that faults on one link do not change another.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import NamedTuple

from slackline.cluster.controller.policy import run_search
from slackline.cluster.interface import Actions, Notice, SearchOrder, Takeover
from slackline.cluster.placement import Problem, Solver
from slackline.cluster.protocol import Node
from slackline.cluster.protocol.messages import Data, ProtocolError, decode
from slackline.cluster.simulation.bus import BUS, SimulatedBus
from slackline.cluster.simulation.host import (
    Arrivals,
    Cpu,
    HostResults,
    LoadNode,
    SimulatedHost,
)
from slackline.core.errors import ConfigError, SlacklineError

#: Seconds after which a lost packet is retransmitted.
RETRANSMIT_AFTER = 0.2


@dataclass(frozen=True, slots=True)
class Link:
    """The properties of a connection from one node to another; packets arrive in order.

    ``latency``      the smallest delay of a packet, in seconds; up to ``jitter`` more, uniformly.
    ``loss``         the share of transmissions that are lost and repeated ``RETRANSMIT_AFTER`` seconds later.
    ``bandwidth``    bytes per second; packets queue for it. None: no limit.

    >>> Link(latency=0.02).expected_delay(1000)
    0.02
    >>> Link(latency=0.02, jitter=0.01, bandwidth=100_000).expected_delay(1000)
    0.035
    """

    latency: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("latency", "jitter"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is not valid; it must be seconds, 0 or more.")
        if not 0 <= self.loss < 1:
            raise ConfigError(f"loss={self.loss} is not valid; it must be a share, at least 0 and less than 1.")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ConfigError(
                f"bandwidth={self.bandwidth} is not valid; it must be bytes per second, more than 0, or None."
            )

    def expected_delay(self, size: int) -> float:
        """The mean delay of a packet of so many bytes that is not lost and does not queue."""
        return self.latency + self.jitter / 2 + (size / self.bandwidth if self.bandwidth else 0.0)


@dataclass(frozen=True, slots=True)
class Partition:
    """From ``start`` until ``end`` nothing passes between the nodes of ``side`` and ``other`` (None: all others).

    The links stay up, and packets are retransmitted until the end. With ``detected`` the links break at the start,
    packets in flight are lost, and the hosts reconnect at the end.
    """

    start: float
    end: float
    side: frozenset[str]
    other: frozenset[str] | None = None
    detected: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end < float("inf"):
            raise ConfigError(
                f"a partition from {self.start} to {self.end} is not valid; its end must come after its start."
            )

    def separates(self, one: str, another: str) -> bool:
        """Whether these two are on different sides."""
        for a, b in ((one, another), (another, one)):
            if a in self.side and (b not in self.side if self.other is None else b in self.other):
                return True
        return False

    def is_active(self, now: float) -> bool:
        """Whether it separates nodes now."""
        return self.start <= now < self.end


@dataclass(slots=True)
class Traffic:
    """Traffic in one direction by class of message: counts, bytes, and packets lost at least once."""

    messages: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


class LinkDirection:
    """One direction of a link in use."""

    def __init__(self, link: Link, random: Random) -> None:
        self.link = link
        self.traffic = Traffic()
        self._random = random
        # When the bandwidth is free again.
        self._free_at = 0.0
        #: When the last packet arrives.
        self.last_at = 0.0

    def arrival(self, kind: str, size: int, now: float, passes: Callable[[float], bool]) -> float:
        """When a packet that is sent now arrives; ``passes`` says whether a transmission at a time may succeed.

        It is counted under ``kind``.
        """
        link, traffic = self.link, self.traffic
        traffic.messages[kind] += 1
        traffic.size[kind] += size
        if link.bandwidth is not None:
            now = self._free_at = max(now, self._free_at) + size / link.bandwidth
        sent = now
        while not passes(sent) or (link.loss and self._random.random() < link.loss):
            sent += RETRANSMIT_AFTER
        traffic.lost[kind] += sent > now
        at = sent + link.latency + (self._random.random() * link.jitter if link.jitter else 0.0)
        self.last_at = max(self.last_at, at)
        return self.last_at


#: Hosts reconnect a broken link after so many seconds.
RECONNECT = 1.0
#: Virtual seconds between two clock readings of a search, so that searches are deterministic.
SEARCH_STEP = 0.01
#: A node may ask so often in a row to run again without a delay.
MAX_IMMEDIATE_RUNS = 1000


class UnsettledError(SlacklineError):
    """The simulated network did not settle within the limit; the message says what each node waits for."""


class LoggedNotice(NamedTuple):
    """A notice of a node."""

    at: float
    node: str
    notice: Notice


class ForwardedPacket(NamedTuple):
    """A packet that the former node of a detector forwarded to the new one: events by type, and bytes."""

    at: float
    sender: str
    to: str
    detector: str
    events: dict[str, int]
    size: int


class MigrationRequest(NamedTuple):
    """A request to migrate a detector, sent to the node ``by``; ``request`` is its id there."""

    at: float
    by: str
    detector: str
    to: str
    request: str


class PlacementSearch(NamedTuple):
    """A search for a better placement that a node started."""

    at: float
    by: str
    problem: Problem


class Scheduler:
    """Virtual time: actions by time; at the same time, in the order in which they were scheduled.

    >>> scheduler = Scheduler()
    >>> scheduler.schedule(2.5, lambda: print("at", scheduler.now))
    >>> scheduler.advance()
    at 2.5
    """

    def __init__(self) -> None:
        self.now = 0.0
        #: The number of actions that the user planned and that have not happened.
        self.planned = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()

    def schedule(self, at: float, action: Callable[[], None]) -> None:
        """Run an action at a time, or now if that has passed."""
        heapq.heappush(self._queue, (max(at, self.now), next(self._serial), action))

    def plan(self, at: float, action: Callable[[], None]) -> None:
        """Schedule an action of the user: the network is not settled before it."""
        if at < self.now:
            raise ConfigError(f"at={at} has passed; it is {self.now}.")
        self.planned += 1

        def run() -> None:
            self.planned -= 1
            action()

        self.schedule(at, run)

    @property
    def next_at(self) -> float | None:
        """The time of the next action."""
        return self._queue[0][0] if self._queue else None

    def advance(self) -> None:
        """Advance to the next action and run it."""
        self.now, _, action = heapq.heappop(self._queue)
        action()


class Network:
    """Nodes and links in virtual time. Add nodes, connect them, feed them, plan faults, run.

    ``seed``    of all random numbers: jitter and loss of links.
    ``bus``     the link between each host and a bus that retains, for nodes with ``NodeSettings.bus``.
    ``solver``  runs the placement searches of nodes, instead of the solver that they name.

    ``hosts``, ``notices``, ``forwarded``, ``migrations`` and ``searches`` can be read at any time. A node that another
    one has resumed (``NodeSettings.failover_after``) has a host of its own, on the machine of that one: ``n2@n1``.

    >>> network = Network(seed=7)
    >>> network.at(2.5, lambda: print("virtual time", network.now))
    >>> network.run()
    virtual time 2.5
    """

    def __init__(self, seed: int, solver: Solver | None = None, bus: Link | None = None) -> None:
        self._seed = seed
        self._solver = solver
        self._scheduler = Scheduler()
        way = bus or Link()
        self.bus = SimulatedBus(
            self._scheduler,
            lambda name, to_bus: LinkDirection(way, Random(f"{seed}:{name}:{BUS}:{to_bus}")),
            lambda name, at: not self._is_separated(name, BUS, at),
            self._deliver_to,
            self._bus_fails,
        )
        self.hosts: dict[str, SimulatedHost] = {}
        self.notices: list[LoggedNotice] = []
        self.forwarded: list[ForwardedPacket] = []
        self.migrations: list[MigrationRequest] = []
        self.searches: list[PlacementSearch] = []
        self._directions: dict[tuple[str, str], LinkDirection] = {}
        self._linked: dict[str, list[str]] = {}
        # By node and peer, the number of the host's open connection. Packets of other connections are dropped.
        self._connections: dict[tuple[str, str], int] = {}
        self._connection_numbers = count(1)
        self._partitions: list[Partition] = []
        # By node its present host, and by host its machine where that has another name: of nodes that were resumed.
        self._host_of: dict[str, str] = {}
        self._machines: dict[str, str] = {}
        # Packets in flight, by class of message.
        self._in_flight: Counter[str] = Counter()

    @property
    def now(self) -> float:
        """Virtual time, in seconds."""
        return self._scheduler.now

    # Topology and input.

    def add(self, name: str, make: Callable[[], Node], load: LoadNode | None = None, cpu: Cpu | None = None) -> None:
        """Add a node and start it: ``make`` creates it, ``load`` restores it from a checkpoint."""
        if name in self.hosts:
            raise ConfigError(f"there is a node {name!r} already; node names must differ.")
        host = self.hosts[name] = SimulatedHost(name, make, load, cpu)
        self._scheduler.schedule(self.now, lambda: self._step(host))

    def connect(self, one: str, another: str, link: Link, back: Link | None = None) -> None:
        """Link two nodes; ``back`` is the other direction, the same as ``link`` unless given."""
        self._host(one), self._host(another)
        if one == another or (one, another) in self._directions:
            raise ConfigError(f"cannot connect {one!r} with {another!r}: they are the same node or already connected.")
        for a, b, way in ((one, another, link), (another, one, back or link)):
            self._directions[a, b] = LinkDirection(way, Random(f"{self._seed}:{a}:{b}"))
            self._linked.setdefault(a, []).append(b)
        self._scheduler.schedule(self.now, lambda: self._connect(one, another))

    def connect_all(self, link: Link) -> None:
        """Link all pairs of nodes that have no link yet."""
        names = list(self.hosts)
        for number, one in enumerate(names):
            for another in names[number + 1 :]:
                if (one, another) not in self._directions:
                    self.connect(one, another, link)

    def feed(self, name: str, arrivals: Iterable[Arrivals]) -> None:
        """Set the input of a node, in order of time; it ends after the last batch.

        While the node is not ready or is full, input waits in order, and none is dropped.
        """
        host = self._host(name)
        host.feed(arrivals)
        self._scheduler.schedule(self.now, lambda: self._step(host))

    def _host(self, name: str) -> SimulatedHost:
        if name not in self.hosts:
            raise ConfigError(f"there is no node {name!r}; there are {list(self.hosts)}.")
        return self.hosts[name]

    # Planned actions and faults.

    def at(self, at: float, action: Callable[[], None]) -> None:
        """Call a function at a virtual time, for example to inspect a node."""
        self._scheduler.plan(at, action)

    def partition(self, partition: Partition) -> None:
        """Separate nodes for some time; see :class:`~slackline.cluster.simulation.network.Partition`."""
        for name in (*partition.side, *(partition.other or ())):
            self._host(name)
        self._partitions.append(partition)

        def begin() -> None:
            for pair in self._directions if partition.detected else ():
                if partition.separates(*pair):
                    self._drop(*pair)

        def end() -> None:
            for pair in list(self._directions):
                if partition.separates(*pair):
                    self._connect(*pair)

        self.at(partition.start, begin)
        self.at(partition.end, end)

    def crash(
        self, name: str, at: float, back: float | None = None, *, forget: bool = False, detected: bool = True
    ) -> None:
        """Crash a node at a time, and restart it at ``back`` from its last checkpoint (``forget``: from scratch).

        Packets that it sent before arrive. Its peers detect the broken links at once, or, with ``detected=False``, at
        its restart.
        """
        host = self._host(name)
        if back is not None and back < at:
            raise ConfigError(f"node {name!r} cannot crash at {at} and restart at {back}; pass a later time.")

        def crash() -> None:
            for resumed in [key for key, machine in self._machines.items() if machine == name]:
                self._crash(self.hosts[resumed], detected, for_good=True)
            self._crash(host, detected, for_good=back is None)

        def restart() -> None:
            if host.node is None and not host.has_stopped:
                host.restart(forget)
                self._step(host)
                for peer in self._peers(name):
                    self._connect(name, peer)

        self.at(at, crash)
        if back is not None:
            self.at(back, restart)

    def _crash(self, host: SimulatedHost, detected: bool, for_good: bool) -> None:
        if host.node is None:
            return
        for peer in self._peers(host.name):
            if detected:
                self._hang_up(host.name, peer)
            self._connections.pop((host.name, peer), None)
        settings = getattr(host.node, "settings", None)  # of a stand-in for a node: none
        host.is_lost = for_good and settings is not None and settings.failover_after is not None
        host.crash()
        host.has_stopped = host.has_stopped or for_good

    def migrate(self, detector: str, to: str, by: str, at: float) -> None:
        """Request a migration from the node ``by`` at a time; ignored if that node is down then."""
        host = self._host(by)

        def request() -> None:
            if host.node is not None:
                number = host.node.migrate(detector, to, self.now)
                self.migrations.append(MigrationRequest(self.now, by, detector, to, number))

        self.at(at, lambda: self._deliver_to(host, request))

    def shut_down(self, name: str, at: float) -> None:
        """Shut a node down cleanly at a time."""
        host = self._host(name)

        def leave() -> None:
            if host.node is not None:
                host.node.leave(self.now)

        self.at(at, lambda: self._deliver_to(host, leave))

    # Running.

    def run(self, until: float | None = None) -> None:
        """Run until a virtual time, or until nothing is scheduled (never, with nodes that send heartbeats)."""
        scheduler = self._scheduler
        while scheduler.next_at is not None and (until is None or scheduler.next_at <= until):
            scheduler.advance()
        scheduler.now = max(scheduler.now, until or 0.0)

    def settle(self, limit: float = 600.0) -> None:
        """Run until all input is processed and all planned actions have happened.

        An UnsettledError after ``limit`` seconds of virtual time.
        """
        limit += self.now
        while self._scheduler.planned or any(host.waits_for() for host in self.hosts.values()):
            at = self._scheduler.next_at
            if at is None or at > limit:
                raise UnsettledError(f"not settled at {self.now:.3f} s: {self._waiting()}.")
            self._scheduler.advance()

    def _waiting(self) -> str:
        waits = [text for host in self.hosts.values() if (text := host.waits_for())]
        packets = {kind: n for kind, n in sorted(self._in_flight.items()) if n}
        waits += [f"packets in flight: {packets}"] if packets else []
        waits += [f"{self._scheduler.planned} planned actions are due later"] if self._scheduler.planned else []
        return "; ".join(waits)

    def results(self, name: str) -> HostResults:
        """The results of a node: outputs with their virtual times, late and quarantined events."""
        return self._host(name).results

    def traffic(self, sender: str, to: str) -> Traffic:
        """Messages and bytes that were sent over a link in one direction."""
        if (sender, to) not in self._directions:
            raise ConfigError(f"there is no link from {sender!r} to {to!r}; connect them.")
        return self._directions[sender, to].traffic

    def check_invariants(self) -> None:
        """Check the invariants of all nodes that are up."""
        for host in self.hosts.values():
            if host.node is not None:
                host.node.check_invariants()

    # Nodes.

    def _step(self, host: SimulatedHost) -> None:
        """Push due input, run the node and carry out its actions, until no more input is due."""
        if host.is_working:
            return  # resumed when the work is done
        host.push_due(self.now)
        while host.node is not None:
            actions, done = host.run(self.now)
            if done > self.now:
                return self._finish(host, actions, done)
            self._act(host, actions)
            if not host.push_due(self.now):
                break
        wanted = [at for at in (host.call_at, self._input_at(host)) if at is not None]
        if host.node is not None and wanted:
            self._wake(host, min(wanted))

    def _deliver_to(self, host: SimulatedHost, call: Callable[[], None]) -> None:
        """Call a node and run it; after its work while it is busy."""
        if host.deliver(call):
            self._step(host)

    def _finish(self, host: SimulatedHost, actions: Actions, at: float) -> None:
        """Carry out the actions of a run when its work is done, unless the node crashes before."""
        node = host.node

        def finish() -> None:
            if host.node is node:
                self._act(host, actions)
                host.finish_work()
                self._step(host)

        self._scheduler.schedule(at, finish)

    def _input_at(self, host: SimulatedHost) -> float | None:
        """When the next input arrives; None for input that waits for the node."""
        at = host.next_at
        return None if at is None or at <= self.now else at

    def _wake(self, host: SimulatedHost, at: float) -> None:
        if at <= self.now:
            host.at_once += 1
            if host.at_once > MAX_IMMEDIATE_RUNS:
                raise UnsettledError(
                    f"node {host.name!r} asked to run again without a delay, {MAX_IMMEDIATE_RUNS} times in a row."
                )
        else:
            host.at_once = 0
        node = host.node
        host.wake_at = at

        def wake() -> None:
            if host.wake_at == at and host.node is node:
                host.wake_at = None
                self._step(host)

        self._scheduler.schedule(at, wake)

    def _act(self, host: SimulatedHost, actions: Actions) -> None:
        node, name = host.node, host.name
        assert node is not None
        if host.is_fenced and actions.checkpoint is not None:  # the store refuses it, so nothing is sent
            self.notices.append(LoggedNotice(self.now, name, Notice("error", f"{node.name} was resumed elsewhere")))
            self._crash(host, detected=True, for_good=True)
            return
        host.record(actions, self.now)
        host.call_at = actions.call_at
        self.notices += [LoggedNotice(self.now, name, notice) for notice in actions.notices]
        self.bus.act(host, node, actions)
        for peer, data in actions.messages:
            self._send(name, peer, data)
        for peer in actions.close:
            self._close(name, peer)
        if actions.search is not None:
            self._search(host, actions.search)
        for takeover in actions.takeovers:
            self._resume(host, takeover)
        if node.failed is not None or node.has_left:
            if node.failed is not None:
                self.notices.append(LoggedNotice(self.now, name, Notice("error", node.failed)))
            for peer in self._peers(name):
                self._hang_up(name, peer)
                self._connections.pop((name, peer), None)
            host.has_left = node.has_left
            host.crash()
            host.has_stopped = True

    def _bus_fails(self, host: SimulatedHost, error: ProtocolError) -> None:
        """A log is not of this cluster: the node stops."""
        self.notices.append(LoggedNotice(self.now, host.name, Notice("error", str(error))))
        self._crash(host, detected=True, for_good=True)

    def _search(self, host: SimulatedHost, search: SearchOrder) -> None:
        """Run a placement search; the node gets the result after the virtual seconds of the search."""
        node, steps = host.node, count()
        self.searches.append(PlacementSearch(self.now, host.name, search.problem))
        solution = run_search(search, lambda: next(steps) * SEARCH_STEP, self._solver)

        def report() -> None:
            if node is not None and host.node is node:
                node.found(search, solution, self.now)
                self._step(host)

        self._scheduler.schedule(self.now + search.seconds, report)

    def _resume(self, host: SimulatedHost, takeover: Takeover) -> None:
        """Resume a lost node beside this one, unless another host has done so, or has fenced this one."""
        former = self.hosts[self._host_of.get(takeover.node, takeover.node)]
        runs_again = takeover.incarnation is not None and former.incarnation > takeover.incarnation
        if host.is_fenced or former.checkpoint.state is None or runs_again:
            return
        if former.has_left:
            assert host.node is not None
            host.node.forget(takeover.node)
            return
        machine = self._machines.get(host.name, host.name)
        key = f"{takeover.node}@{machine}"
        while key in self.hosts:
            key += "'"
        self.hosts[key] = successor = former.succeeded_by(key)
        self._host_of[takeover.node], self._machines[key] = key, machine
        self.notices.append(LoggedNotice(self.now, host.name, Notice("warning", f"resumed node {takeover.node}")))
        for peer in self._peers(former.name):
            self.connect(key, peer, self._directions[former.name, peer].link, self._directions[peer, former.name].link)
        self._scheduler.schedule(self.now, lambda: self._step(successor))

    # Connections and packets.

    def _peers(self, name: str) -> list[str]:
        return list(self._linked.get(name, ()))

    def _is_separated(self, one: str, another: str, at: float | None = None) -> bool:
        at = self.now if at is None else at
        one, another = self._machines.get(one, one), self._machines.get(another, another)
        return any(each.is_active(at) and each.separates(one, another) for each in self._partitions)

    def _send(self, name: str, peer: str, data: bytes) -> None:
        connection = self._connections.get((name, peer))
        if connection is None:
            return
        body = decode(data).body
        kind = type(body).__name__
        if isinstance(body, Data) and body.forwarded_for:
            events: Counter[str] = Counter()
            for segment in body.segments:
                events[segment.type] += segment.count
            self.forwarded.append(ForwardedPacket(self.now, name, peer, body.forwarded_for, dict(events), len(data)))
        way, passes = self._directions[name, peer], lambda at: not self._is_separated(name, peer, at)
        self._in_flight[kind] += 1
        at = way.arrival(kind, len(data), self.now, passes)
        self._scheduler.schedule(at, lambda: self._arrive(name, peer, connection, kind, data))

    def _arrive(self, name: str, peer: str, connection: int, kind: str, data: bytes) -> None:
        self._in_flight[kind] -= 1
        host = self.hosts[peer]
        if self._connections.get((peer, name)) != connection or host.node is None:
            return
        node = host.node

        def receive() -> None:
            try:
                node.receive(name, data, self.now)
            except ProtocolError as error:
                self.notices.append(LoggedNotice(self.now, peer, Notice("error", f"link to {name} closed: {error}")))
                self._close(peer, name)

        self._deliver_to(host, receive)

    def _connect(self, one: str, another: str) -> None:
        """Connect two nodes unless they are connected; during a partition, retry later."""
        if self.hosts[one].node is None or self.hosts[another].node is None:
            return  # a node connects when it restarts
        ends = self._connections.get((one, another)), self._connections.get((another, one))
        if ends[0] is not None and ends[0] == ends[1]:
            return
        if self._is_separated(one, another):
            self._scheduler.schedule(self.now + RECONNECT, lambda: self._connect(one, another))
            return
        connection = next(self._connection_numbers)
        for name, peer in ((one, another), (another, one)):
            self._drop(name, peer)
        for name, peer in ((one, another), (another, one)):
            host, node = self.hosts[name], self.hosts[name].node
            if node is not None:
                self._connections[name, peer] = connection
                host.deliver(partial(self._link_up, node, peer))
        for name in (one, another):
            self._step(self.hosts[name])

    def _link_up(self, node: Node, peer: str) -> None:
        node.link_up(peer, self.now)

    def _drop(self, name: str, peer: str) -> None:
        """A host detects that its link is broken."""
        host = self.hosts[name]
        node = host.node
        if self._connections.pop((name, peer), None) is not None and node is not None:
            host.deliver(lambda: node.link_down(peer, self.now))
            self._scheduler.schedule(self.now, lambda: self._step(host))

    def _close(self, name: str, peer: str) -> None:
        """A host closes its link, and reconnects later."""
        self._hang_up(name, peer)
        self._drop(name, peer)
        self._scheduler.schedule(self.now + RECONNECT, lambda: self._connect(name, peer))

    def _hang_up(self, name: str, peer: str) -> None:
        """The peer detects the closed link after the packets that were sent before; not across a partition."""
        connection = self._connections.get((name, peer))
        if connection is None or self._is_separated(name, peer):
            return
        way = self._directions[name, peer]

        def detect() -> None:
            if self._connections.get((peer, name)) == connection:
                self._drop(peer, name)
                self._scheduler.schedule(self.now + RECONNECT, lambda: self._connect(name, peer))

        self._scheduler.schedule(max(self.now + way.link.latency, way.last_at), detect)
