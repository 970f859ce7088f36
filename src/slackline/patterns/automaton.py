"""The automaton of a pattern: one position per occurrence of a step, with the ordered options to continue.

It is the position (Glushkov) automaton of the pattern, with repetitions by number unrolled. A partial match stands at
the position of the event that it took last. The options of a position are ordered by preference: an event is
taken by the first option whose step it fits. So a partial match never branches, and each event begins at most one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from slackline.core.errors import ConfigError
from slackline.patterns.expressions import conjuncts
from slackline.patterns.steps import Chain, Choice, Gap, Part, Repeat, Step

#: Targets of options that are no position: the end of a fragment or of the pattern.
END = -1

MOST_POSITIONS, MOST_OPTIONS, MOST_STEPS = 2000, 62, 62


@dataclass(frozen=True, slots=True)
class Option:
    """An option to continue: to a position, or to the end.

    ``strict`` says whether another event in between rules it out (None: nothing lies between yet), ``absent`` which
    steps do.
    """

    target: int
    strict: bool | None = None
    absent: tuple[str, ...] = ()

    def after(self, strict: bool | None, absent: Iterable[str]) -> Option:
        """This option behind a gap. Behind two gaps, where an optional step was left out, it is strict if both are."""
        both = self.strict if strict is None else strict if self.strict is None else strict and self.strict
        return Option(self.target, both, tuple(dict.fromkeys((*absent, *self.absent))))


@dataclass(slots=True)
class Fragment:
    """The automaton of a part: the options at its beginning, and those of its positions; END is where it ends."""

    first: list[Option]
    follow: dict[int, list[Option]]

    @property
    def nullable(self) -> bool:
        return any(option.target == END for option in self.first)


@dataclass(slots=True)
class Automaton:
    """``start``: the options of a first event; ``options``: those of each position; ``steps``: the step of each."""

    start: list[Option] = field(default_factory=list)
    options: list[list[Option]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, part: Part) -> Automaton:
        """The automaton of a pattern."""
        builder = _Builder()
        whole = builder.fragment(part)
        if whole.nullable:
            raise ConfigError("the pattern always matches: all its steps are optional. Make at least one required.")
        options = [whole.follow[position] for position in range(len(builder.steps))]
        most = max(map(len, [whole.first, *options]))
        if most > MOST_OPTIONS:
            raise ConfigError(
                f"after one of its events the pattern may continue in {most} ways, more than {MOST_OPTIONS}; "
                f"use fewer optional steps and alternatives in a row."
            )
        return cls(whole.first, options, builder.steps)

    def completes(self, position: int) -> bool:
        """Whether a partial match is complete as soon as it reaches the position."""
        first = self.options[position][0]
        return first.target == END and not first.absent

    def waits(self, position: int) -> bool:
        """Whether a partial match may be complete at the position, but that is known only later."""
        return not self.completes(position) and any(option.target == END for option in self.options[position])

    def arrows(self) -> Iterator[tuple[int | None, Option]]:
        """All options, each with its position; None for those of the start."""
        yield from ((None, option) for option in self.start)
        for position, options in enumerate(self.options):
            yield from ((position, option) for option in options)

    def dot(self, conditions: dict[str, str]) -> str:
        """The automaton in the DOT language of Graphviz."""
        lines = ["digraph pattern {", "  rankdir=LR;", "  start [shape=point];", "  match [shape=doublecircle];"]
        for position, step in enumerate(self.steps):
            lines.append(f"  p{position} [shape=box, label={_quoted(conditions[step])}];")
        for at, option in self.arrows():
            origin = "start" if at is None else f"p{at}"
            target = "match" if option.target == END else f"p{option.target}"
            label = "" if at is None else self.label(at, option)
            style = " [style=dashed" + (f", label={_quoted(label)}" if label else "") + "]"
            plain = f" [label={_quoted(label)}]" if label else ""
            waiting = option.target == END and at is not None and not self.completes(at)
            lines.append(f"  {origin} -> {target}{style if waiting else plain};")
        return "\n".join([*lines, "}"])

    def label(self, position: int, option: Option) -> str:
        """What must hold between two events, in a few words."""
        said = ["next"] if option.strict and option.target != END else []
        said += [f"no {step}" for step in option.absent]
        if option.target == END and not self.completes(position):
            said.append("end of within" if option.absent else "no more")
        return ", ".join(said)


class _Builder:
    """Builds fragments; numbers the positions."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def fragment(self, part: Part) -> Fragment:
        if isinstance(part, Step):
            return self._step(part)
        if isinstance(part, Chain):
            return self._chain(part)
        if isinstance(part, Choice):
            made = [self.fragment(each) for each in part.parts]
            return Fragment([option for each in made for option in each.first], _united(made))
        if isinstance(part, Repeat):
            return self._repeat(part)
        raise ConfigError(f"a pattern cannot be an absence alone; got `{part}`. Begin with a step, e.g. a >> ~b.")

    def _step(self, step: Step) -> Fragment:
        position = len(self.steps)
        if position == MOST_POSITIONS:
            raise ConfigError(
                f"the pattern has more than {MOST_POSITIONS} steps, repetitions counted; repeat less often."
            )
        self.steps.append(step.name)
        return Fragment([Option(position)], {position: [Option(END)]})

    def _chain(self, chain: Chain) -> Fragment:
        (_, first), *rest = chain.items
        made = self.fragment(first)
        for gap, part in rest:
            made = _joined(made, gap, self.fragment(part))
        if chain.absent:
            made = _joined(made, Gap(False, chain.absent), Fragment([Option(END)], {}))
        return made

    def _repeat(self, repeat: Repeat) -> Fragment:
        gap = Gap(repeat.strict)
        once = self.fragment(repeat.part)
        if once.nullable:
            raise ConfigError(
                f"`{repeat.part}` can match without an event and cannot be repeated; make one of its steps required."
            )
        if repeat.most is None:
            last = replace(once)
            last.follow = {
                position: _substituted(options, _loop(once.first, gap, repeat.greedy))
                for position, options in once.follow.items()
            }
            for _ in range(repeat.least - 1):
                last = _again(self.fragment(repeat.part), gap, last)
            return last
        copies = [once, *(self.fragment(repeat.part) for _ in range(repeat.most - 1))]
        made: Fragment | None = None
        for number in range(repeat.most - 1, -1, -1):
            made = copies[number] if made is None else _again(copies[number], gap, made)
            if number >= repeat.least:
                made = Fragment(_preferred(made.first, repeat.greedy), made.follow)
        assert made is not None
        return made


