"""Saved states of clock, inputs and buffers with something wrong in them: each is refused, or does no harm.

As a program: tries the mutations from a given number on and writes a line for each, so that its caller sees
which one it died of.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from slackline.core.codec import encode
from slackline.core.errors import StateError
from slackline.core.event import Event
from slackline.core.time import FOREVER, MAX_TS, NEVER
from slackline.ordering.clock import CLK, Clock
from slackline.ordering.input import DerivedInput, Evidence, SensorInput
from slackline.ordering.reorder_buffer import ReorderBuffer
from slackline.ordering.shared_rows import late_rows
from slackline.ordering.watermark import POLICIES, release_positions

EVIDENCE = Evidence(POLICIES["auto"], warmup=4)
ARRIVALS = 200


class World:
    """A clock, a sensor type, a derived type, and a buffer that listens to both."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sensor = SensorInput("a", 0, EVIDENCE, is_clock=True)
        self.derived = DerivedInput("d", 1, EVIDENCE)
        self.buffer = ReorderBuffer("u", [self.sensor, self.derived], frozenset())
        self.position = 0

    def live(self, arrivals: int = ARRIVALS) -> None:
        """Events one by one, and then a chunk."""
        rng = np.random.default_rng(5)
        start = max(0, int(self.clock.ints[CLK]))
        for i in range(arrivals):
            self._arrive(min(start + 10 * i + int(rng.integers(0, 25)), MAX_TS), f"s{i % 5}", i if i % 3 else -1)
        self._chunk(rng, start + 10 * arrivals)

    def _arrive(self, ts: int, source: str, seq: int) -> None:
        sensor, derived, buffer = self.sensor, self.derived, self.buffer
        slot = sensor.slot_of(source)
        sensor.sources.is_duplicate(slot, seq)
        before = int(self.clock.ints[CLK])
        self.clock.tick(ts, True, slot)
        clk = int(self.clock.ints[CLK])
        sensor.step(slot, ts, self.position, before, clk)
        derived.tick(before, clk)
        for event in (Event("a", ts, source, None if seq < 0 else seq, x=1.5), Event("d", ts, "u", seq)):
            if not buffer.offer(event, self.position):
                buffer.overdue = [*buffer.overdue[-3:], buffer.entry(event, self.position)]
        derived.note(clk - buffer.largest_slack() - derived.back, clk)
        derived.set_progress(sensor.watermark, clk)
        buffer.ranks_of(buffer.release(buffer.next_watermark()))
        sorted(buffer.overdue)
        self.position += 1

    def _chunk(self, rng: np.random.Generator, start: int) -> None:
        n, sensor, first = 50, self.sensor, self.position
        ts = np.minimum(start + rng.integers(0, 40, n), MAX_TS)
        slots = sensor.sources.slots_of(np.arange(n) % 7, [f"s{i}" for i in range(7)])
        seq = np.arange(n)
        sensor.sources.are_duplicates(slots, seq)
        clk = np.empty(n, dtype=np.int64)
        before = int(self.clock.ints[CLK])
        self.clock.run(ts, np.ones(n, dtype=np.bool_), slots, clk)
        input_watermarks, _ = sensor.run(np.arange(n), slots, ts, first, before, clk)
        self.derived.run(np.arange(0, n, 9), ts[::9].copy(), before, clk)
        self.derived.set_progress(int(input_watermarks[-1]), int(clk[-1]))
        store = sensor.shared_rows
        store.add(ts, slots, seq, first + np.arange(n), {"x": ts / 2}, sensor.sources.ranks_of)
        watermark = np.maximum(np.maximum.accumulate(input_watermarks), self.buffer.watermark)
        late_rows(store.ts, store.positions, first, self.buffer.watermark, watermark)
        release_positions(store.ts, store.positions - first, watermark)
        list(sensor.rows(0, len(store)))
        store.drop_through(int(np.median(store.ts)))
        self.position += n
        self.buffer.ranks_of(self.buffer.release(self.buffer.next_watermark()))

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name).state() for name in ("clock", "sensor", "derived", "buffer")}

    def restore(self, state: dict[str, Any], arrivals: int) -> None:
        self.position = arrivals
        self.clock.restore(state["clock"])
        self.sensor.restore(state["sensor"], arrivals)
        self.derived.restore(state["derived"], arrivals)
        self.buffer.restore(state["buffer"], arrivals)

    def check(self) -> None:
        assert NEVER <= self.buffer.watermark <= FOREVER
        for part in (self.sensor, self.derived, self.buffer):
            part.stats()
        self.buffer.check_invariants()
        encode(self.state())


STRANGE: list[Any] = [
    None, True, -1, 0, 7, 2**62, 2**62 + 7, 2**63, -(2**63) - 1, 2**80, 0.5, math.nan, math.inf, "x", b"x", [], {}, (),
    [1, 2], {"x": 1}, Event("a", 1), np.zeros(0, dtype=np.int64), np.zeros(3), np.int64(4), {1}, object,
]  # fmt: skip
NUMBERS = [-1, 0, 1, 15, 16, 63, 10**6, 2**61, 2**62, 2**62 + 2, 2**63 - 1, -(2**61), -(2**61) - 1, -(2**63)]

Path = tuple[Any, ...]
Mutate = Callable[[dict[str, Any]], None]


