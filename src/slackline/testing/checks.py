"""Checks of a detector: what Slackline promises of every stream, tried on a detector of yours.

A detector that reads a clock, stores state outside of its attributes, depends on where a batch ends or on the order of
arrival breaks these promises without an error, and mostly not in a test of its own. :func:`check` runs it in all ways
in which an engine may run it, and compares. Of a stream that fails it shows the smallest part that still fails.
"""

from __future__ import annotations

import copy
import datetime
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from slackline.core.errors import ConfigError, DetectorError, SlacklineError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.state_tree import PLAIN
from slackline.engine import Engine
from slackline.ordering.policy import Auto, Ordered
from slackline.ordering.sources import total_order
from slackline.runtime.forms import table_of
from slackline.speculation.config import Speculation
from slackline.testing.runs import Detectors, Run, hierarchy_of
from slackline.testing.streams import Arrivals, show, stream

#: Points of a stream at which it is saved and loaded; random cuts and arrival orders that are tried.
POINTS, TRIES = 16, 4
#: Streams that are tried at most to find the smallest one that fails.
REDUCTIONS = 400

_CONTAINERS = (dict, list, set, deque)


class CheckError(AssertionError):
    """A detector breaks a promise. ``law`` names it, ``events`` is the smallest stream found that shows it."""

    def __init__(self, law: str, why: str, events: list[Event], outcome: Outcome) -> None:
        self.law, self.events = law, events
        found = outcome.found if isinstance(outcome.found, str) else show(outcome.found) or "nothing"
        super().__init__(
            f"{law}: {why}\n  stream    {show(events)}\n  expected  {show(outcome.expected) or 'nothing'}\n  found     "
            f"{found}{outcome.note}"
        )


class Outcome(NamedTuple):
    """What a detector published in the plain way, and in another; an error is a text."""

    expected: list[Event]
    found: list[Event] | str
    note: str = ""
    #: Whether the order of events is compared, too.
    ordered: bool = True

    @property
    def is_same(self) -> bool:
        if isinstance(self.found, str):
            return False
        one, other = (_by_type(events) for events in (self.expected, self.found))
        return one == other if self.ordered else _counted(one) == _counted(other)


def _by_type(events: list[Event]) -> dict[str, list[tuple[int, str]]]:
    """Events by type: between types, order depends on when a level of the hierarchy runs."""
    found: dict[str, list[tuple[int, str]]] = {}
    for event in events:
        payload = repr(sorted(event.payload.items(), key=lambda item: item[0]))
        found.setdefault(event.type, []).append((event.ts, payload))
    return found


def _counted(found: dict[str, list[tuple[int, str]]]) -> dict[str, Counter[tuple[int, str]]]:
    return {kind: Counter(events) for kind, events in found.items()}


Trial = Callable[["_Subject", list[Event]], Iterator[Outcome]]


def check(detectors: Detectors, events: Arrivals, *, seed: int = 0) -> None:
    """Raise :class:`CheckError` if a detector or hierarchy breaks what the laws promise, on this stream.

    Tried are: any cut into pushes, batches and single events, shuffled arrivals, saving and loading at any point,
    replays under speculation, two engines side by side, another wall clock and another seed of ``random``.

    >>> from slackline import Detector
    >>> class First(Detector):
    ...     listens, publishes = ("a",), ("b",)
    ...     seen = []
    ...     def on_event(self, event):
    ...         self.seen.append(event.ts)
    ...         yield event.derive("b", nth=len(self.seen))
    >>> check(First(), "a@1 a@2 a@3 a@4")
    Traceback (most recent call last):
    slackline.testing.checks.CheckError: no hidden state: ...
      stream    a@...
    ...
    """
    __tracebackhide__ = True  # by pytest
    given = stream(events)
    if not given:
        raise ConfigError("check() needs events; without any every detector passes.")
    subject = _Subject(detectors, seed)
    try:
        for law, (why, trial) in LAWS.items():
            for outcome in trial(subject, given):
                if not outcome.is_same:
                    smallest, shown = _smallest(subject, trial, given, outcome)
                    raise CheckError(law, why, smallest, shown)
    finally:
        subject.reset_classes()


