"""A checkpoint that is made while messages are processed is the one of the moment at which it was begun."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.connectors.kafka.test_partition import OWNER, by_key, checkpoint, machine, messages

from slackline import Speculation
from slackline.connectors.kafka.checkpoint import PendingCheckpoint, Resume, TopicStore
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.sink import OutputMessage
from slackline.core import codec
from slackline.runtime.checkpoint import Checkpoint

RECORDS = messages(150)


def content(of: Checkpoint | Resume | None) -> tuple[Any, dict[Any, Any]]:
    """What is in a checkpoint, whatever the order in which it was saved: the header, and the engines by key."""
    assert of is not None
    saved = of.checkpoint if isinstance(of, Resume) else of
    pieces = [codec.decode(piece) for piece in saved.pieces]
    found = {key: rest for key, *rest in pieces}
    assert len(found) == len(pieces)  # none occurs twice
    header = dict(saved.header)
    header["engines"] = {**header["engines"], "buffering": set(header["engines"]["buffering"])}
    header["engines"]["pool"] = plain(header["engines"]["pool"])
    return header, found


def plain(state: Any) -> Any:
    """A state whose arrays are lists, so that two can be compared."""
    if isinstance(state, np.ndarray):
        return state.tolist()
    return {name: plain(each) for name, each in state.items()} if isinstance(state, dict) else state


def continued(saved: Checkpoint, options: dict[str, Any] | None) -> dict[Any, Any]:
    """The output of the rest of the messages after a start from this checkpoint."""
    one = machine(Resume(saved), saved.header["offset"], options=options)
    one.process(RECORDS[one.offset :], 0)
    return by_key(one.take_pending())


@pytest.mark.parametrize("options", [None, {"speculation": Speculation(alpha=0.2)}], ids=["plain", "ahead"])
@settings(max_examples=20)
@given(
    begun=st.integers(0, 80),
    before=st.integers(0, 60),
    chunk=st.integers(1, 20),
    steps=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    cache=st.sampled_from([2, 100]),
)
def test_made_in_small_steps_it_is_the_one_made_at_once(
    options: dict[str, Any] | None, begun: int, before: int, chunk: int, steps: list[int], cache: int
) -> None:
    one = machine(options=options, cache=cache)
    one.process(RECORDS[: max(0, begun - before)], 0)
    checkpoint(one)  # one that was made before, so that some keys have not changed since
    one.process(RECORDS[max(0, begun - before) : begun], 0)
    other = machine(options=options, cache=cache)
    other.process(RECORDS[:begun], 0)
    at_once = PendingCheckpoint(0, NOWHERE, other.snapshot())
    at_once.save(float("inf"))

    saving, at, turn = PendingCheckpoint(0, NOWHERE, one.snapshot()), begun, 0
    while saving.checkpoint is None:
        for _ in range(steps[turn % len(steps)] or at >= len(RECORDS)):
            saving.save(0)  # one engine
        one.process(RECORDS[at : at + chunk], 0)
        at, turn = at + chunk, turn + 1
    assert at_once.checkpoint is not None and saving.checkpoint.header["offset"] == begun
    assert content(saving.checkpoint) == content(at_once.checkpoint)
    assert continued(saving.checkpoint, options) == continued(at_once.checkpoint, options)


def test_what_is_flushed_while_it_is_made_is_not_in_it() -> None:
    one, other = machine(), machine()
    one.process(RECORDS[:100], 0)
    other.process(RECORDS[:100], 0)
    saving = PendingCheckpoint(0, NOWHERE, one.snapshot())
    saving.save(0)
    one.flush("idle")
    saving.save(float("inf"))
    at_once = checkpoint(other)
    assert content(saving.checkpoint) == content(at_once)
    flushed = checkpoint(one)
    assert content(flushed) != content(at_once)


class Nowhere(TopicStore):
    """Checkpoints in a topic of messages of 100 bytes, that does not exist."""

    def __init__(self) -> None:
        super().__init__("state", OWNER, None, 1124)  # type: ignore[arg-type]


NOWHERE = Nowhere()


def begun(one: InputPartition, store: TopicStore, upto: int) -> PendingCheckpoint:
    """A checkpoint that is saved, and none of it written."""
    one.process(RECORDS[one.offset : upto], 0)
    saving = PendingCheckpoint(0, store, one.snapshot())
    assert saving.messages(5) == [] and not saving.is_written
    saving.save(float("inf"))
    return saving


def written(saving: PendingCheckpoint, most: float) -> Iterator[tuple[str, bytes]]:
    """All messages, so many at a time."""
    while not saving.is_written:
        yield from named(saving.messages(most))


def named(records: list[OutputMessage]) -> list[tuple[str, bytes]]:
    return [(record.key.decode(), record.value or b"") for record in records]


@pytest.mark.parametrize("most", [1, 7, float("inf")])
def test_written_part_by_part_it_is_found_again(most: float) -> None:
    store = Nowhere()
    saving = begun(machine(), store, 100)
    topic = list(written(saving, most))
    assert len(topic) > 10 and {len(value) for _, value in topic[:-2]} == {100}
    assert content(store.newest(topic, None)) == content(saving.checkpoint)
    assert store.newest(topic[:-1], None) is None


@pytest.mark.parametrize("missing", [1, 5])
@pytest.mark.parametrize("restarted", [False, True], ids=["dropped", "killed"])
def test_one_that_was_not_written_to_its_end_is_written_over_and_not_the_one_before(
    missing: int, restarted: bool
) -> None:
    one, store = machine(), Nowhere()
    topic = [*written(begun(one, store, 60), 1), *written(begun(one, store, 70), 1)]
    whole = begun(one, store, 80)
    topic += written(whole, 1)
    half = begun(one, store, 120)
    count = len(list(written(begun(machine(), Nowhere(), 120), 1)))
    topic += named(half.messages(count - missing))
    assert not half.is_written
    last = {key: nr for nr, (key, _) in enumerate(topic)}
    compacted = [topic[nr] for nr in sorted(last.values())]
    if restarted:
        store = Nowhere()
        for records in (topic, compacted):
            assert content(store.newest(records, None)) == content(whole.checkpoint)
    third = begun(one, store, 150)
    topic += named(third.messages(3))
    assert content(Nowhere().newest(topic, None)) == content(whole.checkpoint)
    topic += written(third, 1)
    assert content(Nowhere().newest(topic, None)) == content(third.checkpoint)
