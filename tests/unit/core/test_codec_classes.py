"""Which classes bytes may name, and which cannot be saved."""

from __future__ import annotations

import builtins
import enum
import importlib
import sys
import threading
import types
import typing
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.core.states import Flags, Pair, Player, Position

from slackline.core.codec import class_finder, decode, encode
from slackline.core.errors import StateError, UnsupportedStateError
from slackline.core.event import Event

# --- finding classes ----------------------------------------------------------------------------------------


def test_nothing_is_imported_because_bytes_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = msgspec.msgpack.encode([[["antigravity", "Joke", 30, ["x"]]], 1])
    with monkeypatch.context() as patch, pytest.raises(StateError) as caught:
        patch.setattr(importlib, "import_module", None)
        patch.setattr(builtins, "__import__", None)
        decode(data)
    assert "antigravity.Joke, which is not defined here: import 'antigravity'" in str(caught.value)
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


def test_local_classes_are_found_where_they_are_declared() -> None:
    @dataclass
    class Local:
        value: Any

    class Mood(enum.Enum):
        GOOD = 1

    class Used(typing.NamedTuple):
        value: int

    state = [Local(Mood.GOOD), Used(3)]
    data = encode(state)
    with pytest.raises(StateError, match="not defined here: import"):
        decode(data)
    for declared in ((), (Local,), (Used, Local)):
        with pytest.raises(StateError, match="not defined here: declare it in state_types of detector 'D', or import"):
            decode(data, class_finder(declared), "D")
    assert decode(data, class_finder((Local, Mood, Used))) == state
    assert type(decode(data, class_finder((Local, Mood, Used)))[0]) is Local


def test_a_class_that_could_not_be_found_again_is_refused_when_it_is_saved() -> None:
    @dataclass
    class Local:
        value: Any

    state = {"best": [Player(1), Local(2)]}
    with pytest.raises(UnsupportedStateError, match="declare it in state_types of detector 'Team'") as caught:
        encode(state, "Team", class_finder(()))
    assert caught.value.where == "Team['best'][1]"
    assert decode(encode(state, "Team", class_finder((Local,))), class_finder((Local,)), "Team") == state


def test_classes_of_a_script_shipped_by_value_are_found_where_they_are_declared() -> None:
    source = """
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    @dataclass
    class Mark:
        y: int
"""
    script: dict[str, Any] = {"__name__": "a_script"}
    sys.modules["a_script"] = types.ModuleType("a_script")
    try:
        exec(source, script)
        state = [script["Point"](1), script["Point"].Mark(2)]
        assert decode(encode(state), class_finder((script["Point"], script["Point"].Mark))) == state
        with pytest.raises(StateError, match="not defined here"):
            decode(encode(state))
    finally:
        del sys.modules["a_script"]


def test_declared_classes_are_found_though_cloudpickle_shortens_their_qualified_names() -> None:
    def local(qualname: str | None = None) -> Any:
        @dataclass
        class Local:
            value: int

        Local.__qualname__ = qualname or Local.__qualname__
        return Local

    for kind, shipped in ((local(), local("Local")), (local("Local"), local())):
        assert type(decode(encode(kind(3)), class_finder((shipped, Player)))) is shipped
    for declared in ((local("Local"), local("Local")), (local("One.Local"),)):
        with pytest.raises(StateError, match="not defined here"):
            decode(encode(local("Other.Local")(3)), class_finder(declared))


def test_a_class_of_the_same_name_elsewhere_is_not_taken() -> None:
    @dataclass
    class Player:
        number: Any
        owner: Any = None

    Player.__qualname__ = "Another.Player"
    assert type(decode(encode(globals()["Player"](7)), class_finder((Player,)))) is globals()["Player"]


def test_a_declared_class_is_taken_before_one_that_is_imported() -> None:
    """As where a script was run anew: the module has the new class, the detector still declares its own."""
    scope: dict[str, Any] = {"__name__": __name__, "dataclass": dataclass}
    exec("@dataclass\nclass Player:\n    number: int\n    owner: int = 0\n", scope)  # the class statement of a script
    data = encode(scope["Player"](7))
    assert type(decode(data, class_finder((scope["Player"],)))) is scope["Player"]
    assert type(decode(data)) is not scope["Player"]
    with pytest.raises(UnsupportedStateError, match="declare it in state_types"):
        encode(scope["Player"](7), "D", class_finder(()))


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
        with pytest.raises(UnsupportedStateError, match="contains itself, as it is also D") as caught:
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
