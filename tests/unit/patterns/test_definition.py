"""What a pattern refuses when it is defined, and how it is printed and drawn."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import slackline as sl
from slackline.patterns.steps import Part

a, b, c = sl.Step("a"), sl.Step("b"), sl.Step("c")
TEMPERATURE = sl.EventType("temperature", celsius=float, room=str)
warm = sl.Step(TEMPERATURE, name="warm")


def pattern(part: Part, **options: Any) -> sl.Pattern:
    return sl.Pattern("found", part, **options)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        # never
        (lambda: pattern(a.where((a.x > 5) & (a.x < 3)) >> b), "contradict each other"),
        (lambda: pattern(a.where((a.x > 5) & (a.x <= 5)) >> b), "contradict each other"),
        (lambda: pattern(a.where((a.s == "p") & (a.s == "q")) >> b), "contradict each other"),
        (lambda: pattern(a >> b.where(b.ts - a.ts > 60), within=60), "longer than within=60"),
        (lambda: pattern(a.where(a.x > b.x) >> b), "'b' takes no event before it"),
        (lambda: pattern(a.one_or_more() >> sl.Step("a", name="last"), within=9), "also matches 'a'"),
        (lambda: pattern((a >> b) | (sl.Step("a", name="again") >> c)), "step 'again' can never match"),
        (lambda: pattern(a >> b.optional(greedy=False)), "step 'b' can never match"),
        (lambda: a.where(a.x == a.x), "always gives the same answer"),
        (lambda: a.where(False), "a condition that never holds"),
        (lambda: a.x.isin([]), "can never hold"),
        # always
        (lambda: pattern(a), "always matches"),
        (lambda: pattern(a.where(a.x > 1) | b), "each event of b is a match by itself"),
        (lambda: pattern(a.optional()), "all its steps are optional"),
        (lambda: a.where(True), "a condition that always holds"),
        # without limit
        (lambda: pattern(a >> b.one_or_more() >> c), "within"),
        (lambda: pattern(a >> ~b), "ends with the absence of 'b'"),
        (lambda: pattern(a >> b.times(1, 3)), "without a time limit"),
        # fields, kinds
        (lambda: pattern(a >> warm.where(warm.celsios > 3)), "did you mean 'celsius'?"),
        (lambda: pattern(a >> warm, output={"c": warm.celsis}), "did you mean 'celsius'?"),
        (lambda: pattern(a >> warm, key="device"), "has no field 'device'"),
        (lambda: pattern(a >> warm.where(warm.celsius == "hot")), "as a number"),
        (lambda: pattern(a >> warm.where(warm.room > 3)), "declared as non-numeric"),
        (lambda: pattern(a.where(a.x == "p") >> b.where(b.x == a.x) >> c.where(c.x == b.x + 1)), "as a number"),
        (lambda: pattern(a.where(a.x == "p") >> sl.Step("a", name="next").where(a.x > 3)), "as a text"),
        (lambda: a.ts == "noon", "compares a text with a number"),
        (lambda: a.type < "b", "orders texts"),
        (lambda: a.type + 1, "needs numbers"),
        (lambda: a.x == None, "is_missing"),  # noqa: E711
        (lambda: a.x < float("nan"), "finite"),
        (lambda: 1 < a.x < 2, "has no truth value"),  # type: ignore[operator]
        (lambda: (a.x > 1) and (a.x < 2), "has no truth value"),
        (lambda: a.where(a.x + 1), "needs a condition"),
        (lambda: a.x.first().sum(), "Leave out first()"),  # type: ignore[attr-defined]
        # references
        (lambda: pattern(a >> b.where(b.x > sl.Step("bb").x)), "no step 'bb' (did you mean 'b'?)"),
        (lambda: pattern(a >> ~c >> b, output={"x": c.x}), "step 'c' has no event in any match"),
        (lambda: pattern(a >> b, output={"x": b.x.previous()}), "for conditions alone"),
        (lambda: pattern(a.where(a.x.previous() > 1) >> b), "no event comes before"),
        (lambda: pattern(a >> b.where(a.x.previous() > 1)), "on the step's own fields"),
        # structure
        (lambda: pattern(a >> a), "two steps of the pattern are called 'a'"),
        (lambda: ~a >> b, "cannot begin with the absence"),
        (lambda: pattern(~a), "an absence alone"),
        (lambda: a.next(~b), "no room for an absence"),
        (lambda: (a >> ~b).next(c), "no room for an absence"),
        (lambda: pattern((a.optional() >> b.optional()).one_or_more() >> c, within=3), "cannot be repeated"),
        (lambda: (~a).one_or_more(), "cannot be repeated"),
        (lambda: a.times(3, 2), "from 3 to 1000"),
        (lambda: a.times(-1), "from 0 to 1000"),
        (lambda: a | ~b, "alternatives"),
        (lambda: a >> "b", "followed by a step"),
        (lambda: sl.Step(), "needs event types"),
        (lambda: sl.Step("a", name="not a name"), "identifier"),
        (lambda: pattern("a"), "made of steps"),  # type: ignore[arg-type]
        (lambda: sl.Pattern("", a >> b), "one event type"),
        (lambda: pattern(a >> b, within=-1), "within=-1"),
        (lambda: pattern(a >> b, within="2 minuets"), "or text such as '10 s'"),
        (lambda: pattern(a >> b, within=2**61 + 1), "from 0 to"),
        (lambda: pattern(a >> b, after_match="nowhere"), "after_match='nowhere' is unknown"),
        (lambda: pattern(a >> b, after_match="to_first"), "needs a step"),
        (lambda: pattern(a >> b, after_match=("to_last", "bb")), "did you mean 'b'?"),
        (lambda: pattern(a >> ~c >> b, after_match=("to_last", c)), "has no event in any match"),
        (lambda: pattern((a >> b >> c).times(1000)), "more than 2000 steps"),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_work_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(sl.ConfigError) as error:
        make()
    assert said in str(error.value)


def test_a_pattern_is_printed_as_a_sentence() -> None:
    part = a.where(a.x > 1).next(b) >> ~c >> sl.Step("a", "b", name="end").times(2, 3, greedy=False)
    assert str(pattern(part, within=9, key="k", after_match=("to_last", b))) == (
        "a (where a.x > 1), next b, then end (a or b) [2 to 3 times, as few as possible], without c between, within 9, "
        "per k; publishes found; then continues at the last event of b"
    )


def test_a_pattern_is_drawn_as_an_automaton() -> None:
    drawn = pattern(a >> ~c >> b.one_or_more(), within=9).to_dot()
    assert drawn.splitlines() == [
        "digraph pattern {",
        "  rankdir=LR;",
        "  start [shape=point];",
        "  match [shape=doublecircle];",
        '  p0 [shape=box, label="a"];',
        '  p1 [shape=box, label="b"];',
        "  start -> p0;",
        '  p0 -> p1 [label="no c"];',
        "  p1 -> p1;",
        '  p1 -> match [style=dashed, label="no more"];',
        "}",
    ]


def test_a_pattern_can_be_copied_and_sent_to_a_process() -> None:
    made = pattern(a.where(a.x.isin([1, 2])) >> b.where(b.x > a.x), within=9)
    assert str(copy.deepcopy(made)) == str(pickle.loads(pickle.dumps(made))) == str(made)


def test_a_length_of_within_is_limited_in_any_form() -> None:
    with pytest.raises(sl.ConfigError, match="from 0 to"):
        sl.Engine(sl.Hierarchy([pattern(a >> b, within="30000 days")]), unit="ns")
