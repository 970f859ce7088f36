"""The simulated bus that retains: a log per type, and a link between it and each host.

It does what a broker does. Records arrive in the order in which a host sent them; a greater epoch fences the writers of
lower ones. A host reads a log from a position on, and gets what follows as it arrives. Packets that are lost are
retransmitted; a host that is separated from the bus waits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from slackline.cluster.interface import Actions, Append
from slackline.cluster.protocol import Node
from slackline.cluster.protocol.messages import ProtocolError, decode_record

if TYPE_CHECKING:
    from slackline.cluster.simulation.host import SimulatedHost
    from slackline.cluster.simulation.network import LinkDirection, Scheduler

#: Its name in partitions: nodes that are separated from all others are separated from the bus, too.
BUS = "bus"


@dataclass(slots=True)
class Log:
    """The records of a type; ``ends`` has for each the highest offset so far."""

    records: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    epoch: tuple[int, int] = (0, 0)
    readers: dict[str, Reader] = field(default_factory=dict)

    def append(self, append: Append) -> bool:
        """Whether the log has the record now; not if its writer is fenced."""
        if append.epoch < self.epoch:
            return False
        self.epoch = append.epoch
        first = decode_record(append.record).segment.first
        assert first <= (self.ends[-1] if self.ends else 1), f"{append.type}: the log would leave out offsets"
        self.records.append(append.record)
        self.ends.append(max(append.next, self.ends[-1] if self.ends else 1))
        return True

    def position(self, offset: int) -> int:
        """The position from which on the log has all events from an offset on; 0: that of the newest record."""
        if not offset:
            return max(0, len(self.records) - 1)
        return max(0, bisect_left(self.ends, offset) - 1)


@dataclass(slots=True, eq=False)
class Reader:
    """A node that reads a log, and the position of the next record."""

    host: SimulatedHost
    node: Node
    position: int


class SimulatedBus:
    """The logs, and the links to all hosts. ``deliver`` calls a node and runs it, ``passes`` says whether a host may
    reach the bus at a time."""

    def __init__(
        self,
        scheduler: Scheduler,
        direction: Callable[[str, bool], LinkDirection],
        passes: Callable[[str, float], bool],
        deliver: Callable[[SimulatedHost, Callable[[], None]], None],
        fail: Callable[[SimulatedHost, ProtocolError], None],
    ) -> None:
        self.logs: dict[str, Log] = {}
        self._scheduler = scheduler
        self._direction = direction
        self._passes = passes
        self._deliver = deliver
        self._fail = fail
        self._directions: dict[tuple[str, bool], LinkDirection] = {}

    def act(self, host: SimulatedHost, node: Node, actions: Actions) -> None:
        """Append and read what a node asks for."""
        for append in actions.appends:
            self._send(host, len(append.record), True, partial(self._append, host, node, append))
        for kind, offset in actions.reads.items():
            log = self.logs.setdefault(kind, Log())
            log.readers.pop(host.name, None)
            if offset is not None:
                log.readers[host.name] = reader = Reader(host, node, -1)
                self._send(host, 1, True, partial(self._seek, log, reader, offset))

    def _seek(self, log: Log, reader: Reader, offset: int) -> None:
        reader.position = log.position(offset)
        self._read(log, reader)

    def _append(self, host: SimulatedHost, node: Node, append: Append) -> None:
        log = self.logs.setdefault(append.type, Log())
        if not log.append(append):
            return
        self._send(host, 1, False, lambda: self._acknowledge(host, node, append))
        for reader in list(log.readers.values()):
            self._read(log, reader)

    def _acknowledge(self, host: SimulatedHost, node: Node, append: Append) -> None:
        if host.node is node:
            self._deliver(host, lambda: node.appended(append, self._scheduler.now))

    def _read(self, log: Log, reader: Reader) -> None:
        if reader.position < 0 or reader.position >= len(log.records):
            return
        records, reader.position = log.records[reader.position :], len(log.records)
        host, node = reader.host, reader.node

        def read() -> None:
            if log.readers.get(host.name) is reader and host.node is node:
                try:
                    node.read(records, self._scheduler.now)
                except ProtocolError as error:
                    self._fail(host, error)

        def arrive() -> None:
            if host.node is node:
                self._deliver(host, read)

        self._send(host, sum(map(len, records)), False, arrive)

    def _send(self, host: SimulatedHost, size: int, to_bus: bool, arrive: Callable[[], None]) -> None:
        key = host.name, to_bus
        if key not in self._directions:
            self._directions[key] = self._direction(*key)
        way = self._directions[key]
        at = way.arrival("Record", size, self._scheduler.now, lambda at: self._passes(host.name, at))
        self._scheduler.schedule(at, arrive)
