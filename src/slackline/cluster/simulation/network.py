"""A simulated network of nodes: virtual time, links with faults, crashes; it repeats to the byte for its seed.

It drives real nodes (:class:`slackline.cluster.protocol.Node`) as a host does: it calls them when something comes or when they
asked for it, keeps what they find, and carries what they send over a :class:`~slackline.cluster.simulation.links.Link`.
What happens at one moment happens in the order in which it was brought about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from random import Random

from slackline.cluster.actions import Actions, Notice, SearchOrder
from slackline.cluster.controller.searching import solved
from slackline.cluster.placement import Solver
from slackline.cluster.simulation.cpu import Cpu
from slackline.cluster.simulation.links import Direction, Link, Partition
from slackline.cluster.simulation.records import Noticed, Ordered, Searched
from slackline.cluster.simulation.station import Arrivals, HostMemory, Load, Machine, Station
from slackline.cluster.simulation.wires import Wires
from slackline.core.errors import ConfigError, SlacklineError

#: Seconds of a search between two looks at the time; so it repeats to the bit, and takes less time here.
SEARCH_STEP = 0.01
#: So often in a row a node may want to be called again at once.
MOST_AT_ONCE = 1000


class UnsettledError(SlacklineError):
    """The simulated network did not settle within the limit; the message says what each node waits for."""


class Network(Wires):
    """Nodes and links in virtual time. Add nodes, connect them, feed them, plan what befalls them, run.

    ``solver`` does what nodes want to be searched for, instead of the one that they name.

    >>> from slackline.cluster.simulation.links import Link
    >>> network = Network(seed=7)
    >>> network.at(2.5, lambda: print("virtual time", network.now))
    >>> network.run()
    virtual time 2.5
    """

    def __init__(self, seed: int, solver: Solver | None = None) -> None:
        super().__init__()
        self._seed = seed
        self._solver = solver
        self.orders: list[Ordered] = []
        self.searches: list[Searched] = []

    # What there is.

    def add(self, name: str, make: Callable[[], Machine], load: Load | None = None, cpu: Cpu | None = None) -> None:
        """A node: how it is made, how it comes back from a checkpoint, and its processor. It runs from now on."""
        if name in self.stations:
            raise ConfigError(f"there is a node {name!r} already; give each a name of its own.")
        station = self.stations[name] = Station(name, make, load, cpu)
        self._agenda.call(self.now, lambda: self._step(station))

    def connect(self, one: str, another: str, link: Link, back: Link | None = None) -> None:
        """A link between two nodes, the same both ways unless ``back`` is given; it is up from now on."""
        self._station(one), self._station(another)
        if one == another or (one, another) in self._directions:
            raise ConfigError(f"cannot connect {one!r} with {another!r}: they are one, or connected already.")
        for a, b, way in ((one, another, link), (another, one, back or link)):
            self._directions[a, b] = Direction(way, Random(f"{self._seed}:{a}:{b}"))
        self._agenda.call(self.now, lambda: self._connect(one, another))

    def connect_all(self, link: Link) -> None:
        """Links of one kind between all nodes that have none yet."""
        names = list(self.stations)
        for number, one in enumerate(names):
            for another in names[number + 1 :]:
                if (one, another) not in self._directions:
                    self.connect(one, another, link)

    def feed(self, name: str, arrivals: Iterable[Arrivals]) -> None:
        """What arrives at a node from outside, in order of time; after it the node's input ends.

        While the node is not ready, or full, arrivals wait: in order, and nothing is dropped.
        """
        station = self._station(name)
        station.feed(arrivals)
        self._agenda.call(self.now, lambda: self._step(station))

    def _station(self, name: str) -> Station:
        if name not in self.stations:
            raise ConfigError(f"there is no node {name!r}; there are {list(self.stations)}.")
        return self.stations[name]

    # What is planned.

    def at(self, at: float, action: Callable[[], None]) -> None:
        """Do something at a time, such as looking at a node."""
        self._agenda.plan(at, action)

    def partition(self, partition: Partition) -> None:
        """Separate nodes for some time; see :class:`~slackline.cluster.simulation.links.Partition`."""
        for name in (*partition.side, *(partition.other or ())):
            self._station(name)
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
        """A node dies at a time, and comes back at another from its last checkpoint (``forget``: from none).

        What it sent before arrives. Its peers detect the broken links at once, or, not ``detected``, at its restart.
        """
        station = self._station(name)
        if back is not None and back < at:
            raise ConfigError(f"node {name!r} cannot crash at {at} and be back at {back}; give a later time.")

        def die() -> None:
            if station.machine is None:
                return
            for peer in self._peers(name):
                if detected:
                    self._hang_up(name, peer)
                self._ends.pop((name, peer), None)
            station.crash()
            station.has_stopped = station.has_stopped or back is None

        def live() -> None:
            if station.machine is None and not station.has_stopped:
                station.come_back(forget)
                self._step(station)
                for peer in self._peers(name):
                    self._connect(name, peer)

        self.at(at, die)
        if back is not None:
            self.at(back, live)

    def order(self, detector: str, to: str, by: str, at: float) -> None:
        """Have a node give the order to move a detector; nothing happens if it is down then."""
        station = self._station(by)

        def give() -> None:
            if station.machine is not None:
                request = station.machine.migrate(detector, to, self.now)
                self.orders.append(Ordered(self.now, by, detector, to, request))

        self.at(at, lambda: self._give(station, give))

    def leave(self, name: str, at: float) -> None:
        """Have a node stop cleanly."""
        station = self._station(name)

        def go() -> None:
            if station.machine is not None:
                station.machine.leave(self.now)

        self.at(at, lambda: self._give(station, go))

    # Going on.

    def run(self, until: float | None = None) -> None:
        """Go on until a time, or until nothing is left to do; nodes that give life signs always have something."""
        agenda = self._agenda
        while agenda.next_at is not None and (until is None or agenda.next_at <= until):
            agenda.next()
        agenda.now = max(agenda.now, until or 0.0)

    def settle(self, limit: float = 600.0) -> None:
        """Go on until all is fed and through, and all that was planned has happened.

        An UnsettledError if it is not so after ``limit`` seconds of virtual time.
        """
        limit += self.now
        while self._agenda.planned or any(station.waits_for() for station in self.stations.values()):
            at = self._agenda.next_at
            if at is None or at > limit:
                raise UnsettledError(f"not settled at {self.now:.3f} s: {self._waiting()}.")
            self._agenda.next()

    def _waiting(self) -> str:
        waits = [words for station in self.stations.values() if (words := station.waits_for())]
        packets = {kind: n for kind, n in sorted(self._under_way.items()) if n}
        waits += [f"packets are under way: {packets}"] if packets else []
        waits += [f"{self._agenda.planned} planned things are to come"] if self._agenda.planned else []
        return "; ".join(waits)

    # Nodes.

    def _step(self, station: Station) -> None:
        """Push what is due, let the node run, and do what it wants; until there is no more to push now."""
        if station.is_working:
            return  # it goes on when that is done
        station.push_due(self.now)
        while station.machine is not None:
            actions, done = station.run(self.now)
            if done > self.now:
                return self._finish(station, actions, done)
            self._act(station, actions)
            if not station.push_due(self.now):
                break
        wanted = [at for at in (station.call_at, self._feed_at(station)) if at is not None]
        if station.machine is not None and wanted:
            self._wake(station, min(wanted))

    def _give(self, station: Station, stimulus: Callable[[], None]) -> None:
        """Let something come to a node, and let it run; while it works, later."""
        if station.give(stimulus):
            self._step(station)

    def _finish(self, station: Station, actions: Actions, at: float) -> None:
        """What came of a run leaves when the work is done, unless the node is lost before."""
        machine = station.machine

        def finish() -> None:
            if station.machine is machine:
                self._act(station, actions)
                station.rest()
                self._step(station)

        self._agenda.call(at, finish)

    def _feed_at(self, station: Station) -> float | None:
        """When the feed goes on, if that is to come; what is held back waits for the node."""
        at = station.next_at
        return None if at is None or at <= self.now else at

    def _wake(self, station: Station, at: float) -> None:
        if at <= self.now:
            station.at_once += 1
            if station.at_once > MOST_AT_ONCE:
                raise UnsettledError(f"node {station.name!r} wants to be called again at once, over and over.")
        else:
            station.at_once = 0
        machine = station.machine
        station.wake_at = at

        def wake() -> None:
            if station.wake_at == at and station.machine is machine:
                station.wake_at = None
                self._step(station)

        self._agenda.call(at, wake)

    def _act(self, station: Station, actions: Actions) -> None:
        machine, name = station.machine, station.name
        assert machine is not None
        station.keep(actions, self.now)
        station.call_at = actions.call_at
        self.notices += [Noticed(self.now, name, notice) for notice in actions.notices]
        for peer, data in actions.messages:
            self._send(name, peer, data)
        for peer in actions.close:
            self._close(name, peer)
        if actions.search is not None:
            self._search(station, actions.search)
        if machine.failed is not None or machine.has_left:
            if machine.failed is not None:
                self.notices.append(Noticed(self.now, name, Notice("error", machine.failed)))
            for peer in self._peers(name):
                self._hang_up(name, peer)
                self._ends.pop((name, peer), None)
            station.crash()
            station.has_stopped = True

    def _search(self, station: Station, search: SearchOrder) -> None:
        """Carry out a search; the node gets its result when the time of the search has passed."""
        machine, steps = station.machine, count()
        self.searches.append(Searched(self.now, station.name, search.problem))
        solution = solved(search, lambda: next(steps) * SEARCH_STEP, self._solver)

        def tell() -> None:
            if machine is not None and station.machine is machine:
                machine.found(search, solution, self.now)
                self._step(station)

        self._agenda.call(self.now + search.seconds, tell)

    # What came of it.

    def kept(self, name: str) -> HostMemory:
        """What a node's host has kept: outputs with their times, late and quarantined events."""
        return self._station(name).kept

    def check_invariants(self) -> None:
        """Those of all nodes that are up."""
        for station in self.stations.values():
            if station.machine is not None:
                station.machine.check_invariants()
