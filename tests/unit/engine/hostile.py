"""Mutations of a saved engine, each tried out: ``python hostile.py FIRST COUNT``.

A program of its own, since a compiled loop that goes wrong takes its process with it. Prints what went wrong, one line
each, with the number that repeats it.
"""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

import slackline as sl
from slackline.core import codec
from slackline.core.errors import StateError
from slackline.engine.engine import STATE_KIND, STATE_VERSION


class Low(sl.Detector):
    listens, publishes = ("a", "b"), ("low",)

    def __init__(self) -> None:
        self.n = 0

    def on_event(self, event: sl.Event) -> Any:
        self.n = (self.n + 1) % 1000
        yield event.derive("low", ts=max(0, event.ts - 3), n=self.n)


class High(Low):
    listens, publishes = ("low", "a"), ("high",)

    def on_event(self, event: sl.Event) -> Any:
        yield event.derive("high")


def hierarchy() -> sl.Hierarchy:
    return sl.Hierarchy([Low(), High()], clock=("a",))


def events(start: int, stop: int) -> list[sl.Event]:
    rng = random.Random(start)
    made = []
    for i in range(start, stop):
        late = rng.choice((0, 0, 0, 40))
        made.append(sl.Event(rng.choice("aab"), ts=max(0, 10 * i - late), source=f"s{i % 5}", seq=i, x=i / 2))
    return made


def table(rows: list[sl.Event]) -> pa.Table:
    names = ("type", "ts", "source", "seq")
    return pa.table({**{n: [getattr(e, n) for e in rows] for n in names}, "x": [e["x"] for e in rows]})


def trees() -> list[Any]:
    """Saved engines of several kinds, as trees: with events and rows that wait, with speculation, set aside events."""
    made = []
    for options in (
        {"policy": sl.Auto(warmup=5), "skew": "correct"},
        {"policy": "slack", "late": "deliver"},
        {"policy": sl.Ready(timeout=90, warmup=0), "speculation": sl.Speculation(alpha=0.3)},
    ):
        engine = sl.Engine(hierarchy(), **options)  # type: ignore[arg-type]
        engine.push(events(0, 60), now=range(700, 760))
        engine.push([sl.Event("what", 1), sl.Event("a", -4)])
        made.append(codec.load(STATE_KIND, STATE_VERSION, engine.save()))
        engine.push(table(events(60, 120)))
        made.append(codec.load(STATE_KIND, STATE_VERSION, engine.save()))
    for sensors, others in (("a", "b"), ("b", "a")):
        engine = sl.Engine(hierarchy(), sensors=sensors, detectors=["High"], policy=sl.Auto(warmup=0))
        mine, remote = ([event for event in events(0, 90) if event.type == kind] for kind in (sensors, others))
        engine.push(mine)
        engine.host.receive(
            [sl.ProgressUpdate(others, remote, (), 300, 0, 500), sl.ProgressUpdate("low", (), (), 200, 3, 500)]
        )
        engine.host.end(sensors)
        made.append(codec.load(STATE_KIND, STATE_VERSION, engine.save()))
    return made


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all that can be replaced."""
    found = [path] if path else []
    if isinstance(tree, dict):
        found += [leaf for key, value in tree.items() for leaf in leaves(value, (*path, key))]
    elif isinstance(tree, list | tuple):
        found += [leaf for number, value in enumerate(tree[:12]) for leaf in leaves(value, (*path, number))]
    return found


def mutated(value: Any, rng: random.Random) -> Any:
    """Something else in its place."""
    choices: list[Any] = [
        None,
        True,
        -1,
        0,
        1,
        2**62,
        2**63 - 1,
        -(2**63),
        2**70,
        0.5,
        float("nan"),
        "x",
        b"x",
        [],
        {},
        (),
    ]
    if isinstance(value, np.ndarray):
        flat = value.copy().reshape(-1)
        if len(flat):
            flat[rng.randrange(len(flat))] = rng.choice([-1, 0, 1, 7, 2**31, 2**62, 2**63 - 1, -(2**63)])
        other = rng.choice([np.int32, np.float64, np.uint64, np.bool_])
        shorter = value[: len(value) // 2]
        longer = np.concatenate((value, value)) if value.ndim else value
        poked = flat.reshape(value.shape)
        choices += [poked] * 12 + [value[:0], shorter, longer, value.reshape(-1), value[..., None], value.astype(other)]
    elif isinstance(value, int) and not isinstance(value, bool):
        choices += [value + 1, value - 1, -value, value * 1000, float(value)]
    elif isinstance(value, str):
        choices += [value + "x", "", "slack", "a"]
    elif isinstance(value, list | tuple):
        kind = type(value)
        choices += [kind(value[:-1]), kind([*value, *value]), kind(reversed(value)), list(value), tuple(value)]
    elif isinstance(value, dict):
        choices += [dict(list(value.items())[:-1]), {**value, "more": 1}, list(value)]
    elif isinstance(value, bytes):
        at = rng.randrange(len(value)) if value else 0
        choices += [value[:-1], value + b"\0", value[:at] + bytes([rng.randrange(256)]) + value[at + 1 :]]
    return rng.choice(choices)


def replaced(tree: Any, path: tuple[Any, ...], rng: random.Random) -> Any:
    if not path:
        return mutated(tree, rng)
    key, *rest = path
    if isinstance(tree, dict):
        return {**tree, key: replaced(tree[key], tuple(rest), rng)}
    items = list(tree)
    items[key] = replaced(items[key], tuple(rest), rng)
    return type(tree)(items)


def trial(tree: Any, number: int) -> str | None:
    """What goes wrong with one mutation, None if nothing does."""
    rng = random.Random(number)
    path = rng.choice(leaves(tree))
    data = codec.dump(STATE_KIND, STATE_VERSION, replaced(tree, path, rng))
    try:
        engine = sl.Engine.load(data, hierarchy(), now="host")
    except StateError:
        return None
    except Exception as error:
        return f"{number} {path}: load raised {error!r}"
    try:
        for rows in (events(120, 160), events(160, 200)):
            with suppress(sl.SlacklineError):  # closed, over its limit, or a detector whose state is odd
                engine.push(rows if number % 2 else table(rows), now=1_000 + number)
        engine.stats()
        engine.save()
        engine.close()
    except sl.SlacklineError:
        return None
    except Exception as error:
        return f"{number} {path}: went on and raised {error!r}"
    return None


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    made = trees()
    for number in range(first, first + count):
        print(f"at {number}", file=sys.stderr, flush=True)
        wrong = trial(made[number % len(made)], number)
        if wrong:
            print(wrong, flush=True)
