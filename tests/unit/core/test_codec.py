"""States survive as bytes, equal states give equal bytes, and no bytes can do harm."""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import importlib
import math
import struct
import subprocess
import sys
import threading
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from slackline.core import codec
from slackline.core.codec import class_finder, decode, dump, encode, load, peek
from slackline.core.errors import StateError, UnsupportedStateError
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

# --- round trip ---------------------------------------------------------------------------------------------


@relaxed
@given(values)
def test_every_value_comes_back_with_its_types(value: Any) -> None:
    check(value)


@relaxed
@given(arrays | scalars)
def test_every_array_and_scalar_comes_back_with_dtype_shape_and_layout(value: Any) -> None:
    check(value)


@pytest.mark.parametrize("value", [-0.0, math.inf, -math.inf, struct.unpack("d", b"\1\2\0\0\0\0\xf8\x7f")[0]])
def test_floats_come_back_to_the_bit(value: float) -> None:
    check([value, {"x": value}, complex(value, value), np.float64(value)])


def test_a_big_int_leaves_its_plain_neighbours_as_they_are() -> None:
    check({"a": [1, 2**200, "x"], 2**100: {1: "\ud800"}, "\udfff": 0.5, "b": {"c": 1.0}, "e": {}})


def test_two_references_to_one_object_become_two_equal_objects() -> None:
    shared = [1]
    back = check([shared, shared])
    assert back[0] == back[1] and back[0] is not back[1]


def test_restored_arrays_can_be_written_and_share_no_memory_with_the_bytes() -> None:
    data = bytearray(encode(np.arange(4)))
    array = decode(data)
    array[0] = 9
    assert decode(data).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4)[:, ::2, ::-1],
        np.arange(24).reshape(4, 6).T[::2],
        np.broadcast_to(np.arange(3), (4, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    ],
)
def test_views_come_back_with_their_items(array: np.ndarray) -> None:
    back = decode(encode(array))
    assert np.array_equal(array, back) and array.dtype == back.dtype


def test_numpy_text_keeps_its_trailing_zeros() -> None:
    check([np.str_("a\0"), np.bytes_(b"a\0"), np.str_(""), np.bytes_(b""), np.str_("\ud800")])


def test_enum_members_come_back_as_the_very_members() -> None:
    assert check([Side.HOME, Level.LOW, Flags.A])[0] is Side.HOME


# --- dataclasses --------------------------------------------------------------------------------------------


def test_a_field_that_was_never_set_comes_back_as_never_set() -> None:
    back = check(Captain(7, owner={"a": Position(1, 2)}))
    assert not hasattr(back, "late") and back.seen == []
    back.late = {1}
    assert check(back).late == {1}


def test_nested_and_generic_dataclasses_are_supported() -> None:
    assert check(Outer.Inner(3)).value == 3
    assert check(Generic[int](4)).value == 4


T = typing.TypeVar("T")


@dataclass
class Generic(typing.Generic[T]):
    value: T


def test_no_code_of_the_class_runs_while_saving_and_restoring() -> None:
    value = Loud([1, Position(2, 3)])
    assert "__post_init__" in calls
    calls.clear()
    back = decode(encode(value))
    assert calls == []
    assert back.value == [1, Position(2, 3)] and not hasattr(back, "unset")


def test_an_attribute_beside_the_fields_is_named() -> None:
    player = Player(7)
    player.nickname = "Lu"  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedStateError, match="not a field of the dataclass Player") as caught:
        encode({"best": [player]}, where="Team")
    assert caught.value.where == "Team['best'][0].nickname"


def test_a_slot_beside_the_fields_is_named() -> None:
    class Base:
        __slots__ = ("hidden",)

    @dataclass
    class Derived(Base):
        value: int

    instance = Derived(1)
    assert decode(encode(instance), class_finder(Derived)).value == 1
    instance.hidden = 5
    with pytest.raises(UnsupportedStateError) as caught:
        encode(instance)
    assert caught.value.where == "state.hidden"


def test_a_dataclass_with_a_computed_field_or_a_builtin_base_is_refused() -> None:
    @dataclass
    class Computed:
        value: int

        @property  # type: ignore[no-redef]
        def value(self) -> int:
            return 1

        @value.setter
        def value(self, value: int) -> None: ...

    @dataclass
    class Keeps(dict):
        value: int = 0

    for instance, why in ((Computed(3), "property"), (Keeps(), "built-in")):
        with pytest.raises(UnsupportedStateError, match=why):
            encode(instance)


