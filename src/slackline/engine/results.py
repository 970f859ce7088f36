"""Results of an engine: outputs, late events, quarantined events, duplicates, and failures of detectors.

Operators run level by level, but outputs are returned in the order of arrival positions.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from slackline.core.errors import DetectorError
from slackline.core.event import Event
from slackline.core.outcome import NO_KEY, Drained, Duplicate, Late, Output, Quarantined, id_of
from slackline.core.time import NEVER, is_date
from slackline.engine.intake import CONVERT_DATES
from slackline.engine.progress import ProgressExport
from slackline.ordering import checked
from slackline.ordering.input import SensorInput
from slackline.ordering.sources import total_order
from slackline.running.found import Fired
from slackline.running.instances import RefusedKeyError
from slackline.running.operator import Operator
from slackline.running.runner import Failure

RAISED = "detector raised"

T = TypeVar("T")


class Results:
    """Collects results and returns them in order."""

    def __init__(self, progress: ProgressExport, keeps_duplicates: bool, delivers_late: bool) -> None:
        #: What other engines need to know.
        self.progress = progress
        #: Whether duplicates are collected until they are drained; the intake counts them.
        self.keeps_duplicates = keeps_duplicates
        #: Whether late events are delivered to their detectors; else they are collected until they are drained.
        self.delivers_late = delivers_late
        self._outputs: list[tuple[int, int, Output]] = []  # with position and rank of the detector, to sort by
        self._late: list[tuple[int, int, Late]] = []
        self._quarantined: list[tuple[int, Quarantined]] = []
        self._duplicates: list[Duplicate] = []
        self._failures: list[tuple[str, Failure]] = []
        self._warned_of_dates = False
        #: Whether anything was collected since the results of a push were last returned.
        self.changed = False
        #: Number of quarantined events in total, by reason.
        self.reasons: Counter[str] = Counter()
        #: The reason of the flush in progress, if any; number of flushed events, by reason.
        self._flushing: str | None = None
        self.flushed: Counter[str] = Counter()

    # Collecting.

    def insert(self, operator: Operator, event: Event, position: int, clk: int, delayed: int) -> None:
        """A detector has published a final event; deferral delayed it by ``delayed``."""
        detected_at = event.ts if clk == NEVER else clk
        output = Output("insert", id_of(event), event, True, detected_at, operator.name, self._flushing, delayed)
        self._outputs.append((position, operator.rank, output))
        self.changed = True
        if event.type in self.progress.exported:
            self.progress.published(event)

    def late_for(self, operator: Operator, event: Event, watermark: int, position: int) -> None:
        """An event is late for a detector: divert it, or deliver it to the detector out of order."""
        operator.buffer.add_late(event, position, self.delivers_late)
        if not self.delivers_late:
            self.changed = True
            late = Late(event, watermark - event.ts, operator.name, position)
            self._late.append((position, operator.rank, late))

    def divert_type(
        self, input: SensorInput, events: Iterable[Event], watermarks: list[int], positions: list[int]
    ) -> None:
        """Events are late for their type, at these watermarks of the input."""
        input.count_late(len(positions))
        self.changed = True
        for event, watermark, position in zip(events, watermarks, positions, strict=True):
            self._late.append((position, -1, Late(event, watermark - event.ts, None, position)))

    def quarantine(self, event: Event, reason: str, detail: str, position: int, detector: str | None = None) -> None:
        """An event is invalid, or a detector raised on it."""
        self._quarantined.append((position, Quarantined(event, reason, detail, detector, position)))
        self.changed = True
        self.reasons[reason] += 1
        if is_date(event.ts) and not self._warned_of_dates:
            self._warned_of_dates = True
            warnings.warn(f"events whose ts is a date are quarantined; {CONVERT_DATES}", stacklevel=_users_level())

    def repeat(self, event: Event, position: int) -> None:
        """An event is a duplicate."""
        if self.keeps_duplicates:
            self.changed = True
            self._duplicates.append(Duplicate(event, position))

    def fail(self, operator: Operator, position: Callable[[int | Fired], int]) -> None:
        """A detector raised, or refused keys; ``position`` gives that of a row it was fed, or of a timer."""
        for failure in operator.runner.pop_failures():
            if isinstance(failure.cause, RefusedKeyError):
                self.quarantine(failure.event, NO_KEY[0], str(failure.cause), position(failure.row), operator.name)
                continue
            detail = f"{operator.name} raised {type(failure.cause).__name__}: {failure.cause}"
            self.quarantine(failure.event, RAISED, detail, position(failure.row), operator.name)
            self._failures.append((operator.name, failure))

    @contextmanager
    def flushing(self, reason: str) -> Iterator[None]:
        """What is inserted meanwhile is so because of a flush."""
        self._flushing = reason
        try:
            yield
        finally:
            self._flushing = None

    def count_flushed(self, reason: str, events: int) -> None:
        """So many events were flushed."""
        self.flushed[reason] += events

    # Returning.

    def pop_outputs(self) -> list[Output]:
        """The outputs since the last call, in the order of positions."""
        self.changed = False
        if not self._outputs:
            return []
        self._outputs.sort(key=lambda item: item[:2])
        outputs, self._outputs = [output for *_, output in self._outputs], []
        return outputs

    def pop_failure(self) -> DetectorError | None:
        """The first failure since the last call, as the error to raise."""
        if not self._failures:
            return None
        failures, self._failures = self._failures, []
        name, first = failures[0]
        alike = sum(other == name for other, _ in failures)
        return DetectorError(name, first.event, first.state_size, first.cause, alike)

    @property
    def uncollected(self) -> int:
        """Number of events that were not drained, or not exported to other engines, yet."""
        return len(self._late) + len(self._quarantined) + len(self._duplicates) + self.progress.pending

    def describe_uncollected(self) -> str:
        """What was not collected, and the method that collects it."""
        aside = f"{len(self._late)} late, {len(self._quarantined)} quarantined and {len(self._duplicates)} duplicate"
        cause, unsent = f"{aside} events were not collected: call engine.drain().", self.progress.pending
        if unsent:
            return f"{unsent} events for other engines were not collected: call engine.host.progress_updates(). {cause}"
        return cause

    @property
    def late(self) -> list[Late]:
        by_event = sorted(self._late, key=lambda entry: total_order(entry[2].event))
        return [item for *_, item in sorted(by_event, key=lambda entry: entry[:2])]

    @property
    def quarantined(self) -> list[Quarantined]:
        return [item for _, item in sorted(self._quarantined, key=lambda entry: entry[0])]

    def drain(self) -> Drained:
        """Remove and return late, quarantined and duplicate events."""
        if not (self._late or self._quarantined or self._duplicates):
            return Drained([], [], [])
        taken = Drained(self.late, self.quarantined, sorted(self._duplicates, key=lambda item: item.position or 0))
        self._late, self._quarantined, self._duplicates = [], [], []
        return taken

    # Checkpoints. Between two pushes there are no outputs.

    def state(self) -> dict[str, Any]:
        return {
            "late": [(position, rank, tuple(late)) for position, rank, late in self._late],
            "quarantined": [(position, tuple(item)) for position, item in self._quarantined],
            "duplicates": [tuple(item) for item in self._duplicates],
            "reasons": dict(self.reasons),
            "flushed": dict(self.flushed),
        }

    def restore(self, state: dict[str, Any]) -> None:
        what = "results"
        self._late = [
            (position, rank, _restored(Late, item, "lateness", int))
            for position, rank, item in checked.items(state, what, "late")
        ]
        self._quarantined = [
            (position, _restored(Quarantined, item, "reason", str))
            for position, item in checked.items(state, what, "quarantined")
        ]
        self._duplicates = [
            _restored(Duplicate, item, "position", int) for item in checked.items(state, what, "duplicates")
        ]
        self.reasons, self.flushed = (Counter(checked.entry(state, what, name)) for name in ("reasons", "flushed"))

        numbers = [n for position, rank, late in self._late for n in (position, rank, late.event.ts)]
        numbers += [position for position, _ in self._quarantined]
        words = all(type(reason) is str for reason in (*self.reasons, *self.flushed))
        numbers += [*self.reasons.values(), *self.flushed.values()]
        if not words or not all(type(number) is int for number in numbers):
            raise checked.wrong(what, "contain counts or positions that are not numbers")


def _users_level() -> int:
    """The stack level, for the caller's warning, of the first line outside this package."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__.partition(".")[0]:
        frame, level = frame.f_back, level + 1
    return level


def _restored(kind: Callable[..., T], item: Any, field: str, of: type) -> T:
    """A saved item of a side output, if it holds an event, and this field is of this type."""
    restored: Any = kind(*item)
    if type(restored.event) is not Event or type(getattr(restored, field)) is not of:
        raise checked.wrong("results", f"contain {restored!r:.80}")
    made: T = restored
    return made
