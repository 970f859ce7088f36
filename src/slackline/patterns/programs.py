"""Values and expressions for compiled code: programs of a small stack machine, and what they need.

A *value* is a tag and 64 bits; texts and other values are numbers of a dictionary. A *register* holds what a partial
match remembers of the events it took (a field of the first or last event of a step, a count, a sum). A *column* is a
field of the event in question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline.core.batch import Column, Ints
from slackline.core.errors import SlacklineError
from slackline.patterns.expressions import (
    FIRST,
    LAST,
    PREVIOUS,
    Absolute,
    Aggregate,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Logic,
    Missing,
    Reading,
)

Tags = NDArray[np.uint8]

#: UNSET: never assigned; MISSING: no value, null or NaN. INT, BOOL and TEXT are 64-bit integers, FLOAT a float.
UNSET, MISSING, INT, FLOAT, BOOL, TEXT = range(6)

#: From so many rows on, columns are encoded as a whole.
MANY = 64


class ValueDictionary:
    """Numbers for values that are no numbers: texts, and whatever else is hashable and compared by ``==``."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self.values: list[Any] = list(values)
        self.numbers: dict[Any, int] = {value: number for number, value in enumerate(self.values)}

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: Any) -> int:
        """The number of a value; a new one if it is new."""
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def known(self, values: Sequence[Any]) -> Ints:
        """The numbers of several values, -1 for those that have none."""
        return np.fromiter(map(self.numbers.get, values, repeat(-1)), dtype=np.int64, count=len(values))

    def encoded(self, column: Column, field: str) -> tuple[Tags, Ints]:
        """A column as tags and bits."""
        n, kind = len(column), column.dtype.kind
        if kind == "f":
            floats = np.ascontiguousarray(column, dtype=np.float64)
            return np.where(np.isnan(floats), MISSING, FLOAT).astype(np.uint8), floats.view(np.int64)
        if kind in "ib" or (kind == "u" and column.dtype.itemsize < 8):
            return np.full(n, BOOL if kind == "b" else INT, dtype=np.uint8), column.astype(np.int64)
        if kind != "O":
            column = np.fromiter(column.tolist() if kind in "uSU" else list(column), dtype=object, count=n)
        kinds = set(map(type, column))
        present = kinds - {type(None)}
        if n >= MANY and present == {str}:
            return self._texts(column)
        if n >= MANY and present in ({int}, {bool}, {float}):
            return self._numbers(column, present.pop(), kinds)
        tags, bits = np.empty(n, dtype=np.uint8), np.empty(n, dtype=np.int64)
        floats = bits.view(np.float64)
        for row, value in enumerate(column):
            self._encode_one(value, field, row, tags, bits, floats)
        return tags, bits

    def _encode_one(self, value: Any, field: str, row: int, tags: Tags, bits: Ints, floats: Column) -> None:
        if value is None or value != value:
            tags[row], bits[row] = MISSING, 0
        elif isinstance(value, bool | np.bool_):
            tags[row], bits[row] = BOOL, int(value)
        elif isinstance(value, int | np.integer) and -(2**63) <= value < 2**63:
            tags[row], bits[row] = INT, int(value)
        elif isinstance(value, int | float | np.number):
            tags[row], floats[row] = FLOAT, float(value)
        else:
            try:
                tags[row], bits[row] = TEXT, self.number(value)
            except TypeError:
                raise SlacklineError(
                    f"field {field!r} is used by a pattern and holds {value!r}, a {type(value).__name__}, which cannot "
                    f"be compared; patterns use numbers, texts and other hashable values."
                ) from None

    def _texts(self, column: Column) -> tuple[Tags, Ints]:
        values = column.tolist()
        numbers = self.known(values)
        for row in np.flatnonzero(numbers < 0).tolist():
            if values[row] is not None:
                numbers[row] = self.number(values[row])
        return np.where(numbers < 0, MISSING, TEXT).astype(np.uint8), numbers

    @staticmethod
    def _numbers(column: Column, kind: type, kinds: set[type]) -> tuple[Tags, Ints]:
        values = column
        empty = np.zeros(len(column), dtype=np.bool_)
        if type(None) in kinds:
            empty = np.array([value is None for value in column.tolist()])
            values = np.where(empty, 0, column)
        if kind is float:
            floats = values.astype(np.float64)
            return np.where(empty | np.isnan(floats), MISSING, FLOAT).astype(np.uint8), floats.view(np.int64)
        try:
            bits = values.astype(np.int64)
        except OverflowError:  # as _encode_one does
            floats = values.astype(np.float64)
            fits = np.array([-(2**63) <= value < 2**63 for value in values.tolist()])
            bits = np.where(fits, np.where(fits, values, 0).astype(np.int64), floats.view(np.int64))
            return np.where(empty, MISSING, np.where(fits, INT, FLOAT)).astype(np.uint8), bits
        return np.where(empty, MISSING, BOOL if kind is bool else INT).astype(np.uint8), bits

    def decoded(self, tag: int, bits: int, number: float) -> Any:
        """The value of a tag and its bits, which are also given as a float; None if there is none."""
        if tag == FLOAT:
            return number
        if tag == INT:
            return bits
        if tag == BOOL:
            return bool(bits)
        return self.values[bits] if tag == TEXT else None


