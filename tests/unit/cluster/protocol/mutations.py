"""One envelope of each kind, as nodes send them, and what a broken or hostile peer makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
from tests.unit.core.states import Player

from slackline.cluster.protocol import messages as say
from slackline.cluster.protocol.wire import packed
from slackline.core import codec
from slackline.core.batch import Batch, object_column
from slackline.core.event import Event

_POSITIONS = Batch(
    "position",
    np.arange(100, 108),
    np.array([0, 1, 2, 0, 1, 2, 0, 3]),
    np.arange(8),
    {
        "x": np.linspace(0.0, 1.0, 8),
        "n": np.arange(8, dtype=np.int16),
        "ok": np.arange(8) % 2 == 0,
        "who": object_column(["a", None, "b", "ü", "", "a", "b", "c"]),
        "more": object_column([1, None, (1, 2), {3}, Player(7), 2**70, [], {"k": 1.5}]),
    },
    [4, "ball", None, -1, "unused"],
)
_HITS = [Event("hit", ts=103, source="Hits", seq=0, player=7), Event("hit", ts=104, source="Hits", seq=1, force=None)]

_PLACE = {"watermark": 104, "max_backdate": 3, "clk": 107, "K": 12}

SEGMENTS = [
    say.Segment(type="position", first=1, count=8, events=packed(_POSITIONS), **_PLACE),
    say.Segment(type="hit", first=41, count=2, warnings=[99, 101], events=packed(_HITS), **_PLACE),
    say.Segment(type="hit", first=43, count=0, **_PLACE | {"watermark": 2**62}),
]

BODIES: list[say.Body] = [
    say.Hello(
        2**61 + 7, 1.5, "match:app", "f00d", {"Hits": 2}, ["position"], "127.0.0.1:7070", {"n2": "127.0.0.1:7071"}
    ),
    say.Rejected("another application", 2.5),
    say.Goodbye(),
    say.Announce({"Hits": 2, "Passes": 1}, ["position"]),
    say.Subscribe("position", 0, True),
    say.Subscribed("position", 9),
    say.Unsubscribe("position"),
    say.Data(SEGMENTS, "Hits"),
    say.Ack({"position": (8, 4), "hit": (42, 0)}),
    say.Resend("hit", 41, 42),
    say.Truncated("position", 3),
    say.MigrateTo("Hits", "r1"),
    say.CopyRequest("Hits", 3),
    say.StateChunk("Hits", 3, bytes(range(256)), say.PIECE),
    say.StateRequest("Hits", {"position": 9, "kick": 0}),
    say.InputDelays("Hits", {"position": 12}, 107),
    say.DetectorState(
        detector="Hits",
        term=3,
        last=104,
        state=codec.dump("detector", 1, {"close": {7, 3}, "last": _HITS[0]}),
        positions={"position": 8},
        publications={
            "hit": say.PublicationState(
                next=43, watermark=104, max_backdate=3, retained=SEGMENTS[1:], subscribers={"n2": (43, 40, True, False)}
            )
        },
    ),
    say.StopForwarding("Hits", "position", 9),
    say.MigrationDone("Hits", 3),
    say.ConfirmMigration("Hits", 3),
    say.MigrationRejected("Hits", 0, "it runs elsewhere"),
    say.Heartbeat(load=0.75, metrics={"rate": 1000.0, "detectors": {"Hits": [1, None]}}),
    say.Query(),
    say.Overview({"n1": {"runs": ["Hits"], "load": 0.5}}),
    say.MigrationRequest("Hits", "n2", "r1"),
    say.MigrationResult("r1", "", {"seconds": 0.25}),
]

_INTEGERS = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 63, 64, 65, 127, 128, 255, 2**31, 2**32, 2**62, 2**63 - 1, 2**64 - 1]
_ODD: list[Any] = [*_INTEGERS, None, True, 1.5, float("nan"), "", "hit", "Data", b"", b"\xff", [], [[]], {}, {"": 0}]


def mutated(samples: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """``count`` messages, each one of the samples with something wrong in it; the same ones for a seed.

    Half of them have bytes changed, so that most are no message at all. The other half are well-formed MessagePack in
    which a value was changed, so that what is inside is reached: numbers, names, and the bytes of events and states.
    """
    random = Random(seed)
    for turn in range(count):
        sample = random.choice(samples)
        if turn % 2:
            yield _changed_bytes(sample, random)
        else:
            yield msgspec.msgpack.encode(_changed_value(msgspec.msgpack.decode(sample), random))


def _changed_value(tree: Any, random: Random) -> Any:
    """The tree with one of its values changed; each container is entered with a chance, so that all depths are met."""
    if isinstance(tree, list) and tree and random.random() < 0.9:
        at = random.randrange(len(tree))
        if random.random() < 0.05:
            return [*tree[:at], *([tree[at]] * random.choice((0, 2, 3))), *tree[at + 1 :]]
        return [*tree[:at], _changed_value(tree[at], random), *tree[at + 1 :]]
    if isinstance(tree, dict) and tree and random.random() < 0.9:
        key = random.choice(list(tree))
        if random.random() < 0.2:
            return {random.choice(["", "hit", 5]) if other == key else other: tree[other] for other in tree}
        return tree | {key: _changed_value(tree[key], random)}
    if isinstance(tree, bytes) and tree and random.random() < 0.95:
        return _changed_bytes(tree, random)
    if isinstance(tree, int) and random.random() < 0.7:
        return random.choice([*_INTEGERS, *range(max(tree - 2, -(2**63)), min(tree + 3, 2**64))])
    return random.choice(_ODD)


def _changed_bytes(data: bytes, random: Random) -> bytes:
    """The bytes with one to three things done to them."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(data) + 1)
        end = min(len(data), at + random.choice((1, 1, 2, 4, 8, 64)))
        match random.randrange(8):
            case 0 if data:
                place = random.randrange(len(data))
                data = data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]
            case 1:
                data = data[:at] + random.randbytes(end - at) + data[end:]
            case 2:
                data = data[:at] + data[end:]
            case 3:
                data = data[:at] + random.randbytes(random.choice((1, 2, 8))) + data[at:]
            case 4:
                data = data[:at]
            case 5:
                data = data[:end] + data[at:]
            case _:
                size = random.choice((1, 2, 4, 8))
                number = random.choice(_INTEGERS) % 256**size
                place = at - at % size
                data = data[:place] + number.to_bytes(size, "little") + data[place + size :]
    return data
