"""States survive as bytes, equal states give equal bytes, and no bytes can do harm."""

from __future__ import annotations

import dataclasses
import math
import struct
import subprocess
import sys
import typing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.states import (
    Captain,
    Flags,
    Level,
    Loud,
    Outer,
    Player,
    Position,
    Side,
    arrays,
    calls,
    check,
    keys,
    relaxed,
    same,
    scalars,
    values,
)

from slackline.core.codec import CONVERTERS, class_finder, decode, dump, encode, load
from slackline.core.errors import StateError, UnsupportedStateError
from slackline.core.event import Event

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
    assert decode(encode(instance), class_finder((Derived,))).value == 1
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

    with pytest.raises(StateError, match=r"states\.Player.*has changed.* owner .*shirt"):
        decode(data, lambda module, name: Changed)
    with pytest.raises(StateError, match="not a dataclass"):
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
    with pytest.raises(StateError, match=r"version 3.*understands version 2.*newer"):
        load("engine", 2, data)
    with pytest.raises(StateError, match=r"older release.*version 3 of the state, this one reads 4"):
        load("engine", 4, data)


def test_a_state_of_an_older_version_is_converted_step_by_step_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    older = dump("example", 1, {"last": 3})
    monkeypatch.setitem(CONVERTERS, ("example", 2), lambda state: {**state, "n": 0})
    with pytest.raises(StateError, match=r"older release.*version 1 of the state, this one reads 3"):
        load("example", 3, older)
    monkeypatch.setitem(CONVERTERS, ("example", 1), lambda state: {"last": [state["last"]]})
    assert load("example", 3, older) == {"last": [3], "n": 0}
    assert load("example", 3, dump("example", 3, {"last": []})) == {"last": []}


def test_errors_begin_with_the_kind_or_with_where() -> None:
    for where, root in ((None, "engine"), ("Hits", "Hits")):
        with pytest.raises(UnsupportedStateError) as caught:
            dump("engine", 1, [object()], where)
        assert caught.value.where == f"{root}[0]"


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "D"])
@pytest.mark.parametrize("number", [0, 1_700_000_000_123_456_789, -1, "NaT"])
def test_moments_and_durations_of_any_unit_come_back_as_they_were(unit: str, number: Any) -> None:
    moment, duration = np.datetime64(number, unit), np.timedelta64(number, unit)
    back = check([moment, duration, {"x": moment}, Event("a", 1, x=duration)])
    assert back[0].dtype == moment.dtype and back[1].dtype == duration.dtype
    check(np.array([number, 5], dtype=f"M8[{unit}]"))
