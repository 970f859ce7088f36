"""What comes out of an engine: found, late, quarantined and repeated events, failures of detectors, and news.

Parts are run level by level, but what they find comes out in the order of arrival positions. Nobody else keeps results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from slackline.core.errors import DetectorError
from slackline.core.event import Event
from slackline.core.outcome import Drained, Duplicate, Late, Output, ProgressUpdate, Quarantined, id_of
from slackline.core.time import MAX_TS, NEVER
from slackline.engine.entered import Entered
from slackline.ordering import checked
from slackline.ordering.sources import total_order
from slackline.running.operator import Operator
from slackline.running.runner import Failure

RAISED = "detector raised"


class Outbox:
    """Collects results, sorts them, and gives them away."""

    def __init__(self, keeps_duplicates: bool = False) -> None:
        #: Whether duplicates are collected until they are drained; they are counted elsewhere.
        self.keeps_duplicates = keeps_duplicates
        #: What has entered here and other engines were not told yet, where sensor types enter at several.
        self.entered = Entered({}, {})
        self._told: dict[str, tuple[int, int, int]] = {}  # by type: watermark, back and stream time of the last news
        self._found: list[tuple[int, int, Output]] = []  # with position and rank of the detector, to sort by
        self._late: list[tuple[int, int, Late]] = []
        self._quarantined: list[tuple[int, Quarantined]] = []
        self._duplicates: list[Duplicate] = []
        self._failures: list[tuple[str, Failure]] = []
        #: How many events were quarantined in all, by reason.
        self.reasons: Counter[str] = Counter()
        #: Why what waits goes now, though something earlier might come; and how many events went so, by reason.
        self.flushing: str | None = None
        self.flushed: Counter[str] = Counter()
        #: Events and warnings of the types that other engines listen to, until they are told.
        self._unsent: dict[str, tuple[list[Event], list[int]]] = {}

    # In.

    def insert(self, part: Operator, event: Event, position: int, clk: int, delayed: int) -> None:
        """A detector has found something that is certain, so much later than it would have, had nobody been held up."""
        detected_at = event.ts if clk == NEVER else clk
        output = Output("insert", id_of(event), event, True, detected_at, part.name, self.flushing, delayed)
        self._found.append((position, part.rank, output))
        if event.type in self._unsent:
            self._unsent[event.type][0].append(event)

    def warn(self, kind: str, ts: int) -> None:
        """Events of a type may be as late as one of this time stamp would be."""
        if kind in self._unsent:
            self._unsent[kind][1].append(ts)

    def export(self, kinds: Iterable[str]) -> None:
        """Keep news of these types from now on, and of no others."""
        self._unsent = {kind: self._unsent.get(kind, ([], [])) for kind in kinds}
        self._told = {}

    def divert(self, part: Operator | None, event: Event, watermark: int, position: int) -> None:
        """An event came too late for a detector; None: for its type."""
        rank, name = (-1, None) if part is None else (part.rank, part.name)
        self._late.append((position, rank, Late(event, watermark - event.ts, name, position)))

    def quarantine(self, event: Event, reason: str, detail: str, position: int, detector: str | None = None) -> None:
        """An event cannot be taken."""
        self._quarantined.append((position, Quarantined(event, reason, detail, detector, position)))
        self.reasons[reason] += 1

    def repeat(self, event: Event, position: int) -> None:
        """An event is a duplicate; ``event`` is as it would have been taken."""
        if self.keeps_duplicates:
            self._duplicates.append(Duplicate(event, position))

    def fail(self, part: Operator, positions: Sequence[int]) -> None:
        """A detector raised on events; ``positions`` are those of the rows it was fed."""
        for failure in part.runner.take_failures():
            detail = f"{part.name} raised {type(failure.cause).__name__}: {failure.cause}"
            self.quarantine(failure.event, RAISED, detail, positions[failure.row], part.name)
            self._failures.append((part.name, failure))

    # Out.

    def take(self) -> list[Output]:
        """What was found since the last call, in the order of positions."""
        if not self._found:
            return []
        self._found.sort(key=lambda item: item[:2])
        taken, self._found = [output for *_, output in self._found], []
        return taken

    def take_failure(self) -> DetectorError | None:
        """The first failure since the last call, as the error to raise."""
        if not self._failures:
            return None
        failures, self._failures = self._failures, []
        name, first = failures[0]
        alike = sum(other == name for other, _ in failures)
        return DetectorError(name, first.event, first.state_size, first.cause, alike)

    @property
    def exported(self) -> frozenset[str]:
        """The types of which news is kept."""
        return frozenset(self._unsent)

    def unsent(self, kinds: Iterable[str]) -> dict[str, tuple[list[Event], list[int]]]:
        """Events and warnings of some types that nobody was told yet."""
        return {kind: self._unsent.get(kind, ([], [])) for kind in kinds}

    def send_again(self, updates: Iterable[ProgressUpdate]) -> None:
        """Keep news that another engine had kept."""
        for item in updates:
            if item.type in self._unsent:
                self._unsent[item.type] = list(item.events), list(item.warnings)

    def take_news(self, kind: str) -> tuple[tuple[Event, ...], tuple[int, ...]]:
        """Events and warnings of a type since the last call."""
        events, warnings = self._unsent[kind]
        self._unsent[kind] = [], []
        return tuple(events), tuple(warnings)

    def is_new(self, item: ProgressUpdate) -> bool:
        """Whether news is other than the last of its type; it is the last now."""
        said = item.watermark, item.back, item.clk
        before, self._told[item.type] = self._told.get(item.type), said
        return bool(len(item.events) or item.warnings or said != before)

    @property
    def held(self) -> tuple[int, int, int, int]:
        """How many late, quarantined, duplicate and unsent events are kept here until they are collected."""
        unsent = sum([len(events) for events, _ in self._unsent.values()]) if self._unsent else 0
        return len(self._late), len(self._quarantined), len(self._duplicates), unsent + self.entered.rows

    @property
    def late(self) -> list[Late]:
        by_event = sorted(self._late, key=lambda entry: total_order(entry[2].event))
        return [item for *_, item in sorted(by_event, key=lambda entry: entry[:2])]

    @property
    def quarantined(self) -> list[Quarantined]:
        return [item for _, item in sorted(self._quarantined, key=lambda entry: entry[0])]

    def drain(self) -> Drained:
        """Give away what was set aside."""
        taken = Drained(self.late, self.quarantined, sorted(self._duplicates, key=lambda item: item.position or 0))
        self._late, self._quarantined, self._duplicates = [], [], []
        return taken

    # Checkpoints. Between two pushes nothing that was found is left.

    def state(self) -> dict[str, Any]:
        return {
            "late": [(position, rank, tuple(late)) for position, rank, late in self._late],
            "quarantined": [(position, tuple(item)) for position, item in self._quarantined],
            "duplicates": [tuple(item) for item in self._duplicates],
            "reasons": dict(self.reasons),
            "flushed": dict(self.flushed),
            "unsent": dict(self._unsent),
            "entered": self.entered.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        what = "what was set aside"
        self._late = [(p, rank, _late(item, what)) for p, rank, item in checked.items(state, what, "late")]
        aside = checked.items(state, what, "quarantined")
        self._quarantined = [(position, _quarantined(item, what)) for position, item in aside]
        self._duplicates = [_duplicate(item, what) for item in checked.items(state, what, "duplicates")]
        self.reasons, self.flushed = (Counter(checked.entry(state, what, name)) for name in ("reasons", "flushed"))
        for kind, unsent in self.checked_unsent(checked.entry(state, what, "unsent"), self._unsent).items():
            self._unsent[kind] = unsent
        self.entered.restore(checked.entry(state, what, "entered"))
        numbers = [*(n for *pair, _ in self._late for n in pair), *(p for p, _ in self._quarantined)]
        words = all(type(reason) is str for reason in (*self.reasons, *self.flushed))
        numbers += [*self.reasons.values(), *self.flushed.values()]
        if not words or not all(type(number) is int for number in numbers):
            raise checked.wrong(what, "is not counted right")

    @staticmethod
    def checked_unsent(state: Any, kinds: Iterable[str]) -> dict[str, tuple[list[Event], list[int]]]:
        """Unsent events and warnings of these types, from a checkpoint."""
        unsent = {}
        for kind in kinds:
            events, warnings = map(list, state.get(kind, ((), ())))
            whole = [event for event in events if type(event) is Event and event.type == kind and type(event.ts) is int]
            if len(whole) < len(events) or not all(type(ts) is int and NEVER <= ts <= MAX_TS for ts in warnings):
                raise checked.wrong(f"news of type {kind!r}", "is none")
            unsent[kind] = events, warnings
        return unsent


def _late(item: Any, what: str) -> Late:
    late = Late(*item)
    if type(late.event) is not Event or type(late.event.ts) is not int or type(late.lateness) is not int:
        raise checked.wrong(what, "holds what is no late event")
    total_order(late.event)
    return late


def _quarantined(item: Any, what: str) -> Quarantined:
    quarantined = Quarantined(*item)
    if type(quarantined.event) is not Event or type(quarantined.reason) is not str:
        raise checked.wrong(what, "holds what is no quarantined event")
    return quarantined


def _duplicate(item: Any, what: str) -> Duplicate:
    duplicate = Duplicate(*item)
    if type(duplicate.event) is not Event or type(duplicate.position) is not int:
        raise checked.wrong(what, "holds what is no duplicate")
    return duplicate
