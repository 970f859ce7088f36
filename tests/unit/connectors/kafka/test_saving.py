"""A snapshot that is made while a partition goes on is the one of the moment at which it was begun."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.connectors.kafka.test_partition import by_key, machine, messages, took

from slackline import Speculation
from slackline.connectors.kafka.partition import InputPartition
from slackline.connectors.kafka.records import Record
from slackline.connectors.kafka.saving import Saving
from slackline.connectors.kafka.snapshots import Owner, PartitionSnapshot, TopicSnapshots
from slackline.core import codec

RECORDS = messages(150)


def engines(snapshot: PartitionSnapshot | None) -> tuple[dict[Any, Any], Any, dict[Any, int]]:
    """What is in a snapshot, whatever the order in which it was saved: engines with their figures, counts, changes."""
    parts = snapshot and snapshot.parts()
    assert parts is not None
    states = [codec.load("sites", 1, piece) for piece in parts[0]]
    each = [site for state in states for site in state["sites"]]
    found = {key: rest for key, *rest in each}
    assert len(found) == len(each)  # none is there twice
    return found, [state["counts"] for state in states if state["counts"]], parts[1]


def continued(snapshot: PartitionSnapshot | None, options: dict[str, Any] | None) -> dict[Any, Any]:
    """What comes out of the rest of the records, for who begins with this snapshot."""
    assert snapshot is not None
    one = machine(snapshot, snapshot.offset, options=options)
    one.take(RECORDS[snapshot.offset :])
    return by_key(took(one))


@pytest.mark.parametrize("options", [None, {"speculation": Speculation(alpha=0.2)}], ids=["plain", "ahead"])
@settings(max_examples=20)
@given(
    begun=st.integers(0, 80),
    before=st.integers(0, 60),
    chunk=st.integers(1, 20),
    steps=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    awake=st.sampled_from([2, 100]),
)
def test_made_in_small_steps_it_is_the_one_made_at_once(
    options: dict[str, Any] | None, begun: int, before: int, chunk: int, steps: list[int], awake: int
) -> None:
    one = machine(options=options, awake=awake)
    one.take(RECORDS[: max(0, begun - before)])
    list(one.cut())  # one that was made before, so that some keys have not changed since
    one.take(RECORDS[max(0, begun - before) : begun])
    other = machine(options=options, awake=awake)
    other.take(RECORDS[:begun])
    at_once = Saving(other, NOWHERE)
    at_once.save(float("inf"))

    saving, at, turn = Saving(one, NOWHERE), begun, 0
    while saving.snapshot is None:
        for _ in range(steps[turn % len(steps)] or at >= len(RECORDS)):
            saving.save(0)  # one engine
        one.take(RECORDS[at : at + chunk])
        at, turn = at + chunk, turn + 1
    assert saving.snapshot.offset == begun
    assert engines(saving.snapshot) == engines(at_once.snapshot)
    assert continued(saving.snapshot, options) == continued(at_once.snapshot, options)


def test_what_is_flushed_while_it_is_made_is_not_in_it() -> None:
    one, other = machine(), machine()
    one.take(RECORDS[:100])
    other.take(RECORDS[:100])
    saving = Saving(one, NOWHERE)
    saving.save(0)
    one.flush("idle")
    saving.save(float("inf"))
    at_once = PartitionSnapshot(100, list(other.cut()))
    assert engines(saving.snapshot) == engines(at_once)
    flushed = PartitionSnapshot(100, list(one.cut()))
    assert engines(flushed) != engines(at_once)


class Nowhere(TopicSnapshots):
    """Snapshots in a topic of records of 100 bytes, that is not there."""

    def __init__(self) -> None:
        super().__init__("state", Owner("app", "in", ("Sums",)), {}, None, 1124)  # type: ignore[arg-type]


NOWHERE = Nowhere()


def begun(one: InputPartition, snapshots: TopicSnapshots, upto: int) -> Saving:
    """A snapshot that is saved, and none of it written."""
    one.take(RECORDS[one.offset : upto])
    saving = Saving(one, snapshots)
    assert saving.records(5) == [] and not saving.is_written
    saving.save(float("inf"))
    return saving


def written(saving: Saving, most: float) -> Iterator[tuple[str, bytes]]:
    """All records, so many at a time."""
    while not saving.is_written:
        yield from told(saving.records(most))


def told(records: list[Record]) -> list[tuple[str, bytes]]:
    return [(record.key.decode(), record.value or b"") for record in records]


@pytest.mark.parametrize("most", [1, 7, float("inf")])
def test_written_part_by_part_it_is_found_again(most: float) -> None:
    snapshots = Nowhere()
    saving = begun(machine(), snapshots, 100)
    topic = list(written(saving, most))
    assert len(topic) > 10 and {len(value) for _, value in topic[:-2]} == {100}
    assert engines(snapshots._complete(topic, None)) == engines(saving.snapshot)
    assert snapshots._complete(topic[:-1], None) is None


@pytest.mark.parametrize("missing", [1, 5])
@pytest.mark.parametrize("restarted", [False, True], ids=["dropped", "killed"])
def test_one_that_was_not_written_to_its_end_is_written_over_and_not_the_one_before(
    missing: int, restarted: bool
) -> None:
    one, snapshots = machine(), Nowhere()
    topic = [*written(begun(one, snapshots, 60), 1), *written(begun(one, snapshots, 70), 1)]
    whole = begun(one, snapshots, 80)
    topic += written(whole, 1)
    half = begun(one, snapshots, 120)
    count = len(list(written(begun(machine(), Nowhere(), 120), 1)))
    topic += told(half.records(count - missing))
    assert not half.is_written
    last = {key: nr for nr, (key, _) in enumerate(topic)}
    compacted = [topic[nr] for nr in sorted(last.values())]
    if restarted:
        snapshots = Nowhere()
        for records in (topic, compacted):
            assert engines(snapshots._complete(records, None)) == engines(whole.snapshot)
    third = begun(one, snapshots, 150)
    topic += told(third.records(3))
    assert engines(Nowhere()._complete(topic, None)) == engines(whole.snapshot)
    topic += written(third, 1)
    assert engines(Nowhere()._complete(topic, None)) == engines(third.snapshot)
