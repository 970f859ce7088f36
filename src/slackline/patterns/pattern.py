"""``sl.Pattern``: a detector given as a sequence of steps (docs/concepts/patterns.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from slackline.core.batch import Batch
from slackline.core.check import one_of, text, whole_number
from slackline.core.detector import Detector
from slackline.core.errors import ConfigError, StateError
from slackline.core.event import Event
from slackline.core.merged_batch import MergedBatch
from slackline.core.time import duration, seconds_in
from slackline.core.timer import Timer
from slackline.core.types import EventType, type_name
from slackline.patterns.automaton import Automaton
from slackline.patterns.checks import check_key, check_pattern, steps_of, suggestion
from slackline.patterns.expressions import Expression, Reading, as_expression
from slackline.patterns.steps import Part, Step

if TYPE_CHECKING:
    from slackline.patterns.matcher import Matcher

#: The longest `within`: the sum of a time stamp and a length of time fits 64 bits.
LONGEST = 2**61

SKIPS = ("to_next", "past_last", "to_first", "to_last")


class Pattern(Detector):
    """A detector that publishes an event for each match of a pattern.

    ``publishes`` is the type of the events it publishes, ``steps`` the pattern (:class:`Step`). A match takes at most
    ``within`` units of event time (or ``"2 min"``, a ``timedelta``; the engine needs its ``unit`` then), from its first
    event to its last, both inclusive. With ``key``, a field of all
    events (or ``"source"``), events of different keys do not meet. ``output`` gives the payload: names, and
    expressions over the steps; by default it is the key. ``after_match`` says what a match discards:
    ``"past_last"`` (default) all partial matches of its key that began at or before its last event, ``"to_next"``
    none, ``("to_first", step)`` and ``("to_last", step)`` those that began before the step's first or last event.

    The published event has the time of the event that completed the match, or the end of ``within`` if the match was
    complete because nothing came until then.

    >>> from slackline.patterns import Step
    >>> low, high = Step("reading", name="low"), Step("reading", name="high")
    >>> low, high = low.where(low.value < 10), high.where(high.value > low.value + 50)
    >>> print(Pattern("jump", low >> high, within=60, key="sensor", output={"rise": high.value - low.value}))
    low (reading where low.value < 10), then high (reading where high.value > (low.value + 50)), within 60, per sensor;
    publishes jump with rise = high.value - low.value; then continues after the last event
    """

    merged = True

    def __init__(
        self,
        publishes: str | EventType,
        steps: Part,
        *,
        within: int | str | timedelta | None = None,
        key: str | None = None,
        output: Mapping[str, Any] | None = None,
        after_match: str | tuple[str, Step | str] = "past_last",
        name: str = "",
    ) -> None:
        given_type: Any = publishes
        if not given_type or not isinstance(given_type, str | EventType):
            raise ConfigError(f"a pattern publishes one event type, by name or as EventType; got {publishes!r}.")
        if not isinstance(steps, Part):
            raise ConfigError(f"a pattern is made of steps, e.g. Step('a') >> Step('b'); got {steps!r}.")
        self.name = name or type_name(publishes)
        #: The length as it was given, and as a number once the unit of event times is known.
        self._length, self._within = within, None if within is None else _number(within)
        given = steps_of(steps)
        self._part, self._key = steps, key
        self._skip = _skip(after_match, given)
        self._output = {
            text("the name of an output", field): as_expression(value) for field, value in (output or {}).items()
        }
        self._automaton = Automaton.of(steps)
        check_pattern(steps, self._automaton, given, self._within, self._output)
        if self._skip[1] is not None and self._skip[1] not in self._automaton.steps:
            raise ConfigError(
                f"after_match names {self._skip[1]!r}, which is negated and has no event in any match; name another."
            )
        if key is not None:
            check_key(text("key", key), given)
        kinds: dict[str, str | EventType] = {}
        for step in given.values():
            for kind in step.kinds:
                known = kinds.setdefault(type_name(kind), kind)
                if isinstance(kind, EventType) and not isinstance(known, EventType):
                    kinds[kind.name] = kind
        self.listens = tuple(kinds.values())  # type: ignore[misc]
        self.publishes = (publishes,)  # type: ignore[misc]
        self._types = {kind: number for number, kind in enumerate(kinds)}
        self._waits = any(map(self._automaton.waits, range(len(self._automaton.steps))))
        #: The time for which a timer is set: that of the oldest partial match when it was set.
        self._timer: int | None = None
        self._state: Any = None
        self._machine: Matcher | None = None

    def use_unit(self, unit: str | None) -> None:
        """Convert ``within``, and check the conditions against it."""
        if seconds_in(self._length) is not None:
            self._within, self._machine = _in_unit(self._length, unit), None
            check_pattern(self._part, self._automaton, steps_of(self._part), self._within, self._output)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event | Timer]]:
        """Advance all partial matches by a batch of events."""
        rows, matcher = MergedBatch.of(batch), self._matcher()
        matches, first = matcher.feed(rows.ts, list(rows.runs()))
        for row, ts, payload in matches:
            yield row, self._event(ts, payload)
        if self._waits and self._timer is None and first is not None:
            self._timer = first[1]
            yield first[0], _timer(first[1])

    def on_timer(self, timer: Timer) -> Iterator[Event | Timer]:
        """A partial match may be complete, as ``within`` has passed."""
        assert timer.at is not None
        matcher = self._matcher()
        for _, ts, payload in matcher.expire(timer.at):
            yield self._event(ts, payload)
        self._timer = matcher.deadline()
        if self._timer is not None:
            yield _timer(self._timer)

    @property
    def takes_timers(self) -> bool:
        """Whether matches may be complete by the passing of time alone."""
        return self._waits

    @property
    def is_atomic(self) -> bool:
        """A batch is refused, if at all, before a partial match changes."""
        return type(self).on_batch is Pattern.on_batch

    def _event(self, ts: int, payload: dict[str, Any]) -> Event:
        return Event.of(type_name(self.publishes[0]), ts, None, None, payload)

    def _matcher(self) -> Matcher:
        if self._machine is None:
            # Importing the compiler takes most of the time; defining a pattern does not need it.
            from slackline.patterns.matcher import Matcher

            self._machine = Matcher(
                self._automaton, steps_of(self._part), self._types, self._within, self._key, self._outputs(), self._skip
            )
            if self._state is not None:
                self._machine.restore(self._state)
        return self._machine

    def _outputs(self) -> dict[str, Expression]:
        """The payload of a match: by default the key."""
        return self._output or ({} if self._key is None else {self._key: Reading(self._automaton.steps[0], self._key)})

    # State: the partial matches, and the pattern as text, so that another pattern's state is not taken for its own.

    def snapshot(self) -> Any:
        """The partial matches as arrays, and the pattern as text."""
        state = self._state if self._machine is None else self._machine.state()
        return {"pattern": str(self), "timer": self._timer, "partial": state}

    def restore(self, state: Any) -> None:
        """Restore a state that ``snapshot`` returned."""
        if state["pattern"] != str(self):
            raise StateError(
                f"the saved state is of another pattern: {state['pattern']!r}; this one is {str(self)!r}. Partial "
                f"matches cannot be converted; give the changed pattern another name=… to start without them."
            )
        self._machine, self._state, self._timer = None, state["partial"], state["timer"]
        if self._state is not None:
            self._matcher()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_state": self.snapshot()["partial"], "_machine": None}

    @property
    def partial_matches(self) -> int:
        """How many partial matches there are now."""
        return 0 if self._machine is None and self._state is None else self._matcher().partial_matches

    def __str__(self) -> str:
        said = str(self._part)
        if self._within is not None:
            said += f", within {self._length}"
        if self._key is not None:
            said += f", per {self._key}"
        said += f"; publishes {type_name(self.publishes[0])}"
        if self._output:
            said += " with " + ", ".join(f"{field} = {value}" for field, value in self._output.items())
        strategy, step = self._skip
        after = {
            "to_next": "the event after the first", "past_last": "after the last event",
            "to_first": f"at the first event of {step}", "to_last": f"at the last event of {step}",
        }[strategy]  # fmt: skip
        return f"{said}; then continues {'with ' if strategy == 'to_next' else ''}{after}"

    def to_dot(self) -> str:
        """The automaton of the pattern in the DOT language of Graphviz."""
        return self._automaton.dot({name: str(step) for name, step in steps_of(self._part).items()})


def _timer(at: int) -> Timer:
    # A tag of its own: at the end of the stream each tag fires once.
    return Timer(at, f"within {at}")


def _skip(after_match: Any, steps: Mapping[str, Step]) -> tuple[str, str | None]:
    strategy, step = after_match if isinstance(after_match, tuple) and len(after_match) == 2 else (after_match, None)
    one_of("after_match", strategy, SKIPS)
    needs = strategy in ("to_first", "to_last")
    name = step.name if isinstance(step, Step) else step
    if needs != (name is not None):
        raise ConfigError(
            f"after_match={after_match!r} is not valid; {strategy!r} "
            + (f"needs a step: ({strategy!r}, step)." if needs else "takes no step.")
        )
    if name is not None and name not in steps:
        raise ConfigError(
            f"after_match names the step {name!r}, which the pattern does not have{suggestion(name, steps)}; "
            f"its steps: {', '.join(steps)}."
        )
    return strategy, name


def _number(within: int | str | timedelta) -> int:
    """A length of time as a number; the longest until its unit is known."""
    if (seconds := seconds_in(within)) is None:
        return _in_unit(within, None)
    if seconds < 0:
        raise ConfigError(f"within={within!r} is not valid; it must be a length of time of at least 0.")
    return LONGEST


def _in_unit(within: int | str | timedelta | None, unit: str | None) -> int:
    return whole_number("within", duration("within", within, unit), 0, LONGEST)
