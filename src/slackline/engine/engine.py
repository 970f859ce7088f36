"""The engine: a hierarchy at work in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from slackline.core import codec
from slackline.core.detector import Detector
from slackline.core.errors import BufferLimitError, ClosedError, ConfigError, DetectorError, SlacklineError, StateError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Late, Output, Quarantined
from slackline.engine.columnar import Columnar
from slackline.engine.lookahead import LookAhead
from slackline.engine.options import at_least, listed, one_of, per_detector, without_clocks
from slackline.engine.stepwise import Stepwise
from slackline.engine.wiring import Settings, Wiring
from slackline.ordering.channel import Evidence, total_order
from slackline.ordering.clock import JUMP_AUTO, JUMP_OFF
from slackline.ordering.constants import POLICIES, WARMUP
from slackline.ordering.frontier import NO_TIMEOUT
from slackline.speculation.config import Clock, Speculation

STATE_KIND = "engine"
STATE_VERSION = 2


class Engine:
    """Puts arrivals in order and runs the detectors of a hierarchy on them.

    ``policy``       ``"auto"``: slack, readiness and progress; ``"slack"`` or ``"ready"``: that evidence alone;
                     ``"ordered"``: the input is in order already, as it comes from a Synchroniser or a sorted file.
    ``margin``       λ: how many standard deviations of the delays K is larger than the largest delay.
    ``window``       how many recent measurements K rests on, at least.
    ``timeout``      under ``ready`` and ``auto``: how long a source may owe, in time stamp units, instead of K.
    ``warmup``       for so many arrivals at the start nothing is released, and 32 times as long nothing that waits for
                     a type of which hardly anything came yet; 32 unless given, 0 under ``slack`` and ``ordered``.
    ``late``         ``"divert"``: late events go to ``late``; ``"deliver"``: to the detector, out of order.
    ``on_error``     a detector that raises: ``"fail"`` raises DetectorError, ``"quarantine"`` goes on without the
                     event.
    ``max_jump``     how far ahead of the clock a clock event may be before it needs to be confirmed; ``"auto"`` is
                     10,000 mean steps of the clock (no bound under ``ordered``), None is no bound.
    ``max_buffered`` how many events may wait in front of a detector, and how many may lie set aside (``late``,
                     ``quarantined``) until they are drained.
    ``overflow``     what happens beyond that: ``"error"``, or ``"release"``: the oldest events go on, at the end of
                     the push, though something earlier might still come.
    ``speculation``  let detectors run ahead: a :class:`~slackline.Speculation` for all of them, or one per detector,
                     by name; detectors that are not named wait.

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
        margin: float = 0.5,
        window: int = 2048,
        timeout: int | None = None,
        warmup: int | None = None,
        late: str = "divert",
        on_error: str = "fail",
        max_jump: int | str | None = "auto",
        max_buffered: int = 1_000_000,
        overflow: str = "error",
        speculation: Speculation | Mapping[str, Speculation] | None = None,
    ) -> None:
        one_of("policy", policy, tuple(POLICIES))
        one_of("late", late, ("divert", "deliver"))
        one_of("on_error", on_error, ("fail", "quarantine"))
        one_of("overflow", overflow, ("error", "release"))
        at_least("margin", margin, 0, (int, float))
        at_least("window", window, 1, int)
        at_least("max_buffered", max_buffered, 1, int)
        if timeout is not None:
            at_least("timeout", timeout, 0, int)
            if policy in ("slack", "ordered"):
                raise ConfigError(f"timeout={timeout} means nothing under policy={policy!r}; it waits for no source.")
        if warmup is None:
            warmup = 0 if policy in ("slack", "ordered") else WARMUP
        elif policy == "ordered" and warmup:
            raise ConfigError(f"warmup={warmup} means nothing under policy='ordered', which has nothing to learn.")
        at_least("warmup", warmup, 0, int)
        if isinstance(max_jump, str) and max_jump == "auto":
            max_jump = JUMP_OFF if policy == "ordered" else JUMP_AUTO
        elif max_jump is None:
            max_jump = JUMP_OFF
        else:
            at_least("max_jump", max_jump, 1, int)
        if not isinstance(hierarchy, Hierarchy):
            raise ConfigError(f"an engine runs a slackline.Hierarchy; got {hierarchy!r}.")
        self._start(
            hierarchy,
            Settings(
                Evidence(POLICIES[policy], float(margin), window, NO_TIMEOUT if timeout is None else timeout, warmup),
                int(max_jump),
                late == "deliver",
                on_error == "quarantine",
                max_buffered,
                overflow == "release",
                per_detector(speculation, hierarchy),
            ),
        )

    def _start(self, hierarchy: Hierarchy, settings: Settings, clock: Clock | None = None) -> None:
        self.hierarchy = hierarchy
        self._wiring = Wiring(hierarchy, settings)
        self._stepwise = Stepwise(self._wiring)
        self._columnar = Columnar(self._wiring)
        self._ahead = LookAhead(self._wiring, settings.speculation) if settings.speculation else None
        clocks = [options.clock for options in settings.speculation.values() if options.alpha == "auto"]
        self._clock = clock or next(filter(None, clocks), None) if clocks else None
        self._closed = False
        self._beyond_limit = False

    def push(self, arrivals: Iterable[Event] | Event | pa.Table | pa.RecordBatch) -> list[Output]:
        """Take the next arrivals, in the order in which they arrived, and return what was detected.

        Events, or a table with a column ``ts``, a column ``type`` (unless the hierarchy has one sensor type only),
        optionally ``source`` and ``seq``, and the payload in all other columns (null: the event has no such field).
        """
        if self._closed:
            raise ClosedError("push after close(): the stream has ended. Make a new engine for another stream.")
        if isinstance(arrivals, pa.RecordBatch):
            arrivals = pa.Table.from_batches([arrivals])
        elif isinstance(arrivals, Event):
            arrivals = [arrivals]
        elif not isinstance(arrivals, list | pa.Table):
            arrivals = listed(arrivals)
        if self._beyond_limit:
            self._refuse_unless_clock(arrivals)
        if self._clock is None or self._ahead is None:
            return self._push(arrivals)
        start = self._clock()
        try:
            return self._push(arrivals)
        finally:
            self._ahead.worked(start, self._clock())

    def worked(self, start: float, stop: float) -> float | None:
        """For a host that reads the clock itself, and gives the engine none: its work went on from start to stop.

        ``alpha="auto"`` is set from this, for the pushes to come. In seconds of a clock that survives :meth:`save`
        where the engine does. Returns the busy factor when an interval has passed, None otherwise.
        """
        if self._ahead is None:
            return None
        self._ahead.busy = None
        self._ahead.worked(start, stop)
        return self._ahead.busy

    def _push(self, arrivals: list[Any] | pa.Table) -> list[Output]:
        if isinstance(arrivals, pa.Table):
            self._columnar.push(arrivals)
        else:
            if any(len(sensor.store) for sensor in self._wiring.sensors.values()):
                self._wiring.rows_to_objects()
            for event in arrivals:
                self._stepwise.push(event)
        return self._finish()

    def close(self) -> list[Output]:
        """The stream has ended: everything that waits goes on. Returns what was detected."""
        if self._closed:
            return []
        self._closed = True
        if any(len(sensor.store) for sensor in self._wiring.sensors.values()):
            self._columnar.flush()
        else:
            self._stepwise.flush()
        return self._finish()

    def _finish(self) -> list[Output]:
        """Collect the outputs of a push; raise what went wrong in it."""
        wiring, limit = self._wiring, self._wiring.settings.max_buffered
        if wiring.settings.release_overflow and wiring.buffered > limit:
            wiring.rows_to_objects()
            self._stepwise.release_oldest(limit)
        outputs: list[Output] = []
        if wiring.found:
            wiring.found.sort(key=lambda item: item[:2])
            outputs = [output for _, _, output in wiring.found]
            wiring.found = []
        if self._ahead is not None:
            outputs = self._ahead.run(outputs)
        error = self._failure()
        full = None if self._closed else self._full()
        self._beyond_limit = full is not None
        error = error or full
        if error is not None:
            error.outputs = outputs
            raise error
        return outputs

    def _failure(self) -> SlacklineError | None:
        """The first failure of a detector in this push, unless errors are to be passed over."""
        error: SlacklineError | None = None
        for runner in self._wiring.runners:
            if runner.failures and error is None and not self._wiring.settings.quarantine_errors:
                first = runner.failures[0]
                error = DetectorError(runner.name, first.event, first.state_size, first.cause, len(runner.failures))
            if runner.failures:
                runner.failures, runner.noted = [], 0
        return error

    # The limit.

    def _full(self) -> BufferLimitError | None:
        """The error to raise when more waits, or lies set aside, than allowed."""
        wiring, limit = self._wiring, self._wiring.settings.max_buffered
        set_aside = len(wiring.late) + len(wiring.quarantined)
        if set_aside > limit:
            cause = (
                f"{len(wiring.late)} late and {len(wiring.quarantined)} quarantined events were not collected. "
                f"Call engine.drain() now and then."
            )
            return BufferLimitError(set_aside, limit, cause)
        buffered = wiring.buffered
        return BufferLimitError(buffered, limit, self._why_waiting()) if buffered > limit else None

    def _refuse_unless_clock(self, arrivals: Any) -> None:
        """Beyond the limit only a push that may move the clock is taken; the caller keeps what is refused."""
        wiring, full = self._wiring, self._full()
        self._beyond_limit = full is not None
        if full is None:
            return
        if isinstance(arrivals, pa.Table):
            types = (
                set(arrivals["type"].unique().to_pylist()) if "type" in arrivals.column_names else set(wiring.sensors)
            )
        else:
            types = {event.type for event in arrivals if isinstance(event, Event) and isinstance(event.type, str)}
        drained = len(wiring.late) + len(wiring.quarantined) <= wiring.settings.max_buffered
        if not (types & wiring.clock_types and drained):
            raise full

    def _why_waiting(self) -> str:
        wiring = self._wiring
        types, clk = sorted(wiring.clock_types), wiring.clock.clk
        if clk is None:
            return f"no event of the clock types {types} has ever arrived, so stream time does not move."
        idle = wiring.position - wiring.last_advance
        if idle:
            return f"the clock types {types} stopped at {clk}, {idle} arrivals ago; stream time stands still."
        slowest = min(wiring.units, key=lambda unit: unit.horizon)
        return f"the clock moves ({clk}), but detector {slowest.name!r} waits with K={slowest.K}."

    # What is known.

    @property
    def late(self) -> list[Late]:
        """Late events that were diverted and not drained yet, in order of arrival (and of time stamps)."""
        by_event = sorted(self._wiring.late, key=lambda entry: total_order(entry[2].event))
        return [item for *_, item in sorted(by_event, key=lambda entry: entry[:2])]

    @property
    def quarantined(self) -> list[Quarantined]:
        """Events that were set aside and not drained yet, in order of arrival."""
        return [item for _, item in sorted(self._wiring.quarantined, key=lambda entry: entry[0])]

    def drain(self) -> tuple[list[Late], list[Quarantined]]:
        """Take the late and the quarantined events; they are forgotten here."""
        taken = self.late, self.quarantined
        self._wiring.late, self._wiring.quarantined = [], []
        return taken

    @property
    def detectors(self) -> dict[str, Detector]:
        """The running detectors by name."""
        return {runner.name: runner.detector for runner in self._wiring.runners}

    def buffered(self) -> dict[str, list[Event]]:
        """The events that wait, per detector, in the order in which they will be seen."""
        waiting = {}
        for unit in self._wiring.units:
            entries = list(unit.heap) + list(unit.overdue)
            for channel, n in unit.stored():
                rows = channel.batch(len(channel.store) - n, len(channel.store))
                entries += [unit.entry(event, 0) for event in rows]
            waiting[unit.name] = [entry.event for entry in sorted(entries)]
        return waiting

    def stats(self) -> dict[str, Any]:
        """K, delays, buffers and counts, per detector and per type; plain values that JSON can hold."""
        wiring = self._wiring
        levels = self.hierarchy.levels
        return {
            "clk": wiring.clock.clk,
            "arrivals": wiring.position,
            "buffered": wiring.buffered,
            "quarantined": dict(wiring.reasons),
            "detectors": {
                unit.name: {
                    "level": levels[unit.name], **unit.stats(), "published": runner.published, "failed": runner.failed,
                    **({} if self._ahead is None else self._ahead.stats(index)),
                }
                for index, (unit, runner) in enumerate(zip(wiring.units, wiring.runners, strict=True))
            },
            "types": {
                channel.name: channel.stats() for channel in (*wiring.sensors.values(), *wiring.derived.values())
            },
        }  # fmt: skip

    # Surviving.

    def save(self) -> bytes:
        """Everything, as bytes: buffers, clock, delays, sources and the detectors' states. Never pickled."""
        settings = {
            **asdict(replace(self._wiring.settings, speculation={})),
            "speculation": without_clocks(self._wiring.settings.speculation),
        }
        state = {
            "settings": settings,
            "detectors": list(self.hierarchy.names),
            "types": sorted(self._wiring.readers),
            "closed": self._closed,
            "wiring": self._wiring.state(),
            "ahead": None if self._ahead is None else self._ahead.state(),
        }
        return codec.dump(STATE_KIND, STATE_VERSION, state, where="engine")

    @classmethod
    def load(cls, data: bytes, hierarchy: Hierarchy, *, clock: Clock | None = None) -> Engine:
        """An engine that goes on where the saved one was. The hierarchy must be the one that was saved.

        ``clock`` is where speculation with ``alpha="auto"`` reads seconds from; a clock cannot be saved.
        """
        state = codec.load(STATE_KIND, STATE_VERSION, data)
        engine = cls.__new__(cls)
        try:
            settings = state["settings"]
            settings["evidence"] = Evidence(**settings["evidence"])
            settings["speculation"] = {name: Speculation(**said) for name, said in settings["speculation"].items()}
            saved, given = state["detectors"], list(hierarchy.names)
            if saved != given:
                raise StateError(
                    f"the state was saved with the detectors {saved}, the hierarchy given has {given}; "
                    f"load it with the hierarchy it was saved with, or start anew."
                )
            engine._start(hierarchy, Settings(**settings), clock)
            if state["types"] != sorted(engine._wiring.readers):
                raise StateError(
                    f"the state was saved with the event types {state['types']}, the hierarchy given has "
                    f"{sorted(engine._wiring.readers)}; load it with the hierarchy it was saved with, or start anew."
                )
            engine._wiring.restore(state["wiring"])
            if engine._ahead is not None:
                engine._ahead.restore(state["ahead"])
            engine._closed = state["closed"]
            engine._beyond_limit = not engine._closed and engine._full() is not None
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the saved state does not fit this release ({error!r}); start anew.") from error
        return engine

    def check_invariants(self) -> None:
        """What must hold between any two pushes; tests call it."""
        for unit in self._wiring.units:
            unit.check_invariants()
        for channel in self._wiring.derived.values():
            assert channel.back >= 0, f"{channel.name}: set back by less than nothing"
