"""The definition of a match (docs/concepts/patterns.md) by enumeration, without an automaton and without columns.

All words of the pattern are listed, each is laid over the events in every possible way, and what violates a rule is
dropped. Slow, and short enough to be compared with the definition line by line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from slackline import Event
from slackline.patterns import Expression, Pattern, Step
from slackline.patterns.expressions import (
    Absolute,
    Aggregate,
    Arithmetic,
    Comparison,
    Constant,
    Logic,
    Missing,
    Reading,
)
from slackline.patterns.steps import Chain, Choice, Part, Repeat

#: A gap: whether it is strict (None: no gap yet), and the steps that are absent in it.
Gap = tuple[bool | None, tuple[Step, ...]]
NO_GAP: Gap = (None, ())


@dataclass(frozen=True, eq=False)
class Letter:
    """One step of a word: the gap before it, where in the pattern it stands, and the step."""

    gap: Gap
    place: tuple[Any, ...]
    step: Step


@dataclass(frozen=True, eq=False)
class Word:
    """One way through the pattern, and the gap behind its last step."""

    letters: tuple[Letter, ...]
    behind: Gap


def joined(one: Gap, other: Gap) -> Gap:
    """Two gaps without an event between them."""
    strict = other[0] if one[0] is None else one[0] if other[0] is None else one[0] and other[0]
    return strict, (*one[1], *other[1])


def words(part: Part, longest: int, place: tuple[Any, ...] = ()) -> list[Word]:
    """All words of a part with at most ``longest`` letters, the preferred first."""
    if isinstance(part, Step):
        return [Word((Letter(NO_GAP, place, part),), NO_GAP)]
    if isinstance(part, Choice):
        return [word for n, each in enumerate(part.parts) for word in words(each, longest, (*place, n))]
    if isinstance(part, Chain):
        found = [Word((), NO_GAP)]
        for n, (gap, each) in enumerate(part.items):
            between = (gap.strict, gap.absent) if n else NO_GAP
            found = [
                concatenated(head, between, tail)
                for head in found
                for tail in words(each, longest, (*place, n))
                if len(head.letters) + len(tail.letters) <= longest
            ]
        if part.absent:
            found = [Word(word.letters, joined(word.behind, (False, part.absent))) for word in found]
        return found
    assert isinstance(part, Repeat)
    return list(repeated(part, longest, 0, place))


def repeated(part: Repeat, longest: int, done: int, place: tuple[Any, ...]) -> Iterator[Word]:
    """The words of a repetition after ``done`` of them."""
    empty = [Word((), NO_GAP)] if done >= part.least else []
    if part.greedy is False:
        yield from empty
    if done != part.most and longest > 0:
        for head in words(part.part, longest, (*place, done)):
            for tail in repeated(part, longest - len(head.letters), done + 1, place):
                yield concatenated(head, (part.strict, ()) if tail.letters else NO_GAP, tail)
    if part.greedy is not False:
        yield from empty


def concatenated(head: Word, gap: Gap, tail: Word) -> Word:
    if not tail.letters:
        return Word(head.letters, joined(joined(head.behind, gap), tail.behind))
    first, *rest = tail.letters
    before = joined(joined(head.behind, gap), first.gap)
    return Word((*head.letters, Letter(before, first.place, first.step), *rest), tail.behind)


# Values.


def value(expression: Expression, taken: list[tuple[Step, Event]], own: Step | None, event: Event | None) -> Any:
    """The value of an expression, None if it is missing."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Reading):
        if expression.of == "previous":
            return field(taken[-1][1], expression.field) if taken else None
        events = events_of(expression.step, taken, own, event)
        return field(events[0 if expression.of == "first" else -1], expression.field) if events else None
    if isinstance(expression, Aggregate):
        events = events_of(expression.step, taken, own, event)
        if expression.name == "count":
            return len(events)
        values = [found for each in events if (found := field(each, expression.field)) is not None]
        if not values:
            return None
        return {"sum": sum, "min": min, "max": max, "mean": lambda all: sum(all) / len(all)}[expression.name](values)
    parts = [value(operand, taken, own, event) for operand in expression.operands()]
    if isinstance(expression, Missing):
        return parts[0] is None
    if isinstance(expression, Logic):
        return {"and": all, "or": any, "not": lambda some: not some[0]}[expression.op](parts)
    if None in parts:
        return False if isinstance(expression, Comparison) else None
    if isinstance(expression, Absolute):
        return abs(parts[0])
    one, other = parts
    if isinstance(expression, Comparison):
        if isinstance(one, str) != isinstance(other, str):
            return False
        return {
            "<": lambda: one < other, "<=": lambda: one <= other, ">": lambda: one > other, ">=": lambda: one >= other,
            "==": lambda: one == other, "!=": lambda: one != other,
        }[expression.op]()  # fmt: skip
    assert isinstance(expression, Arithmetic)
    if expression.op in ("/", "//", "%") and other == 0:
        return None
    return {
        "+": lambda: one + other, "-": lambda: one - other, "*": lambda: one * other, "/": lambda: one / other,
        "//": lambda: one // other, "%": lambda: one % other,
    }[expression.op]()  # fmt: skip


def events_of(step: str, taken: list[tuple[Step, Event]], own: Step | None, event: Event | None) -> list[Event]:
    events = [each for name, each in taken if name.name == step]
    return [*events, event] if own is not None and own.name == step and event is not None else events


def field(event: Event, name: str) -> Any:
    found = getattr(event, name) if name in ("ts", "source", "type") else event.get(name)
    return None if isinstance(found, float) and math.isnan(found) else found


def fits(step: Step, event: Event, taken: list[tuple[Step, Event]]) -> bool:
    return event.type in step.type_names and (step.condition is None or bool(value(step.condition, taken, step, event)))


