"""What an engine is made of, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackline.core.detector import Detector
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Drained, Late, Quarantined
from slackline.engine.chunked import ChunkedDriver
from slackline.engine.entered import Entered
from slackline.engine.exclusive import exclusive
from slackline.engine.intake import Intake
from slackline.engine.limit import Limit
from slackline.engine.options import Options, WallTime
from slackline.engine.outbox import Outbox
from slackline.engine.overload import OverloadController
from slackline.engine.scalar import ScalarDriver
from slackline.engine.topology import Topology
from slackline.running.runner import Runner
from slackline.speculation.ahead import SpeculativeRunner
from slackline.speculation.lookahead import LookAhead


class Assembly:
    """The parts of an engine, put together; :class:`~slackline.Engine` sets them going."""

    def _start(
        self,
        hierarchy: Hierarchy,
        options: Options,
        now: WallTime,
        detectors: Iterable[str] | None,
        sensors: Iterable[str] | None,
    ) -> None:
        options.check(hierarchy, now)
        # Where detectors may be held up, what is late must not depend on how far they are: it is decided at the door.
        alone = sensors is None and options.pause is not None
        named = sorted(hierarchy.sensor_types) if alone else None if sensors is None else sorted(set(sensors))
        strange = sorted(set(named or ()) - set(hierarchy.sensor_types))
        if strange:
            raise ConfigError(f"sensors={strange} are not sensor types of the hierarchy: {hierarchy.sensor_types}.")
        names = list(hierarchy.names if detectors is None else detectors)
        unknown = sorted(set(names) - set(hierarchy.names))
        if unknown:
            raise ConfigError(f"detectors={unknown} are not in the hierarchy, which has {list(hierarchy.names)}.")
        self._options = options
        self._changed: dict[str, list[Any]] = {}
        self._now = now
        self._idle: list[None] = [None]
        self._outbox = Outbox(options.duplicates == "keep")
        self._topology = Topology(
            hierarchy, options.evidence, options.targets, named, now if callable(now) else None, alone
        )
        if named is not None and not alone:
            self._outbox.entered = Entered(self._topology.entering, hierarchy.types)
        self._intake = Intake(self._topology, self._outbox, options.jump, options.lags)
        ways = (self._topology, self._intake, self._outbox, options.late == "deliver")
        self._stepwise, self._columnar = ScalarDriver(*ways), ChunkedDriver(*ways)
        self._lookahead = LookAhead(hierarchy)
        self._closed = False
        self._limit = Limit(options.max_buffered, self._topology, self._intake, self._outbox)
        self._governor: OverloadController | None = None
        if options.pause is not None:
            self._governor = OverloadController(options.pause, self._topology, self._lookahead, options.max_buffered)
        taken = hierarchy.take_detectors() if detectors is None else {name: hierarchy.fresh(name) for name in names}
        self._topology.add(*(self._topology.make(self._runner(name, taken[name])) for name in taken))
        self._topology.start_from(options.calibration)
        self._rewired()

    def _runner(self, name: str, detector: Detector) -> Runner:
        guarded, speculation = self._options.on_error == "quarantine", self._options.speculation_of(name)
        if speculation is None:
            return Runner(detector, name, guarded)
        return SpeculativeRunner(detector, name, guarded, speculation)

    def _rewired(self) -> None:
        """Parts have come or gone: whoever keeps something about them follows."""
        topology, lookahead = self._topology, self._lookahead
        lookahead.hierarchy = topology.hierarchy
        self._may_wait = self._governor is not None or any(part.backlog for part in topology.parts)
        for part in topology.parts:
            lookahead.join(part)
            part.may_wait = self._may_wait
            if self._governor is not None:
                self._governor.join(part)
        self._outbox.export(topology.told_elsewhere())
        self._stepwise.fall_behind()
        self._limit.look_again()

    @property
    def hierarchy(self) -> Hierarchy:
        """The whole hierarchy, wherever its detectors run."""
        return self._topology.hierarchy

    # What is known.

    @property
    def late(self) -> list[Late]:
        """Late events that were diverted and not drained yet, in order of arrival (and of time stamps)."""
        return self._outbox.late

    @property
    def quarantined(self) -> list[Quarantined]:
        """Events that were set aside and not drained yet, in order of arrival."""
        return self._outbox.quarantined

    @property
    def duplicates(self) -> int:
        """How many arrivals so far were duplicates: events whose type, source and ``seq`` had arrived before."""
        return self._intake.duplicates

    @exclusive
    def drain(self) -> Drained:
        """Take the late and quarantined events, and with ``duplicates="keep"`` the duplicates; the engine forgets them.

        >>> from slackline import Detector, Engine, Event, Hierarchy
        >>> class Echo(Detector):
        ...     listens, publishes = ("ping",), ("pong",)
        ...     def on_event(self, event):
        ...         yield event.derive("pong")
        >>> engine = Engine(Hierarchy([Echo()], clock="ping"), duplicates="keep")
        >>> found = engine.push([Event("ping", ts=1, seq=0), Event("ping", ts=1, seq=0)])
        >>> engine.duplicates, engine.drain().duplicates
        (1, [Duplicate(event=Event('ping', ts=1, seq=0), position=1)])
        """
        return self._outbox.drain()

    @property
    def detectors(self) -> dict[str, Detector]:
        """The detectors that run here, by name."""
        return {part.name: part.runner.detector for part in self._topology.parts}

    def buffered(self) -> dict[str, list[Event]]:
        """The events that wait, per detector, in the order in which they will be seen."""
        return {part.name: part.waiting() for part in self._topology.parts}

    @property
    def waiting(self) -> int:
        """How many events wait in front of the detector with the most."""
        return self._topology.buffered

    @exclusive
    def stats(self) -> dict[str, Any]:
        """K, delays, buffers and counts, per detector and per type; plain values that JSON can hold."""
        self._settle()
        return {
            **self._intake.stats(),
            "buffered": self.waiting,
            "quarantined": dict(self._outbox.reasons),
            "flushed": dict(self._outbox.flushed),
            "detectors": self._lookahead.stats(self._topology.parts),
            **({} if self._governor is None else {"pause": self._governor.stats()}),
            "options": self._options.in_force(self.hierarchy.names),
            "changed": self._changed,
        }

    def _settle(self) -> None:
        self._topology.advance(self._intake.position - 1, self._intake.clk)

    def check_invariants(self) -> None:
        """What must hold between any two pushes; tests call it."""
        self._topology.check_invariants()
