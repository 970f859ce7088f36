"""The connections of a simulated network: they break, are made again, and carry packets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from itertools import count

from slackline.cluster.actions import Notice
from slackline.cluster.protocol.messages import Data, ProtocolError, decode
from slackline.cluster.simulation.agenda import Agenda
from slackline.cluster.simulation.links import Direction, Partition, Traffic
from slackline.cluster.simulation.records import Forwarded, Noticed
from slackline.cluster.simulation.station import Station
from slackline.core.errors import ConfigError

#: Hosts reconnect a broken link after so many seconds.
RECONNECT = 1.0


class Wires(ABC):
    """Connections and packets between nodes, in virtual time."""

    def __init__(self) -> None:
        self._agenda = Agenda()
        self.stations: dict[str, Station] = {}
        self.notices: list[Noticed] = []
        self.forwarded: list[Forwarded] = []
        self._directions: dict[tuple[str, str], Direction] = {}
        # By node and peer, the number of the host's open connection. A packet of another connection is dropped.
        self._ends: dict[tuple[str, str], int] = {}
        self._partitions: list[Partition] = []
        self._connections = count(1)
        # Packets in flight, by class.
        self._under_way: Counter[str] = Counter()

    @property
    def now(self) -> float:
        """Virtual time, in seconds."""
        return self._agenda.now

    @abstractmethod
    def _step(self, station: Station) -> None:
        """Let a node run, and do what it wants."""

    @abstractmethod
    def _give(self, station: Station, stimulus: Callable[[], None]) -> None:
        """Let something come to a node, and let it run; while it works, later."""

    def _peers(self, name: str) -> list[str]:
        return [b for a, b in self._directions if a == name]

    def _is_separated(self, one: str, another: str, at: float | None = None) -> bool:
        at = self.now if at is None else at
        return any(each.holds(at) and each.separates(one, another) for each in self._partitions)

    def _send(self, name: str, peer: str, data: bytes) -> None:
        connection = self._ends.get((name, peer))
        if connection is None:
            return
        body = decode(data).body
        kind = type(body).__name__
        if isinstance(body, Data) and body.forwarded_for:
            events: Counter[str] = Counter()
            for segment in body.segments:
                events[segment.type] += segment.count
            self.forwarded.append(Forwarded(self.now, name, peer, body.forwarded_for, dict(events), len(data)))
        way, passes = self._directions[name, peer], lambda at: not self._is_separated(name, peer, at)
        self._under_way[kind] += 1
        at = way.arrival(kind, len(data), self.now, passes)
        self._agenda.call(at, lambda: self._deliver(name, peer, connection, kind, data))

    def _deliver(self, name: str, peer: str, connection: int, kind: str, data: bytes) -> None:
        self._under_way[kind] -= 1
        station = self.stations[peer]
        if self._ends.get((peer, name)) != connection or station.machine is None:
            return
        machine = station.machine

        def hear() -> None:
            try:
                machine.receive(name, data, self.now)
            except ProtocolError as error:
                self.notices.append(Noticed(self.now, peer, Notice("error", f"link to {name} closed: {error}")))
                self._close(peer, name)

        self._give(station, hear)

    def _connect(self, one: str, another: str) -> None:
        """Connect two nodes unless they are connected; during a partition it is tried again later."""
        if self.stations[one].machine is None or self.stations[another].machine is None:
            return  # a node connects when it restarts
        ends = self._ends.get((one, another)), self._ends.get((another, one))
        if ends[0] is not None and ends[0] == ends[1]:
            return
        if self._is_separated(one, another):
            self._agenda.call(self.now + RECONNECT, lambda: self._connect(one, another))
            return
        connection = next(self._connections)
        for name, peer in ((one, another), (another, one)):
            self._drop(name, peer)
        for name, peer in ((one, another), (another, one)):
            station, machine = self.stations[name], self.stations[name].machine
            if machine is not None:
                self._ends[name, peer] = connection
                station.give(lambda machine=machine, peer=peer: machine.link_up(peer, self.now))  # type: ignore[misc]
        for name in (one, another):
            self._step(self.stations[name])

    def _drop(self, name: str, peer: str) -> None:
        """A host detects that its link is broken."""
        station = self.stations[name]
        machine = station.machine
        if self._ends.pop((name, peer), None) is not None and machine is not None:
            station.give(lambda: machine.link_down(peer, self.now))
            self._agenda.call(self.now, lambda: self._step(station))

    def _close(self, name: str, peer: str) -> None:
        """A host closes its link, and reconnects later."""
        self._hang_up(name, peer)
        self._drop(name, peer)
        self._agenda.call(self.now + RECONNECT, lambda: self._connect(name, peer))

    def _hang_up(self, name: str, peer: str) -> None:
        """The other side detects the closed link after what was sent before; not across a partition."""
        connection = self._ends.get((name, peer))
        if connection is None or self._is_separated(name, peer):
            return
        way = self._directions[name, peer]

        def see() -> None:
            if self._ends.get((peer, name)) == connection:
                self._drop(peer, name)
                self._agenda.call(self.now + RECONNECT, lambda: self._connect(name, peer))

        self._agenda.call(max(self.now + way.link.latency, way.last_at), see)

    def traffic(self, sender: str, to: str) -> Traffic:
        """What was sent over a link in one direction."""
        if (sender, to) not in self._directions:
            raise ConfigError(f"there is no link from {sender!r} to {to!r}; connect them.")
        return self._directions[sender, to].traffic