class KeyDictionary(ValueDictionary):
    """Dense numbers for keys."""

    def slots(self, values: Sequence[Any], field: str) -> Ints:
        """The numbers of keys; SlacklineError for a value that is missing or cannot be one."""
        try:
            numbers = self.known(values)
            for row in np.flatnonzero(numbers < 0).tolist():
                if values[row] is None or values[row] != values[row]:
                    raise SlacklineError(
                        f"the key field {field!r} is missing in an event; a pattern with a key requires it in every "
                        f"event."
                    )
                numbers[row] = self.number(values[row])
        except TypeError:
            raise SlacklineError(
                f"the key field {field!r} holds a value that is not hashable; use a number or a text as key."
            ) from None
        return numbers


# Programs.

# Operations: of one operand, then of two.
(
    CONSTANT, COLUMN, REGISTER,
    NOT, IS_MISSING, ABS, COUNT_UP, COUNT_OF,
    ADD, SUB, MUL, DIV, FLOORDIV, MOD, LT, LE, GT, GE, EQ, NE, AND, OR,
    FIRST_OF, SUM_OF, MIN_OF, MAX_OF, PRESENT_UP,
) = range(27)  # fmt: skip

BINARY = {"+": ADD, "-": SUB, "*": MUL, "/": DIV, "//": FLOORDIV, "%": MOD}
BINARY |= {"<": LT, "<=": LE, ">": GT, ">=": GE, "==": EQ, "!=": NE}
#: How the register of an aggregate, and the event in question, give the aggregate that includes it.
COMBINED = {FIRST: FIRST_OF, "sum": SUM_OF, "min": MIN_OF, "max": MAX_OF, "present": PRESENT_UP}

#: How a register changes when its step takes an event.
KEEP_FIRST, KEEP_LAST, ADD_ONE, ADD_VALUE, KEEP_MIN, KEEP_MAX, ADD_PRESENT, FIRST_SERIAL, LAST_SERIAL = range(9)
UPDATES = {
    FIRST: KEEP_FIRST, LAST: KEEP_LAST, PREVIOUS: KEEP_LAST, "count": ADD_ONE, "sum": ADD_VALUE, "min": KEEP_MIN,
    "max": KEEP_MAX, "present": ADD_PRESENT, "first serial": FIRST_SERIAL, "last serial": LAST_SERIAL,
}  # fmt: skip

#: Registers that any step updates belong to this step.
ANY_STEP = ""