def test_a_changed_class_is_reported_with_its_fields() -> None:
    data = encode(Player(7))

    @dataclass
    class Changed:
        number: int
        shirt: str

    with pytest.raises(StateError, match=r"test_codec\.Player.*has changed.* owner .*shirt"):
        decode(data, lambda module, name: Changed)
    with pytest.raises(StateError, match="no dataclass"):
        decode(data, lambda module, name: Side)
    with pytest.raises(StateError, match=r"HOME, but the class has changed"):
        decode(encode(Side.HOME), lambda module, name: Level)


def test_fields_may_change_their_order() -> None:
    @dataclass
    class Turned:
        owner: Any
        number: Any

    back = decode(encode(Player(7, "x")), lambda module, name: Turned)
    assert (back.number, back.owner) == (7, "x")


def test_two_classes_of_one_name_in_one_state_are_refused() -> None:
    def make() -> Any:
        @dataclass
        class Twin:
            value: int

        return Twin(1)

    with pytest.raises(UnsupportedStateError, match="another class of that name") as caught:
        encode([make(), make()])
    assert caught.value.where == "state[1]"


# --- finding classes ----------------------------------------------------------------------------------------


def test_nothing_is_imported_because_bytes_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = msgspec.msgpack.encode([[["antigravity", "Joke", 30, ["x"]]], 1])
    with monkeypatch.context() as patch, pytest.raises(StateError) as caught:
        patch.setattr(importlib, "import_module", None)
        patch.setattr(builtins, "__import__", None)
        decode(data)
    assert "antigravity.Joke, which is not defined here. Import 'antigravity'" in str(caught.value)
    assert "antigravity" not in sys.modules


def test_modules_that_import_when_asked_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("was asked")

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    with pytest.raises(StateError, match="not defined here"):
        decode(msgspec.msgpack.encode([[["lazy_module", "Joke", 30, ["x"]]], 1]))


@pytest.mark.parametrize("module, name", [("subprocess", "Popen"), ("builtins", "dict"), ("os", "system")])
def test_only_dataclasses_enums_and_namedtuples_are_built(module: str, name: str) -> None:
    for code in (30, 31, 32):
        body = [[[module, name, code, []]], [msgspec.msgpack.Ext(code, b""), [0]]]
        with pytest.raises(StateError):
            decode(msgspec.msgpack.encode(body))


def test_local_classes_are_found_by_the_closures_of_a_detector() -> None:
    @dataclass
    class Local:
        value: Any

    class Mood(enum.Enum):
        GOOD = 1

    class Used(typing.NamedTuple):
        value: int

    def helper() -> Any:
        return Mood.GOOD

    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args)

        return wrapper

    class Detector:
        used = Used

        @decorated
        def on_event(self, event: Any) -> Any:
            yield Local(helper())

    class Special(Detector):
        pass

    state = [Local(Mood.GOOD), Used(3)]
    data = encode(state)
    with pytest.raises(StateError, match="not defined here"):
        decode(data)
    assert decode(data, class_finder(Special())) == state
    assert decode(data, class_finder(object(), Special)) == state


def test_classes_of_a_script_shipped_by_value_are_found_by_globals() -> None:
    source = """
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    @dataclass
    class Mark:
        y: int
class Detector:
    @staticmethod
    def on_event(event):
        return Point(1)
"""
    script: dict[str, Any] = {"__name__": "a_script"}
    sys.modules["a_script"] = types.ModuleType("a_script")
    try:
        exec(source, script)
        state = [script["Point"](1), script["Point"].Mark(2)]
        assert decode(encode(state), class_finder(script["Detector"]())) == state
        with pytest.raises(StateError, match="not defined here"):
            decode(encode(state))
    finally:
        del sys.modules["a_script"]


def test_local_classes_are_found_though_cloudpickle_shortens_their_qualified_names() -> None:
    def local(qualname: str | None = None) -> Any:
        @dataclass
        class Local:
            value: int

        class Detector:
            def on_event(self, event: Any) -> Any:
                return Local(1)

        Local.__qualname__ = qualname or Local.__qualname__
        return Local, Detector

    for (kind, _), (shipped, detector) in ((local(), local("Local")), (local("Local"), local())):
        assert type(decode(encode(kind(3)), class_finder(detector()))) is shipped
    detector.other = local("Local")[0]
    detector.another = local("Local")[0]
    with pytest.raises(StateError, match="not defined here"):
        decode(encode(local("Other.Local")[0](3)), class_finder(detector()))


def test_a_class_of_the_same_name_elsewhere_is_not_taken() -> None:
    @dataclass
    class Player:
        number: Any
        owner: Any = None

    class Detector:
        def on_event(self, event: Any) -> Any:
            return Player(1)

    assert type(decode(encode(globals()["Player"](7)), class_finder(Detector()))) is globals()["Player"]


