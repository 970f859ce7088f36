"""Classes to save, how to compare to the bit and the type, and strategies of all that can be saved."""

from __future__ import annotations

import dataclasses
import enum
import struct
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from slackline.core.codec import decode, encode
from slackline.core.event import Event

# --- classes to save ----------------------------------------------------------------------------------------

calls: list[str] = []  # what user code ran


@dataclass
class Player:
    number: Any
    owner: Any = None


@dataclass(frozen=True, slots=True)
class Position:
    x: Any
    y: Any = 0.0


@dataclass
class Captain(Player):
    armband: Any = "left"
    seen: Any = field(init=False, default_factory=list)
    late: Any = field(init=False)


@dataclass(slots=True)
class Loud:
    value: Any
    unset: Any = field(init=False)

    def __new__(cls, *args: Any) -> Loud:
        calls.append("__new__")
        return object.__new__(cls)

    def __post_init__(self) -> None:
        calls.append("__post_init__")

    def __setattr__(self, name: str, value: Any) -> None:
        calls.append("__setattr__")
        object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        calls.append("__getattribute__")
        return object.__getattribute__(self, name)

    def __setstate__(self, state: Any) -> None:
        calls.append("__setstate__")

    def __reduce__(self) -> Any:
        calls.append("__reduce__")
        return object.__reduce__(self)


class Side(enum.Enum):
    HOME = "home"
    AWAY = "away"


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Pair(typing.NamedTuple):
    left: Any
    right: Any = None


Plain = namedtuple("Plain", "a b")


class Outer:
    @dataclass
    class Inner:
        value: int


# --- comparing, to the bit and the type ---------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and not isinstance(a, np.generic):
        return struct.pack("d", a) == struct.pack("d", b)
    if type(a) is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, np.ndarray):
        layouts = (a.flags.c_contiguous, a.flags.f_contiguous) == (b.flags.c_contiguous, b.flags.f_contiguous)
        return layouts and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        extra = getattr(a, "default_factory", None) is getattr(b, "default_factory", None)
        return extra and same(list(a.keys()), list(b.keys())) and same(list(a.values()), list(b.values()))
    if isinstance(a, (set, frozenset)):
        return same(sorted(a, key=encode), sorted(b, key=encode))
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Event):
        return all(same(getattr(a, name), getattr(b, name)) for name in Event.__slots__)
    if dataclasses.is_dataclass(a):
        names = [f.name for f in dataclasses.fields(a)]
        return all(same(getattr(a, n, "unset"), getattr(b, n, "unset")) for n in names)
    return bool(a == b)


def check(value: Any) -> Any:
    data = encode(value)
    back = decode(data)
    assert same(value, back), (value, back)
    assert encode(back) == data
    return back


# --- strategies ---------------------------------------------------------------------------------------------

dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(sizes=(64, 128)),
    hnp.datetime64_dtypes(endianness="<"),
    hnp.timedelta64_dtypes(),
    hnp.byte_string_dtypes(min_len=1, max_len=5),
    hnp.unicode_string_dtypes(min_len=1, max_len=5),
)
structured = st.just(np.dtype([("id", "<i4"), ("xy", "<f8", (2,)), ("in", [("flag", "?"), ("name", "<U3")])]))
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
arrays = hnp.arrays(dtypes | structured, shapes) | hnp.arrays(dtypes, shapes).map(np.asfortranarray)
scalars = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, ())).map(lambda array: array[()])

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**4000]),
    st.floats(),
    st.complex_numbers(),
    st.text(st.characters()),
    st.text(st.characters(categories=["Cs"]), max_size=2),
    st.binary(max_size=8),
    st.sampled_from([*Side, *Level, *Flags]),
    scalars,
)
keys = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(Position, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Event, st.text(), ts=st.integers(0), source=st.integers() | st.text(), seq=st.none()),
    ),
    max_leaves=6,
)
values = st.recursive(
    atoms | keys | arrays,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(keys, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4),
        st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(0, 9)),
        st.builds(defaultdict, st.sampled_from([None, int, float, list, set, dict]), st.dictionaries(keys, inner)),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.dictionaries(keys, st.integers(), max_size=3).map(Counter),
        st.builds(Player, inner, inner),
        st.builds(Captain, inner),
        st.builds(Plain, inner, inner),
        st.builds(lambda payload: Event.of("kick", 3, "ball", 1, payload), st.dictionaries(st.text(), inner)),
    ),
    max_leaves=20,
)
relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
