"""Expressions as programs of a small stack machine, and what they need: registers, columns, constants.

A *register* holds what a partial match remembers of the events it took (a field of the first or last event of a step,
a count, a sum). A *column* is a field of the event in question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline.core.batch import Ints
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
from slackline.patterns.values import BOOL, FLOAT, INT, TEXT, Tags, ValueDictionary

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

Code = NDArray[np.int32]


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