# --- what cannot be saved -----------------------------------------------------------------------------------


class MyList(list):
    pass


class MyInt(int):
    pass


class MyEvent(Event):
    pass


class MyFloat(np.float64):
    pass


def with_attribute() -> Any:
    ordered = OrderedDict(a=1)
    ordered.note = 1  # type: ignore[attr-defined]
    return ordered


@pytest.mark.parametrize(
    "value, path",
    [
        (object(), ""),
        (lambda: 0, ""),
        (threading.Lock(), ""),
        (Player, ""),
        (bytearray(b"x"), ""),
        (range(3), ""),
        ((n for n in ()), ""),
        (MyList(), ""),
        (MyInt(3), ""),
        (MyFloat(3), ""),
        (MyEvent("kick", 1), ""),
        (type("MyDict", (dict,), {})(), ""),
        (type("MyDeque", (deque,), {})(), ""),
        (Flags.A | Flags.B, ""),
        (defaultdict(lambda: 0), ".default_factory"),
        (defaultdict(MyList), ".default_factory"),
        (with_attribute(), ".note"),
        (np.array([object()]), ""),
        (np.array([(1, None)], dtype=[("a", int), ("b", object)]), ""),
        (np.zeros(2, np.dtype([("a", "i1"), ("b", "i8")], align=True)), ""),
        (np.zeros(2, np.longdouble), ""),
        (np.longdouble(2), ""),
        (np.ma.array([1]), ""),
        (np.rec.array([(1, 2)]), ""),
        (msgspec.msgpack.Ext(5, b""), ""),
        (Event.of("kick", 1, None, None, types.MappingProxyType({})), ".payload"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_saved_is_named_by_its_full_path(value: Any, path: str) -> None:
    for state, where in (
        (value, "D"),
        ({"close": [0, 1, 2, Player(1, owner=value)]}, "D['close'][3].owner"),
        ((deque([1, Pair(Position(value), 2)]),), "D[0][1].left.x"),
        ({("a", 1): Event("kick", 1, foot=value)}, "D[('a', 1)].payload['foot']"),
    ):
        with pytest.raises(UnsupportedStateError) as caught:
            encode(state, where="D")
        assert caught.value.where == where + path


def test_a_bad_key_and_a_bad_set_item_are_named_by_their_position() -> None:
    for state, where in (({"a": 1, (object(),): 2}, "D.keys()[1][0]"), ({object()}, "D[0]")):
        with pytest.raises(UnsupportedStateError) as caught:
            encode(state, where="D")
        assert caught.value.where == where


def test_a_key_that_cannot_be_shown_does_not_hide_the_error() -> None:
    @dataclass(frozen=True)
    class Shy:
        def __repr__(self) -> str:
            raise ValueError

    with pytest.raises(UnsupportedStateError, match="Shy>"):
        encode({Shy(): object()})


def test_cycles_are_refused_with_both_places() -> None:
    looped: Any = {"a": []}
    looped["a"].append(looped)
    player = Player(1)
    player.owner = [player]
    for state, where in ((looped, "D['a'][0]"), (player, "D.owner[0]")):
        with pytest.raises(UnsupportedStateError, match="contains itself, being also D") as caught:
            encode(state, where="D")
        assert caught.value.where == where


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), lambda v: {1.5: v}, Player, lambda v: {"a": v}])
def test_depth_is_limited_and_what_is_within_can_be_read(wrap: Any) -> None:
    value: Any = frozenset()
    for _ in range(200):
        value = wrap(value)
    assert encode(decode(encode(value))) == encode(value)
    for _ in range(5000):
        value = wrap(value)
    with pytest.raises(UnsupportedStateError, match="nested more than 200"):
        encode(value)


def test_an_exhausted_call_stack_is_a_state_error() -> None:
    value: Any = frozenset()
    for _ in range(190):
        value = [value]
    data = encode(value)

    def deep(n: int, call: Any) -> Any:
        return call() if n == 0 else deep(n - 1, call)

    room = sys.getrecursionlimit() - len(list(iter_frames()))
    with pytest.raises(UnsupportedStateError, match="call stack"):
        deep(room - 100, lambda: encode(value))
    with pytest.raises(StateError, match="RecursionError"):
        deep(room - 100, lambda: decode(data))


def iter_frames() -> Any:
    frame: Any = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back


# --- equal states, equal bytes ------------------------------------------------------------------------------