def _smallest(subject: _Subject, trial: Trial, events: list[Event], outcome: Outcome) -> tuple[list[Event], Outcome]:
    """The stream without events that are not needed to fail, and how it fails: halves are left out, then less."""
    size, left = max(1, len(events) // 2), REDUCTIONS
    while left:
        for start in range(0, len(events), size):
            less = events[:start] + events[start + size :]
            left -= 1
            failing = next((one for one in trial(subject, less) if not one.is_same), None) if less else None
            if failing is not None:
                events, outcome = less, failing
                break
            if not left:
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return events, outcome


class _Subject:
    """The detectors under test; each run has copies of them."""

    def __init__(self, detectors: Detectors, seed: int) -> None:
        self._pristine = hierarchy_of(detectors)
        self.seed = seed
        #: The seed of what is random in a run.
        self.dice = 0
        self._first: dict[tuple[int, ...], Any] = {}
        kinds = {type(self._pristine.fresh(name)) for name in self._pristine.names}
        self.modules = {kind.__module__ for kind in kinds}
        #: The containers and plain values that are attributes of the classes, each with a copy.
        self._of_classes = [
            (owner, name, value, copy.deepcopy(value))
            for owner in {
                owner for kind in kinds for owner in kind.__mro__ if not owner.__module__.startswith("slackline.")
            }
            for name, value in vars(owner).items()
            if not name.startswith("__") and (isinstance(value, _CONTAINERS) or type(value) in PLAIN)
        ]

    def reset_classes(self) -> None:
        """Restore the attributes of the classes."""
        for owner, name, value, kept in self._of_classes:
            if isinstance(value, _CONTAINERS):
                value.clear()
                (value.update if isinstance(value, dict | set) else value.extend)(copy.deepcopy(kept))
            if vars(owner).get(name) is not value:
                setattr(owner, name, value)

    def changed_classes(self) -> str:
        """The attributes of the classes that have changed, as text."""
        changed = [f"{owner.__name__}.{name}" for owner, name, _, kept in self._of_classes if vars(owner)[name] != kept]
        return f", which finds {' and '.join(sorted(changed))} changed" if changed else ""

    def hierarchy(self) -> Hierarchy:
        return copy.deepcopy(self._pristine)

    def engine(self, **options: Any) -> Engine:
        return Engine(self.hierarchy(), **{"policy": Ordered(), **options})

    def draw(self, attempt: int) -> random.Random:
        return random.Random(f"{self.seed}/{attempt}")

    def expected(self, events: list[Event]) -> Any:
        """What the detectors publish on the events in order, one by one."""
        found = self.published([event] for event in in_order(events))
        self._first.setdefault(tuple(map(id, events)), found)
        return found

    def first(self, events: list[Event]) -> Any:
        """The same of the first run: hidden state may be the same in all later ones."""
        found = self.expected(events)
        return self._first.get(tuple(map(id, events)), found)

    def published(self, pushes: Iterable[Any], **options: Any) -> Any:
        """What they publish on these pushes. An error is a text."""
        engine = self.engine(**options)

        def outputs() -> Iterator[Any]:
            for rows in pushes:
                yield engine.push(rows)
            yield engine.close()

        return _collected(outputs(), self.dice)


def _collected(pushes: Iterator[Any], dice: int = 0) -> Any:
    with _random(dice):
        try:
            return Run([output for outputs in pushes for output in outputs]).events
        except DetectorError as error:
            return f"{type(error.cause).__name__}: {error.cause}, on {show([error.event])}"
        except SlacklineError as error:
            return f"{type(error).__name__}: {error}"


@contextmanager
def _random(seed: int) -> Iterator[None]:
    """The random numbers that are common to a process, from this seed; as they were afterwards."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def in_order(events: list[Event]) -> list[Event]:
    """Events in the total order in which detectors get them."""
    return sorted(events, key=total_order)


# The trials.


def _no_errors(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    found = subject.expected(events)
    if isinstance(found, str):
        yield Outcome([], found)


def _chunking(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    rows, expected = in_order(events), subject.expected(events)
    yield Outcome(expected, subject.published([rows]), "\n  pushed    all at once")
    for attempt in range(TRIES):
        draw = subject.draw(attempt)
        cuts = sorted(draw.sample(range(len(rows)), min(len(rows), draw.randint(0, 3))))
        found = subject.published(rows[start:end] for start, end in pairwise([0, *cuts, len(rows)]))
        yield Outcome(expected, found, f"\n  pushed    in parts that end before rows {cuts}")


def _batches(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    rows, expected = in_order(events), subject.expected(events)
    table = table_of(rows)
    if table is None:
        return
    for size in (len(rows), 3, 1):
        found = subject.published(table.slice(start, size) for start in range(0, len(rows), size))
        yield Outcome(expected, found, f"\n  pushed    as tables of {size} rows")


def _shuffled(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    for attempt in range(TRIES):
        arrivals = list(events)
        subject.draw(attempt).shuffle(arrivals)
        found = subject.published([arrivals], policy=Auto(warmup=len(arrivals) + 1))
        yield Outcome(subject.expected(events), found, f"\n  arrivals  {show(arrivals)}")


def _restarts(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    rows, expected = in_order(events), subject.expected(events)
    for point in sorted({round(i * len(rows) / POINTS) for i in range(POINTS + 1)}):

        def pushes(point: int = point) -> Iterator[Any]:
            engine = subject.engine()
            for event in rows[:point]:
                yield engine.push([event])
            engine = Engine.load(engine.save(), subject.hierarchy())
            for event in rows[point:]:
                yield engine.push([event])
            yield engine.close()

        yield Outcome(expected, _collected(pushes()), f"\n  saved and loaded after {point} events")


def _speculation(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    for attempt in range(TRIES):
        arrivals = list(events)
        subject.draw(attempt).shuffle(arrivals)
        engine = subject.engine(policy=Auto(), speculation=Speculation(alpha=0.0, snapshot_every=1 + attempt))
        found = _collected(outputs for outputs in [*([engine.push([each]) for each in arrivals]), engine.close()])
        late = [item.event for item in engine.late]
        kept = [event for event in events if event not in late]
        yield Outcome(subject.expected(kept), found, f"\n  arrivals  {show(arrivals)}", ordered=False)


def _hidden_state(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    subject.reset_classes()
    rows, expected = in_order(events), subject.first(events)
    yield Outcome(expected, subject.expected(events), f"\n  in a second run{subject.changed_classes()}")
    subject.reset_classes()
    one, other = subject.engine(), subject.engine()

    def pushes() -> Iterator[Any]:
        for event in rows:
            with _random(0):
                other.push([event])
            yield one.push([event])
        with _random(0):
            other.close()
        yield one.close()

    yield Outcome(expected, _collected(pushes()), "\n  with a second engine beside it")


def _wall_clock(subject: _Subject, events: list[Event]) -> Iterator[Outcome]:
    expected = subject.expected(events)
    with _another_time(subject.modules):
        subject.dice = 1
        found = subject.expected(events)
        subject.dice = 0
    yield Outcome(expected, found, "\n  ten years later, with another seed of random")


LAWS: dict[str, tuple[str, Trial]] = {
    "no errors": ("the detector raises on the events in order.", _no_errors),
    "no hidden state": (
        "two engines of the same detectors disturb each other, or a second run differs. State belongs in attributes "
        "that __init__ sets, not in the class, the module or a cache.",
        _hidden_state,
    ),
    "no wall clock": (
        "results depend on the time of day or on random numbers. Use the event's ts; give randomness a fixed seed in "
        "__init__.",
        _wall_clock,
    ),
    "any chunking": (
        "results depend on where a push or a batch ends. Keep what is unfinished at the end of a batch in attributes.",
        _chunking,
    ),
    "batches and single events": ("on_batch and on_event give different results.", _batches),
    "shuffled arrivals": (
        "results depend on the order of arrival. Events of equal ts are ordered by type, source and seq: give them "
        "one.",
        _shuffled,
    ),
    "save and load": (
        "results differ after a restart. snapshot() lacks a part of the state, or `fixed` names one that changes.",
        _restarts,
    ),
    "replay under speculation": (
        "early results that were corrected differ from those without speculation. A snapshot shares a mutable value "
        "with the detector, or restore() leaves something as it was.",
        _speculation,
    ),
}

_YEARS = 10 * 365.25 * 86_400


@contextmanager
def _another_time(modules: set[str]) -> Iterator[None]:
    """Ten years later, as far as the modules of the detectors can see."""

    class Kind(type):
        def __instancecheck__(cls, given: Any) -> bool:
            return isinstance(given, datetime.datetime)

    class Later(datetime.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.now(tz) + datetime.timedelta(seconds=_YEARS)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    in_module = SimpleNamespace(**{**vars(datetime), "datetime": Later})
    later = {}
    for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"):
        later[name] = _shifted(getattr(time, name), round(_YEARS) * (10**9 if name.endswith("_ns") else 1))
    with ExitStack() as patches:
        for name, function in later.items():
            original = getattr(time, name)
            patches.enter_context(mock.patch.object(time, name, function))
            for module in modules:
                for alias, value in list(vars(sys.modules.get(module, object)).items()):
                    if value is original:
                        patches.enter_context(mock.patch.dict(vars(sys.modules[module]), {alias: function}))
        for module in modules:
            for alias, value in list(vars(sys.modules.get(module, object)).items()):
                replaced = Later if value is datetime.datetime else in_module if value is datetime else None
                if replaced is not None:
                    patches.enter_context(mock.patch.dict(vars(sys.modules[module]), {alias: replaced}))
        yield


def _shifted(clock: Callable[[], Any], by: int) -> Callable[[], Any]:
    return lambda: clock() + by
