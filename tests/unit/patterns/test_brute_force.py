"""Random patterns on random streams: the compiled matcher finds what the definition says, however the rows are cut."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, note
from hypothesis import strategies as st
from tests.unit.patterns.brute_force import matches

from slackline import ConfigError, Event
from slackline.core.merged_batch import MergedBatch
from slackline.core.time import MAX_TS
from slackline.core.types import type_names
from slackline.patterns import Expression, Pattern, Step
from slackline.patterns.steps import Part

TYPES = ("a", "b", "c")


def found(pattern: Pattern, events: list[Event], cuts: list[int]) -> list[tuple[int, dict[str, Any]]]:
    """What a pattern publishes for events that are cut into batches, saved and loaded between them."""
    published = []
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        if start < stop:
            found = [item for _, item in pattern.on_batch(MergedBatch.of(events[start:stop]))]
            published += [item for item in found if isinstance(item, Event)]
        again = Pattern.__new__(Pattern)
        again.__dict__.update(pattern.__getstate__())
        pattern = again
    matches = [(event.ts, dict(event.payload)) for event in published]
    return matches + [(ts, payload) for _, ts, payload in pattern._matcher().expire(MAX_TS)]


@st.composite
def events(draw: st.DrawFn, types: tuple[str, ...]) -> list[Event]:
    """Events of a pattern's types, most of one key and with all fields."""
    ts, made = 0, []
    for seq in range(draw(st.sampled_from((7, 6, 5, 3, 1)))):
        ts += draw(st.sampled_from((1, 0, 1, 2, 4)))
        payload: dict[str, Any] = {"k": draw(st.sampled_from((1, 1, 1, 2)))}
        x = draw(st.sampled_from((1, 2, 3, 0, 1, 2, 3, 2.5, None, float("nan"))))
        if x is not None:
            payload["x"] = x
        if draw(st.integers(0, 3)):
            payload["s"] = draw(st.sampled_from(("p", "q")))
        source = draw(st.sampled_from(("u", "u", "u", "v")))
        made.append(Event(draw(st.sampled_from(types)), ts, source=source, seq=seq, **payload))
    return made


@st.composite
def numbers(draw: st.DrawFn, own: Step, others: list[Step]) -> Expression:
    step = draw(st.sampled_from([own, own, *others]))
    reading = draw(
        st.sampled_from(
            (
                step.x, step.x, step.x.first(), step.x.sum(), step.x.min(), step.x.max(), step.x.mean(), step.count(),
                step.ts, abs(step.x - 2), own.x.previous(),
            )
        )
    )  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        operator = draw(st.sampled_from("+-*/"))
        other = draw(st.sampled_from((1, 2, 0, own.x)))
        return {"+": reading + other, "-": reading - other, "*": reading * other, "/": reading / other}[operator]
    return reading


@st.composite
def conditions(draw: st.DrawFn, own: Step, others: list[Step], depth: int = 1) -> Expression:
    form = draw(st.sampled_from(("x", "x", "compare", "compare", "text", "missing", "logic" if depth else "x")))
    if form == "logic":
        one, other = draw(conditions(own, others, 0)), draw(conditions(own, others, 0))
        return draw(st.sampled_from((one & other, one | other, ~one)))
    if form == "text":
        return draw(st.sampled_from((own.s == "p", own.s != "p", own.source == "u", own.s.isin(["p", "r"]))))
    if form == "missing":
        return draw(st.sampled_from((own.x.is_missing(), ~own.s.is_missing())))
    left = own.x if form == "x" else draw(numbers(own, others))
    right = draw(st.integers(0, 3)) if form == "x" else draw(st.one_of(st.integers(0, 3), numbers(own, others)))
    operator = draw(st.sampled_from(("<", "<=", ">", ">=", "==", "!=")))
    return {
        "<": lambda: left < right, "<=": lambda: left <= right, ">": lambda: left > right, ">=": lambda: left >= right,
        "==": lambda: left == right, "!=": lambda: left != right,
    }[operator]()  # fmt: skip


class Maker:
    """Draws the parts of one pattern; steps may refer to those before them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.made: list[Step] = []

    def step(self, takes: bool = True) -> Step:
        draw = self.draw
        types = draw(st.sampled_from((("a",), ("b",), ("c",), ("a", "b"))))
        step = Step(*types, name=f"{types[0]}{len(self.made)}" if takes else f"no{draw(st.integers(0, 10**6))}")
        if draw(st.integers(0, 2)) == 0:
            step = step.where(draw(conditions(step, self.made)))
        if takes:
            self.made.append(step)
        return step

    def part(self, depth: int) -> Part:
        draw = self.draw
        form = draw(st.sampled_from(("step", "chain", "choice", "repeat"))) if depth else "step"
        if form == "step":
            return self.step()
        if form == "choice":
            return self.part(depth - 1) | self.part(depth - 1)
        if form == "chain":
            return self.chain(depth)
        part = self.part(depth - 1)
        greedy, strict = draw(st.booleans()), draw(st.integers(0, 3)) == 0
        least, most = draw(st.sampled_from(((2, 2), (1, 2), (0, 1), (0, 2), (1, 3), (1, None))))
        if most is None:
            return part.one_or_more(greedy=greedy, strict=strict)
        return part.times(least, most, greedy=greedy, strict=strict)

    def chain(self, depth: int) -> Part:
        draw = self.draw
        part: Part = self.part(depth - 1)
        for _ in range(draw(st.integers(1, 2))):
            link = draw(st.sampled_from((">>", ">>", "next", "absent")))
            if link == "absent":
                part = part >> ~self.step(takes=False) >> self.part(depth - 1)
            else:
                part = part.next(self.part(depth - 1)) if link == "next" else part >> self.part(depth - 1)
        return part >> ~self.step(takes=False) if draw(st.integers(0, 3)) == 0 else part


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    try:
        maker = Maker(draw)
        part = maker.chain(2)
        output = {"first": maker.made[0].ts.first()}
        for step in maker.made:
            output |= {f"{step.name}_ts": step.ts, f"{step.name}_n": step.count(), f"{step.name}_x": step.x}
            output[f"{step.name}_s"] = step.s.first()
        some = draw(st.sampled_from(maker.made))
        skip = draw(st.sampled_from(("to_next", "past_last", ("to_first", some), ("to_last", some))))
        key = draw(st.sampled_from((None, "k", "source")))
        return Pattern(
            "found",
            part,
            within=draw(st.sampled_from((20, 5, 5, 3, 1, None))),
            key=key,
            output=output,
            after_match=skip,
        )
    except ConfigError as error:
        note(str(error))
        assume(False)
        raise


@given(patterns(), st.data(), st.lists(st.integers(0, 7), max_size=3))
def test_a_pattern_finds_what_its_definition_says(pattern: Pattern, data: st.DataObject, cuts: list[int]) -> None:
    note(str(pattern))
    note(pattern.to_dot())
    stream = data.draw(events(type_names(pattern.listens)))
    cuts = sorted(min(cut, len(stream)) for cut in cuts)
    assert found(pattern, stream, cuts) == matches(pattern, stream)
