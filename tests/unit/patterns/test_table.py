"""The table of docs/concepts/patterns.md: what other systems call it, and that ours does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.patterns.brute_force import matches
from tests.unit.patterns.test_brute_force import events, found

import slackline as sl
from slackline.patterns.steps import Part

PAGE = Path(__file__).parents[3] / "docs/concepts/patterns.md"

a, b, c = sl.Step("a"), sl.Step("b"), sl.Step("c")
rising = sl.Step("b", name="rising")
rising = rising.where(rising.x > rising.x.previous())
bounded = sl.Step("a", name="bounded")
bounded = bounded.where(bounded.x.sum() <= 4)

#: The expression in the table's last column, the pattern, its options.
ROWS: dict[str, tuple[Part, dict[str, Any]]] = {
    "a >> b": (a >> b, {}),
    "a.next(b)": (a.next(b), {}),
    "a >> ~c >> b": (a >> ~c >> b, {}),
    "a >> ~b": (a >> ~b, {"within": 4}),
    "a | b": ((a | b) >> c, {}),
    "a.times(3)": (a.times(3) >> b, {}),
    "a.times(2, 4)": (a.times(2, 4) >> b, {}),
    "a.one_or_more()": (a.one_or_more() >> b, {"within": 9}),
    "a.one_or_more(strict=True)": (a.one_or_more(strict=True) >> b, {"within": 9}),
    "a.one_or_more(greedy=False)": (
        sl.Step("a", "b", name="any").one_or_more(greedy=False) >> b,
        {"within": 9},
    ),
    "a.optional()": (c >> a.optional() >> b, {}),
    "(a >> b).times(2)": ((a >> b).times(2) >> c, {}),
    "a.where(a.x > 3)": (a.where(a.x >= 2) >> b, {}),
    "b.where(b.x > a.x)": (a >> b.where(b.x > a.x), {}),
    "b.x.previous()": (a >> rising.one_or_more() >> c, {"within": 9}),
    "a.x.sum()": (bounded.one_or_more() >> b, {"within": 9}),
    "a.x.first()": (a.times(2) >> b, {"output": {"x": a.x.first(), "y": a.x.last(), "n": a.count()}}),
    "within=": (a >> b, {"within": 3}),
    'key="k"': (a >> b, {"key": "k"}),
    'after_match="to_next"': (a >> b, {"after_match": "to_next"}),
    'after_match="past_last"': (a.times(2) >> b, {"after_match": "past_last"}),
    'after_match=("to_first", b)': (a >> b.times(2), {"after_match": ("to_first", b), "within": 9}),
    'after_match=("to_last", b)': (a >> b.times(2), {"after_match": ("to_last", b), "within": 9}),
}


def pattern(row: str) -> sl.Pattern:
    part, options = ROWS[row]
    taken = [step for step in part.steps() if step.name not in ("c",) or row in ("a | b",)]
    default = {f"{step.name}_ts": step.ts for step in taken if row != "a >> ~b" or step.name != "b"}
    return sl.Pattern("found", part, **{"output": default, **options})


@pytest.mark.parametrize("row", ROWS)
@given(st.data())
def test_a_row_of_the_table_is_what_the_definition_says(row: str, data: st.DataObject) -> None:
    stream = data.draw(events(("a", "b", "c")))
    made = pattern(row)
    stream = [event for event in stream if event.type in made.listens]
    assert found(made, stream, []) == matches(made, stream)


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_in_the_page(row: str) -> None:
    assert f"`{row}" in PAGE.read_text("utf-8").replace("\\|", "|")
