"""Checks of a pattern when it is defined: names, fields, kinds, and whether it can match at all."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from slackline.core.errors import ConfigError
from slackline.core.types import EventType
from slackline.patterns.automaton import END, MOST_STEPS, Automaton, check_reachable, positions_before
from slackline.patterns.expressions import (
    NUMBER,
    PREVIOUS,
    TEXT,
    UNKNOWN,
    Absolute,
    Aggregate,
    Arithmetic,
    Comparison,
    Constant,
    Expression,
    Reading,
    conjuncts,
)
from slackline.patterns.steps import Chain, Choice, Part, Repeat, Step

#: Fields that every event has.
OF_EVENTS = ("ts", "source", "type")


def steps_of(part: Part) -> dict[str, Step]:
    """The steps of a pattern by name; refuses two of one name."""
    steps: dict[str, Step] = {}
    for step in part.steps():
        if step.name in steps:
            raise ConfigError(
                f"two steps of the pattern are called {step.name!r}; give each its own name: "
                f"Step({step.type_names[0]!r}, name='second')."
            )
        steps[step.name] = step
    if len(steps) > MOST_STEPS:
        raise ConfigError(f"the pattern has {len(steps)} steps; at most {MOST_STEPS} are possible.")
    types = {kind for step in steps.values() for kind in step.type_names}
    if len(types) > MOST_STEPS:
        raise ConfigError(f"the pattern listens to {len(types)} types; at most {MOST_STEPS} are possible.")
    return steps


def check_pattern(
    part: Part, automaton: Automaton, steps: Mapping[str, Step], within: int | None, output: Mapping[str, Expression]
) -> None:
    """Refuse a pattern that cannot work, always or never matches, or may need memory without limit."""
    check_references(automaton, steps, output)
    Kinds(steps, output)
    for step in steps.values():
        _check_consistent(step, within)
    check_reachable(automaton, dict(steps))
    for option in automaton.start:
        step = steps[automaton.steps[option.target]]
        if step.condition is None and automaton.completes(option.target):
            raise ConfigError(
                f"the pattern always matches: each event of {' or '.join(step.type_names)} is a match by itself. Give "
                f"step {step.name!r} a condition, or let another step follow."
            )
    if within is None:
        _check_bounded(part, automaton)


def _check_bounded(part: Part, automaton: Automaton) -> None:
    remedy = "Limit the duration of a match with within=…, in the unit of event time."
    for repeat in _repeats(part):
        if repeat.most is None:
            raise ConfigError(f"`{repeat}` has no upper limit and the pattern no `within`: it may never end. {remedy}")
    for position, options in enumerate(automaton.options):
        if not automaton.waits(position):
            continue
        name = automaton.steps[position]
        absent = [step for option in options if option.target == END for step in option.absent]
        if absent:
            raise ConfigError(
                f"the pattern ends with the absence of {absent[0]!r}, which is only known after a time limit. {remedy}"
            )
        if any(not option.strict for option in options if option.target != END):
            raise ConfigError(
                f"after step {name!r} the pattern waits for further events without a time limit. {remedy} Or use "
                f"greedy=False."
            )


def _repeats(part: Part) -> Iterable[Repeat]:
    if isinstance(part, Repeat):
        yield part
        yield from _repeats(part.part)
    elif isinstance(part, Chain):
        for _, each in part.items:
            yield from _repeats(each)
    elif isinstance(part, Choice):
        for each in part.parts:
            yield from _repeats(each)


def check_references(automaton: Automaton, steps: Mapping[str, Step], output: Mapping[str, Expression]) -> None:
    """Refuse expressions that refer to steps whose events are not there yet, or never."""
    before = positions_before(automaton)
    earlier: dict[str, set[str]] = {name: set() for name in steps}
    for position, option in automaton.arrows():
        if position is not None:
            for name in option.absent:
                earlier[name] |= before[position] | {automaton.steps[position]}
    for position, name in enumerate(automaton.steps):
        earlier[name] |= before[position]
    taking = set(automaton.steps)
    for name, step in steps.items():
        for reading in _readings(step.condition):
            _check_known(reading, steps, f"step {name!r}")
            if isinstance(reading, Reading) and reading.of == PREVIOUS:
                if reading.step != name:
                    raise ConfigError(
                        f"the condition of step {name!r} uses `{reading}`; previous() is only valid on the step's own "
                        f"fields."
                    )
                if not earlier[name]:
                    raise ConfigError(f"`{reading}` has no value: no event comes before step {name!r}.")
            elif reading.step != name and reading.step not in earlier[name]:
                raise ConfigError(
                    f"step {name!r} can never match: its condition needs `{reading}`, and {reading.step!r} takes no "
                    f"event before it. Move the condition to the later of the two steps."
                )
    for field, expression in output.items():
        for reading in _readings(expression):
            _check_known(reading, steps, f"output {field!r}")
            if isinstance(reading, Reading) and reading.of == PREVIOUS:
                raise ConfigError(f"output {field!r} uses `{reading}`; previous() is for conditions alone.")
            if reading.step not in taking:
                raise ConfigError(
                    f"output {field!r} uses `{reading}`, but step {reading.step!r} has no event in any match."
                )


def _readings(expression: Expression | None) -> list[Reading | Aggregate]:
    if expression is None:
        return []
    return [each for each in expression.walk() if isinstance(each, Reading | Aggregate)]


def _check_known(reading: Reading | Aggregate, steps: Mapping[str, Step], where: str) -> None:
    if reading.step not in steps:
        raise ConfigError(
            f"{where} uses `{reading}`, but the pattern has no step {reading.step!r}"
            f"{suggestion(reading.step, steps)}. Its steps: {', '.join(steps)}."
        )
    if reading.field:
        for kind in steps[reading.step].kinds:
            check_field(kind, reading.field, f"{where} uses `{reading}`")


def check_field(kind: str | EventType, field: str, where: str) -> None:
    """Refuse a field that the type does not declare, if it declares any."""
    if isinstance(kind, EventType) and kind.fields and field not in kind.fields and field not in OF_EVENTS:
        known = [*kind.fields, *OF_EVENTS]
        raise ConfigError(
            f"{where}, but event type {kind.name!r} has no field {field!r}{suggestion(field, known)}. "
            f"It has {', '.join(known)}."
        )


def suggestion(given: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(given, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Kinds:
    """Which fields hold numbers and which texts, as far as declarations and comparisons show; refuses both at once."""

    def __init__(self, steps: Mapping[str, Step], output: Mapping[str, Expression]) -> None:
        self._steps = steps
        self._parent: dict[tuple[str, str], tuple[str, str]] = {}
        self._known: dict[tuple[str, str], tuple[str, str]] = {}  # kind, and why
        for step in steps.values():
            for kind in step.kinds:
                if not isinstance(kind, EventType):
                    continue
                for field, dtype in kind.fields.items():
                    number = dtype.kind in "fiub"
                    what = "a number" if number else "non-numeric"
                    self._settle((kind.name, field), NUMBER if number else TEXT, f"declared as {what}")
        for expression in [*(step.condition for step in steps.values()), *output.values()]:
            for each in [] if expression is None else expression.walk():
                self._learn(each)

    def _learn(self, expression: Expression) -> None:
        if isinstance(expression, Arithmetic | Absolute):
            for operand in expression.operands():
                self._expect(operand, NUMBER, f"`{expression}` computes with it")
        elif isinstance(expression, Aggregate) and expression.field:
            for kind in self._steps[expression.step].type_names:
                self._settle((kind, expression.field), NUMBER, f"`{expression}` computes with it")
        elif isinstance(expression, Comparison):
            one, other = expression.left, expression.right
            why = f"`{expression}` compares it with a "
            if expression.op not in ("==", "!="):
                self._expect(one, NUMBER, f"`{expression}` compares it by order")
                self._expect(other, NUMBER, f"`{expression}` compares it by order")
            elif UNKNOWN not in (one.kind, other.kind):
                pass
            elif one.kind == other.kind:
                self._same(one, other)
            else:
                known, unknown = (other, one) if one.kind == UNKNOWN else (one, other)
                self._expect(unknown, known.kind, why + known.kind)

    def _expect(self, expression: Expression, kind: str, why: str) -> None:
        if isinstance(expression, Reading) and expression.kind == UNKNOWN:
            for name in self._steps[expression.step].type_names:
                self._settle((name, expression.field), kind, why)

    def _same(self, one: Expression, other: Expression) -> None:
        """Two fields are compared by == or !=: what is known of one holds for the other."""
        if isinstance(one, Reading) and isinstance(other, Reading):
            for left in self._steps[one.step].type_names:
                for right in self._steps[other.step].type_names:
                    a, b = self._root((left, one.field)), self._root((right, other.field))
                    if a != b:
                        known = self._known.pop(a, None)
                        self._parent[a] = b
                        if known is not None:
                            self._settle(b, *known)

    def _root(self, field: tuple[str, str]) -> tuple[str, str]:
        while field in self._parent:
            field = self._parent[field]
        return field

    def _settle(self, field: tuple[str, str], kind: str, why: str) -> None:
        if field[1] == "source":
            return
        root = self._root(field)
        known = self._known.setdefault(root, (kind, why))
        if known[0] != kind:
            name = f"{field[0]}.{field[1]}"
            raise ConfigError(
                f"the pattern uses {name!r} as a {known[0]} ({known[1]}) and as a {kind} ({why}); a comparison of a "
                f"text with a number never holds."
            )


def _check_consistent(step: Step, within: int | None) -> None:
    """Refuse a step whose comparisons with constants contradict each other."""
    low: dict[str, tuple[float, bool]] = {}
    high: dict[str, tuple[float, bool]] = {}
    texts: dict[str, set[str]] = {}
    for condition in [] if step.condition is None else conjuncts(step.condition):
        if not isinstance(condition, Comparison):
            continue
        op, left, right = condition.op, condition.left, condition.right
        if isinstance(left, Constant):
            left, right = right, left
            op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
        if not isinstance(right, Constant):
            continue
        if within is not None and _is_longer(op, left, right.value, step.name, within):
            raise ConfigError(f"step {step.name!r} can never match: `{condition}` is longer than within={within}.")
        if not isinstance(left, Reading) or left.step != step.name or left.of != "last":
            continue
        field, value = left.field, right.value
        if isinstance(value, str):
            if op == "==":
                texts.setdefault(field, set()).add(value)
            contradiction = len(texts.get(field, ())) > 1
        else:
            if op in (">", ">=", "=="):
                low[field] = max(low.get(field, (-math.inf, False)), (float(value), op == ">"))
            if op in ("<", "<=", "=="):
                high[field] = min(high.get(field, (math.inf, True)), (float(value), op != "<"))
            least, most = low.get(field, (-math.inf, False)), high.get(field, (math.inf, True))
            contradiction = least[0] > most[0] or (least[0] == most[0] and (least[1] or not most[1]))
        if contradiction:
            raise ConfigError(f"step {step.name!r} can never match: its conditions on {field!r} contradict each other.")


def _is_longer(op: str, expression: Expression, value: Any, own: str, within: int) -> bool:
    """Whether a comparison asks for more time than ``within`` between another event of the match and its own."""
    if not isinstance(expression, Arithmetic) or expression.op != "-" or op not in (">", ">=", "=="):
        return False
    if not isinstance(value, int | float) or value < within or (value == within and op != ">"):
        return False
    one, other = expression.left, expression.right
    return (
        isinstance(one, Reading) and isinstance(other, Reading)
        and one.field == other.field == "ts" and one.step == own and one.of == "last" and other.step != own
    )  # fmt: skip


def check_key(key: str, steps: Mapping[str, Step]) -> None:
    """Refuse a key that a type does not have."""
    for step in steps.values():
        for kind in step.kinds:
            check_field(kind, key, f"key={key!r} is a field of all events")
