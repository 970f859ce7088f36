"""What writing and reading states share: the codes of the format, and how classes and dtypes are described.

A state's tree is made of what MessagePack has of its own (None, bool, int, float, str, bytes, lists, and
maps with str or int keys) and of extension values (``Ext``) for the rest. An extension value with data is a
leaf, a big int say. One without data is a tag: a list that begins with it is no list but a node of that
kind. ``codec`` describes the format as a whole.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import re
from collections.abc import Collection
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any

import numpy as np

# The codes are the format: never change or reuse one. Leaves ...
BIG_INT, ODD_STR, COMPLEX, RAW, UNSET, MOMENT = range(1, 7)
# ... tags of nodes ...
TUPLE, SET, FROZENSET, DICT, DEQUE, DEFAULTDICT, COUNTER, ORDEREDDICT = range(10, 18)
EVENT, ARRAY, SCALAR, NP_STR, NP_BYTES = range(20, 25)
# ... and of nodes whose first item refers to the table of classes.
DATACLASS, ENUM, NAMEDTUPLE = range(30, 33)

#: Dates, times and decimals are leaves of text that begins with the letter of their kind.
MOMENTS: dict[str, tuple[type, Any]] = {
    "T": (datetime.datetime, datetime.datetime.fromisoformat),
    "D": (datetime.date, datetime.date.fromisoformat),
    "t": (datetime.time, datetime.time.fromisoformat),
    "d": (datetime.timedelta, lambda text: datetime.timedelta(microseconds=int(text))),
    "n": (decimal.Decimal, decimal.Decimal),
}

#: The types that MessagePack writes and reads as they are, as values and as keys.
PLAIN = frozenset({type(None), bool, int, float, str, bytes})
PLAIN_KEYS = frozenset({int, str})
#: What a defaultdict may be filled by.
FACTORIES = {kind.__name__: kind for kind in (bool, int, float, str, bytes, list, tuple, set, dict)}

_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SUV][1-9][0-9]*|[mM]8(\[[0-9]*[A-Za-z]{1,2}\])?)")
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, not built in


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How the instances of a dataclass hold their attributes.

    A field is kept in a slot (here the slot's descriptor) or in the instance's ``__dict__`` (here None).
    Using these instead of getattr and setattr runs no code of the class.
    """

    fields: dict[str, Any]
    other_slots: dict[str, Any]

    @classmethod
    def of(cls, kind: type) -> Layout:
        """The layout of ``kind``; TypeError says why there is none."""
        kept = _LAYOUTS.get(id(kind))
        if kept is None:
            if len(_LAYOUTS) >= _MOST_LAYOUTS:
                _LAYOUTS.clear()
            kept = _LAYOUTS[id(kind)] = kind, cls._found(kind)
        return kept[1]

    @classmethod
    def _found(cls, kind: type) -> Layout:
        if any(base is not object and not base.__flags__ & _HEAP_TYPE for base in kind.__mro__):
            raise TypeError("it is a dataclass that extends a built-in type")
        members: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            members.update(vars(base))
        slots = {name: slot for name, slot in members.items() if type(slot) is MemberDescriptorType}
        names = [field.name for field in dataclasses.fields(kind)]
        for name in names:
            if name not in slots and hasattr(type(members.get(name)), "__set__"):
                raise TypeError(f"its field {name!r} is computed by a property or another descriptor")
        fields = {name: slots.pop(name, None) for name in names}
        return cls(fields, slots)


#: Layouts by the id of the class, which is kept so that the id stays its own (and no code of a metaclass runs).
_LAYOUTS: dict[int, tuple[type, Layout]] = {}
_MOST_LAYOUTS = 256


def attributes(instance: Any) -> dict[str, Any]:
    """The instance's ``__dict__``, or an empty one; runs no code of its class."""
    return object.__getattribute__(instance, "__dict__") if type(instance).__dictoffset__ else {}


def fields_of(code: int, kind: Any) -> Collection[str]:
    """The field names of a class whose instances are nodes of ``code``; TypeError says why it cannot be."""
    if code == DATACLASS and dataclasses.is_dataclass(kind):
        return Layout.of(kind).fields  # type: ignore[arg-type]
    if code == NAMEDTUPLE and issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple:
        return kind._fields
    if code == ENUM and issubclass(kind, enum.Enum):
        return ()
    raise TypeError(f"it is no {({DATACLASS: 'dataclass', ENUM: 'Enum'}).get(code, 'namedtuple')}")


def describe_dtype(dtype: np.dtype[Any]) -> Any:
    """A NumPy dtype as a str, or as a list of ``[name, dtype, shape]`` if it is structured.

    ValueError says why it cannot be described so that ``read_dtype`` gives it back.
    """
    if dtype.names is None:
        _plain_dtype(dtype.str)
        return dtype.str
    parts = [(name, dtype[name]) for name in dtype.names]
    description = [[name, describe_dtype(part.base), list(part.shape)] for name, part in parts]
    again = read_dtype(description)
    if again != dtype or again.type is not dtype.type:
        raise ValueError("its dtype has padding, titles or records; a packed structured dtype has none")
    return description


def read_dtype(description: Any) -> np.dtype[Any]:
    """The dtype so described; ValueError if its items are not bytes that mean the same on any machine."""
    if type(description) is str:
        return _plain_dtype(description)
    if type(description) is list and description:
        return np.dtype([(name, read_dtype(part), tuple(shape)) for name, part, shape in description])
    raise ValueError(f"items of dtype {description!r} are not bytes that mean the same on any machine")


@lru_cache(maxsize=256)
def _plain_dtype(description: str) -> np.dtype[Any]:
    if not _DTYPE.fullmatch(description):
        raise ValueError(f"items of dtype {description!r} are not bytes that mean the same on any machine")
    return np.dtype(description)
