"""States as bytes: safe to read from untrusted bytes, deterministic, and versioned.

``Engine.save()`` and the snapshots of detectors use this format.

>>> from collections import deque
>>> from slackline.core.event import Event
>>> state = {"close": {7, 3}, "last": Event("kick", ts=5), ("home", 1): deque([1.5], maxlen=4)}
>>> decode(encode(state)) == state
True
>>> load("example", 1, dump("example", 1, [1, 2]))
[1, 2]

**Values.** None, bool, int of any size, float and complex to the bit, str (lone surrogates too), bytes,
list, tuple, set, frozenset, dict with any of these as keys, deque, defaultdict of a built-in factory,
Counter, OrderedDict, dates, times and Decimal, Event, dataclass instances, namedtuples, Enum members, NumPy
arrays and scalars. What comes back has the same types. Anything else, a subclass of these, a cycle or an
attribute beside a dataclass's fields raises an UnsupportedStateError that names the path to it: nothing is converted to
a similar type.

- An object that is referenced twice becomes two equal objects. State must not rely on their being one.
- An array comes back writable, owning its memory, in the same layout (C or Fortran). dtypes of objects, of
  variable-length strings and of long doubles, and structured ones with padding, are not supported. C's
  ``longlong`` comes back as ``int64``.
- A time of a named zone comes back with the offset it had: the same instant, without the name.
- A combination of flags that has no name of its own is not supported. Enum members are stored by name.

**Equal bytes.** Equal states of equal types give equal bytes, in any process: sets are written sorted by
the bytes of their items. The order of a dict is part of the state.

**Safety.** The bytes are data, never a program. Reading them imports nothing and calls no ``__init__``,
``__post_init__``, ``__new__``, ``__setstate__`` or property of the classes they name. Only ``__hash__`` and
``__eq__`` run, where an instance is a key or in a set, as in any dict and set. A class is looked for among
those that the detector declares and those of imported modules, must be a dataclass, Enum or namedtuple, and
must have the very fields that were saved. Memory use is proportional to the bytes given. Any defect is a
StateError.

**Format.** ``encode`` writes MessagePack: ``[table of classes, tree]``, see ``state_tree``. ``dump`` puts
an envelope around it, big-endian: 4 bytes magic, 1 byte format version, 4 bytes CRC-32 of all that follows,
8 bytes length of all that follows them, 4 bytes version of the content, 1 byte length of its kind, the
kind, the tree.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from types import ModuleType
from typing import Any

import msgspec

from slackline.core.errors import StateError, UnsupportedStateError
from slackline.core.state_tree import PLAIN, PLAIN_KEYS, FindClass, TreeReader, TreeWriter, pack

__all__ = ["FindClass", "class_finder", "decode", "dump", "encode", "load"]

Buffer = bytes | bytearray | memoryview

MAGIC = b"\x93SLK"
FORMAT = 1
#: By kind and version: what makes a value of the next version of one that an older release has saved (decision 0005).
CONVERTERS: dict[tuple[str, int], Callable[[Any], Any]] = {}

_OUTER = struct.Struct(">4sBIQ")  # magic, format, checksum, length
_INNER = struct.Struct(">IB")  # version, length of the kind
_LENGTH_AT = _OUTER.size - 8

_unpack = msgspec.msgpack.Decoder(ext_hook=lambda code, data: (code, data)).decode


def _is_plain(value: dict[Any, Any]) -> bool:
    """Whether keys and values of a dict are written and read as they are."""
    return PLAIN_KEYS.issuperset(map(type, value)) and PLAIN.issuperset(map(type, value.values()))


def encode(value: Any, where: str = "state", find_class: FindClass | None = None) -> bytes:
    """The value as bytes; ``where`` names it in errors, and is the root of the paths in them.

    With the ``find_class`` of a detector, a class that cannot be found again raises now, not when it is restored.
    """
    try:
        try:
            if type(value) is dict and _is_plain(value):  # states of small detectors: what TreeWriter would make of it
                return pack([[], value])
            return pack(TreeWriter(where, find_class).root(value))
        except (OverflowError, UnicodeEncodeError):  # an int beyond 64 bits, a str that is not valid Unicode
            return pack(TreeWriter(where, find_class, strict=True).root(value))
    except RecursionError:
        raise UnsupportedStateError(where, value, "it is nested too deeply for the call stack") from None
    except (msgspec.EncodeError, ValueError, OverflowError) as error:
        raise UnsupportedStateError(where, value, f"something in it is too large ({error})") from error


def decode(data: Buffer, find_class: FindClass | None = None, where: str = "state") -> Any:
    """The value that ``encode`` turned into these bytes.

    ``find_class(module, qualname)`` gives the class of a dataclass, Enum or namedtuple, or None. By default
    it is looked for in the modules imported so far. That of a detector, whose name is ``where``, is a ``class_finder``.
    """
    declare = "" if find_class is None else f"declare it in state_types of detector {where!r}, or "
    try:
        body = _unpack(data)
        if type(body) is list and len(body) == 2 and body[0] == [] and type(body[1]) is dict and _is_plain(body[1]):
            return body[1]
        return TreeReader(where, find_class or _imported_class, declare).root(body)
    except StateError:
        raise
    except Exception as error:
        raise StateError(
            f"{where} cannot be restored from these {_size(data)} bytes: they are damaged or not written by "
            f"Slackline ({type(error).__name__}: {error}). Restore an older state, or start without one."
        ) from error


def dump(kind: str, version: int, value: Any, where: str | None = None) -> bytes:
    """The value as bytes in an envelope with kind, version and checksum."""
    name = kind.encode()
    rest = b"".join((_INNER.pack(version, len(name)), name, encode(value, where or kind)))
    length = struct.pack(">Q", len(rest))
    checksum = zlib.crc32(rest, zlib.crc32(length))
    return b"".join((_OUTER.pack(MAGIC, FORMAT, checksum, len(rest)), rest))


def load(kind: str, version: int, data: Buffer, find_class: FindClass | None = None) -> Any:
    """The value from ``dump``, converted to ``version``, the one that the caller understands."""
    found, written, body = _open(data)
    if found != kind:
        raise StateError(f"these bytes hold a {found!r}, not a {kind!r}. Load them with the component that saved them.")
    if written > version:
        raise StateError(
            f"this {kind!r} has version {written}, and this release of Slackline understands version {version}. "
            f"Restore it with the release that saved it, or a newer one."
        )
    steps = [CONVERTERS.get((kind, older)) for older in range(written, version)]
    if None in steps:
        raise StateError(
            f"this {kind!r} was saved by an older release of Slackline (version {written} of the state, this one reads "
            f"{version}). Load it with that release, or start without a state."
        )
    return reduce(lambda value, convert: convert(value), filter(None, steps), decode(body, find_class, kind))


def _open(data: Buffer) -> tuple[str, int, memoryview]:
    try:
        view = memoryview(data).cast("B")
    except TypeError:
        raise StateError(f"saved bytes were expected, not a {type(data).__name__}") from None
    if bytes(view[:4]) != MAGIC[: len(view)] or not view:
        raise StateError(
            f"these {len(view)} bytes were not saved by Slackline: they do not begin with {MAGIC!r}. "
            f"Pass the bytes exactly as save() returned them."
        )
    if len(view) > 4 and view[4] != FORMAT:
        raise StateError(
            f"these bytes have format {view[4]}, and this release of Slackline reads format {FORMAT}. "
            f"Restore them with the release that saved them, or a newer one."
        )
    damaged = StateError(
        f"these {len(view)} bytes are damaged: truncated, extended or altered since they were saved. "
        f"Restore an older state, or start without one."
    )
    if len(view) < _OUTER.size + _INNER.size:
        raise damaged
    _, _, checksum, length = _OUTER.unpack_from(view)
    rest = view[_OUTER.size :]
    if length != len(rest) or zlib.crc32(view[_LENGTH_AT:]) != checksum:
        raise damaged
    version, size = _INNER.unpack_from(rest)
    try:
        kind = str(rest[_INNER.size : _INNER.size + size], "utf-8")
    except UnicodeDecodeError:
        raise damaged from None
    return kind, version, rest[_INNER.size + size :]


def _size(data: Any) -> int:
    return len(data) if isinstance(data, Buffer) else 0


def class_finder(declared: Iterable[type]) -> FindClass:
    """A ``find_class`` that looks among ``declared`` (``Detector.state_types``) first, then in the imported modules.

    A class of a script or of a function is in no imported module once it was shipped to another process by value, so
    it has to be declared. Module and qualified name must match; but as cloudpickle drops all but the last part of a
    qualified name, that part alone also matches, on either side, if exactly one declared class has it.
    """
    return _class_finder(tuple(dict.fromkeys(declared)))


@lru_cache(maxsize=256)
def _class_finder(types: tuple[type, ...]) -> FindClass:
    def find_class(module: str, qualname: str) -> type | None:
        name = qualname.rpartition(".")[2]
        near = [kind for kind in types if kind.__module__ == module and kind.__name__ == name]
        for kind in near:
            if kind.__qualname__ == qualname:
                return kind
        alike = [kind for kind in near if name in (qualname, kind.__qualname__)]
        return _imported_class(module, qualname) or (alike[0] if len(alike) == 1 else None)

    return find_class


def _imported_class(module: str, qualname: str) -> type | None:
    """The class in the imported modules; reads their dicts, so that no ``__getattr__`` or import runs."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        if not issubclass(type(found), type | ModuleType):
            return None
        found = type.__getattribute__(found, "__dict__") if issubclass(type(found), type) else _names(found)
        found = found.get(name)
    return found if issubclass(type(found), type) else None


def _names(module: ModuleType) -> dict[str, Any]:
    return object.__getattribute__(module, "__dict__")
