"""The tree of a state: the codes of the format, writing and reading. ``codec`` describes the format as a whole.

A state's tree is made of MessagePack's own values (None, bool, int, float, str, bytes, lists, and maps with str or int
keys) and of extension values (``Ext``) for the rest. An extension value with data is a leaf, such as a big int. One
without data is a tag: a list that begins with it is a node of that kind, not a list.

Writing takes each value's exact type, never that of a base class. Reading trusts nothing: whatever does not fit raises,
and ``codec.decode`` turns it into a StateError. It runs no code of the classes it rebuilds, except ``__hash__`` and
``__eq__`` of instances that are keys of a dict or items of a set.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import re
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import compress, count
from types import MemberDescriptorType
from typing import Any, Literal

import numpy as np
from msgspec.msgpack import Encoder, Ext

from slackline.core.errors import StateError, UnsupportedStateError
from slackline.core.event import Event

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
#: The factories a defaultdict may have.
FACTORIES = {kind.__name__: kind for kind in (bool, int, float, str, bytes, list, tuple, set, dict)}

_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SUV][1-9][0-9]*|[mM]8(\[[0-9]*[A-Za-z]{1,2}\])?)")
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, not built in


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Where the instances of a dataclass store their attributes.

    A field is stored in a slot (here the slot's descriptor) or in the instance's ``__dict__`` (here None).
    Using these instead of getattr and setattr runs no code of the class.
    """

    fields: dict[str, Any]
    other_slots: dict[str, Any]

    @classmethod
    def of(cls, kind: type) -> Layout:
        """The layout of ``kind``; TypeError says why there is none."""
        known = _LAYOUTS.get(id(kind))
        if known is None:
            if len(_LAYOUTS) >= _MOST_LAYOUTS:
                _LAYOUTS.clear()
            known = _LAYOUTS[id(kind)] = kind, cls._found(kind)
        return known[1]

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


#: Layouts by the id of the class, with the class, so that the id is not reused (and no code of a metaclass runs).
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
    raise TypeError(f"it is not a {({DATACLASS: 'dataclass', ENUM: 'Enum'}).get(code, 'namedtuple')}")


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
    raise ValueError(f"items of dtype {description!r} have no machine-independent representation as bytes")


@lru_cache(maxsize=256)
def _plain_dtype(description: str) -> np.dtype[Any]:
    if not _DTYPE.fullmatch(description):
        raise ValueError(f"items of dtype {description!r} have no machine-independent representation as bytes")
    return np.dtype(description)


# Writing.

#: Deeper nesting is refused, so that what could be written can also be read, from a deeper call stack.
MAX_DEPTH = 200

pack = Encoder().encode

# The steps to a value: the path of its owner, the form of the step (".", "[]", "key") and its label.
Path = tuple[Any, str, Any]

_TAG = {code: Ext(code, b"") for code in range(1, 40)}
_MAX_BYTES = 2**32 - 1  # of one value in MessagePack
_LARGE = 1 << 16  # bytes from which an array is not copied once more; below, that is quicker


def show(path: Path) -> str:
    """``PlayerHitsBall.close[3].owner`` from the steps to it."""
    steps: list[str] = []
    while path[0] is not None:
        path, form, label = path
        steps.append(f".{label}" if form == "." else f"{'.keys()' if form == 'key' else ''}[{_short(label)}]")
    return "".join((str(path[2]), *reversed(steps)))


def _short(label: Any) -> str:
    try:
        text = repr(label)
    except Exception:
        return f"<{type(label).__qualname__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def _view_of(array: np.ndarray[Any, Any]) -> memoryview:
    flat: Any = np.ascontiguousarray(array).reshape(-1)
    return memoryview(flat.view(np.uint8))


class _Unset:
    """A field that was never set."""


_UNSET = _Unset()