def mutations(state: dict[str, Any]) -> Iterator[tuple[str, Mutate]]:
    """Ways to spoil a state, each with a name."""
    for path, value in leaves(state, ()):
        if len(path) == 0:
            continue  # which parts there are is not theirs to check
        for strange in STRANGE:
            yield f"{path} = {strange!r}", replacing(path, strange)
        if len(path) > 1 and isinstance(path[-1], str):
            yield f"{path} dropped", lambda tree, path=path: parent(tree, path).pop(path[-1])
        if isinstance(value, np.ndarray):
            for name, other in other_arrays(value):
                yield f"{path} {name}", replacing(path, other)
        elif isinstance(value, list) and value:
            for name, other in other_lists(value):
                yield f"{path} {name}", replacing(path, other)
    for part, value in state.items():
        yield from swaps(value, (part,))


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list | tuple) and len(path) < 5:
        for index in sorted({0, len(value) - 1} if value else ()):
            yield from leaves(value[index], (*path, index))


def parent(tree: Any, path: Path) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def replacing(path: Path, value: Any) -> Mutate:
    def mutate(tree: dict[str, Any]) -> None:
        owner = parent(tree, path)
        if isinstance(owner, tuple):
            replacing(path[:-1], (*owner[: path[-1]], value, *owner[path[-1] + 1 :]))(tree)
        else:
            owner[path[-1]] = copy.copy(value)

    return mutate


def other_arrays(array: np.ndarray) -> Iterator[tuple[str, Any]]:
    yield "shortened", array[:-1].copy()
    yield "emptied", array[:0].copy()
    yield "doubled", np.concatenate((array, array))
    yield "reshaped", array.reshape(-1, 1).copy()
    yield "flattened", array.reshape(-1).copy()
    yield "nested", array[None].copy()
    yield "every other", np.concatenate((array, array))[::2]
    yield "turned", np.asfortranarray(array.T) if array.ndim > 1 else array[::-1].copy()
    yield "by columns", np.asfortranarray(array)
    yield "a list", array.tolist()
    for dtype in ("f8", "i4", ">i8", "u8", "?", "S8", "M8[ns]"):
        yield f"as {dtype}", array.astype(dtype) if dtype != "M8[ns]" else array.astype("i8").view(dtype)
    fixed = array.copy()
    fixed.setflags(write=False)
    yield "read-only", fixed
    cells = range(array.size) if array.size <= 400 else range(0, array.size, array.size // 200)
    for cell in cells:
        numbers: list[Any] = NUMBERS if array.dtype.kind == "i" else [math.nan, math.inf, -math.inf, 1e308, -1.0]
        for number in numbers:
            changed = array.copy()
            changed.reshape(-1)[cell] = number
            yield f"[{cell}] = {number}", changed
    if array.dtype.kind == "i":
        for number in NUMBERS:
            yield f"all {number}", np.full_like(array, number)


def other_lists(values: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "shortened", values[:-1]
    yield "doubled", values * 2
    yield "reversed", values[::-1]
    yield "the first repeated", [values[0]] * len(values)
    yield "a tuple", tuple(values)
    if isinstance(values[0], tuple) and isinstance(values[0][-1], Event):
        position, nth, event = values[0]
        for strange in STRANGE:
            for name in ("type", "ts", "source", "seq"):
                parts = {"type": event.type, "ts": event.ts, "source": event.source, "seq": event.seq, name: strange}
                yield (
                    f"{name} of the first = {strange!r}",
                    [
                        (position, nth, Event.of(*parts.values(), {})),
                        *values[1:],
                    ],
                )


def swaps(value: Any, path: Path) -> Iterator[tuple[str, Mutate]]:
    """Two entries of one part exchanged."""
    if not isinstance(value, dict):
        return
    names = list(value)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:

            def swap(tree: dict[str, Any], one: Any = one, other: Any = other) -> None:
                owner = parent(tree, (*path, None))
                owner[one], owner[other] = owner[other], owner[one]

            yield f"{path} {one} and {other} exchanged", swap
        yield from swaps(value[one], (*path, one))


def attempt(state: dict[str, Any], mutate: Mutate, arrivals: int) -> str:
    """What became of it: ``refused``, ``lived``, or what went wrong."""
    tree = copy.deepcopy(state)
    mutate(tree)
    world = World()
    try:
        world.restore(tree, arrivals)
    except StateError:
        return "refused"
    except Exception as error:
        return f"restore raised {error!r}"
    try:
        world.live(12)
        world.check()
    except Exception as error:
        return f"afterwards {error!r}"
    return "lived"


def saved() -> World:
    """A world in the middle of things: rows and events wait, some are overdue."""
    world = World()
    world.live()
    for ts in (2_300, 2_400, 2_350):
        world.buffer.add(Event("d", world.buffer.watermark + ts, "u", ts), world.position - 1)
    world.buffer.overdue.append(world.buffer.entry(Event("a", 5, "s1", x=1), world.position - 1))
    world.check()
    assert world.buffer.heap and world.buffer.overdue and len(world.sensor.shared_rows)
    return world


def main(first: int, every: int) -> None:
    world = saved()
    for number, (name, mutate) in enumerate(mutations(world.state())):
        if number >= first and number % every == 0:
            print(number, "trying", name, flush=True)
            print(number, attempt(world.state(), mutate, world.position), flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(int(sys.argv[1]), int(sys.argv[2]))
