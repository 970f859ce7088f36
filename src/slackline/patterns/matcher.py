"""A pattern at work: its plan for compiled code, its partial matches, and their state as plain arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from slackline.core.batch import Batch, Column, Ints
from slackline.core.errors import StateError
from slackline.core.time import MAX_TS
from slackline.patterns.automaton import END, Automaton, Option
from slackline.patterns.expressions import Aggregate, Expression, Reading, conjuncts
from slackline.patterns.matching import (
    ALIVE,
    ALL,
    BEGAN,
    BLOCKED,
    DEADLINE,
    FIRST_RUN,
    KEY,
    LATEST,
    MATCHES,
    NONE,
    POSITION,
    RUNS,
    SERIAL,
    SKIP_PAST_LAST,
    SKIP_TO_NEXT,
    SKIP_TO_STEP,
    Matches,
    Partial,
    Plan,
    Rows,
    compact,
    evaluate_outputs,
    expire_until,
    fit_steps,
    match_rows,
    new_stack,
)
from slackline.patterns.programs import Compiler
from slackline.patterns.steps import Step
from slackline.patterns.values import MISSING, TEXT, KeyDictionary, ValueDictionary

#: Entries of a dictionary beyond those in use that are kept before it is made anew.
SPARE = 4096

#: A match: the row at which it was found, its time, and its outputs.
Match = tuple[int, int, dict[str, Any]]

#: Rows of one type within a chunk: their numbers there, and their type, fields, sources.
Run = tuple[Ints, Batch]

#: The columns of a partial match that are state.
_SAVED = {
    "position": POSITION, "blocked": BLOCKED, "began": BEGAN, "latest": LATEST, "deadline": DEADLINE, "key": KEY,
}  # fmt: skip


class Matcher:
    """Finds the matches of one pattern in rows that come in order, in chunks of any size."""

    def __init__(
        self,
        automaton: Automaton,
        steps: Mapping[str, Step],
        types: Iterable[str],
        within: int | None,
        key: str | None,
        output: Mapping[str, Expression],
        skip: tuple[str, str | None],
    ) -> None:
        self._types = tuple(types)
        self._key = key
        self._dictionary = ValueDictionary(self._types)
        compiler = Compiler(self._dictionary)
        #: Outputs that are the key: all events of a match have the same.
        self._key_outputs = [field for field, each in output.items() if isinstance(each, Reading) and each.field == key]
        self._outputs = tuple(field for field in output if field not in self._key_outputs)
        self._programs = _table(2, [compiler.program([output[field]], None) for field in self._outputs])
        self._plan = _plan(compiler, automaton, steps, self._types, within, skip)
        self._stack = new_stack(compiler.depth)
        self.fields = tuple(compiler.columns)
        self._registers = len(compiler.registers)
        #: Values of the dictionary that are needed for ever: type names and constants.
        self._permanent = len(self._dictionary)
        self._keys = KeyDictionary() if key is not None else KeyDictionary([None])
        self._partial = _empty(64, self._registers, 64)
        self._matches = _match_room(64)
        self._value_limit = self._key_limit = SPARE

    def feed(self, ts: Ints, runs: Sequence[Run]) -> tuple[list[Match], tuple[int, int] | None]:
        """The matches that further rows complete, and the first partial match that they begin: its row and deadline.

        Each row is in one of the runs.
        """
        rows = self._rows(ts, runs)
        starts = fit_steps(self._plan, self._partial, rows, self._stack)
        self._reserve(int(starts))
        partial = self._partial
        number, serial = int(partial.marks[RUNS]), int(partial.marks[SERIAL])
        match_rows(self._plan, partial, rows, self._matches, self._stack)
        first = None
        if partial.marks[RUNS] > number:
            first = int(partial.runs[number, BEGAN]) - serial, int(partial.runs[number, DEADLINE])
        return self._found(rows), first

    def expire(self, until: int) -> list[Match]:
        """The matches that are complete because nothing came up to and including ``until``; their row is 0."""
        self._reserve(0)
        expire_until(self._plan, self._partial, self._matches, until, 0)
        return self._found(self._rows(_NO_INTS, ()))

    def deadline(self) -> int | None:
        """The earliest time at which a partial match expires."""
        partial = self._partial
        first, runs = partial.marks[FIRST_RUN], partial.marks[RUNS]
        while first < runs and not partial.runs[first, ALIVE]:
            first += 1
        partial.marks[FIRST_RUN] = first
        return int(partial.runs[first, DEADLINE]) if first < runs else None

    @property
    def partial_matches(self) -> int:
        """How many partial matches there are."""
        return len(self._alive())

    # A chunk.

    def _rows(self, ts: Ints, runs: Sequence[Run]) -> Rows:
        n = len(ts)
        types, slots = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        tags = np.full((len(self.fields), n), MISSING, dtype=np.uint8)
        ints = np.zeros((len(self.fields), n), dtype=np.int64)
        for rows, batch in runs:
            types[rows] = kind = self._types.index(batch.type)
            for number, field in enumerate(self.fields):
                if field == "type":
                    tags[number, rows], ints[number, rows] = TEXT, kind
                elif (column := _column(batch, field)) is not None:
                    tags[number, rows], ints[number, rows] = self._dictionary.encoded(column, field)
            if self._key is not None:
                slots[rows] = self._slots(batch, self._key)
        fits = np.zeros(n, dtype=np.int64)
        return Rows(np.ascontiguousarray(ts), types, fits, slots, tags, ints, ints.view(np.float64))

    def _slots(self, batch: Batch, key: str) -> Ints:
        """The number of the key of each row."""
        if key != "source":
            return self._keys.slots(batch[key].tolist() if key in batch.fields else [None] * len(batch), key)
        numbers, names = batch.sources
        if len(names) > len(numbers):
            used, numbers = np.unique(numbers, return_inverse=True)
            names = [names[number] for number in used.tolist()]
        elif None in names:
            return self._keys.slots([names[number] for number in numbers.tolist()], key)
        return self._keys.slots(names, key)[numbers]

    def _found(self, rows: Rows) -> list[Match]:
        partial, found = self._partial, int(self._partial.marks[MATCHES])
        if not found:
            self._clean()
            return []
        partial.marks[MATCHES] = 0
        numbers = self._matches.number[:found]
        shape = found, len(self._outputs)
        tags, ints, floats = np.empty(shape, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.float64)
        evaluate_outputs(self._plan, partial, numbers, self._programs, rows, tags, ints, floats, self._stack)
        decoded = self._dictionary.decoded
        matches: list[Match] = []
        where = zip(
            self._matches.row[:found].tolist(), self._matches.ts[:found].tolist(), numbers.tolist(),
            tags.tolist(), ints.tolist(), floats.tolist(), strict=True,
        )  # fmt: skip
        for row, ts, number, *values in where:
            payload = dict.fromkeys(self._key_outputs, self._keys.values[partial.runs[number, KEY]])
            for name, tag, bits, value in zip(self._outputs, *values, strict=True):
                if tag > MISSING:
                    payload[name] = decoded(tag, bits, value)
            matches.append((row, ts, payload))
        self._clean()
        return matches

    # Room.

    def _reserve(self, starts: int) -> None:
        """Make room for so many partial matches more, for all matches that may be found, and for new keys."""
        partial = self._partial
        needed = int(partial.marks[RUNS]) + starts
        room, keys = len(partial.runs), len(partial.keys)
        if needed > room or len(self._keys) > keys:
            if needed > room:
                room = max(64, 2 * (self.partial_matches + starts))
            if len(self._keys) > keys:
                keys = 2 * len(self._keys)
            self._partial = _empty(room, self._registers, keys)
            compact(partial, self._partial)
            partial = self._partial
        most = int(partial.marks[RUNS] - partial.marks[FIRST_RUN]) + starts
        if most > len(self._matches.number):
            self._matches = _match_room(2 * most)

    def _clean(self) -> None:
        """Make the dictionaries anew once they are large; those of partial matches that ended are not needed."""
        if len(self._keys) > self._key_limit and self._key is not None:
            self._clean_keys()
        if len(self._dictionary) > self._value_limit:
            self._clean_values()

    def _alive(self) -> Ints:
        partial = self._partial
        first = int(partial.marks[FIRST_RUN])
        return first + np.flatnonzero(partial.runs[first : partial.marks[RUNS], ALIVE])

    def _clean_keys(self) -> None:
        partial, alive = self._partial, self._alive()
        used, numbers = np.unique(partial.runs[alive, KEY], return_inverse=True)
        values = self._keys.values
        self._keys = KeyDictionary(values[number] for number in used.tolist())
        partial.runs[alive, KEY] = numbers
        ends = partial.keys[used]
        partial.keys[:] = NONE
        partial.keys[: len(used)] = ends
        self._key_limit = 2 * len(used) + SPARE

    def _clean_values(self) -> None:
        partial, alive = self._partial, self._alive()
        ints, is_text = partial.ints[alive], partial.tags[alive] == TEXT
        used = np.unique(np.concatenate((np.arange(self._permanent), ints[is_text])))
        values = self._dictionary.values
        self._dictionary = ValueDictionary(values[number] for number in used.tolist())
        ints[is_text] = np.searchsorted(used, ints[is_text])
        partial.ints[alive] = ints
        self._value_limit = 2 * len(used) + SPARE

    # State.

    def state(self) -> dict[str, Any]:
        """The partial matches as plain arrays, in the order in which they began."""
        alive, partial = self._alive(), self._partial
        arrays = {name: partial.runs[alive, column] for name, column in _SAVED.items()}
        tags, ints = partial.tags[alive], partial.ints[alive]
        ints[tags <= MISSING] = 0
        texts = tags == TEXT
        fixed = np.arange(self._permanent)
        arrays["key"], keys = _renumbered(arrays["key"])
        numbers, values = _renumbered(np.concatenate((fixed, ints[texts])))
        ints[texts] = numbers[self._permanent :]
        return {
            **arrays,
            "tags": tags,
            "ints": ints,
            "serial": int(partial.marks[SERIAL]),
            "keys": [self._keys.values[number] for number in keys.tolist()],
            "values": [self._dictionary.values[number] for number in values[self._permanent :].tolist()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned. Compiled code checks no index, so everything is checked here."""
        values = [*self._dictionary.values[: self._permanent], *state["values"]]
        keys, serial = list(state["keys"]) if self._key is not None else [None], int(state["serial"])
        columns = {name: np.ascontiguousarray(state[name], dtype=np.int64) for name in _SAVED}
        tags = np.ascontiguousarray(state["tags"], dtype=np.uint8)
        ints = np.ascontiguousarray(state["ints"], dtype=np.int64)
        n = len(tags)
        _check(all(column.shape == (n,) for column in columns.values()), "arrays of different lengths")
        _check(tags.shape == ints.shape == (n, self._registers), "a different number of registers")
        for name, numbers, limit in (
            ("position", columns["position"], len(self._plan.positions) - 1),
            ("key", columns["key"], len(keys)),
            ("text", ints[tags == TEXT], len(values)),
            ("kind", tags, TEXT + 1),
            ("serial number", columns["began"], serial),
        ):
            _check(not numbers.size or (numbers.min() >= 0 and numbers.max() < limit), f"an invalid {name}")
        _check(bool(np.all(columns["deadline"] <= MAX_TS)), "an invalid deadline")
        self._dictionary, self._keys = ValueDictionary(values), KeyDictionary(keys)
        unique = len(self._keys.numbers) == len(keys) and len(self._dictionary.numbers) == len(values)
        _check(unique, "a duplicate value")
        saved = _empty(n, self._registers, 0)
        saved.runs[:, ALIVE] = True
        for name, column in _SAVED.items():
            saved.runs[:, column] = columns[name]
        saved.tags[:], saved.ints[:] = tags, ints
        saved.marks[RUNS], saved.marks[SERIAL] = n, serial
        self._partial = _empty(max(64, 2 * n), self._registers, max(64, 2 * len(keys)))
        compact(saved, self._partial)
        self._key_limit, self._value_limit = 2 * len(keys) + SPARE, 2 * len(values) + SPARE


