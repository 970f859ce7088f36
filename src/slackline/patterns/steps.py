"""Steps, and how they are combined: sequence, absence, alternatives, repetition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from slackline.core.check import whole_number
from slackline.core.errors import ConfigError
from slackline.core.types import EventType, type_names
from slackline.patterns.expressions import Aggregate, Expression, Reading, as_condition

#: The least and most repetitions that a pattern may ask for by number.
MOST_TIMES = 1000


class Part:
    """A part of a pattern: a step, or a combination of steps.

    ``a >> b``: b follows a, with any other events between. ``a.next(b)``: b is the next event after a.
    ``a >> ~c >> b``: b follows a, without a c between. ``a | b``: one of them, the first that fits.
    ``a.times(2, 4)``, ``a.one_or_more()``, ``a.optional()``: repetition.
    """

    __slots__ = ()

    def __rshift__(self, other: Any) -> Chain:
        return chained(self, other, strict=False)

    def next(self, other: Part) -> Chain:
        """This, and then ``other`` as the next event of the pattern's types and of the same key (strict contiguity)."""
        return chained(self, other, strict=True)

    def __or__(self, other: Any) -> Choice:
        for part in (self, other):
            if not isinstance(part, Part) or isinstance(part, Absent):
                raise ConfigError(f"the alternatives of | are steps and their combinations; got {_given(part)}.")
        return Choice((*_alternatives(self), *_alternatives(other)))

    def times(self, least: int, most: int | None = None, *, greedy: bool = True, strict: bool = False) -> Part:
        """``least`` times, or from ``least`` to ``most`` times.

        An event that fits both a further repetition and what follows continues the repetition if ``greedy``, and
        ends it otherwise. ``strict``: without other events between the repetitions.
        """
        whole_number("times", least, 0, MOST_TIMES)
        whole_number("times: the largest number", least if most is None else most, max(1, least), MOST_TIMES)
        return self._repeated(least, least if most is None else most, greedy, strict)

    def one_or_more(self, *, greedy: bool = True, strict: bool = False) -> Part:
        """Once or more often; see :meth:`times`."""
        return self._repeated(1, None, greedy, strict)

    def optional(self, *, greedy: bool = True) -> Part:
        """Once or not at all; see :meth:`times`."""
        return self._repeated(0, 1, greedy, False)

    def _repeated(self, least: int, most: int | None, greedy: bool, strict: bool) -> Part:
        if isinstance(self, Absent):
            raise ConfigError(f"{_given(self)} is an absence and cannot be repeated; one is enough.")
        return Repeat(self, least, most, greedy, strict)

    def steps(self) -> Iterator[Step]:
        """All steps in it, absent ones included."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise ConfigError(
            "a part of a pattern has no truth value; combine parts by >> | ~ and not by `and`, `or`, `not`."
        )

    def __repr__(self) -> str:
        return str(self)


class Step(Part):
    """One event of a type, or of one of several types, that fits a condition.

    ``step.speed`` or ``step["speed"]`` is a field of the event, to be used in conditions and outputs; ``step.ts``,
    ``step.source`` and ``step.type`` are the event's own. ``name`` is the type unless given; the steps of one
    pattern have different names.

    >>> slow, fast = Step("position", name="slow"), Step("position", name="fast")
    >>> fast.where(fast.speed > 2 * slow.speed)
    fast (position where fast.speed > (2 * slow.speed))
    """

    __slots__ = ("condition", "kinds", "name")

    condition: Expression | None
    kinds: tuple[str | EventType, ...]
    name: str

    def __init__(self, *types: str | EventType, name: str | None = None, where: Expression | None = None) -> None:
        given: tuple[Any, ...] = types
        if not given or not all(kind and isinstance(kind, str | EventType) for kind in given):
            raise ConfigError(f"a step needs event types, by name or as EventType, e.g. Step('kick'); got {types!r}.")
        if name is not None and not str(name).isidentifier():
            raise ConfigError(f"name={name!r} is not valid; the name of a step is an identifier such as 'first_kick'.")
        object.__setattr__(self, "kinds", tuple(types))
        object.__setattr__(self, "name", name or "_or_".join(type_names(types)))
        object.__setattr__(self, "condition", None if where is None else as_condition(where, "where"))

    @property
    def type_names(self) -> tuple[str, ...]:
        return type_names(self.kinds)

    def where(self, condition: Expression) -> Step:
        """This step with a condition, in addition to those it has."""
        given = as_condition(condition, f"where() of step {self.name!r}")
        return Step(*self.kinds, name=self.name, where=given if self.condition is None else self.condition & given)

    def count(self) -> Expression:
        """How many events the step took."""
        return Aggregate(self.name, "", "count")

    def __invert__(self) -> Absent:
        return Absent(self)

    def __getitem__(self, field: str) -> Reading:
        return Reading(self.name, field)

    def __getattr__(self, field: str) -> Reading:
        if field.startswith("__"):  # copy and pickle look for methods of these names
            raise AttributeError(field)
        return Reading(self.name, field)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"steps are immutable; cannot set {name!r}. Use step.where(...) to make a new one.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _step, (self.kinds, self.name, self.condition)

    def steps(self) -> Iterator[Step]:
        yield self

    def __str__(self) -> str:
        kinds = " or ".join(self.type_names)
        named = "" if self.name == kinds else kinds
        where = "" if self.condition is None else f"where {self.condition}"
        inside = f"{named} {where}".strip()
        return f"{self.name} ({inside})" if inside else self.name


def _step(kinds: tuple[str | EventType, ...], name: str, condition: Expression | None) -> Step:
    return Step(*kinds, name=name, where=condition)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Absent(Part):
    """No event that fits the step: between the steps before and after it, or until the end of ``within``."""

    step: Step

    def steps(self) -> Iterator[Step]:
        yield self.step

    def __str__(self) -> str:
        return f"no {self.step}"


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """What lies between an item of a chain and the one before."""

    strict: bool = False
    absent: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Chain(Part):
    """Parts in sequence, each with the gap before it; ``absent`` are the absences after the last."""

    items: tuple[tuple[Gap, Part], ...]
    absent: tuple[Step, ...] = ()

    def steps(self) -> Iterator[Step]:
        for gap, part in self.items:
            yield from gap.absent
            yield from part.steps()
        yield from self.absent

    def __str__(self) -> str:
        texts = []
        for number, (gap, part) in enumerate(self.items):
            link = ", next " if gap.strict else ", then "
            without = "".join(f", without {step} between" for step in gap.absent)
            texts.append(f"{link if number else ''}{_grouped(part)}{without}")
        texts += [f", then no {step} until the end" for step in self.absent]
        return "".join(texts)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Choice(Part):
    """One of several parts: the first of which the first step fits."""

    parts: tuple[Part, ...]

    def steps(self) -> Iterator[Step]:
        for part in self.parts:
            yield from part.steps()

    def __str__(self) -> str:
        return " or ".join(_grouped(part) for part in self.parts)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Repeat(Part):
    """A part several times; ``most`` is None if there is no limit."""

    part: Part
    least: int
    most: int | None
    greedy: bool
    strict: bool

    def steps(self) -> Iterator[Step]:
        return self.part.steps()

    def __str__(self) -> str:
        if (self.least, self.most) == (0, 1):
            times = "optional"
        elif self.most is None:
            times = f"{self.least} or more times" if self.least > 1 else "one or more times"
        else:
            times = f"{self.least} times" if self.most == self.least else f"{self.least} to {self.most} times"
        how = [times] + ["in direct succession"] * self.strict + ["as few as possible"] * (not self.greedy)
        return f"{_grouped(self.part)} [{', '.join(how)}]"


def chained(left: Part, right: Any, strict: bool) -> Chain:
    """Two parts in sequence, as one chain where they are chains."""
    if not isinstance(right, Part):
        raise ConfigError(f"a step is followed by a step or a combination of steps; got {right!r}.")
    if isinstance(left, Absent):
        raise ConfigError(
            f"a pattern cannot begin with the absence of {left.step.name!r}; begin with the step after which "
            f"it must be absent."
        )
    items, absent = (left.items, left.absent) if isinstance(left, Chain) else (((Gap(), left),), ())
    if strict and (absent or isinstance(right, Absent)):
        raise ConfigError(
            "next() leaves no room for an absence: nothing comes between one event and the next. Use >> instead."
        )
    if isinstance(right, Absent):
        return Chain(items, (*absent, right.step))
    if not isinstance(right, Chain):
        return Chain((*items, (Gap(strict, absent), right)))
    (gap, first), *rest = right.items
    return Chain((*items, (replace(gap, strict=strict, absent=absent), first), *rest), right.absent)


def _alternatives(part: Part) -> tuple[Part, ...]:
    return part.parts if isinstance(part, Choice) else (part,)


def _grouped(part: Part) -> str:
    return f"({part})" if isinstance(part, Chain | Choice) else str(part)


def _given(part: Any) -> str:
    return f"`{part}`" if isinstance(part, Part) else repr(part)
