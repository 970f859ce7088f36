"""The engine: runs the detectors of a hierarchy on out-of-order events, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from slackline.core import codec
from slackline.core.batch import Ints
from slackline.core.calibration import CalibrationLike, calibration_of
from slackline.core.check import text
from slackline.core.detector import Detector
from slackline.core.errors import ClosedError, ConfigError, SchemaError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Drained, Late, Output, Quarantined
from slackline.core.time import FOREVER, NEVER
from slackline.engine.arrivals import BufferLimit, exclusive, in_progress, refuse_ended, times_of
from slackline.engine.chunked import ChunkedDriver
from slackline.engine.host import HostInterface
from slackline.engine.intake import Intake
from slackline.engine.options import Length, Options, WallTime
from slackline.engine.overload import OverloadController
from slackline.engine.progress import ProgressExport
from slackline.engine.recorder import Recorded, Recorder
from slackline.engine.results import Results
from slackline.engine.rows import NUMBERS, TimeForm, form_of, in_numbers, rows_of, with_type
from slackline.engine.scalar import ScalarDriver
from slackline.engine.topology import Topology
from slackline.engine.upgrade import Upgrade, fitting
from slackline.ordering import checked
from slackline.ordering.policy import Policy, policy_of
from slackline.running.deferral import Pause
from slackline.running.runner import Runner
from slackline.speculation.config import Speculation
from slackline.speculation.runner import SpeculativeRunner
from slackline.speculation.speculator import Speculator

STATE_KIND = "engine"
STATE_VERSION = 11

#: A list of at least so many events, and so many more per operator, is processed as a chunk; a shorter one event by
#: event. Measured by `slackline bench events`: there both drivers cost the same.
CHUNK, CHUNK_PER_OPERATOR = 16, 4
#: Calls that a trace can record.
CALLS = ("push", "flush", "close", "pool")


class Engine:
    """Restores event-time order and runs the detectors of a hierarchy on the ordered events.

    An engine is used by one thread at a time. Only ``hierarchy`` is required.

    **Ordering**

    ``policy``       which evidence advances watermarks, by name or with options: ``"auto"`` or
                     :class:`~slackline.Auto` (default) uses slack, readiness and progress; ``"slack"``
                     (:class:`~slackline.Slack`) and ``"ready"`` (:class:`~slackline.Ready`) use that evidence alone;
                     ``"ordered"`` expects input that is in order already.
    ``late_target``  under ``auto``: accepted share of late events, default 0.001, or a dict by detector. K becomes the
                     smallest wait that meets the target of all detectors that depend on a type. 0: the largest delay.
    ``calibration``  initial delays: a file written by ``slackline calibrate``, or its content.
    ``max_jump``     how far a clock event may be ahead of stream time before a second one must confirm it. ``"auto"``
                     (default) is 10,000 mean clock steps (unbounded under ``ordered``); None is unbounded.
    ``unit``         of event times: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``. Dates become whole numbers of it; unless
                     given, of the unit they have (Arrow, pandas, NumPy), or microseconds. Lengths of time that have
                     their own unit (``"10 s"``, ``timedelta``) need it.
    ``skew``         sources with wrong clocks: ``"report"`` them in :meth:`stats`, ``"correct"`` their time stamps, or
                     None (default).

    **Side outputs, errors and limits**

    ``late``         late events: ``"divert"`` (default) to :attr:`late`; ``"deliver"`` to the detector, out of order.
    ``duplicates``   events whose type, source and ``seq`` arrived before: ``"drop"`` (default) counts them
                     (:attr:`duplicates`), ``"keep"`` also collects them for :meth:`drain`.
    ``on_error``     when a detector raises: ``"fail"`` (default) raises DetectorError, ``"quarantine"`` continues
                     without the event.
    ``max_buffered`` maximum number of events buffered per detector, and of events in the side outputs (late,
                     quarantined, kept duplicates) that were not drained; default 1,000,000.
    ``overflow``     beyond that: ``"error"`` (default) raises BufferLimitError; ``"release"`` releases the oldest
                     events at the end of the push, although earlier ones may still arrive.

    **Speculation and overload**

    ``speculation``  emit early results and retract wrong ones: a :class:`~slackline.Speculation` for all detectors, or
                     a dict by detector; others do not speculate.
    ``pause``        a :class:`~slackline.Pause`: defer the least urgent detectors under overload; requires ``now``.
                     Events are then late per type, once for all detectors, as with ``sensors``.
    ``now``          wall clock in seconds, such as ``time.monotonic``, to measure CPU load for
                     ``Speculation(alpha="auto")`` and ``pause``; ``"host"`` if the host reports it (:attr:`host`).

    **Several engines**

    ``detectors``    the detectors of the hierarchy that run here; default: all. The others run in other engines, with
                     which :attr:`host` exchanges progress.
    ``sensors``      the sensor types that enter here; default: all. Others arrive by ``host.receive``. If given, an
                     event is late if its type's input watermark has passed it where it enters, for all detectors. Of
                     a type that enters in parts (:meth:`Hierarchy.in_parts`) one part enters here.

    >>> from slackline import Auto
    >>> class Hits(Detector):
    ...     listens, publishes = ("near", "kick"), ("hit",)
    ...     def __init__(self):
    ...         self.close = set()
    ...     def on_event(self, event):
    ...         if event.type == "near":
    ...             self.close.add(event["player"])
    ...         else:
    ...             for player in sorted(self.close):
    ...                 yield event.derive("hit", player=player)
    >>> engine = Engine(Hierarchy([Hits()], clock="kick"), policy=Auto(margin=0))
    >>> found = engine.push([Event("kick", ts=5, source="ball"), Event("near", ts=3, source="p7", player=7)])
    >>> engine
    Engine(policy=Auto(margin=0), types=['kick', 'near'], detectors=['Hits'], buffered=2, watermark=None)
    >>> [output.event for output in found + engine.close()]
    [Event('hit', ts=5, source='Hits', seq=0, player=7)]
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        policy: str | Policy = "auto",
        late_target: float | Mapping[str, float] | None = None,
        late: str = "divert",
        duplicates: str = "drop",
        on_error: str = "fail",
        max_jump: Length | str | None = "auto",
        max_buffered: int = 1_000_000,
        overflow: str = "error",
        speculation: Speculation | Mapping[str, Speculation] | None = None,
        now: WallTime = None,
        detectors: Iterable[str] | None = None,
        sensors: Iterable[str] | None = None,
        skew: str | None = None,
        pause: Pause | None = None,
        calibration: CalibrationLike = None,
        unit: str | None = None,
    ) -> None:
        options = Options(
            policy=policy_of(policy), late=late, on_error=on_error, max_jump=max_jump, max_buffered=max_buffered,
            overflow=overflow, speculation=speculation, late_target=late_target, skew=skew, pause=pause,
            duplicates=duplicates, calibration=calibration_of(calibration), unit=unit,
        )  # fmt: skip
        self._start(hierarchy, options, now, detectors, sensors)

    def _start(
        self,
        hierarchy: Hierarchy,
        options: Options,
        now: WallTime,
        detectors: Iterable[str] | None,
        sensors: Iterable[str] | None,
    ) -> None:
        options.check(hierarchy, now)
        # With deferral, lateness must not depend on how far a detector is: it is decided per type, on arrival.
        alone = sensors is None and options.pause is not None
        named = sorted(hierarchy.sensor_types) if alone else None if sensors is None else sorted(set(sensors))
        names = list(hierarchy.names if detectors is None else detectors)
        if unknown := sorted(set(named or ()) - set(hierarchy.sensor_types)):
            raise ConfigError(f"sensors={unknown} are not sensor types of the hierarchy: {hierarchy.sensor_types}.")
        if hierarchy.parts:
            _check_parts(hierarchy, hierarchy.sensor_types if named is None else named)
        if unknown := sorted(set(names) - set(hierarchy.names)):
            raise ConfigError(f"detectors={unknown} are not in the hierarchy, which has {list(hierarchy.names)}.")
        self._options = options
        self._changed: dict[str, list[Any]] = {}
        self._upgrade: Upgrade | None = None
        self._clock = now if callable(now) else None
        self._form: TimeForm | None = None  # until the first event time
        self._idle: list[None] = [None]
        self._closed = False
        #: Records what the engine is given, for ``slackline explain``: a :class:`slackline.runtime.Trace`, or None.
        self.trace: Recorder | None = None
        self._topology = Topology(hierarchy, options.evidence, options.targets, named, self._clock, alone)
        self._progress = ProgressExport(self._topology)
        self._results = Results(self._progress, options.duplicates == "keep", options.late == "deliver")
        self._intake = Intake(self._topology, self._results, options.jump, options.lags)
        parts = (self._topology, self._intake, self._results)
        self._scalar, self._chunked = ScalarDriver(*parts), ChunkedDriver(*parts)
        self._speculator = Speculator(hierarchy)
        self._limit = BufferLimit(options.max_buffered, self._topology, self._intake, self._results)
        self._overload: OverloadController | None = None
        if options.pause is not None:
            self._overload = OverloadController(options.pause, self._topology, self._speculator, options.max_buffered)
        taken = hierarchy.take_detectors() if detectors is None else {name: hierarchy.fresh(name) for name in names}
        self._topology.add(*(self._topology.make(self._runner(name, taken[name])) for name in taken))
        self._topology.start_from(options.calibration)
        self._operators_changed()

    def _runner(self, name: str, detector: Detector) -> Runner:
        guarded, speculation = self._options.on_error == "quarantine", self._options.speculation_of(name)
        if speculation is None:
            runner = Runner(detector, name, guarded)
        else:
            runner = SpeculativeRunner(detector, name, guarded, speculation)
        runner.use_unit(self._options.unit)
        return runner

    def _operators_changed(self) -> None:
        """Operators were added or removed: update everything that refers to them."""
        topology, speculator = self._topology, self._speculator
        speculator.extend(topology.hierarchy)
        self._may_defer = self._overload is not None or any(operator.deferred for operator in topology.operators)
        for operator in topology.operators:
            speculator.register(operator)
            operator.enable_deferral(self._may_defer)
            if self._overload is not None:
                self._overload.register(operator)
        # Whether the end of a push has more to do than to return what was collected.
        self._always_finishes = (
            self._may_defer or topology.exports_all or bool(speculator.early) or self._options.overflow == "release"
        )
        self._chunk_size = CHUNK + CHUNK_PER_OPERATOR * len(topology.operators)
        self._progress.export(topology.exported_types())
        self._scalar.invalidate()
        self._limit.invalidate()

    def __repr__(self) -> str:
        if self._idle:  # else a call is in progress, and watermarks are its business
            self._advance_watermarks()
        watermark = min([operator.watermark for operator in self._topology.operators], default=NEVER)
        shown = None if watermark in (NEVER, FOREVER) else watermark
        return (
            f"Engine(policy={self._options.policy!r}, types={sorted(self._topology.entering)}, "
            f"detectors={list(self.detectors)}, buffered={self.waiting}, watermark={shown})"
        )

    # Arrivals.

    def push(self, arrivals: Any, now: Any = None) -> list[Output]:
        """Process the next arrivals, in arrival order, and return the outputs.

        ``arrivals`` are events, mappings, dataclasses, or columns: an Arrow table, a pandas or polars frame, anything
        with the Arrow PyCapsule interface. Fields are ``ts``, ``type`` (unless the hierarchy has only one sensor type),
        optionally ``source`` and ``seq``, and the payload in all others (None, null: field is absent). ``ts`` are whole
        numbers or dates; results have those of the first row's form (see ``unit``).
        ``now`` is their arrival time, in the form of ``ts`` and from any origin: one for all rows, or one per row,
        where None and null repeat that of the row before. ``push([], now=…)`` only advances arrival time.
        **All or nothing**: if it raises SchemaError or ConfigError, the engine is unchanged.
        """
        try:
            self._idle.pop()  # as `exclusive` does, which takes longer
        except IndexError:
            raise in_progress("push") from None
        try:
            if self._closed:
                raise ClosedError("push after close(): the stream has ended. Create a new engine for another stream.")
            hierarchy, form = self._topology.hierarchy, self._form
            arrivals = rows_of(arrivals, hierarchy)
            if form is not NUMBERS or type(arrivals) is not list:
                arrivals, form = in_numbers(arrivals, form, self._options.unit, hierarchy)
            if self._topology.ended:
                refuse_ended(self._topology, arrivals)
            if self._limit.is_full:
                self._limit.refuse_unless_clock(arrivals)
            times = None if now is None else times_of(now, len(arrivals), form)
            if self.trace is not None:
                self._record("push", with_type(arrivals, hierarchy), times, form)
            before, self._form = self._form, form
            try:
                return self._push(arrivals, times) if self._clock is None else self._timed(self._push, arrivals, times)
            except (ConfigError, SchemaError):  # nothing was admitted
                self._form = before
                raise
        finally:
            self._idle.append(None)

    def _timed(self, work: Callable[..., list[Output]], *given: Any) -> list[Output]:
        """Call ``work`` and measure its time, if there is a wall clock; the load controls speculation and deferral."""
        if self._clock is None:
            return work(*given)
        start = self._clock()
        if self._overload is not None:
            self._overload.begin(start)
        try:
            return work(*given)
        finally:
            stop = self._clock()
            is_deferring = self._overload is not None and self.deferred > 0
            self._speculator.worked(self._topology.operators, start, stop, is_deferring)
            if self._overload is not None:
                self._overload.end(start, stop)

    def _push(self, arrivals: list[Event] | pa.Table, times: Ints | None) -> list[Output]:
        if type(arrivals) is list and len(arrivals) < self._chunk_size:
            self._scalar.push_all(arrivals, times)
        else:
            self._chunked.push(arrivals, times)
            self._scalar.invalidate()
        if times is not None and len(times) > len(arrivals):
            self._driver.wait_until(int(times[-1]))
            self._intake.pass_time(int(times[-1]), NEVER, self._intake.clk)
        # Most short pushes have nothing to return.
        changed = self._results.changed or self._always_finishes or self._intake.position > self._limit.until
        return self._finish() if changed else []

    @property
    def _driver(self) -> ChunkedDriver | ScalarDriver:
        """The driver to use when nothing arrives; after the end only the scalar driver continues."""
        return self._chunked if self._topology.has_rows and not self._closed else self._scalar

    @exclusive
    def close(self) -> list[Output]:
        """End the stream: process all buffered events and return the outputs.

        Events buffered for detectors whose inputs come from other engines are processed when those have ended too.
        """
        if self._closed:
            return []
        self._record("close")
        self._closed = True
        if self._overload is not None:
            self._overload.resume_all(for_good=True)
        return self._end_of_stream()

    def _end_of_stream(self) -> list[Output]:
        topology = self._topology
        if topology.named is not None:
            return self.host.end_types(topology.named)
        if topology.has_rows and len(topology.operators) == len(topology.hierarchy.names):
            self._chunked.flush()
        else:
            self._scalar.flush()
        return self._finish()

    @property
    def deferred(self) -> int:
        """Number of events that are due to deferred detectors. ``push([])`` processes some when there is idle time."""
        return sum(len(operator.deferred) for operator in self._topology.operators)

    @exclusive
    def flush(self, reason: str) -> list[Output]:
        """Process all buffered events, as :meth:`close` does, but continue the stream. Returns the outputs.

        Outputs carry the reason as ``flushed``; ``stats()["flushed"]`` counts events by reason.
        """
        if self._closed:
            raise ClosedError("flush after close(): the stream has ended, and nothing is buffered.")
        self._record("flush", given=text("reason", reason))
        if self._overload is not None:
            self._overload.resume_all()
        self._scalar.release_all(text("reason", reason))
        return self._finish()

    def _finish(self) -> list[Output]:
        """Return the outputs of a push, or raise its error."""
        topology, intake, limit = self._topology, self._intake, self._limit
        if self._may_defer and any(operator.deferred and operator.allowed for operator in topology.operators):
            self._driver.run_deferred()
        outputs = self._results.pop_outputs()
        if outputs:
            limit.count(len(outputs))
        if self._options.overflow == "release" and limit.is_exceeded():
            self._scalar.release_oldest(self._options.max_buffered)
            outputs += self._results.pop_outputs()
        if self._speculator.early:
            outputs = self._speculator.run(topology.operators, outputs, intake.clk, intake.position)
        if outputs:
            outputs = self._in_form.outputs(outputs)
        failure = self._results.pop_failure()
        error: SlacklineError | None = failure if self._options.on_error == "fail" else None
        full = None if self._closed else limit.check()
        error = error or full
        if error is not None:
            error.outputs = outputs
            raise error
        return outputs

    # Side outputs and metrics.

    @property
    def host(self) -> HostInterface:
        """What the host of several engines needs: progress exchange, migration of detectors, CPU accounting."""
        return HostInterface(self)

    @property
    def hierarchy(self) -> Hierarchy:
        """The whole hierarchy, including detectors that run in other engines."""
        return self._topology.hierarchy

    @property
    def late(self) -> list[Late]:
        """Late events that were diverted and not drained yet, in arrival order (equal arrival: by event time)."""
        return self._in_form.late(self._results.late)

    @property
    def quarantined(self) -> list[Quarantined]:
        """Quarantined events that were not drained yet, in arrival order."""
        return self._in_form.others(self._results.quarantined)

    @property
    def duplicates(self) -> int:
        """Number of duplicates so far: events whose type, source and ``seq`` had arrived before."""
        return self._intake.duplicates

    @exclusive
    def drain(self) -> Drained:
        """Remove and return late and quarantined events, and with ``duplicates="keep"`` duplicates.

        >>> from slackline import Detector, Engine, Event, Hierarchy
        >>> class Echo(Detector):
        ...     listens, publishes = ("ping",), ("pong",)
        ...     def on_event(self, event):
        ...         yield event.derive("pong")
        >>> engine = Engine(Hierarchy([Echo()]), duplicates="keep")
        >>> found = engine.push([Event("ping", ts=1, seq=0), Event("ping", ts=1, seq=0)])
        >>> engine.duplicates, engine.drain().duplicates
        (1, [Duplicate(event=Event('ping', ts=1, seq=0), position=1)])
        """
        return self._in_form.drained(self._results.drain())

    @property
    def detectors(self) -> dict[str, Detector]:
        """The detectors that run here, by name."""
        return {operator.name: operator.runner.detector for operator in self._topology.operators}

    def buffered(self) -> dict[str, list[Event]]:
        """The buffered events per detector, in the order in which they will be processed."""
        form = self._in_form
        return {each.name: list(map(form.event, each.waiting())) for each in self._topology.operators}

    @property
    def _in_form(self) -> TimeForm:
        return self._form or NUMBERS

    @property
    def waiting(self) -> int:
        """Number of events buffered for the detector that has most."""
        return self._topology.buffered

    @exclusive
    def stats(self) -> dict[str, Any]:
        """Metrics per detector and per type (watermark, K, delays, buffered, late, …) and options, as JSON values.

        ``stream_time``, ``arrivals``, ``duplicates``, ``arrival_time``, ``types`` (per type), ``buffered``,
        ``quarantined`` and ``flushed`` (counts by reason), ``detectors`` (per detector), ``overload`` (with ``pause``),
        ``options`` (with defaults resolved), ``changed`` (options changed by :meth:`load`) and ``upgrade`` (what of the
        hierarchy :meth:`load` has kept, added and dropped, if it had changed).
        """
        self._advance_watermarks()
        return {
            **self._intake.stats(),
            "buffered": self.waiting,
            "quarantined": dict(self._results.reasons),
            "flushed": dict(self._results.flushed),
            "detectors": self._speculator.stats(self._topology.operators),
            **({} if self._overload is None else {"overload": self._overload.stats()}),
            "options": self._options.in_force(self.hierarchy.names),
            "changed": self._changed,
            **({} if self._upgrade is None else {"upgrade": self._upgrade.plain()}),
        }

    def _advance_watermarks(self) -> None:
        self._topology.advance(self._intake.position - 1, self._intake.clk)

    def _record(
        self, op: str, rows: Any = (), times: Ints | None = None, form: TimeForm | None = None, given: Any = None
    ) -> None:
        """Record a call, if the engine is traced."""
        if self.trace is not None:
            if op not in CALLS or (self._topology.named is not None and not self._topology.alone):
                raise ConfigError(
                    f"{op} cannot be traced: a trace is of one engine that runs a whole hierarchy. Set engine.trace "
                    f"to None for engines that exchange progress or detectors."
                )
            shown = None if form is None or form.is_number else form
            self.trace.record(Recorded(op, self._intake.position, self._saved, rows, times, shown, given))

    def check_invariants(self) -> None:
        """Assert what must hold between two pushes; for tests."""
        self._topology.check_invariants()

    # Checkpoints.

    @exclusive
    def save(self) -> bytes:
        """A checkpoint: buffers, stream time, delays, sources and the states of the detectors. Never pickled.

        The engine is unchanged and can be used further.
        """
        return self._saved()

    def _saved(self) -> bytes:
        self._advance_watermarks()
        state = {
            "options": self._options.plain(),
            "hierarchy": list(self.hierarchy.names),
            "sensors": None if self._topology.alone else self._topology.named,
            "closed": self._closed,
            "form": None if self._form is None else list(self._form),
            "topology": self._topology.state(),
            "intake": self._intake.state(),
            "results": self._results.state(),
            "progress": self._progress.state(),
            "speculator": self._speculator.state(),
            "overload": None if self._overload is None else self._overload.state(),
        }
        return codec.dump(STATE_KIND, STATE_VERSION, state, where="engine")

    @classmethod
    def load(cls, data: bytes, hierarchy: Hierarchy, *, now: WallTime = None, **options: Any) -> Engine:
        """Restore an engine from a checkpoint of :meth:`save`.

        The hierarchy may have changed since. Detectors and types are matched by name: what matches is kept, what is new
        starts empty, what is gone is dropped, which is logged and in ``stats()["upgrade"]``. Detectors convert states
        of older versions by :meth:`~slackline.Detector.upgrade`.
        ``options`` replace saved ones; ``policy`` must be of the same kind. ``stats()["changed"]`` lists the
        differences. ``now`` is as for a new engine: functions are not saved.
        """
        return cls._from(data, hierarchy, now, options)

    @classmethod
    def _from(cls, data: bytes, hierarchy: Hierarchy, now: WallTime, options: dict[str, Any] | Options) -> Engine:
        state = codec.load(STATE_KIND, STATE_VERSION, data)
        try:
            return cls._loaded(state, hierarchy, now, options)
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"the checkpoint does not fit this release ({error!r}). Restore it with the release that saved it, or "
                f"start without it."
            ) from error

    @classmethod
    def _loaded(
        cls, state: dict[str, Any], hierarchy: Hierarchy, now: WallTime, given: dict[str, Any] | Options
    ) -> Engine:
        if isinstance(given, Options) and given.plain() == state["options"]:
            options = given if given.calibration is None else replace(given, calibration=None)
            changed: dict[str, list[Any]] = {}
        else:
            saved = Options.of(state["options"])
            options = saved.changed(given.named() if isinstance(given, Options) else given)
            changed = saved.differences(options)
        upgrade = Upgrade.of(state, hierarchy)
        if upgrade is not None:
            state = fitting(state, hierarchy)
            hierarchy.report("state upgraded: %s", str(upgrade))
        running = list(state["topology"]["buffers"]) if upgrade is None else list(hierarchy.names)
        engine = cls.__new__(cls)
        detectors = None if running == list(hierarchy.names) else running
        sensors = None if state["sensors"] is None else checked.items(state, "engine", "sensors")
        for what, names, known in (("buffers", running, hierarchy.names), ("sensors", sensors, hierarchy.sensor_types)):
            if not set(names or ()) <= set(known):
                raise checked.wrong(what, "contains a name that is not in the hierarchy")
        engine._start(hierarchy, options, now, detectors, sensors)
        engine._intake.restore(state["intake"])
        engine._topology.restore(state["topology"], engine._intake.position)
        engine._results.restore(state["results"])
        engine._progress.restore(state["progress"])
        engine._speculator.restore(state["speculator"])
        if callable(now):
            engine._speculator.reset_load()  # the seconds were those of another process's clock
        if engine._overload is not None and state.get("overload") is not None:
            engine._overload.restore(state["overload"], now == "host")
        engine._closed = state["closed"] is True
        engine._form = form_of(state.get("form"))
        engine._operators_changed()
        if not engine._closed:
            engine._limit.check()
        engine._changed = changed
        engine._upgrade = upgrade
        return engine


def _check_parts(hierarchy: Hierarchy, sensors: Iterable[str]) -> None:
    entering = Counter(map(hierarchy.event_type, sensors))
    if several := sorted(kind for kind, parts in entering.items() if parts > 1):
        raise ConfigError(
            f"several parts of {several} enter this engine; at most one can: name it in sensors. A type that enters "
            f"only one engine needs no parts."
        )


def engine_of(hierarchy: Hierarchy, options: Options, data: bytes | None = None, *, now: WallTime = None) -> Engine:
    """A new engine, or one from a checkpoint, with options that were made once. For hosts of many engines."""
    if data is not None:
        return Engine._from(data, hierarchy, now, options)
    engine = Engine.__new__(Engine)
    engine._start(hierarchy, options, now, None, None)
    return engine
