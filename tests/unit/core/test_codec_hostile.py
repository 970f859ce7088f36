"""No bytes can do harm."""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.states import Captain, Loud, Pair, Position, Side, relaxed

from slackline.core import codec
from slackline.core.codec import decode, dump, encode, load
from slackline.core.errors import StateError
from slackline.core.event import Event

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
