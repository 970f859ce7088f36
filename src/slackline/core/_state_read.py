"""From a tree (``_state_tree``) back to the state.

Trusts nothing: whatever does not fit raises, and ``codec.decode`` makes a StateError of it. Runs no code of
the classes it rebuilds, except ``__hash__`` and ``__eq__`` of instances that are keys of a dict or in a
set.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from itertools import compress
from typing import Any

import numpy as np

from slackline.core import _state_tree as fmt
from slackline.core._state_tree import PLAIN, PLAIN_KEYS, Layout, attributes
from slackline.core.errors import StateError
from slackline.core.event import Event

#: Gives the class for a module and a qualified name, or None.
FindClass = Callable[[str, str], type | None]

_Node = list[Any]
_MAX_DIMENSIONS = 64  # NumPy's own limit; keeps hostile bytes from asking for a long multiplication


class TreeReader:
    """Turns one tree, as MessagePack gives it with each Ext as ``(code, data)``, back into its value."""

    def __init__(self, where: str, find_class: FindClass, declare: str = "") -> None:
        self._where = where
        self._declare = declare  # what to do about a class that is not found, beside importing it
        self._find_class = find_class
        # Per class: the kind of its nodes, the class, its fields as saved, where a dataclass keeps them.
        self._classes: list[tuple[int, Any, list[str], Layout | None]] = []

    def root(self, body: Any) -> Any:
        """The value of ``[table of classes, tree]``."""
        table, tree = body
        self._classes = [self._class(*entry) for entry in table]
        return self._items([tree])[0]

    def _class(
        self, module: str, qualname: str, code: int, saved: list[str]
    ) -> tuple[int, Any, list[str], Layout | None]:
        if any(type(text) is not str for text in (module, qualname, *_list(saved))):
            raise ValueError("a name is not text")
        name = f"{self._where} holds a {module}.{qualname}"
        kind = self._find_class(module, qualname)
        if kind is None:
            raise StateError(
                f"{name}, which is not defined here: {self._declare}import {module!r} before restoring (nothing is "
                f"imported because a saved state asks for it)."
            )
        try:
            now = fmt.fields_of(code, kind)
        except TypeError as error:
            raise StateError(f"{name}, but what has that name here does not fit: {error}.") from None
        gone = ", ".join(field for field in saved if field not in now)
        new = ", ".join(field for field in now if field not in saved)
        if gone or new:
            changes = [f"no longer has the fields {gone}"] * bool(gone) + [f"now has the fields {new}"] * bool(new)
            raise StateError(
                f"{name}, but the class has changed since the state was saved: it {' and '.join(changes)}. "
                f"Restore with the class as it was, or begin with a new state."
            )
        return code, kind, saved, Layout.of(kind) if code == fmt.DATACLASS else None

    def _items(self, items: list[Any]) -> list[Any]:
        """The values of these trees, in the same list."""
        if not PLAIN.issuperset(map(type, items)):
            for index, item in enumerate(items):
                kind = type(item)
                if kind is list:
                    head = item[0] if item else None
                    read = _READERS.get(head[0]) if type(head) is tuple else None
                    items[index] = read(self, item) if read else self._items(item)
                elif kind is dict:
                    items[index] = self._map(item)
                elif kind is tuple:
                    items[index] = _leaf(*item)
                elif kind not in PLAIN:
                    raise ValueError(f"an unexpected {kind.__name__}")
        return items

    def _map(self, item: dict[Any, Any]) -> dict[Any, Any]:
        if not PLAIN_KEYS.issuperset(map(type, item)):
            raise ValueError("an unexpected key")
        if not PLAIN.issuperset(map(type, item.values())):
            item.update(zip(item, self._items(list(item.values())), strict=True))
        return item

    def _tuple(self, item: _Node) -> Any:
        return tuple(self._items(item[1:]))

    def _set(self, item: _Node) -> Any:
        values = self._items(item[1:])
        return self._distinct(set(values) if item[0][0] == fmt.SET else frozenset(values), len(values))

    def _distinct(self, container: Any, expected: int) -> Any:
        if len(container) != expected:
            raise StateError(
                f"{self._where} holds a set or dict with two entries that are equal: the bytes are damaged, "
                f"or __eq__ of a class has changed since they were saved. Restore with the class as it was."
            )
        return container

    def _deque(self, item: _Node) -> Any:
        _, maxlen, *items = item
        return self._distinct(deque(self._items(items), maxlen), len(items))

    def _dict(self, item: _Node) -> Any:
        (code, _), *factory, keys, values = item
        pairs = zip(self._items(_list(keys)), self._items(_list(values)), strict=True)
        kept: dict[Any, Any]
        if code == fmt.DICT:
            kept = dict(pairs)
        elif code == fmt.ORDEREDDICT:
            kept = OrderedDict(pairs)
        elif code == fmt.COUNTER:
            kept = Counter()
            dict.update(kept, pairs)  # Counter's own update counts the pairs
        else:
            kept = defaultdict(None if factory[0] is None else fmt.FACTORIES[factory[0]], pairs)
        return self._distinct(kept, len(keys))

    def _event(self, item: _Node) -> Any:
        type_, ts, source, seq, payload = self._items(item[1:])
        if not isinstance(payload, dict):
            raise ValueError("an event without a payload")
        return Event.of(type_, ts, source, seq, payload)

    def _array(self, item: _Node) -> Any:
        _, description, shape, order, (code, data) = item
        dtype = fmt.read_dtype(description)
        if code != fmt.RAW or order not in ("C", "F") or len(_list(shape)) > _MAX_DIMENSIONS:
            raise ValueError("an array without shape or items")
        for size in shape:
            if type(size) is not int or size < 0:
                raise ValueError(f"an array of shape {shape}")
        if dtype.itemsize * math.prod(shape) != len(data):
            raise ValueError(f"{len(data)} bytes for an array of shape {shape} and dtype {dtype}")
        return np.ndarray(shape, dtype, data, 0, None, order).copy(order)

    def _scalar(self, item: _Node) -> Any:
        code = item[0][0]
        if code == fmt.SCALAR:
            return self._array(item)[()]
        (value,) = self._items(item[1:])
        if type(value) is not (str if code == fmt.NP_STR else bytes):
            raise ValueError("a NumPy text that is none")
        return np.str_(value) if code == fmt.NP_STR else np.bytes_(value)

    def _dataclass(self, item: _Node) -> Any:
        _, (index,), *parts = item
        _, kind, names, layout = self._classes[index]
        if layout is None or len(names) != len(parts):
            raise ValueError(f"{kind} is no dataclass, or one of other fields")
        if not PLAIN.issuperset(map(type, parts)):
            held = [not (type(part) is tuple and part[0] == fmt.UNSET) for part in parts]
            names = list(compress(names, held))
            parts = self._items(list(compress(parts, held)))
        instance = object.__new__(kind)
        in_dict = attributes(instance)
        for name, value in zip(names, parts, strict=True):
            slot = layout.fields[name]
            if slot is None:
                in_dict[name] = value
            else:
                slot.__set__(instance, value)
        return instance

    def _namedtuple(self, item: _Node) -> Any:
        _, (index,), *parts = item
        code, kind, names, _ = self._classes[index]
        if code != fmt.NAMEDTUPLE:
            raise ValueError(f"{kind} is no namedtuple")
        values = dict(zip(names, self._items(parts), strict=True))
        return tuple.__new__(kind, [values[name] for name in kind._fields])

    def _enum(self, item: _Node) -> Any:
        _, (index,), name = item
        code, kind, _, _ = self._classes[index]
        if code != fmt.ENUM or type(name) is not str:
            raise ValueError(f"{kind} has no such member")
        if name not in kind._member_map_:
            raise StateError(
                f"{self._where} holds {kind.__qualname__}.{name}, but the class has changed since it was "
                f"saved: its members are {', '.join(kind._member_map_)}. Restore with the class as it was."
            )
        return kind._member_map_[name]


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("a list is missing")
    return value


def _leaf(code: int, data: memoryview) -> Any:
    if code == fmt.BIG_INT:
        return int.from_bytes(data, "big", signed=True)
    if code == fmt.ODD_STR:
        return str(data, "utf-8", "surrogatepass")
    if code == fmt.COMPLEX:
        return complex(*struct.unpack(">dd", data))
    if code == fmt.MOMENT:
        text = str(data, "ascii")
        return fmt.MOMENTS[text[:1]][1](text[1:])
    raise ValueError(f"the unknown code {code}")


_READERS: dict[int, Callable[[TreeReader, _Node], Any]] = {
    fmt.TUPLE: TreeReader._tuple,
    fmt.SET: TreeReader._set,
    fmt.FROZENSET: TreeReader._set,
    fmt.DICT: TreeReader._dict,
    fmt.DEQUE: TreeReader._deque,
    fmt.DEFAULTDICT: TreeReader._dict,
    fmt.COUNTER: TreeReader._dict,
    fmt.ORDEREDDICT: TreeReader._dict,
    fmt.EVENT: TreeReader._event,
    fmt.ARRAY: TreeReader._array,
    fmt.SCALAR: TreeReader._scalar,
    fmt.NP_STR: TreeReader._scalar,
    fmt.NP_BYTES: TreeReader._scalar,
    fmt.DATACLASS: TreeReader._dataclass,
    fmt.ENUM: TreeReader._enum,
    fmt.NAMEDTUPLE: TreeReader._namedtuple,
}