@relaxed
@given(st.lists(keys, max_size=8), st.randoms())
def test_equal_sets_give_equal_bytes(items: list[Any], random: Any) -> None:
    one = {encode(item): item for item in items}  # one of each type and value: NaN differs from itself
    shuffled = list(one.values())
    random.shuffle(shuffled)
    if len(set(shuffled)) == len(shuffled):
        assert encode({"s": [set(one.values())]}) == encode({"s": [set(shuffled)]})
        assert encode(frozenset(one.values())) == encode(frozenset(shuffled))


def test_equal_sets_give_equal_bytes_in_every_process() -> None:
    script = """
from dataclasses import dataclass
from slackline.core.codec import encode
@dataclass(frozen=True)
class A:
    x: object
@dataclass(frozen=True)
class B:
    x: object
state = {w: {A(w), B(w), (w, A(frozenset("abc"))), w, 2**70} for w in ("one", "two", "three")}
print(encode(state).hex())
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(outputs) == 1


def test_the_order_of_a_dict_is_part_of_the_state() -> None:
    assert encode({"a": 1, "b": 2}) != encode({"b": 2, "a": 1})
    assert list(decode(encode({"b": 2, "a": 1}))) == ["b", "a"]


def test_the_bytes_of_a_known_state_stay_the_same() -> None:
    spot = dataclasses.make_dataclass("Spot", ["x", "y"], namespace={"__module__": "golden"})
    state = {"a": [1, (2.5,), {3}], (1,): spot(2**64, 1j), "n": np.array([[1, 2]], "<i2")}
    assert dump("golden", 1, state).hex() == GOLDEN
    assert same(load("golden", 1, bytes.fromhex(GOLDEN), lambda module, name: spot), state)


GOLDEN = (
    "93534c4b01b27b544a000000000000007a0000000106676f6c64656e929194a6676f6c64656ea453706f741e92a178a1"
    "7993c7000d93a16192c7000a01a16e93930192c7000acb400400000000000092c7000b0394c7001e9100c70901010000"
    "000000000000d80300000000000000003ff000000000000095c70015a33c6932920102a143d60401000200"
)

# --- the envelope -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_dump_and_load_accept_any_bytes(kind: Any) -> None:
    data = kind(dump("engine", 3, {"a": np.arange(3)}))
    assert load("engine", 3, data)["a"].tolist() == [0, 1, 2]
    assert load("engine", 4, data)["a"].tolist() == [0, 1, 2]
    assert peek(data) == ("engine", 3)
    assert decode(kind(encode([1]))) == [1]


def test_each_fault_of_the_envelope_has_its_own_message() -> None:
    data = dump("engine", 3, [1, 2, 3])
    for bad, message in (
        (b"", "not saved by Slackline"),
        (b"PK\3\4" + data, "not saved by Slackline"),
        (b"\x80\x04K\x01.", "not saved by Slackline"),
        (data[:2], "damaged"),
        (data[:-1], "damaged"),
        (data + b"\0", "damaged"),
        (data[:4] + b"\7" + data[5:], "format 7.*reads format 1.*newer"),
        ("text", "not a str"),
        (None, "not a NoneType"),
    ):
        with pytest.raises(StateError, match=message):
            load("engine", 3, bad)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="hold a 'engine', not a 'detector'"):
        load("detector", 3, data)
    with pytest.raises(StateError, match=r"version 3.*up to 2.*newer"):
        load("engine", 2, data)


def test_errors_begin_with_the_kind_or_with_where() -> None:
    for where, root in ((None, "engine"), ("Hits", "Hits")):
        with pytest.raises(UnsupportedStateError) as caught:
            dump("engine", 1, [object()], where)
        assert caught.value.where == f"{root}[0]"


# --- hostile bytes ------------------------------------------------------------------------------------------

SAMPLE = {
    "plain": [1, 2.5, "x", None, b"y"],
    (1, 2): {Position(1, 2), Side.HOME, (3, frozenset({4}))},
    "more": [
        2**70,
        "\ud800",
        1j,
        deque([1], 3),
        defaultdict(list, {1: [2]}),
        Counter("aab"),
        OrderedDict(a=1),
    ],
    "numpy": [np.arange(6.0).reshape(2, 3), np.zeros((0, 2), "M8[ns]"), np.float32(1.5), np.str_("z")],
    "objects": [Captain(7), Pair(1, 2), Event("kick", 3, "ball", 4, force=1.5), Loud(3)],
}
ENCODED = encode(SAMPLE)
DUMPED = dump("sample", 1, SAMPLE)


def decodes_or_state_error(data: bytes) -> None:
    try:
        decode(data)
    except StateError as error:
        assert str(error)


def test_every_cut_is_a_state_error() -> None:
    for end in range(len(ENCODED)):
        with pytest.raises(StateError):
            decode(ENCODED[:end])
    for end in range(len(DUMPED)):
        with pytest.raises(StateError):
            load("sample", 1, DUMPED[:end])


def test_every_single_changed_byte_is_noticed() -> None:
    for index in range(len(DUMPED)):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(DUMPED)
            changed[index] ^= flip
            with pytest.raises(StateError):
                load("sample", 1, changed)


@settings(relaxed, max_examples=500)
@given(st.lists(st.tuples(st.integers(0, len(ENCODED) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_without_a_checksum_do_no_harm(changes: list[tuple[int, int]]) -> None:
    data = bytearray(ENCODED)
    for index, byte in changes:
        data[index] = byte
    decodes_or_state_error(bytes(data))


@settings(relaxed, max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_do_no_harm(data: bytes) -> None:
    decodes_or_state_error(data)
    decodes_or_state_error(b"\x92\x90" + data)
    for envelope in (data, codec.MAGIC + data, codec.MAGIC + b"\1" + data):
        with pytest.raises(StateError):
            load("sample", 1, envelope)


trees = st.recursive(
    st.none() | st.integers(-1, 70) | st.text(max_size=2) | st.sampled_from(["<f8", "C", "|O", "list", "HOME"]),
    lambda inner: st.one_of(
        st.builds(
            lambda code, parts: [msgspec.msgpack.Ext(code, b""), *parts],
            st.integers(0, 35),
            st.lists(inner, max_size=5),
        ),
        st.builds(msgspec.msgpack.Ext, st.integers(-1, 40), st.binary(max_size=17)),
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=1) | st.booleans() | st.floats(), inner, max_size=2),
        st.just([0]),
    ),
    max_leaves=12,
)
TABLE = [
    [__name__, "Position", 30, ["x", "y"]],
    [__name__, "Side", 31, []],
    [__name__, "Pair", 32, ["left", "right"]],
]


@settings(relaxed, max_examples=500)
@given(trees, trees)
def test_well_formed_nonsense_does_no_harm(tree: Any, table: Any) -> None:
    decodes_or_state_error(msgspec.msgpack.encode([TABLE, tree]))
    decodes_or_state_error(msgspec.msgpack.encode([table, tree]))
    decodes_or_state_error(msgspec.msgpack.encode([[table], tree]))


@pytest.mark.parametrize(
    "spec, shape, data",
    [
        ("<f8", [2**40], b"12345678"),
        ("<f8", [2**62, 0], b""),
        ("<f8", [2**63 - 1] * 64, b"12345678"),
        ("<f8", [2**63 - 1] * 100_000, b"12345678"),
        ("<f8", [-1], b"12345678"),
        ("|V2147483647", [1], b"1"),
        ("|O", [1], b"12345678"),
        ("O", [1], b"12345678"),
        ("i4,O", [1], b"12345678"),
        ([["a", "|O", []]], [1], b"12345678"),
        ([["a", "<f8", [2**31]]], [1], b"12345678"),
        ([["a", "<f8", []]] * 2, [1], b"1234567812345678"),
    ],
)
def test_arrays_that_lie_about_their_size_are_refused_at_once(spec: Any, shape: Any, data: bytes) -> None:
    ext = msgspec.msgpack.Ext
    with pytest.raises(StateError):
        decode(msgspec.msgpack.encode([[], [ext(21, b""), spec, shape, "C", ext(4, data)]]))


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9", b"\x81\xdd"])
def test_lengths_beyond_the_bytes_are_refused_at_once(head: bytes) -> None:
    with pytest.raises(StateError):
        decode(b"\x92\x90" + head + b"\xff\xff\xff\xff")
    with pytest.raises(StateError):
        decode((b"\x92\x90" + head + b"\x0f\xff\xff\xff") * 1000)


def test_endless_nesting_is_a_state_error() -> None:
    with pytest.raises(StateError):
        decode(b"\x92\x90" + b"\x91" * 100_000)
    with pytest.raises(StateError):
        decode(b"\x92\x90" + (b"\x92" + b"\xc7\x00\x0a") * 100_000)


def test_a_set_whose_items_have_become_equal_is_refused() -> None:
    data = encode({1: {Position(1), Position(2)}})
    blind = dataclasses.make_dataclass("P", [(n, int, field(compare=False)) for n in "xy"], frozen=True)
    with pytest.raises(StateError, match="two entries that are equal"):
        decode(data, lambda module, name: blind)


def test_unhashable_keys_are_a_state_error() -> None:
    with pytest.raises(StateError):
        decode(encode({Position(1): 1}), lambda module, name: dataclasses.make_dataclass("P", ["x", "y"]))