class Compiler:
    """Compiles expressions; numbers the registers, columns and constants that they use."""

    def __init__(self, dictionary: ValueDictionary) -> None:
        self.dictionary = dictionary
        #: (step, field, what) -> number
        self.registers: dict[tuple[str, str, str], int] = {}
        self.columns: dict[str, int] = {}
        self.constants: list[tuple[int, int, float]] = []
        self.code: list[tuple[int, int]] = []
        self.depth = 1

    def program(self, conditions: Iterable[Expression], own: str | None) -> tuple[int, int]:
        """The range of code that evaluates all of these conditions (or one expression) for an event of ``own``.

        ``own`` is None for outputs, where there is no event in question.
        """
        start = len(self.code)
        for number, condition in enumerate(conditions):
            self._compile(condition, own, 1 + (number > 0))
            if number:
                self._emit(AND)
        return start, len(self.code)

    def register(self, step: str, field: str, what: str) -> int:
        """The register that holds this."""
        if field:
            self.column(field)
        return self.registers.setdefault((step, field, what), len(self.registers))

    def column(self, field: str) -> int:
        return self.columns.setdefault(field, len(self.columns))

    def updates(self, step: str) -> list[tuple[int, int, int]]:
        """(register, update, column) for all registers that change when the step takes an event."""
        return [
            (register, UPDATES[what], self.columns[field] if field else -1)
            for (of, field, what), register in self.registers.items()
            if of in (step, ANY_STEP)
        ]

    def _emit(self, op: int, arg: int = 0) -> None:
        self.code.append((op, arg))

    def _compile(self, expression: Expression, own: str | None, depth: int) -> None:
        self.depth = max(self.depth, depth + 3)
        if isinstance(expression, Constant):
            self._emit(CONSTANT, self._constant(expression.value))
        elif isinstance(expression, Reading):
            self._reading(expression, own)
        elif isinstance(expression, Aggregate):
            self._aggregate(expression, own)
        elif isinstance(expression, Arithmetic | Comparison):
            self._compile(expression.left, own, depth)
            self._compile(expression.right, own, depth + 1)
            self._emit(BINARY[expression.op])
        elif isinstance(expression, Absolute | Missing):
            self._compile(expression.operand, own, depth)
            self._emit(ABS if isinstance(expression, Absolute) else IS_MISSING)
        elif isinstance(expression, Logic):
            for number, part in enumerate(expression.parts):
                self._compile(part, own, depth + (number > 0))
                if number:
                    self._emit(AND if expression.op == "and" else OR)
            if expression.op == "not":
                self._emit(NOT)
        else:
            raise TypeError(f"no code for {expression!r}")

    def _reading(self, reading: Reading, own: str | None) -> None:
        if reading.of == PREVIOUS:
            self._emit(REGISTER, self.register(ANY_STEP, reading.field, PREVIOUS))
        elif reading.step != own:
            self._emit(REGISTER, self.register(reading.step, reading.field, reading.of))
        elif reading.of == LAST:
            self._emit(COLUMN, self.column(reading.field))
        else:
            self._combined(reading.step, reading.field, reading.of)

    def _aggregate(self, aggregate: Aggregate, own: str | None) -> None:
        step, field = aggregate.step, aggregate.field
        if aggregate.name == "count":
            self._emit(REGISTER, self.register(step, "", "count"))
            self._emit(COUNT_UP if step == own else COUNT_OF)
            return
        for what in ("sum", "present") if aggregate.name == "mean" else (aggregate.name,):
            if step == own:
                self._combined(step, field, what)
            else:
                self._emit(REGISTER, self.register(step, field, what))
        if aggregate.name == "mean":
            self._emit(DIV)

    def _combined(self, step: str, field: str, what: str) -> None:
        self._emit(REGISTER, self.register(step, field, what))
        self._emit(COLUMN, self.column(field))
        self._emit(COMBINED[what])

    def _constant(self, value: Any) -> int:
        if isinstance(value, bool):
            self.constants.append((BOOL, int(value), 0.0))
        elif isinstance(value, int):
            self.constants.append((INT, value, 0.0))
        elif isinstance(value, float):
            self.constants.append((FLOAT, 0, value))
        else:
            self.constants.append((TEXT, self.dictionary.number(value), 0.0))
        return len(self.constants) - 1

    def constant_arrays(self) -> tuple[Tags, Ints]:
        """The constants as tags and bits."""
        tags = np.array([tag for tag, _, _ in self.constants], dtype=np.uint8)
        bits = np.array([bits for _, bits, _ in self.constants], dtype=np.int64)
        floats = bits.view(np.float64)
        for number, (tag, _, value) in enumerate(self.constants):
            if tag == FLOAT:
                floats[number] = value
        return tags, bits
