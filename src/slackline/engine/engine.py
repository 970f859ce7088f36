"""The engine: a hierarchy at work in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from slackline.core import codec
from slackline.core.batch import Ints
from slackline.core.calibration import CalibrationLike, calibration_of
from slackline.core.check import text
from slackline.core.detector import Detector
from slackline.core.errors import ClosedError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Output, ProgressUpdate
from slackline.core.time import FOREVER, NEVER
from slackline.engine import migration, progress
from slackline.engine.arrivals import refuse_ended, rows_of, times_of
from slackline.engine.assembly import Assembly
from slackline.engine.chunked import ChunkedDriver
from slackline.engine.exclusive import exclusive
from slackline.engine.options import Options, WallTime
from slackline.engine.scalar import ScalarDriver
from slackline.ordering import checked
from slackline.running.pause import Pause
from slackline.speculation.config import Speculation

STATE_KIND = "engine"
STATE_VERSION = 6


class Engine(Assembly):
    """Puts arrivals in order and runs the detectors of a hierarchy on them. For one thread at a time.

    ``policy``       ``"auto"``: slack, readiness and progress; ``"slack"`` or ``"ready"``: that evidence alone;
                     ``"ordered"``: the input is in order already, as it comes from a Synchroniser or a sorted file.
    ``late_target``  under ``auto``: the share of events that may be late, 0.001 unless given, or a dict of such by
                     detector; K is the least that keeps it for all who hear of a type. 0: the largest delay there was.
    ``margin``       λ: how many standard deviations of the delays K is larger than the largest delay, 0.5 under
                     ``slack`` and ``ready``. Given under ``auto``, K is found like this too, and keeps no target.
    ``window``       how many recent measurements such a K rests on, at least; 2048 unless given.
    ``timeout``      under ``ready`` and ``auto``: how long a source may owe, in time stamp units, instead of K.
    ``warmup``       for so many arrivals at the start nothing is released; unless given, 0 under ``slack`` and
                     ``ordered``, 32 under ``ready``, and under ``auto`` until something is known of delays.
    ``late``         ``"divert"``: late events go to ``late``; ``"deliver"``: to the detector, out of order.
    ``duplicates``   ``"drop"``: events whose type, source and ``seq`` arrived before are counted (:attr:`duplicates`);
                     ``"keep"``: also collected, for :meth:`drain`.
    ``on_error``     a detector that raises: ``"fail"`` raises DetectorError, ``"quarantine"`` goes on without the
                     event.
    ``max_jump``     how far ahead of the clock a clock event may be before it needs to be confirmed; ``"auto"`` is
                     10,000 mean steps of the clock (no bound under ``ordered``), None is no bound.
    ``max_buffered`` how many events may wait in front of a detector, and how many may lie set aside (``late``,
                     ``quarantined``, kept duplicates) until they are drained.
    ``overflow``     what happens beyond that: ``"error"``, or ``"release"``: the oldest events go on, at the end of
                     the push, though something earlier might still come.
    ``speculation``  let detectors run ahead: a :class:`~slackline.Speculation` for all of them, or one per detector,
                     by name; detectors that are not named wait.
    ``calibration``  the delays to start from: the file that ``slackline calibrate`` wrote, or its content.
    ``now``          wall time in seconds, by which ``Speculation(alpha="auto")`` and ``pause`` learn how busy the
                     process is: ``time.monotonic``, say; ``"host"`` if the caller tells by :meth:`worked`.
    ``detectors``    which detectors of the hierarchy run here; all, unless others run in other engines
                     (:meth:`news`, :meth:`receive`, :meth:`detach`, :meth:`attach`).
    ``sensors``      the sensor types that enter here; all, unless some enter other engines and come by :meth:`receive`.
                     If given, an event is late where it enters, once for all detectors, if its type has gone on.
    ``pause``        a :class:`~slackline.Pause`: under overload hold up detectors that can wait; it takes ``now``. An
                     event is late where it enters then, once for all detectors, as if ``sensors`` were given.
    ``skew``         sources whose clocks are off: ``"report"`` them, or ``"correct"`` their time stamps; None: neither.

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
    >>> engine = Engine(Hierarchy([Hits()], clock="kick"), margin=0)
    >>> found = engine.push([Event("kick", ts=5, source="ball"), Event("near", ts=3, source="p7", player=7)])
    >>> [output.event for output in found + engine.close()]
    [Event('hit', ts=5, source='Hits', seq=0, player=7)]
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        policy: str = "auto",
        late_target: float | Mapping[str, float] | None = None,
        margin: float | None = None,
        window: int | None = None,
        timeout: int | None = None,
        warmup: int | None = None,
        late: str = "divert",
        duplicates: str = "drop",
        on_error: str = "fail",
        max_jump: int | str | None = "auto",
        max_buffered: int = 1_000_000,
        overflow: str = "error",
        speculation: Speculation | Mapping[str, Speculation] | None = None,
        now: WallTime = None,
        detectors: Iterable[str] | None = None,
        sensors: Iterable[str] | None = None,
        skew: str | None = None,
        pause: Pause | None = None,
        calibration: CalibrationLike = None,
    ) -> None:
        options = Options(
            policy=policy, margin=margin, window=window, timeout=timeout, warmup=warmup, late=late, on_error=on_error,
            max_jump=max_jump, max_buffered=max_buffered, overflow=overflow, speculation=speculation,
            late_target=late_target, skew=skew, pause=pause, duplicates=duplicates,
            calibration=calibration_of(calibration),
        )  # fmt: skip
        self._start(hierarchy, options, now, detectors, sensors)

    # Arrivals.

    @exclusive
    def push(self, arrivals: Iterable[Event] | Event | pa.Table | pa.RecordBatch, now: Any = None) -> list[Output]:
        """Take the next arrivals, in the order in which they arrived, and return what was detected.

        Events, or a table with a column ``ts``, a column ``type`` (unless the hierarchy has one sensor type only),
        optionally ``source`` and ``seq``, and the payload in all other columns (null: the event has no such field).
        ``now`` is the wall time of their arrival, in the unit of the time stamps and from any origin: one for all, or
        one per row, where None and null are that of the row before. ``push([], now=…)`` says that time has passed.
        **A push takes all or nothing**: where it raises a SchemaError or ConfigError, nothing has changed.
        """
        if self._closed:
            raise ClosedError("push after close(): the stream has ended. Make a new engine for another stream.")
        arrivals = rows_of(arrivals)
        if self._topology.ended:
            refuse_ended(self._topology, arrivals)
        if self._limit.is_full:
            self._limit.refuse_unless_clock(arrivals)
        times = None if now is None else times_of(now, len(arrivals))
        return self._timed(self._push, arrivals, times)

    def worked(self, start: float, stop: float) -> float | None:
        """For a host that measures by itself (``now="host"``): its work went on from start to stop.

        ``alpha="auto"`` and who is held up are set from this, for the pushes to come. In seconds of a wall clock that
        outlives :meth:`save` where the engine does. Returns the busy factor when an interval has passed, else None.
        """
        busy = self._lookahead.worked(self._topology.parts, start, stop, self.held > 0)
        if self._governor is not None:
            self._governor.worked(start, stop)
        return busy

    def _timed(self, work: Callable[..., list[Output]], *given: Any) -> list[Output]:
        """Do some work; how long it takes says how much may be done next."""
        if not callable(self._now):
            return work(*given)
        start = self._now()
        if self._governor is not None:
            self._governor.begin(start)
        try:
            return work(*given)
        finally:
            stop = self._now()
            self._lookahead.worked(self._topology.parts, start, stop, self._governor is not None and self.held > 0)
            if self._governor is not None:
                self._governor.end(start, stop)

    def _push(self, arrivals: list[Event] | pa.Table, times: Ints | None) -> list[Output]:
        self._limit.count(len(arrivals))
        if isinstance(arrivals, pa.Table):
            self._columnar.push(arrivals, times)
            self._stepwise.fall_behind()
        else:
            self._stepwise.push_all(arrivals, times)
        if times is not None and len(times) > len(arrivals):
            self._way.wait_until(int(times[-1]))
            self._intake.pass_time(int(times[-1]), NEVER, self._intake.clk)
        return self._finish()

    @property
    def _way(self) -> ChunkedDriver | ScalarDriver:
        """How to go on where nothing arrives."""
        return self._columnar if self._topology.has_rows else self._stepwise

    @exclusive
    def close(self) -> list[Output]:
        """The stream has ended: everything that waits goes on. Returns what was detected.

        What waits for detectors that run elsewhere goes on when these have ended too (:meth:`receive`).
        """
        if self._closed:
            return []
        self._closed = True
        if self._governor is not None:
            self._governor.let_go(for_good=True)
        return self._flush()

    def _flush(self) -> list[Output]:
        topology = self._topology
        if topology.named is not None:
            return self._end(topology.named)
        if topology.has_rows and len(topology.parts) == len(topology.hierarchy.names):
            self._columnar.flush()
        else:
            self._stepwise.flush()
        return self._finish()

    @property
    def held(self) -> int:
        """How many events wait for detectors that are held up. ``push([])`` lets them go on, when there is time."""
        return sum(len(part.backlog) for part in self._topology.parts)

    @exclusive
    def flush(self, reason: str) -> list[Output]:
        """Let everything that waits go on, as :meth:`close` does, and go on with the stream. Returns what was detected.

        Outputs have the reason as ``flushed``; ``stats()["flushed"]`` counts by it.
        """
        if self._closed:
            raise ClosedError("flush after close(): the stream has ended, and nothing waits.")
        if self._governor is not None:
            self._governor.let_go()
        self._stepwise.release_all(text("reason", reason))
        return self._finish()

    def _finish(self) -> list[Output]:
        """Collect the outputs of a push; raise what went wrong in it."""
        topology, intake, limit = self._topology, self._intake, self._limit
        if self._may_wait and any(part.backlog and part.allowed for part in topology.parts):
            self._way.go_on()
        outputs = self._outbox.take()
        limit.count(len(outputs))
        if self._options.overflow == "release" and limit.is_passed():
            self._stepwise.release_oldest(self._options.max_buffered)
            outputs += self._outbox.take()
        outputs = self._lookahead.run(topology.parts, outputs, intake.clk, intake.position)
        failure = self._outbox.take_failure()
        error: SlacklineError | None = failure if self._options.on_error == "fail" else None
        full = None if self._closed else limit.check()
        error = error or full
        if error is not None:
            error.outputs = outputs
            raise error
        return outputs

    # Other engines.

    @exclusive
    def progress_updates(self) -> list[ProgressUpdate]:
        """What detectors that run in other engines need to know of those here, since the last call.

        If ``sensors`` are named: of all types that enter or are published here, if there is anything new.
        """
        self._settle()
        return progress.updates(self._topology, self._outbox, self._intake.clk)

    @exclusive
    def receive(self, updates: Iterable[ProgressUpdate]) -> list[Output]:
        """Take news of other engines, and return what was detected. **All or nothing**, as :meth:`push`.

        Of each type, news must come in the order in which it was given, from whoever gave it, and once.
        """
        received = progress.checked_news(self._topology, updates)
        return self._timed(self._receive_updates, received)

    def _receive_updates(self, received: progress.ReceivedUpdates) -> list[Output]:
        self._limit.count(sum(map(len, received.rows)) + sum(len(item.events) for item in received.items))
        if received.rows or self._topology.has_rows:
            self._columnar.receive(received)
            self._stepwise.fall_behind()
        else:
            self._stepwise.receive(received.items)
        return self._flush() if self._closed and self._topology.named is None else self._finish()

    @exclusive
    def end(self, types: Iterable[str]) -> list[Output]:
        """Sensor types that enter here have ended, and nobody waits for them any more. Returns what was detected.

        When all have ended, wherever they enter, everything that waits goes on.
        """
        ended = progress.checked_entering(self._topology, types)
        return self._timed(self._end, ended)

    def _end(self, types: Iterable[str]) -> list[Output]:
        clk = self._intake.clk
        self._topology.ended.update(types)
        return self._receive_updates(
            progress.ReceivedUpdates([], [ProgressUpdate(kind, (), (), FOREVER, 0, clk) for kind in types])
        )

    @exclusive
    def detach(self, name: str) -> bytes:
        """Let a detector run here no longer: all that it needs elsewhere, as bytes for :meth:`attach`."""
        self._settle()
        data = migration.packed(self._topology, self._outbox, self._lookahead, self._intake, name)
        self._topology.remove(name)
        self._lookahead.leave(name)
        self._rewired()
        return data

    @exclusive
    def attach(
        self, detector: bytes | Detector, missed: Iterable[ProgressUpdate] = (), delays: Mapping[str, int] | None = None
    ) -> list[Output]:
        """Let a detector run here from now on, and return what that brought about.

        Bytes are one of this hierarchy's detectors, from another engine's :meth:`detach`: it goes on where it was. A
        detector is a new one: it joins the hierarchy, and sees what arrives from now on.

        ``missed`` is news of its inputs that this engine had before, and the other one not when it gave the detector
        away; for this detector alone. The other way round, this engine must have had all that the other one had of
        what the detector listens to, and of what it publishes. ``delays`` are those to start from, for
        inputs of which nothing is known here.
        """
        if self._closed:
            raise ClosedError("attach after close(): the stream has ended. Attach it to an engine that goes on.")
        self._settle()
        if isinstance(detector, Detector):
            migration.join(self._topology, detector, self._runner)
            self._rewired()
            return []
        updates, clk, joining = migration.unpack(
            self._topology, self._outbox, self._lookahead, self._intake, detector, self._runner, missed, delays
        )
        self._rewired()
        self._outbox.send_again(updates)
        self._stepwise.receive(updates, clk, joining)
        return self._finish()

    # Checkpoints.

    @exclusive
    def save(self) -> bytes:
        """Everything, as bytes: buffers, clock, delays, sources and the detectors' states. Never pickled.

        Saving changes nothing: the engine goes on as if it had not been asked.
        """
        self._settle()
        state = {
            "options": self._options.plain(),
            "hierarchy": list(self.hierarchy.names),
            "sensors": None if self._topology.alone else self._topology.named,
            "closed": self._closed,
            "topology": self._topology.state(),
            "intake": self._intake.state(),
            "outbox": self._outbox.state(),
            "lookahead": self._lookahead.state(),
            "pause": None if self._governor is None else self._governor.state(),
        }
        return codec.dump(STATE_KIND, STATE_VERSION, state, where="engine")

    @classmethod
    def load(cls, data: bytes, hierarchy: Hierarchy, *, now: WallTime = None, **options: Any) -> Engine:
        """An engine that goes on where the saved one was. The hierarchy must be the one that was saved.

        Options that are given take the place of the saved ones, except ``policy``; ``stats()["changed"]`` tells which.
        ``now`` is as for a new engine: a function cannot be saved.
        """
        state = codec.load(STATE_KIND, STATE_VERSION, data)
        try:
            return cls._loaded(state, hierarchy, now, options)
        except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise StateError(f"the saved state does not fit this release ({error!r}); start anew.") from error

    @classmethod
    def _loaded(cls, state: dict[str, Any], hierarchy: Hierarchy, now: WallTime, given: dict[str, Any]) -> Engine:
        saved = Options.of(state["options"])
        options = saved.changed(given)
        if state["hierarchy"] != list(hierarchy.names):
            raise StateError(
                f"the state was saved with the detectors {state['hierarchy']}, the hierarchy given has "
                f"{list(hierarchy.names)}; load it with the hierarchy it was saved with, or start anew."
            )
        running = list(state["topology"]["buffers"])
        engine = cls.__new__(cls)
        detectors = None if running == list(hierarchy.names) else running
        sensors = None if state["sensors"] is None else checked.items(state, "engine", "sensors")
        for what, names, known in (("buffers", running, hierarchy.names), ("sensors", sensors, hierarchy.sensor_types)):
            if not set(names or ()) <= set(known):
                raise checked.wrong(what, "names what is not in the hierarchy")
        engine._start(hierarchy, options, now, detectors, sensors)
        engine._topology.check_types(state["topology"])
        engine._intake.restore(state["intake"])
        engine._topology.restore(state["topology"], engine._intake.position)
        engine._outbox.restore(state["outbox"])
        engine._lookahead.restore(state["lookahead"])
        if callable(now):
            engine._lookahead.forget_time()  # seconds of another process's clock
        if engine._governor is not None and state.get("pause") is not None:
            engine._governor.restore(state["pause"], now == "host")
        engine._closed = state["closed"] is True
        engine._rewired()
        if not engine._closed:
            engine._limit.check()
        engine._changed = saved.differences(options)
        return engine
