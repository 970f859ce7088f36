"""From a state to its tree (``_state_tree``): takes each value's exact type, never what it could pass for."""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from itertools import count
from typing import Any, Literal

import numpy as np
from msgspec.msgpack import Encoder, Ext

from slackline.core import _state_tree as fmt
from slackline.core._state_tree import PLAIN, PLAIN_KEYS, Layout, attributes
from slackline.core.errors import UnsupportedStateError
from slackline.core.event import Event

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
    """Stands for a field that was never set."""


_UNSET = _Unset()


class TreeWriter:
    """Turns one value into one tree.

    At first every int is taken to have 64 bits and every str to be valid Unicode, so that a glance at the
    types of its items shows that a list is plain. Where that proves wrong, ``strict`` looks at each of them.
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
            raise UnsupportedStateError(show(path), owner, f"it contains itself, being also {show(first)}")
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
        return [_TAG[fmt.TUPLE], *self._items(value, value, path)]

    def _set(self, value: set[Any] | frozenset[Any], path: Path) -> Any:
        items = sorted(self._items(value, value, path), key=pack)
        return [_TAG[fmt.SET if type(value) is set else fmt.FROZENSET], *items]

    def _deque(self, value: deque[Any], path: Path) -> Any:
        return [_TAG[fmt.DEQUE], value.maxlen, *self._items(value, value, path)]

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
        return [_TAG[fmt.DICT], keys, trees]

    def _dict_kind(self, value: Any, path: Path) -> Any:
        for name, attribute in attributes(value).items():
            raise UnsupportedStateError(show((path, ".", name)), attribute, "only a dict's entries are saved")
        keys = self._items(value, value.keys(), path, form="key")
        values = self._items(value, value.values(), path, value.keys())
        if type(value) is not defaultdict:
            return [_TAG[fmt.COUNTER if type(value) is Counter else fmt.ORDEREDDICT], keys, values]
        factory = value.default_factory
        names = [name for name, kind in fmt.FACTORIES.items() if kind is factory]
        if factory is not None and not names:
            why = f"a defaultdict's factory may be None or one of {', '.join(fmt.FACTORIES)}"
            raise UnsupportedStateError(show((path, ".", "default_factory")), factory, why)
        return [_TAG[fmt.DEFAULTDICT], names[0] if names else None, keys, values]

    def _int(self, value: int, path: Path) -> Any:
        if -(2**63) <= value < 2**64:
            return value
        return Ext(fmt.BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))

    def _str(self, value: str, path: Path) -> Any:
        try:
            value.encode()
        except UnicodeEncodeError:
            return Ext(fmt.ODD_STR, value.encode("utf-8", "surrogatepass"))
        return value

    def _moment(self, value: Any, path: Path) -> Any:
        letter = next(letter for letter, (kind, _) in fmt.MOMENTS.items() if kind is type(value))
        if letter == "d":
            text = str(value // type(value)(microseconds=1))
        else:
            text = str(value) if letter == "n" else value.isoformat()
        return Ext(fmt.MOMENT, (letter + text).encode())

    def _complex(self, value: complex, path: Path) -> Any:
        return Ext(fmt.COMPLEX, struct.pack(">dd", value.real, value.imag))

    def _event(self, value: Event, path: Path) -> Any:
        parts = (value.type, value.ts, value.source, value.seq, value.payload)
        labels = ("type", "ts", "source", "seq", "payload")
        return [_TAG[fmt.EVENT], *self._items(value, parts, path, labels, ".")]

    def _array(self, value: np.ndarray[Any, Any], path: Path) -> Any:
        try:
            description = fmt.describe_dtype(value.dtype)
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
        return [_TAG[fmt.ARRAY], description, list(value.shape), order, Ext(fmt.RAW, data)]

    def _scalar(self, value: np.generic, path: Path) -> Any:
        # As an array item, and by NumPy's own str(), a str or bytes would lose the zeros at its end.
        if isinstance(value, np.str_):
            return [_TAG[fmt.NP_STR], self._str(str.__str__(value), path)]
        if isinstance(value, np.bytes_):
            return [_TAG[fmt.NP_BYTES], bytes(value)]
        return [_TAG[fmt.SCALAR], *self._array(np.asarray(value), path)[1:]]

    def _class(self, code: int, value: Any, path: Path) -> list[Any]:
        kind = type(value)
        if kind in self._classes:
            return self._classes[kind]
        try:
            ref = [kind.__module__, kind.__qualname__, code, list(fmt.fields_of(code, kind))]
        except TypeError as error:
            raise UnsupportedStateError(show(path), value, str(error)) from None
        if self._find_class is not None and self._find_class(kind.__module__, kind.__qualname__) is not kind:
            why = f"no imported module has that class; declare it in state_types of detector {self._where!r}"
            raise UnsupportedStateError(show(path), value, why)
        if any(ref[:2] == other[:2] for other in self._classes.values()):
            raise UnsupportedStateError(show(path), value, "the state also holds another class of that name")
        return self._classes.setdefault(kind, ref)

    def _dataclass(self, value: Any, path: Path) -> Any:
        ref = self._class(fmt.DATACLASS, value, path)
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
        return [_TAG[fmt.DATACLASS], ref, *self._items(value, values, path, layout.fields, ".")]

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
        return _TAG[fmt.UNSET]

    def _namedtuple(self, value: Any, path: Path) -> Any:
        ref = self._class(fmt.NAMEDTUPLE, value, path)
        items = tuple(tuple.__iter__(value))
        if attributes(value) or len(items) != len(ref[3]):
            raise UnsupportedStateError(show(path), value, "it holds more or less than its fields")
        return [_TAG[fmt.NAMEDTUPLE], ref, *self._items(value, items, path, ref[3], ".")]

    def _enum(self, value: Any, path: Path) -> Any:
        ref = self._class(fmt.ENUM, value, path)
        if type(value)._member_map_.get(value._name_) is not value:
            raise UnsupportedStateError(show(path), value, "it is a combination of flags and has no name of its own")
        return [_TAG[fmt.ENUM], ref, value._name_]


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
    **{kind: TreeWriter._moment for kind, _ in fmt.MOMENTS.values()},
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