# Matches.


@dataclass
class Found:
    """A match: the indices of its events, what it took, and when it was complete: at an event, or by its deadline."""

    at: tuple[int, ...]
    taken: list[tuple[Step, Event]]
    order: tuple[int, ...]
    ts: int


class Enumeration:
    """All matches in the events of one key."""

    def __init__(self, part: Part, within: int | None, events: list[Event]) -> None:
        self.within, self.events = within, events
        self.words = words(part, len(events) + 1)

    def options(self, prefix: tuple[Letter, ...]) -> list[Letter | Gap]:
        """What may follow a beginning of a word, the preferred first: a letter, or the gap behind the whole word."""
        n = len(prefix)
        places = [letter.place for letter in prefix]
        found: list[Letter | Gap] = []
        for word in self.words:
            if [letter.place for letter in word.letters[:n]] != places:
                continue
            if len(word.letters) == n:
                found.append(word.behind)
            elif all(not isinstance(each, Letter) or each.place != word.letters[n].place for each in found):
                found.append(word.letters[n])
        return found

    def open(self, gap: Gap, taken: list[tuple[Step, Event]], after: int, until: int) -> bool:
        """Whether a gap allows the events strictly between two indices."""
        between = self.events[after + 1 : until]
        return not (gap[0] and between) and not any(fits(step, event, taken) for event in between for step in gap[1])

    def choice(
        self, options: list[Letter | Gap], taken: list[tuple[Step, Event]], after: int, at: int
    ) -> Letter | None:
        """The letter that takes an event."""
        for option in options:
            is_open = isinstance(option, Letter) and self.open(option.gap, taken, after, at)
            if isinstance(option, Letter) and is_open and fits(option.step, self.events[at], taken):
                return option
        return None

    def all(self) -> list[Found]:
        found = []
        for word in self.words:
            for at in combinations(range(len(self.events)), len(word.letters)):
                if at and (match := self.match(word, at)) is not None:
                    found.append(match)
        starts = [match.at[0] for match in found]
        assert len(set(starts)) == len(starts), "an event begins at most one match"
        return found

    def match(self, word: Word, at: tuple[int, ...]) -> Found | None:
        """The word laid over these events, if that is a match."""
        deadline = self.events[at[0]].ts + self.within if self.within is not None else None
        taken: list[tuple[Step, Event]] = []
        for n, letter in enumerate(word.letters):
            options = self.options(word.letters[:n])
            if n == 0:
                first = next(o for o in [*options, None] if o is None or fits(o.step, self.events[at[0]], []))
                if first is not letter and (first is None or first.place != letter.place):
                    return None
            else:
                if complete_at_once(options):
                    return None
                for between in range(at[n - 1] + 1, at[n]):
                    if self.choice(options, taken, at[n - 1], between) is not None:
                        return None
                chosen = self.choice(options, taken, at[n - 1], at[n])
                if chosen is None or chosen.place != letter.place:
                    return None
            event = self.events[at[n]]
            if deadline is not None and event.ts > deadline:
                return None
            taken.append((letter.step, event))
        return self.end(word, at, taken, deadline)

    def end(
        self, word: Word, at: tuple[int, ...], taken: list[tuple[Step, Event]], deadline: int | None
    ) -> Found | None:
        options, last = self.options(word.letters), at[-1]
        if complete_at_once(options):
            return Found(at, taken, (self.events[last].ts, 0, last), self.events[last].ts)
        behind = next(option for option in options if not isinstance(option, Letter))
        for after in range(last + 1, len(self.events)):
            event = self.events[after]
            if deadline is not None and event.ts > deadline:
                break
            if self.choice(options, taken, last, after) is not None:
                return None
            if not self.open((False, behind[1]), taken, last, after + 1):
                return None
            going_on = [o for o in options if isinstance(o, Letter) and self.open(o.gap, taken, last, after + 1)]
            if not going_on and not behind[1]:
                return Found(at, taken, (event.ts, 0, after), event.ts)
        return None if deadline is None else Found(at, taken, (deadline, 1, 0), deadline)


def complete_at_once(options: list[Letter | Gap]) -> bool:
    return not isinstance(options[0], Letter) and not options[0][1]


def matches(pattern: Pattern, events: list[Event]) -> list[tuple[int, dict[str, Any]]]:
    """The time and payload of all matches of a pattern, in the order in which they are published."""
    key, (strategy, step) = pattern._key, pattern._skip
    keys: dict[Any, list[int]] = {}
    for number, event in enumerate(events):
        keys.setdefault(None if key is None else field(event, key), []).append(number)
    found: list[tuple[tuple[int, ...], Any, Found, tuple[int, ...]]] = []
    for of, numbers in keys.items():
        for match in Enumeration(pattern._part, pattern._within, [events[number] for number in numbers]).all():
            time, by_deadline, at = match.order
            place = (time, by_deadline, 0 if by_deadline else numbers[at], numbers[match.at[0]])
            found.append((place, of, match, tuple(numbers[n] for n in match.at)))
    published = []
    barred: dict[Any, int] = {}
    for _, of, match, at in sorted(found, key=lambda each: each[0]):
        if at[0] <= barred.get(of, -1):
            continue
        if strategy == "past_last":
            barred[of] = at[-1]
        elif strategy != "to_next":
            of_step = [n for n, (each, _) in zip(at, match.taken, strict=True) if each.name == step]
            if of_step:
                barred[of] = max(barred.get(of, -1), (of_step[0] if strategy == "to_first" else of_step[-1]) - 1)
        payload = {name: value(each, match.taken, None, None) for name, each in pattern._output.items()}
        if not payload and key is not None:
            payload = {key: of}
        published.append((match.ts, {name: each for name, each in payload.items() if each is not None}))
    return published
