"""Expressions over the events of a match: built by Python's operators, evaluated by compiled code.

An expression is a tree of values, never a function or a text to evaluate. So it can be checked when it is
defined, printed, copied, and sent to another process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from slackline.core.errors import ConfigError

#: What an expression yields: a number (bool included), a text (any other value), a condition, or not known yet.
NUMBER, TEXT, CONDITION, UNKNOWN = "number", "text", "condition", "unknown"

#: Which of a step's events a reading refers to. In a condition of the step itself, the event in question is one of
#: them, the last.
LAST, FIRST, PREVIOUS = "last", "first", "previous"


class Expression:
    """A value computed from events. Operators build larger expressions; nothing is evaluated in Python.

    Supported: ``+ - * / // % abs()`` on numbers, ``< <= > >=`` on numbers, ``== !=`` on numbers and on texts,
    ``& | ~`` on conditions. A comparison with a missing value does not hold, whichever comparison it is.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    @property
    def kind(self) -> str:
        """NUMBER, TEXT, CONDITION or UNKNOWN."""
        return NUMBER

    def operands(self) -> tuple[Expression, ...]:
        """The expressions that this one is made of."""
        return ()

    def walk(self) -> Iterator[Expression]:
        """This expression and all below it."""
        yield self
        for operand in self.operands():
            yield from operand.walk()

    # Operators.

    def __add__(self, other: Any) -> Expression:
        return _arithmetic("+", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _arithmetic("+", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _arithmetic("-", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _arithmetic("-", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _arithmetic("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _arithmetic("*", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _arithmetic("/", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _arithmetic("/", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _arithmetic("//", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _arithmetic("//", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _arithmetic("%", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _arithmetic("%", other, self)

    def __neg__(self) -> Expression:
        return _arithmetic("-", 0, self)

    def __abs__(self) -> Expression:
        return Absolute(_number(self, "abs()"))

    def __lt__(self, other: Any) -> Expression:
        return _comparison("<", self, other)

    def __le__(self, other: Any) -> Expression:
        return _comparison("<=", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _comparison(">", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _comparison(">=", self, other)

    def __eq__(self, other: Any) -> Expression:  # type: ignore[override]
        return _comparison("==", self, other)

    def __ne__(self, other: Any) -> Expression:  # type: ignore[override]
        return _comparison("!=", self, other)

    def __and__(self, other: Any) -> Expression:
        return Logic("and", (as_condition(self, "&"), as_condition(other, "&")))

    def __rand__(self, other: Any) -> Expression:
        return Logic("and", (as_condition(other, "&"), as_condition(self, "&")))

    def __or__(self, other: Any) -> Expression:
        return Logic("or", (as_condition(self, "|"), as_condition(other, "|")))

    def __ror__(self, other: Any) -> Expression:
        return Logic("or", (as_condition(other, "|"), as_condition(self, "|")))

    def __invert__(self) -> Expression:
        return Logic("not", (as_condition(self, "~"),))

    def __bool__(self) -> NoReturn:
        raise ConfigError(
            f"`{self}` has no truth value when the pattern is defined. Combine conditions by & | ~ instead of `and`, "
            f"`or`, `not`, in parentheses: (a.x > 1) & (a.y < 2); write `1 < a.x < 2` as (1 < a.x) & (a.x < 2)."
        )

    def isin(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of these constants."""
        choices = list(values)
        if not choices:
            raise ConfigError(f"`{self}`.isin([]) can never hold; give at least one value.")
        comparisons = tuple(_comparison("==", self, value) for value in choices)
        return comparisons[0] if len(comparisons) == 1 else Logic("or", comparisons)

    def is_missing(self) -> Expression:
        """Whether there is no value: the event has no such field, it is null or NaN, or the step took no event."""
        return Missing(self)

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expression):
    """A number or a text."""

    value: Any

    @property
    def kind(self) -> str:
        return NUMBER if isinstance(self.value, int | float) else TEXT

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reading(Expression):
    """A field of an event that a step took: of the last one, unless said otherwise.

    The fields ``ts``, ``source`` and ``type`` are those of the event, all others are of its payload.
    """

    step: str
    field: str
    of: str = LAST

    @property
    def kind(self) -> str:
        return {"ts": NUMBER, "type": TEXT}.get(self.field, UNKNOWN)

    def first(self) -> Expression:
        """The value in the first event that the step took."""
        return Reading(self.step, self.field, FIRST)

    def last(self) -> Expression:
        """The value in the last event that the step took, as the field alone is."""
        return Reading(self.step, self.field, LAST)

    def previous(self) -> Expression:
        """For conditions of the step itself: the value in the event that the match took before, by any step."""
        return Reading(self.step, self.field, PREVIOUS)

    def sum(self) -> Expression:
        """The sum over all events of the step; missing values do not count."""
        return self._aggregate("sum")

    def min(self) -> Expression:
        """The least value of all events of the step; missing values do not count."""
        return self._aggregate("min")

    def max(self) -> Expression:
        """The greatest value of all events of the step; missing values do not count."""
        return self._aggregate("max")

    def mean(self) -> Expression:
        """The mean over all events of the step; missing values do not count."""
        return self._aggregate("mean")

    def _aggregate(self, name: str) -> Expression:
        if self.of != LAST:
            raise ConfigError(
                f"`{self}`.{name}() is not valid: {self.of}() is the value of one event. Leave out {self.of}() to "
                f"aggregate all events of the step."
            )
        return Aggregate(self.step, self.field, name)

    def __str__(self) -> str:
        return f"{self.step}.{self.field}" + ("" if self.of == LAST else f".{self.of}()")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregate(Expression):
    """A value over all events that a step took; of ``count`` the field is empty."""

    step: str
    field: str
    name: str

    def __str__(self) -> str:
        return f"{self.step}{'.' if self.field else ''}{self.field}.{self.name}()"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Arithmetic(Expression):
    """A number made of two numbers; missing where one of them is, and after a division by zero."""

    op: str
    left: Expression
    right: Expression

    def operands(self) -> tuple[Expression, ...]:
        return self.left, self.right

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.op} {_inner(self.right)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Absolute(Expression):
    """A number without its sign."""

    operand: Expression

    def operands(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def __str__(self) -> str:
        return f"abs({self.operand})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison(Expression):
    """Two numbers or two texts compared. It does not hold if one is missing, nor between a number and a text."""

    op: str
    left: Expression
    right: Expression

    @property
    def kind(self) -> str:
        return CONDITION

    def operands(self) -> tuple[Expression, ...]:
        return self.left, self.right

    def __str__(self) -> str:
        return f"{_inner(self.left)} {self.op} {_inner(self.right)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Missing(Expression):
    """Whether an expression has no value."""

    operand: Expression

    @property
    def kind(self) -> str:
        return CONDITION

    def operands(self) -> tuple[Expression, ...]:
        return (self.operand,)

    def __str__(self) -> str:
        return f"{_inner(self.operand)} is missing"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logic(Expression):
    """Conditions combined by ``and``, ``or``, ``not``."""

    op: str
    parts: tuple[Expression, ...]

    @property
    def kind(self) -> str:
        return CONDITION

    def operands(self) -> tuple[Expression, ...]:
        return self.parts

    def __str__(self) -> str:
        if self.op == "not":
            return f"not ({self.parts[0]})"
        return f" {self.op} ".join(f"({part})" if isinstance(part, Logic) else str(part) for part in self.parts)


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions of which all must hold."""
    if isinstance(condition, Logic) and condition.op == "and":
        return [each for part in condition.parts for each in conjuncts(part)]
    return [condition]


def as_expression(value: Any) -> Expression:
    """An expression, or a constant: a finite number or a text."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, bool | str):
        return Constant(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return Constant(value)
    if isinstance(value, float) and math.isfinite(value):
        return Constant(value)
    hint = " To test for a missing value use .is_missing()." if value is None or value != value else ""
    raise ConfigError(
        f"{value!r} is not valid in a pattern expression; use fields of steps, strings and finite numbers (integers of "
        f"at most 64 bits).{hint}"
    )


def as_condition(value: Any, where: str) -> Expression:
    """The value, if it is a condition."""
    if isinstance(value, bool):
        never = "always holds" if value else "never holds"
        raise ConfigError(f"{where} got the constant {value}, a condition that {never}; compare fields of steps.")
    if isinstance(value, Expression) and value.kind == CONDITION:
        return value
    if isinstance(value, Reading):
        return Comparison("==", value, Constant(True))
    raise ConfigError(f"{where} needs a condition such as (step.speed > 3); got {value!r}.")


def _number(value: Any, where: str) -> Expression:
    expression = as_expression(value)
    if expression.kind in (TEXT, CONDITION):
        raise ConfigError(f"{where} needs numbers; `{expression}` is a {expression.kind}.")
    return expression


def _arithmetic(op: str, left: Any, right: Any) -> Expression:
    where = f"{op!r} in `{_shown(left)} {op} {_shown(right)}`"
    return Arithmetic(op, _number(left, where), _number(right, where))


def _comparison(op: str, left: Any, right: Any) -> Expression:
    one, other = as_expression(left), as_expression(right)
    shown = f"`{_inner(one)} {op} {_inner(other)}`"
    kinds = {one.kind, other.kind}
    if CONDITION in kinds:
        raise ConfigError(f"{shown} compares a condition; combine conditions by & | ~, each in parentheses.")
    if kinds == {NUMBER, TEXT}:
        raise ConfigError(f"{shown} compares a text with a number; it can never hold.")
    if TEXT in kinds and op not in ("==", "!="):
        raise ConfigError(f"{shown} orders texts; texts are compared by ==, != and isin alone.")
    if (isinstance(one, Constant) and isinstance(other, Constant)) or str(one) == str(other):
        raise ConfigError(f"{shown} always gives the same answer; compare different fields.")
    return Comparison(op, one, other)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Expression) else repr(value)


def _inner(expression: Expression) -> str:
    return f"({expression})" if isinstance(expression, Arithmetic | Comparison | Logic) else str(expression)