def _preferred(options: list[Option], greedy: bool) -> list[Option]:
    """The options with the end before or behind them."""
    return [*options, Option(END)] if greedy else [Option(END), *options]


def _loop(first: list[Option], gap: Gap, greedy: bool) -> list[Option]:
    return _preferred([option.after(gap.strict, ()) for option in first], greedy)


def _joined(one: Fragment, gap: Gap, other: Fragment) -> Fragment:
    """One fragment after the other."""
    entry = [option.after(gap.strict, [step.name for step in gap.absent]) for option in other.first]
    return _entered(one, entry, other)


def _again(one: Fragment, gap: Gap, other: Fragment) -> Fragment:
    """A repetition and those after it. Without another one, the gap between repetitions is not there, either."""
    entry = [option if option.target == END else option.after(gap.strict, ()) for option in other.first]
    return _entered(one, entry, other)


def _entered(one: Fragment, entry: list[Option], other: Fragment) -> Fragment:
    first = _substituted(one.first, entry)
    return Fragment(first, {n: _substituted(options, entry) for n, options in one.follow.items()} | other.follow)


def _substituted(options: list[Option], entry: list[Option]) -> list[Option]:
    """The options with the end replaced by the options of what follows."""
    made: list[Option] = []
    for option in options:
        made += [each.after(option.strict, option.absent) for each in entry] if option.target == END else [option]
    return made


def _united(fragments: list[Fragment]) -> dict[int, list[Option]]:
    return {position: options for each in fragments for position, options in each.follow.items()}


def check_reachable(automaton: Automaton, steps: dict[str, Step]) -> None:
    """Refuse a pattern of which a step can never be reached: an earlier option takes each of its events."""
    reached: set[int] = set()
    shadows: dict[str, str] = {}
    todo = [automaton.start]
    while todo:
        options = todo.pop()
        for number, option in enumerate(options):
            if option.target == END:
                if number == 0 and not option.absent:
                    break  # complete at once
                continue
            taker = next((each for each in options[:number] if _shadows(automaton, each, option, steps)), None)
            if taker is not None:
                shadows.setdefault(automaton.steps[option.target], automaton.steps[taker.target])
            elif option.target not in reached:
                reached.add(option.target)
                todo.append(automaton.options[option.target])
    found = {automaton.steps[position] for position in reached}
    for step in dict.fromkeys(automaton.steps):
        if step not in found:
            by = shadows.get(step)
            why = (
                f"every event that matches it also matches {by!r}, which is tried first. Give {by!r} a condition that "
                f"excludes these events, use greedy=False, or write the common part of both once: a >> (b | c)"
                if by
                else "the pattern is complete before this step; use greedy=True for the optional part that contains it"
            )
            raise ConfigError(f"step {step!r} can never match: {why}.")


def _shadows(automaton: Automaton, one: Option, other: Option, steps: dict[str, Step]) -> bool:
    """Whether each event for ``other`` is taken by ``one``."""
    if one.target == END or (one.strict and not other.strict) or not set(one.absent) <= set(other.absent):
        return False
    taker, left = steps[automaton.steps[one.target]], steps[automaton.steps[other.target]]
    needed = {str(each) for each in conjuncts(taker.condition)} if taker.condition is not None else set()
    given = {str(each) for each in conjuncts(left.condition)} if left.condition is not None else set()
    # Conditions name their own step: those of two steps are compared with the names removed.
    needed = {re.sub(rf"\b{taker.name}\.", ".", each) for each in needed}
    given = {re.sub(rf"\b{left.name}\.", ".", each) for each in given}
    same_place = one.target == other.target
    return not same_place and set(left.type_names) <= set(taker.type_names) and needed <= given


def positions_before(automaton: Automaton) -> list[frozenset[str]]:
    """For each position the steps that may have taken an event before it."""
    before: list[set[str]] = [set() for _ in automaton.steps]
    changed = True
    while changed:
        changed = False
        for position, option in automaton.arrows():
            if position is None or option.target == END:
                continue
            more = before[position] | {automaton.steps[position]}
            if not more <= before[option.target]:
                before[option.target] |= more
                changed = True
    return [frozenset(each) for each in before]


def _quoted(label: str) -> str:
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"') + '"'
