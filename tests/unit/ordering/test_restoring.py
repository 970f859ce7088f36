"""A saved state with something wrong in it is refused with a word; none crashes, hangs or raises anything else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.ordering.mutations import World, saved

from slackline.core.codec import decode, encode
from slackline.core.errors import StateError

ROOT = Path(__file__).parents[3]
#: Every so many of some 10,000 mutations are tried; the numbers have no factor in common with those of the cells.
EVERY = int(os.environ.get("SLACKLINE_EVERY_MUTATION", "7"))
SECONDS = 120.0


def tried(first: int) -> list[str]:
    """The lines of a process that tries the mutations from a number on, until it is done or dead."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.unit.ordering.mutations", str(first), str(EVERY)]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(SECONDS * (7 / EVERY), process.kill)
        timer.start()
        lines = process.stdout.read().splitlines()
        timer.cancel()
    return lines


def test_no_mutation_of_a_state_crashes_hangs_or_raises_anything_but_a_state_error() -> None:
    wrong, done, first, refused, lived = [], False, 0, 0, 0
    while not done:
        lines = tried(first)
        assert lines, "the program that tries mutations does not run"
        for trying, came in zip(lines[::2], [*lines[1::2], "died or hung"], strict=False):
            outcome = came.partition(" ")[2] or came
            refused, lived = refused + (outcome == "refused"), lived + (outcome == "lived")
            if trying != "done" and outcome not in ("refused", "lived"):
                wrong.append(f"{trying}: {outcome}")
        done = lines[-1] == "done"
        if not done:
            first = int(lines[-1].split()[0]) + 1
            assert len(wrong) < 10, wrong
    assert not wrong
    assert refused > 500 and lived > 100


def test_a_valid_state_is_resumed_without_a_difference() -> None:
    world, other = saved(), World()
    other.restore(decode(encode(world.state())), world.position)
    assert encode(other.state()) == encode(world.state())
    world.live(50)
    other.live(50)
    assert encode(other.state()) == encode(world.state())


@pytest.mark.parametrize(
    "part, name, value, word",
    [
        ("clock", "ints", np.zeros(3, dtype=np.int64), r"clock\.ints has the shape \(3,\) and must have \(14,\)"),
        ("sensor", "sources", np.zeros((0, 24), dtype=np.int64), r"type 'a'\.sources has the shape"),
        ("sensor", "names", [1.5] * 7, r"names holds a value that cannot be a source"),
        ("sensor", "duplicates", -1, r"type 'a'\.duplicates is -1 and must be a whole number from 0"),
        ("derived", "back", None, r"type 'd'\.back is a NoneType and must be"),
        ("buffer", "watermark", 2**80, r"reorder buffer 'u'\.watermark is a int and must be"),
        ("buffer", "heap", [None], r"reorder buffer 'u'\.heap holds an item that is not a buffered event"),
    ],
)
def test_the_error_names_what_is_wrong(part: str, name: str, value: Any, word: str) -> None:
    state = saved().state()
    state[part][name] = value
    with pytest.raises(StateError, match=word):
        World().restore(state, 10_000)


def test_nothing_may_have_arrived_after_the_last_arrival() -> None:
    world = saved()
    with pytest.raises(StateError, match=r"rows\.positions holds a number out of bounds"):
        World().restore(world.state(), int(world.sensor.shared_rows.positions.max()))
