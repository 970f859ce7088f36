"""What the host of several engines needs, and users of one engine do not: :attr:`slackline.Engine.host`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from slackline.core.detector import Detector
from slackline.core.errors import ClosedError, ConfigError
from slackline.core.outcome import Output, ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.engine import migration
from slackline.engine.arrivals import exclusive
from slackline.engine.migration import Detached, Receiver
from slackline.engine.progress import ReceivedProgress, checked_updates
from slackline.ordering.delay_pool import ARRIVAL_LAGS, DelayPool, PooledEstimator
from slackline.running.state_copy import StateCopy

if TYPE_CHECKING:
    from slackline.engine.engine import Engine


class HostInterface:
    """Progress exchange between engines, migration of detectors between them, and CPU accounting.

    Engines that share a hierarchy (``Engine(detectors=…, sensors=…)``) exchange progress updates: what
    :meth:`progress_updates` of one returns goes to :meth:`receive` of the others. A part of the engine in a class of
    its own: it has no state, and its calls exclude those of the engine.
    """

    __slots__ = ("_engine", "_idle")

    def __init__(self, engine: Engine) -> None:
        self._engine, self._idle = engine, engine._idle

    def worked(self, start: float, stop: float) -> float | None:
        """Report CPU time of the host (``now="host"``): it worked from ``start`` to ``stop``.

        ``alpha="auto"`` and ``pause`` adapt to it for the next pushes. Seconds are those of a wall clock that survives
        checkpoints if the engine does. Returns the busy factor when an interval has passed, else None.
        """
        engine = self._engine
        busy = engine._speculator.worked(engine._topology.operators, start, stop, engine.deferred > 0)
        if engine._overload is not None:
            engine._overload.worked(start, stop)
        return busy

    @property
    def default_slack(self) -> int:
        """The default slack of the startup estimator, for :meth:`DelayPool.count_known`."""
        return self._engine._topology.startup.default_slack

    def pooled_estimators(self) -> dict[str, PooledEstimator]:
        """The estimators of delays that a :class:`DelayPool` shares, by event type; none without a late target."""
        sensors, lags = self._engine._topology.sensors, self._engine._intake.arrival_watermark
        found = {name: each for name, sensor in sensors.items() if (each := sensor.pooled) is not None}
        return found if lags is None else {**found, ARRIVAL_LAGS: lags.pooled}

    @exclusive
    def use_pool(self, pool: DelayPool) -> None:
        """Use what a pool of several keys knows of delays. The next push returns what that releases."""
        engine = self._engine
        engine._record("pool", given=pool)
        driver = engine._driver
        driver.advance()
        if pool.has(ARRIVAL_LAGS):
            engine._intake.use_arrival_times()
        changed = pool.lend(self.pooled_estimators())
        if engine._topology.startup.start_from(pool.default_slack) or changed:
            driver.reevaluate()
            if driver is engine._chunked:
                engine._scalar.invalidate()

    @exclusive
    def stats(self) -> dict[str, Any]:
        """Of :meth:`~slackline.Engine.stats` stream time, counts and detectors: a large hierarchy has many types."""
        engine = self._engine
        engine._advance_watermarks()
        return {**engine._intake.counts(), "detectors": engine._speculator.stats(engine._topology.operators)}

    @exclusive
    def progress_updates(self) -> list[ProgressUpdate]:
        """Progress since the last call, for the detectors that run in other engines.

        With ``sensors``: of all types that enter or are published here, if anything changed.
        """
        self._engine._advance_watermarks()
        return self._engine._progress.updates(self._engine._intake.clk)

    @exclusive
    def receive(self, updates: Iterable[ProgressUpdate]) -> list[Output]:
        """Process progress updates of other engines and return the outputs. **All or nothing**, like a push.

        The updates of a type must be received exactly once and in the order in which they were produced.
        """
        self._engine._record("receive")
        return self._engine._timed(self._receive, checked_updates(self._engine._topology, updates))

    def _receive(self, received: ReceivedProgress) -> list[Output]:
        engine = self._engine
        engine._limit.count(sum(len(item.events) for item in received.items))
        if received.rows or engine._driver is engine._chunked:
            engine._chunked.receive(received)
            engine._scalar.invalidate()
        else:
            engine._scalar.receive(received.items)
        return engine._end_of_stream() if engine._closed and engine._topology.named is None else engine._finish()

    @exclusive
    def follow(self, clk: int) -> list[Output]:
        """Nothing has arrived here for long: advance stream time to ``clk``, that of other engines.

        For an engine at which a part of the clock type enters (:meth:`Hierarchy.in_parts`): otherwise the other engines
        would wait for its watermark. What arrives later is late if it is older than what others have had.
        """
        intake, kinds = self._engine._intake, list(self._engine._topology.entering)
        self._engine._record("follow")
        intake.is_idle = True
        try:  # an update of a type that enters here changes nothing else
            return self._engine._timed(
                self._receive, ReceivedProgress([], [ProgressUpdate(kind, (), (), NEVER, 0, clk) for kind in kinds[:1]])
            )
        finally:
            intake.is_idle = False

    @exclusive
    def end(self, types: Iterable[str]) -> list[Output]:
        """Declare that sensor types that enter here have ended; watermarks do not wait for them. Returns the outputs.

        When all sensor types have ended, in all engines, all buffered events are processed.
        """
        given, known = [types] if isinstance(types, str) else list(types), self._engine._topology.entering
        if unknown := [kind for kind in given if kind not in known]:
            raise ConfigError(f"end(): {unknown} are not sensor types of this engine; it has {sorted(known)}.")
        self._engine._record("end")
        return self._engine._timed(self.end_types, given)

    def end_types(self, types: Iterable[str]) -> list[Output]:
        """The same within a call of the engine."""
        clk = self._engine._intake.clk
        self._engine._topology.ended.update(types)
        return self._receive(ReceivedProgress([], [ProgressUpdate(kind, (), (), FOREVER, 0, clk) for kind in types]))

    @exclusive
    def detach(self, name: str) -> bytes:
        """Stop running a detector here; returns its complete state for :meth:`attach` at another engine."""
        self._engine._record("detach")
        self._engine._advance_watermarks()
        data = migration.packed(self._engine, name)
        self._remove(name)
        return data

    @exclusive
    def copy(self, name: str) -> StateCopy | None:
        """Begin a copy of a detector's state while it runs, for :meth:`detach_copied`; None if that is not possible.

        At most one at a time for each detector.
        """
        return migration.operator_of(self._engine, name).runner.copy()

    @exclusive
    def detach_copied(self, name: str, copied: StateCopy) -> Detached:
        """Stop running a detector here, of whose state there is a copy, and end the copy."""
        self._engine._record("detach")
        self._engine._advance_watermarks()
        detached = Detached(self._engine, name, copied)
        self._remove(name)
        return detached

    def receiver(self, name: str) -> Receiver:
        """Begin to receive the copy of a detector's state, for :meth:`attach`."""
        return Receiver(self._engine, name)

    def _remove(self, name: str) -> None:
        engine = self._engine
        engine._topology.remove(name)
        engine._speculator.unregister(name)
        engine._operators_changed()

    @exclusive
    def attach(
        self,
        detector: bytes | Detector,
        missed: Iterable[ProgressUpdate] = (),
        delays: Mapping[str, int] | None = None,
        receiver: Receiver | None = None,
    ) -> list[Output]:
        """Run a detector here from now on, and return the outputs that this causes.

        Bytes are a detector of this hierarchy from :meth:`detach` at another engine; it continues where it was. A
        Detector is a new one: it is added to the hierarchy and processes what arrives from now on.

        ``missed`` are progress updates of its inputs that this engine had received before and the other engine had not
        when it detached the detector; only this detector processes them. Conversely, this engine must have received all
        that the other engine had of the detector's inputs and outputs. ``delays`` are initial delays of inputs whose
        delays are unknown here. ``receiver`` has received the copy that ``detector``, :attr:`Detached.beside`, lacks.
        """
        engine = self._engine
        if engine._closed:
            raise ClosedError("attach after close(): the stream has ended. Attach it to an engine that is open.")
        engine._record("attach")
        engine._advance_watermarks()
        if isinstance(detector, Detector):
            migration.extend(engine, detector)
            engine._operators_changed()
            return []
        updates, clk, attached = migration.unpack(engine, detector, missed, delays or {}, receiver)
        engine._operators_changed()
        engine._progress.restore_unsent(updates)
        engine._scalar.receive(updates, clk, attached)
        return engine._finish()
