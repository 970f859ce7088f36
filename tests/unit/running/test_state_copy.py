"""A state that is copied while the detector runs is the state, however the copy and the events interleave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slackline as sl
from slackline.core.errors import StateError
from slackline.running.state_copy import differences


class PerKey(sl.Detector):
    listens, publishes, key, ttl = ("a",), ("b",), "k", 200

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_event(self, event: sl.Event):
        self.seen.append(event.ts)
        yield sl.Timer(event.ts + event["wait"])
        yield event.derive("b", n=len(self.seen), sum=sum(self.seen))

    def on_timer(self, timer: sl.Timer):
        yield sl.Event("b", timer.at, key=timer.key, fired=len(self.seen))


class Whole(sl.Detector):
    listens, publishes = ("a",), ("b",)

    def __init__(self) -> None:
        self.log: list[int] = []
        self.table = np.zeros(2_000)

    def on_event(self, event: sl.Event):
        self.log.append(event.ts)
        self.table[event.ts % 2_000] += event["k"]
        if event["k"] == 3:
            self.log = self.log[1:]
            self.__dict__["late"] = event.ts
        if event["k"] == 4:
            self.__dict__.pop("late", None)
        yield event.derive("b", n=len(self.log), sum=float(self.table.sum()))


class Opaque(Whole):
    def snapshot(self) -> Any:
        return [self.log, self.table]

    def restore(self, state: Any) -> None:
        self.log, self.table = state


def engine(kind: type[sl.Detector], **options: Any) -> sl.Engine:
    return sl.Engine(sl.Hierarchy([kind()], clock="a"), policy="ordered", **options)


def event(i: int, k: int) -> sl.Event:
    return sl.Event("a", ts=7 * i, source="s", seq=i, k=k, wait=1 + 50 * (k % 5))


@pytest.mark.parametrize("kind", [PerKey, Whole, Opaque])
@given(keys=st.lists(st.integers(0, 20), min_size=20, max_size=120), data=st.data())
def test_a_copied_detector_continues_as_if_it_had_stayed(kind: type[sl.Detector], keys: list[int], data: Any) -> None:
    alone, source, target = engine(kind), engine(kind), engine(kind, detectors=[])
    name = kind.__name__
    start = data.draw(st.integers(0, len(keys) - 10))
    events = [event(i, k) for i, k in enumerate(keys)]
    expected, found = alone.push(events) + alone.close(), source.push(events[:start])
    target.push(events[:start])
    copied, receiver = source.host.copy(name), target.host.receiver(name)
    assert copied is not None
    at = start
    while at < len(events) - 5 and data.draw(st.integers(0, 9)):
        piece = copied.next(data.draw(st.sampled_from([1, 100, 5_000])))
        if piece:
            receiver.add(piece)
        elif data.draw(st.booleans()):
            receiver.prepare()
        more = events[at : at + data.draw(st.integers(0, 3))]
        found += source.push(more)
        target.push(more)
        at += len(more)
    detached = source.host.detach_copied(name, copied)
    receiver.add(detached.rest)
    assert target.host.attach(detached.beside, receiver=receiver) == []
    other = engine(kind, detectors=[])
    other.push(events[:at])
    other.host.attach(detached.whole())  # what the source takes back, if it has to
    assert target.push(events[at:]) + target.close() == other.push(events[at:]) + other.close()
    found += source.push(events[at:]) + source.close()
    again = engine(kind)
    assert found == again.push(events[:at])
    assert found == expected[: len(found)]


def test_only_the_keys_that_were_touched_are_sent_again() -> None:
    source = engine(PerKey)
    source.push([event(i, i) for i in range(500)])
    copied = source.host.copy("PerKey")
    pieces = []
    while piece := copied.next(1_000):
        pieces.append(piece)
    source.push([event(600 + i, 499) for i in range(3)])
    rest = source.host.detach_copied("PerKey", copied).rest
    assert len(pieces) > 20 and len(rest) < 500  # timers that the three fire are among it


def test_of_an_attribute_only_the_blocks_that_differ_are_sent_again() -> None:
    before = bytes(1_000_000)
    after = bytearray(before)
    after[500_000] = after[999_999] = 1
    assert [(part.offset, len(part.data)) for part in differences("a", before, bytes(after))] == [
        (122 * 4096, 4096),
        (244 * 4096, 1_000_000 - 244 * 4096),
    ]
    assert list(differences("a", before, bytes(1_000_000))) == []


@pytest.mark.parametrize("kind", [PerKey, Whole])
def test_a_copy_that_lacks_a_piece_is_refused(kind: type[sl.Detector]) -> None:
    source, target = engine(kind), engine(kind, detectors=[])
    source.push([event(i, i) for i in range(100)])
    copied, receiver = source.host.copy(kind.__name__), target.host.receiver(kind.__name__)
    receiver.add(copied.next(1))
    copied.next(1)
    detached = source.host.detach_copied(kind.__name__, copied)
    receiver.add(detached.rest)
    with pytest.raises(StateError, match="digests of its state differ"):
        target.host.attach(detached.beside, receiver=receiver)
    assert not target.detectors


@pytest.mark.parametrize("piece", [b"", b"\xc1", b"\x92\x90\x91\x91\xc0", b"\x92\x90\x91\x94\xc0\x05\x07\xc4\x00"])
@pytest.mark.parametrize("kind", [PerKey, Whole])
def test_damaged_pieces_are_a_state_error(kind: type[sl.Detector], piece: bytes) -> None:
    receiver = engine(kind, detectors=[]).host.receiver(kind.__name__)
    with pytest.raises(StateError):
        receiver.add(piece)
