"""A pattern in an engine is a detector like any other: chunking, arrival order, save and load, speculation, levels."""

from __future__ import annotations

import random
from typing import Any

import pytest

import slackline as sl
from slackline.patterns import Step

a, b, c = Step("a"), Step("b"), Step("c")
PATTERNS = {
    "sequence": lambda: sl.Pattern(
        "found", a >> ~c >> b.where(b.x > a.x), within=40, key="k", output={"k": a.k, "x": b.x - a.x, "at": a.ts}
    ),
    "absence": lambda: sl.Pattern("found", a >> ~b, within=25, key="source", output={"s": a.source, "x": a.x}),
    "greedy": lambda: sl.Pattern(
        "found", a >> b.one_or_more(), within=30, output={"n": b.count(), "at": a.ts}, after_match="to_next"
    ),
}


def stream(seed: int, n: int = 120) -> list[sl.Event]:
    rng = random.Random(seed)
    return [
        sl.Event(
            rng.choice("abc"), ts=5 * n, source=f"s{n % 3}", seq=n, k=rng.choice((1, 2)), x=rng.choice((1, 2, 3.5))
        )
        for n in range(n)
    ]


def run(name: str, events: list[sl.Event], cut: int, restart: bool = False) -> list[Any]:
    def hierarchy() -> sl.Hierarchy:
        return sl.Hierarchy([PATTERNS[name]()])

    engine = sl.Engine(hierarchy(), policy=sl.Auto(warmup=len(events)))
    outputs: list[sl.Output] = []
    for start in range(0, len(events), cut):
        outputs += engine.push(events[start : start + cut])
        if restart:
            engine = sl.Engine.load(engine.save(), hierarchy())
    outputs += engine.close()
    assert not engine.late and not engine.quarantined
    return [(output.id, output.event) for output in outputs]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("seed", range(2))
def test_chunking_arrival_order_and_restarts_change_nothing(name: str, seed: int) -> None:
    events = [event for event in stream(seed) if event.type in PATTERNS[name]().listens]
    expected = run(name, events, cut=len(events))
    assert expected
    shuffled = random.Random(seed).sample(events, len(events))
    assert run(name, shuffled, cut=7) == expected
    assert run(name, shuffled, cut=50, restart=True) == expected
    assert run(name, events, cut=1) == expected


@pytest.mark.parametrize("name", PATTERNS)
def test_outputs_come_at_the_same_positions_whatever_the_cut(name: str) -> None:
    events = stream(3)
    found = []
    for cut in (1, 9, 120):
        engine = sl.Engine(sl.Hierarchy([PATTERNS[name]()]))
        outputs = [output for at in range(0, 120, cut) for output in engine.push(events[at : at + cut])]
        found.append([(output.id, output.event, output.detected_at) for output in outputs + engine.close()])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", PATTERNS)
def test_speculation_nets_out(name: str) -> None:
    events = stream(4)
    shuffled = [event for at in range(0, 120, 6) for event in reversed(events[at : at + 6])]
    outputs = {}
    for speculation in (None, sl.Speculation(alpha=0.2)):
        engine = sl.Engine(sl.Hierarchy([PATTERNS[name]()]), speculation=speculation)
        net: dict[str, sl.Event] = {}
        for output in [each for at in range(0, 120, 5) for each in engine.push(shuffled[at : at + 5])] + engine.close():
            if output.op == "retract":
                net.pop(output.id)
            else:
                net[output.id] = output.event
        outputs[speculation is None] = net
    assert outputs[True] == outputs[False] != {}


def test_an_absence_is_reported_when_other_events_move_time_and_at_the_end() -> None:
    beat = Step("beat")
    silence = sl.Pattern("silent", beat >> ~Step("beat", name="again"), within=60, key="source")
    events = [sl.Event("beat", ts=ts, source=source) for ts, source in [(0, "x"), (10, "y"), (50, "y"), (100, "y")]]
    engine = sl.Engine(sl.Hierarchy([silence]), policy="ordered")
    outputs = engine.push(events)
    assert [(output.event.ts, output.event["source"]) for output in outputs] == [(60, "x")]
    assert [(output.event.ts, output.event["source"]) for output in engine.close()] == [(160, "y")]


def test_patterns_on_two_levels() -> None:
    low = sl.Pattern("pair", a >> b, within=20, key="k", output={"k": a.k})
    pair = Step("pair")
    high = sl.Pattern("pairs", pair.times(2), within=500, key="k", output={"k": pair.k, "n": pair.count()})
    engine = sl.Engine(sl.Hierarchy([high, low]))
    outputs = engine.push(stream(5)) + engine.close()
    pairs = [output.event for output in outputs if output.event.type == "pair"]
    doubles = [output.event for output in outputs if output.event.type == "pairs"]
    assert len(doubles) == sum(len([1 for each in pairs if each["k"] == k]) // 2 for k in (1, 2)) > 0


def test_an_event_without_its_key_is_quarantined_and_the_rest_is_matched() -> None:
    pattern = sl.Pattern("found", a >> b, key="k", output={"k": a.k})
    events = [sl.Event("a", ts=1, k=1), sl.Event("a", ts=2), sl.Event("a", ts=3, k=[1]), sl.Event("b", ts=4, k=1)]
    engine = sl.Engine(sl.Hierarchy([pattern]), on_error="quarantine")
    outputs = engine.push(events) + engine.close()
    assert [output.event["k"] for output in outputs] == [1]
    details = [each.detail for each in engine.drain().quarantined]
    assert "key field 'k' is missing" in details[0] and "not hashable" in details[1]


def test_the_state_of_another_pattern_is_refused() -> None:
    saved = sl.Engine(sl.Hierarchy([sl.Pattern("found", a >> b, within=5)])).save()
    with pytest.raises(sl.SlacklineError, match="of another pattern"):
        sl.Engine.load(saved, sl.Hierarchy([sl.Pattern("found", a >> b, within=6)]))


def test_partial_matches_are_dropped_after_within() -> None:
    pattern = sl.Pattern("found", a >> b.where(b.x == a.x), within=10, key="k")
    engine = sl.Engine(sl.Hierarchy([pattern]), policy="ordered")
    engine.push([sl.Event("a", ts=ts, k=ts, x=0) for ts in range(20_000)])
    assert pattern.partial_matches <= 11
    assert len(pattern._matcher()._keys) < 20_000