def _renumbered(numbers: Ints) -> tuple[Ints, Ints]:
    """Dense numbers in the order of first appearance, and for each of them the old one."""
    used, first, place = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[place], used[order]


_NO_INTS: Ints = np.empty(0, dtype=np.int64)


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise StateError(f"the saved state of a pattern has {what}: it is corrupt or was written by different code.")


def _column(batch: Batch, field: str) -> Column | None:
    """A field of the events: of the payload, or their time or source; None if they have no such field."""
    if field == "ts":
        return batch.ts
    if field == "source":
        return batch.source
    return batch[field] if field in batch.fields else None


def _empty(room: int, registers: int, keys: int) -> Partial:
    """Arrays for partial matches."""
    ints = np.zeros((room, registers), dtype=np.int64)
    return Partial(
        np.zeros((room, 9), dtype=np.int64), np.zeros((room, registers), dtype=np.uint8), ints, ints.view(np.float64),
        np.full((keys, 2), NONE, dtype=np.int64), np.zeros(5, dtype=np.int64),
    )  # fmt: skip


def _match_room(n: int) -> Matches:
    return Matches(*(np.zeros(n, dtype=np.int64) for _ in range(3)))


# The plan.


def _plan(
    compiler: Compiler,
    automaton: Automaton,
    steps: Mapping[str, Step],
    types: tuple[str, ...],
    within: int | None,
    skip: tuple[str, str | None],
) -> Plan:
    """The plan; its code contains what the compiler has compiled before, too."""
    numbers = {name: number for number, name in enumerate(steps)}
    programs = []
    for name, step in steps.items():
        own, others = _split(step)
        programs.append((*compiler.program(own, name), *compiler.program(others, name)))
    strategy, of = skip
    register = NONE
    if of is not None:
        register = compiler.register(of, "", "first serial" if strategy == "to_first" else "last serial")
    taking = set(automaton.steps)
    updates = [compiler.updates(name) if name in taking else [] for name in steps]
    lists = [*automaton.options, automaton.start]
    options = [option for each in lists for option in each]
    absent = [[numbers[step] for step in option.absent] for option in options]
    tags, ints = compiler.constant_arrays()
    return Plan(
        steps=_table(
            7,
            (
                (sum(1 << types.index(kind) for kind in step.type_names), *ranges, *updated)
                for step, ranges, updated in zip(steps.values(), programs, _ranges(updates), strict=True)
            ),
        ),
        positions=_table(
            5,
            (
                (*some, numbers[step] if step else NONE, completes, _wanted(automaton, each, numbers))
                for some, each, step, completes in zip(
                    _ranges(lists),
                    lists,
                    [*automaton.steps, ""],
                    [*map(automaton.completes, range(len(automaton.steps))), False],
                    strict=True,
                )
            ),
        ),
        options=_table(
            4, ((each.target, bool(each.strict), *some) for each, some in zip(options, _ranges(absent), strict=True))
        ),
        absent=np.array([step for each in absent for step in each], dtype=np.int64),
        updates=_table(3, (update for each in updates for update in each)),
        code=_table(2, compiler.code),
        constant_tags=tags,
        constant_ints=ints,
        constant_floats=ints.view(np.float64),
        strict=any(option.strict for option in options),
        within=NONE if within is None else within,
        skip={"to_next": SKIP_TO_NEXT, "past_last": SKIP_PAST_LAST}.get(strategy, SKIP_TO_STEP),
        skip_register=register,
    )


def _wanted(automaton: Automaton, options: list[Option], numbers: Mapping[str, int]) -> int:
    """The steps of which an event changes a partial match with these options, as bits."""
    if any(option.strict for option in options):
        return ALL
    steps = {automaton.steps[option.target] for option in options if option.target != END}
    steps.update(step for option in options for step in option.absent)
    return sum(1 << numbers[step] for step in steps)


def _table(width: int, rows: Iterable[tuple[int, ...]]) -> Ints:
    return np.array(list(rows), dtype=np.int64).reshape(-1, width)


def _ranges(lists: Iterable[Sequence[Any]]) -> list[tuple[int, int]]:
    """Where each of the lists is in their concatenation."""
    return list(pairwise(accumulate(map(len, lists), initial=0)))


def _split(step: Step) -> tuple[list[Expression], list[Expression]]:
    """The conditions on the event alone, and those that involve other events of the match."""
    own: list[Expression] = []
    joint: list[Expression] = []
    for condition in [] if step.condition is None else conjuncts(step.condition):
        alone = all(
            each.step == step.name and each.of == "last" for each in condition.walk() if isinstance(each, Reading)
        ) and not any(isinstance(each, Aggregate) for each in condition.walk())
        (own if alone else joint).append(condition)
    return own, joint
