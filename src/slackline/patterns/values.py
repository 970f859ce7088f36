"""Values as compiled code sees them: a tag and 64 bits; texts and other values as numbers of a dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline.core.batch import Column, Ints
from slackline.core.errors import SlacklineError

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

    def all_numbers(self, values: Sequence[Any]) -> Ints:
        """The numbers of several values, none of which is None."""
        numbers = self.known(values)
        for row in np.flatnonzero(numbers < 0).tolist():
            numbers[row] = self.number(values[row])
        return numbers

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