class TreeWriter:
    """Turns one value into one tree.

    At first every int is assumed to have 64 bits and every str to be valid Unicode, so that the types of its items show
    that a list is plain. If encoding fails, ``strict`` checks each of them.
    """

    def __init__(
        self, where: str, find_class: Callable[[str, str], type | None] | None = None, strict: bool = False
    ) -> None:
        self._where = where
        self._find_class = find_class
        self._plain = PLAIN - {int, str} if strict else PLAIN
        self._plain_keys = frozenset() if strict else PLAIN_KEYS
        # The containers that we are inside of, by id.
        self._active: dict[int, Path] = {}
        # A class is written as `[index in the table]`. These lists are shared by the nodes until all classes
        # are known. Until then they spell the class out, so that the order of a set's items does not depend
        # on which class was met first.
        self._classes: dict[type, list[Any]] = {}

    def root(self, value: Any) -> list[Any]:
        """``[table of classes, tree]``, which ``pack`` turns into bytes."""
        path = (None, "", self._where)
        tree = value if type(value) in self._plain else self._tree(value, path)
        refs = sorted(self._classes.values(), key=pack)
        table = [list(ref) for ref in refs]
        for index, ref in enumerate(refs):
            ref[:] = [index]
        return [table, tree]

    def _tree(self, value: Any, path: Path) -> Any:
        kind = type(value)
        writer = _WRITERS.get(kind) or _family_writer(kind)
        if writer is None:
            raise UnsupportedStateError(show(path), value, _why_not(kind))
        return writer(self, value, path)

    def _items(
        self,
        owner: Any,
        values: Collection[Any],
        path: Path,
        labels: Iterable[Any] | None = None,
        form: str = "[]",
    ) -> list[Any]:
        """The trees of what ``owner`` holds; refuses cycles and endless depth."""
        plain = self._plain
        if plain.issuperset(map(type, values)):
            return list(values)
        first = self._active.setdefault(id(owner), path)
        if first is not path:
            raise UnsupportedStateError(show(path), owner, f"it contains itself, as it is also {show(first)}")
        if len(self._active) > MAX_DEPTH:
            raise UnsupportedStateError(show(path), owner, f"it is nested more than {MAX_DEPTH} levels deep")
        trees = []
        for value, label in zip(values, count() if labels is None else labels, strict=False):
            if type(value) in plain:
                trees.append(value)
            else:
                trees.append(self._tree(value, (path, form, label)))
        del self._active[id(owner)]
        return trees

    def _list(self, value: list[Any], path: Path) -> Any:
        return self._items(value, value, path)

    def _tuple(self, value: tuple[Any, ...], path: Path) -> Any:
        return [_TAG[TUPLE], *self._items(value, value, path)]

    def _set(self, value: set[Any] | frozenset[Any], path: Path) -> Any:
        items = sorted(self._items(value, value, path), key=pack)
        return [_TAG[SET if type(value) is set else FROZENSET], *items]

    def _deque(self, value: deque[Any], path: Path) -> Any:
        return [_TAG[DEQUE], value.maxlen, *self._items(value, value, path)]

    def _dict(self, value: dict[Any, Any], path: Path) -> Any:
        values = value.values()
        if self._plain_keys.issuperset(map(type, value)):
            if self._plain.issuperset(map(type, values)):
                return value
            return dict(zip(value, self._items(value, values, path, value), strict=True))
        keys = self._items(value, value.keys(), path, form="key")
        trees = self._items(value, values, path, value.keys())
        if PLAIN_KEYS.issuperset(map(type, keys)):
            return dict(zip(keys, trees, strict=True))
        return [_TAG[DICT], keys, trees]

    def _dict_kind(self, value: Any, path: Path) -> Any:
        for name, attribute in attributes(value).items():
            raise UnsupportedStateError(show((path, ".", name)), attribute, "only a dict's entries are saved")
        keys = self._items(value, value.keys(), path, form="key")
        values = self._items(value, value.values(), path, value.keys())
        if type(value) is not defaultdict:
            return [_TAG[COUNTER if type(value) is Counter else ORDEREDDICT], keys, values]
        factory = value.default_factory
        names = [name for name, kind in FACTORIES.items() if kind is factory]
        if factory is not None and not names:
            why = f"a defaultdict's factory may be None or one of {', '.join(FACTORIES)}"
            raise UnsupportedStateError(show((path, ".", "default_factory")), factory, why)
        return [_TAG[DEFAULTDICT], names[0] if names else None, keys, values]

    def _int(self, value: int, path: Path) -> Any:
        if -(2**63) <= value < 2**64:
            return value
        return Ext(BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))

    def _str(self, value: str, path: Path) -> Any:
        try:
            value.encode()
        except UnicodeEncodeError:
            return Ext(ODD_STR, value.encode("utf-8", "surrogatepass"))
        return value

    def _moment(self, value: Any, path: Path) -> Any:
        letter = next(letter for letter, (kind, _) in MOMENTS.items() if kind is type(value))
        if letter == "d":
            text = str(value // type(value)(microseconds=1))
        else:
            text = str(value) if letter == "n" else value.isoformat()
        return Ext(MOMENT, (letter + text).encode())

    def _complex(self, value: complex, path: Path) -> Any:
        return Ext(COMPLEX, struct.pack(">dd", value.real, value.imag))

    def _event(self, value: Event, path: Path) -> Any:
        parts = (value.type, value.ts, value.source, value.seq, value.payload)
        labels = ("type", "ts", "source", "seq", "payload")
        return [_TAG[EVENT], *self._items(value, parts, path, labels, ".")]

    def _array(self, value: np.ndarray[Any, Any], path: Path) -> Any:
        try:
            description = describe_dtype(value.dtype)
            if value.nbytes > _MAX_BYTES:
                raise ValueError(f"its {value.nbytes} bytes are more than {_MAX_BYTES}; keep it as several arrays")
        except ValueError as error:
            raise UnsupportedStateError(show(path), value, str(error)) from None
        # In the last bit, a sum depends on the layout in memory: a restored array has the same.
        order: Literal["C", "F"] = "C"
        if not value.flags.c_contiguous:
            if not value.flags.f_contiguous:
                value = value.copy(order="K")
            order = "F" if value.flags.fnc else "C"
        data = value.tobytes(order) if value.nbytes < _LARGE else _view_of(value.T if order == "F" else value)
        return [_TAG[ARRAY], description, list(value.shape), order, Ext(RAW, data)]

    def _scalar(self, value: np.generic, path: Path) -> Any:
        # As an array item, and by NumPy's own str(), a str or bytes would lose the zeros at its end.
        if isinstance(value, np.str_):
            return [_TAG[NP_STR], self._str(str.__str__(value), path)]
        if isinstance(value, np.bytes_):
            return [_TAG[NP_BYTES], bytes(value)]
        return [_TAG[SCALAR], *self._array(np.asarray(value), path)[1:]]

    def _class(self, code: int, value: Any, path: Path) -> list[Any]:
        kind = type(value)
        if kind in self._classes:
            return self._classes[kind]
        try:
            ref = [kind.__module__, kind.__qualname__, code, list(fields_of(code, kind))]
        except TypeError as error:
            raise UnsupportedStateError(show(path), value, str(error)) from None
        if self._find_class is not None and self._find_class(kind.__module__, kind.__qualname__) is not kind:
            why = f"no imported module has that class; declare it in state_types of detector {self._where!r}"
            raise UnsupportedStateError(show(path), value, why)
        if any(ref[:2] == other[:2] for other in self._classes.values()):
            raise UnsupportedStateError(show(path), value, "the state also holds another class of that name")
        return self._classes.setdefault(kind, ref)

    def _dataclass(self, value: Any, path: Path) -> Any:
        ref = self._class(DATACLASS, value, path)
        layout = Layout.of(type(value))
        in_dict = attributes(value)
        values = []
        for name, slot in layout.fields.items():
            try:
                values.append(in_dict[name] if slot is None else slot.__get__(value))
            except (KeyError, AttributeError):
                values.append(_UNSET)  # never set: it comes back as never set
        if layout.other_slots or not in_dict.keys() <= layout.fields.keys():
            self._refuse_more_than_fields(value, layout, path)
        return [_TAG[DATACLASS], ref, *self._items(value, values, path, layout.fields, ".")]

    def _refuse_more_than_fields(self, value: Any, layout: Layout, path: Path) -> None:
        held = dict(attributes(value))
        held.pop("__orig_class__", None)  # left by `Box[int](...)` for type checkers: no state
        for name, slot in layout.other_slots.items():
            with suppress(AttributeError):
                held[name] = slot.__get__(value)
        for name in held.keys() - layout.fields.keys():
            why = f"it is not a field of the dataclass {type(value).__qualname__}"
            raise UnsupportedStateError(show((path, ".", name)), held[name], why)

    def _unset(self, value: Any, path: Path) -> Any:
        return _TAG[UNSET]

    def _namedtuple(self, value: Any, path: Path) -> Any:
        ref = self._class(NAMEDTUPLE, value, path)
        items = tuple(tuple.__iter__(value))
        if attributes(value) or len(items) != len(ref[3]):
            raise UnsupportedStateError(show(path), value, "it holds more or less than its fields")
        return [_TAG[NAMEDTUPLE], ref, *self._items(value, items, path, ref[3], ".")]

    def _enum(self, value: Any, path: Path) -> Any:
        ref = self._class(ENUM, value, path)
        if type(value)._member_map_.get(value._name_) is not value:
            raise UnsupportedStateError(show(path), value, "it is a combination of flags and has no name of its own")
        return [_TAG[ENUM], ref, value._name_]


_Writer = Callable[[TreeWriter, Any, Path], Any]
_WRITERS: dict[type, _Writer] = {
    list: TreeWriter._list,
    tuple: TreeWriter._tuple,
    set: TreeWriter._set,
    frozenset: TreeWriter._set,
    dict: TreeWriter._dict,
    deque: TreeWriter._deque,
    defaultdict: TreeWriter._dict_kind,
    Counter: TreeWriter._dict_kind,
    OrderedDict: TreeWriter._dict_kind,
    int: TreeWriter._int,
    str: TreeWriter._str,
    complex: TreeWriter._complex,
    Event: TreeWriter._event,
    np.ndarray: TreeWriter._array,
    _Unset: TreeWriter._unset,
    **{kind: TreeWriter._moment for kind, _ in MOMENTS.values()},
}


def _family_writer(kind: type) -> _Writer | None:
    """The writer for a type that is not in the table but of a family that can be written."""
    if issubclass(kind, enum.Enum):
        return TreeWriter._enum
    if issubclass(kind, np.generic):
        return TreeWriter._scalar if kind.__module__ == "numpy" else None
    if dataclasses.is_dataclass(kind):
        return TreeWriter._dataclass
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return TreeWriter._namedtuple
    return None


def _why_not(kind: type) -> str:
    for base in kind.__mro__[1:]:
        if base in _WRITERS or base in PLAIN or base is np.generic:
            return f"a subclass of {base.__name__} would come back as a plain one"
    return ""


# Reading.

#: Gives the class for a module and a qualified name, or None.
FindClass = Callable[[str, str], type | None]

_Node = list[Any]
_MAX_DIMENSIONS = 64  # NumPy's own limit; keeps hostile bytes from asking for a long multiplication


class TreeReader:
    """Turns one tree, as MessagePack gives it with each Ext as ``(code, data)``, back into its value."""

    def __init__(self, where: str, find_class: FindClass, declare: str = "") -> None:
        self._where = where
        self._declare = declare  # remedy for a class that is not found, besides importing it
        self._find_class = find_class
        # Per class: the kind of its nodes, the class, its fields as saved, the layout of a dataclass.
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
            now = fields_of(code, kind)
        except TypeError as error:
            raise StateError(f"{name}, but the class of that name does not fit: {error}.") from None
        gone = ", ".join(field for field in saved if field not in now)
        new = ", ".join(field for field in now if field not in saved)
        if gone or new:
            changes = [f"no longer has the fields {gone}"] * bool(gone) + [f"now has the fields {new}"] * bool(new)
            raise StateError(
                f"{name}, but the class has changed since the state was saved: it {' and '.join(changes)}. "
                f"Restore with the class as it was, or start without a state."
            )
        return code, kind, saved, Layout.of(kind) if code == DATACLASS else None

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
        return self._distinct(set(values) if item[0][0] == SET else frozenset(values), len(values))

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
        if code == DICT:
            kept = dict(pairs)
        elif code == ORDEREDDICT:
            kept = OrderedDict(pairs)
        elif code == COUNTER:
            kept = Counter()
            dict.update(kept, pairs)  # Counter's own update counts the pairs
        else:
            kept = defaultdict(None if factory[0] is None else FACTORIES[factory[0]], pairs)
        return self._distinct(kept, len(keys))

    def _event(self, item: _Node) -> Any:
        type_, ts, source, seq, payload = self._items(item[1:])
        if not isinstance(payload, dict):
            raise ValueError("an event without a payload")
        return Event.of(type_, ts, source, seq, payload)

    def _array(self, item: _Node) -> Any:
        _, description, shape, order, (code, data) = item
        dtype = read_dtype(description)
        if code != RAW or order not in ("C", "F") or len(_list(shape)) > _MAX_DIMENSIONS:
            raise ValueError("an array without shape or items")
        for size in shape:
            if type(size) is not int or size < 0:
                raise ValueError(f"an array of shape {shape}")
        if dtype.itemsize * math.prod(shape) != len(data):
            raise ValueError(f"{len(data)} bytes for an array of shape {shape} and dtype {dtype}")
        return np.ndarray(shape, dtype, data, 0, None, order).copy(order)

    def _scalar(self, item: _Node) -> Any:
        code = item[0][0]
        if code == SCALAR:
            return self._array(item)[()]
        (value,) = self._items(item[1:])
        if type(value) is not (str if code == NP_STR else bytes):
            raise ValueError("a NumPy text that is none")
        return np.str_(value) if code == NP_STR else np.bytes_(value)

    def _dataclass(self, item: _Node) -> Any:
        _, (index,), *parts = item
        _, kind, names, layout = self._classes[index]
        if layout is None or len(names) != len(parts):
            raise ValueError(f"{kind} is not a dataclass, or has other fields")
        if not PLAIN.issuperset(map(type, parts)):
            held = [not (type(part) is tuple and part[0] == UNSET) for part in parts]
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
        if code != NAMEDTUPLE:
            raise ValueError(f"{kind} is no namedtuple")
        values = dict(zip(names, self._items(parts), strict=True))
        return tuple.__new__(kind, [values[name] for name in kind._fields])

    def _enum(self, item: _Node) -> Any:
        _, (index,), name = item
        code, kind, _, _ = self._classes[index]
        if code != ENUM or type(name) is not str:
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
    if code == BIG_INT:
        return int.from_bytes(data, "big", signed=True)
    if code == ODD_STR:
        return str(data, "utf-8", "surrogatepass")
    if code == COMPLEX:
        return complex(*struct.unpack(">dd", data))
    if code == MOMENT:
        text = str(data, "ascii")
        return MOMENTS[text[:1]][1](text[1:])
    raise ValueError(f"the unknown code {code}")


_READERS: dict[int, Callable[[TreeReader, _Node], Any]] = {
    TUPLE: TreeReader._tuple,
    SET: TreeReader._set,
    FROZENSET: TreeReader._set,
    DICT: TreeReader._dict,
    DEQUE: TreeReader._deque,
    DEFAULTDICT: TreeReader._dict,
    COUNTER: TreeReader._dict,
    ORDEREDDICT: TreeReader._dict,
    EVENT: TreeReader._event,
    ARRAY: TreeReader._array,
    SCALAR: TreeReader._scalar,
    NP_STR: TreeReader._scalar,
    NP_BYTES: TreeReader._scalar,
    DATACLASS: TreeReader._dataclass,
    ENUM: TreeReader._enum,
    NAMEDTUPLE: TreeReader._namedtuple,
}
