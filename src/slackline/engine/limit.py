"""The limit on what waits, and on what lies set aside until somebody collects it."""

from __future__ import annotations

import pyarrow as pa

from slackline.core.errors import BufferLimitError
from slackline.core.event import Event
from slackline.engine.arrivals import types_of
from slackline.engine.intake import Intake
from slackline.engine.outbox import Outbox
from slackline.engine.topology import Topology


class Limit:
    """Looks whether too much is held. Once it is, only what may move the clock is let in."""

    def __init__(self, most: int, topology: Topology, intake: Intake, outbox: Outbox) -> None:
        self.most = most
        self.topology = topology
        self.intake = intake
        self.outbox = outbox
        self._room = -1  # events that may come, or be found, before it must be looked how many wait
        self.is_full = False

    def count(self, events: int) -> None:
        """So many events have come, or were found: so many more may wait, for each detector."""
        self._room -= events

    def look_again(self) -> None:
        """Nobody knows how many wait."""
        self._room = -1

    def is_passed(self) -> bool:
        """Whether more events wait than allowed."""
        if self._room < 0:
            self._room = self.most - self.topology.buffered
        return self._room < 0

    def check(self) -> BufferLimitError | None:
        """The error to raise when more is held than allowed."""
        error = self._error()
        self.is_full = error is not None
        return error

    def _error(self) -> BufferLimitError | None:
        late, quarantined, duplicates, unsent = self.outbox.held
        held = late + quarantined + duplicates + unsent
        if held > self.most:
            aside = f"{late} late, {quarantined} quarantined and {duplicates} duplicate events"
            cause = f"{aside} were not collected: call engine.drain()."
            if unsent:
                cause = f"{unsent} events for other engines were not collected: call engine.news(). " + cause
            return BufferLimitError(held, self.most, cause)
        return BufferLimitError(self.topology.buffered, self.most, self._why()) if self.is_passed() else None

    def refuse_unless_clock(self, arrivals: list[Event] | pa.Table) -> None:
        """Beyond the limit, refuse a push that cannot move the clock; the caller keeps it."""
        error = self.check()
        if error is None:
            return
        clock = {*self.topology.hierarchy.clock, *self.topology.hierarchy.clock_aids}
        if sum(self.outbox.held) > self.most or not types_of(self.topology, arrivals) & clock:
            raise error

    def _why(self) -> str:
        types, clk = sorted(self.topology.hierarchy.clock), self.intake.clock.clk
        if clk is None:
            return f"no event of the clock types {types} has ever arrived, so stream time does not move."
        idle = self.intake.position - self.intake.last_advance
        if idle:
            return f"the clock types {types} stopped at {clk}, {idle} arrivals ago; stream time stands still."
        slowest = min(self.topology.parts, key=lambda part: part.buffer.watermark)
        return f"the clock moves ({clk}), but detector {slowest.name!r} waits with K={slowest.buffer.K}."
