"""Why an event waited, why it was late, and what a result comes from: answers from a trace.

A trace (:mod:`slackline.runtime.trace`) has what engines were given. :func:`explain` gives it to observed engines of
the same application, which decide the same, and asks them. Answers are plain data, as ``slackline explain --json``
prints them; :mod:`slackline.report.explain` writes them as text and as a page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slackline.core import codec
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Duplicate, id_of
from slackline.core.payload import to_json
from slackline.core.time import FOREVER, NEVER, time_stamp
from slackline.engine.observed import Fate, Lineage, ObservedEngine, Waited
from slackline.engine.rows import NUMBERS, TimeForm, form_of
from slackline.ordering.delay_pool import DelayPool
from slackline.runtime.trace import TraceError, read_trace

VERSION = 1
#: Events that one question may match, and the longest waits and late events of a summary.
ANSWERS, SHOWN = 20, 5

_EVENT = re.compile(r"(?P<type>[^\s@/#:]+)(/(?P<source>[^#@]+))?(#(?P<seq>\d+))?@(?P<ts>.+)")


class Explained:
    """A trace, replayed. Made by :func:`explain`."""

    def __init__(self, answers: list[_Answer]) -> None:
        self._answers = answers  # a key whose state has expired has several, one after the other

    def event(self, asked: str, key: Any = None) -> list[dict[str, Any]]:
        """What became of each event that matches, and what it comes from if it is a result.

        ``asked``  ``TYPE@TS``, ``TYPE/SOURCE#SEQ@TS``, or the id of an output record, such as ``hit:Hits:0``.
        ``key``    that of the engine, where there are several; all unless given.
        """
        found = []
        for answer in self._of(key):
            pairs = answer.engine.found(_matching(asked, answer.form))
            found += [answer.of(at, event) for at, event in pairs[:ANSWERS]]
        if not found:
            raise SlacklineError(
                f"no event of the trace matches {asked!r}{'' if key is None else f' with key {key!r}'}. Without an "
                f"event the trace is summed up; it lists late events and the longest waits."
            )
        return found[:ANSWERS]

    def _of(self, key: Any) -> list[_Answer]:
        """The engines of a key, or all."""
        found = [answer for answer in self._answers if key is None or str(key) == str(answer.key)]
        if not found:
            known = [answer.key for answer in self._answers if answer.key is not None]
            keys = f"it has keys such as {', '.join(map(str, known[:5]))}" if known else "its events have no keys"
            raise SlacklineError(f"the trace has no key {key!r}; {keys}.")
        return found

    def summary(self, key: Any = None) -> dict[str, Any]:
        """What happened in all engines, or in that of ``key``: counts, what detectors waited for, the longest waits and
        the late events."""
        counts: Counter[str] = Counter()
        detectors: dict[str, Counter[str]] = {}
        waits: dict[str, Counter[str]] = {}
        longest: list[tuple[int, int, int, _Answer, Event]] = []
        late: list[tuple[int, _Answer, Event]] = []
        errors: list[str] = []
        for answer in self._of(key):
            engine = answer.engine
            errors += [text for _, text in engine.errors]
            counts["results"] += sum(output.op == "insert" for _, output in engine.outputs)
            for at, event in engine.found(lambda _: True):
                if engine.steps[at].event is event:
                    counts["arrivals"] += 1
                    if (refusal := engine.refused(at)) is not None:
                        counts["duplicates" if isinstance(refusal, Duplicate) else "quarantined"] += 1
                        continue
                fates = engine.fates(event)
                for fate in fates:
                    mine = detectors.setdefault(fate.detector, Counter())
                    mine[fate.outcome] += 1
                    wait = answer.wait(fate)
                    mine["waited"] += fate.outcome == "delivered" and fate.at != fate.arrived
                    for each in fate.waited if fate.outcome != "late" else ():
                        waits.setdefault(fate.detector, Counter())[_subject(each)] += 1
                    if wait is not None and fate.waited:
                        longest = sorted([*longest, (-wait, len(late), at, answer, event)], key=lambda item: item[:3])[
                            :SHOWN
                        ]
                if any(fate.outcome == "late" for fate in fates):
                    late.append((at, answer, event))
        counts["late"] = len(late)
        shown = {id(event): answer.of(at, event) for _, _, at, answer, event in longest}
        return {
            "version": VERSION,
            "counts": dict(counts),
            "detectors": {name: dict(mine) for name, mine in detectors.items()},
            "waited_for": {name: dict(mine.most_common()) for name, mine in waits.items()},
            "longest": list(shown.values()),
            "late": [answer.of(at, event) for at, answer, event in late[:SHOWN]],
            "errors": errors[:SHOWN],
        }


def explain(trace: str | Path, hierarchy: Hierarchy | Callable[[str | None], Hierarchy]) -> Explained:
    """Replay a trace with the application that it is of.

    ``hierarchy`` is that application, or makes it of the name that the trace has for it.

    >>> import os, tempfile
    >>> from slackline import Detector, Engine
    >>> from slackline.runtime import Trace
    >>> class Echo(Detector):
    ...     listens, publishes = ("ping",), ("pong",)
    ...     def on_event(self, event):
    ...         yield event.derive("pong")
    >>> engine, path = Engine(Hierarchy([Echo()])), os.path.join(tempfile.mkdtemp(), "trace.jsonl")
    >>> with Trace(path) as engine.trace:
    ...     found = engine.push([Event("ping", ts=5), Event("ping", ts=2)]) + engine.close()
    >>> [answer] = explain(path, Hierarchy([Echo()])).event("pong@2")
    >>> [each["event"] for each in answer["from"]["inputs"]]
    ['ping@2']
    """
    head, calls = read_trace(trace)
    known = hierarchy if isinstance(hierarchy, Hierarchy) else hierarchy(head.get("app"))
    try:
        return Explained(_replayed(Path(trace), known, calls))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(f"{trace} is damaged: {error!r}.") from error


def _replayed(trace: Path, hierarchy: Hierarchy, calls: Iterator[dict[str, Any]]) -> list[_Answer]:
    answers: dict[Any, _Answer] = {}  # the last of each key
    former: list[_Answer] = []
    new: bytes | None = None
    pool = DelayPool()
    for call in calls:
        op, key, state = call["op"], call["key"], call.get("state")
        if op in ("new", "state"):
            new = state if op == "new" and state is not None else new
            state = new if state is None else state
            if state is None:
                raise TraceError(f"{trace} has no state for the engine of key {key!r}; it is damaged.")
            engine = ObservedEngine.resume(state, hierarchy)
            if engine.stats().get("upgrade"):
                raise ConfigError(
                    f"{trace} is of another version of the application: {engine.stats()['upgrade']}. Give the "
                    f"application as it was by --app."
                )
            if key in answers:
                former.append(answers.pop(key))
            answers[key] = _Answer(key, engine, NUMBERS)
            continue
        engine = answers[key].engine
        if op == "push":
            if call["form"] is not None:
                answers[key] = _Answer(key, engine, form_of(call["form"]) or NUMBERS)
            times = call["now"] or [None] * len(call["rows"])
            for event, now in zip(call["rows"], times, strict=False):
                engine.arrive(event, now)
            if len(times) > len(call["rows"]):
                engine.pass_time(times[-1])
        elif op == "pool":
            if state is not None:
                pool.restore(codec.decode(state))
            engine.host.use_pool(pool)
        else:
            engine.end(call["given"] if op == "flush" else None)
    if not answers:
        raise TraceError(f"{trace} has no calls: nothing was pushed while it was written.")
    return [*former, *answers.values()]


def _matching(asked: str, form: TimeForm) -> Callable[[Event], bool]:
    given = _EVENT.fullmatch(asked)
    if given is None:
        if asked.count(":") < 2:
            raise ConfigError(
                f"{asked!r} is not an event; give TYPE@TS, TYPE/SOURCE#SEQ@TS, or the id of an output record, such as "
                f"hit:Hits:0."
            )
        name = re.sub(r"/\d+$", "", asked)  # where states expire, ids end with the time at which the engine was made
        return lambda event: id_of(event) == name
    kind, source, seq = given["type"], given["source"], given["seq"]
    ts = int(given["ts"]) if given["ts"].isdecimal() else form.number(given["ts"])
    if time_stamp(ts) is None:
        raise ConfigError(f"{given['ts']!r} is not an event time of this stream; give a number or an ISO 8601 date.")
    return lambda event: (
        event.type == kind
        and event.ts == ts
        and (source is None or str(event.source) == source)
        and (seq is None or event.seq == int(seq))
    )


def _subject(waited: Waited) -> str:
    """What an event waited for: the source of an input, the input, or through its detector those of a lower level."""
    if waited.publisher is not None and waited.publisher[1]:
        return _subject(waited.publisher[1][0])
    source = waited.before.source if waited.before.has_source else None
    return waited.input if source is None else f"{waited.input}/{source}"


class _Answer:
    """Answers about the engine of one key, as plain data; ``form`` is that of event times outside."""

    def __init__(self, key: Any, engine: ObservedEngine, form: TimeForm) -> None:
        self.key, self.engine, self.form = key, engine, form

    def of(self, at: int, event: Event) -> dict[str, Any]:
        """All that is known of an event that arrived, or was published, at a step."""
        engine = self.engine
        is_result = engine.steps[at].event is not event
        refusal = None if is_result else engine.refused(at)
        answer: dict[str, Any] = {
            "version": VERSION,
            "kind": "result" if is_result else "arrival",
            **({} if self.key is None else {"key": self.key}),
            **self._event(event),
            "at": self._step(at),
        }
        if is_result:
            answer["id"] = id_of(event)
            answer["from"] = self._lineage(engine.lineage(event))
        if refusal is not None:
            is_duplicate = isinstance(refusal, Duplicate)
            reason, detail = ("duplicate", "") if is_duplicate else (refusal.reason, refusal.detail)  # type: ignore[union-attr]
            answer["refused"] = {"reason": reason, "detail": detail}
        else:
            answer["detectors"] = [self._fate(fate, event) for fate in engine.fates(event)]
            if any(fate["outcome"] == "late" for fate in answer["detectors"]):
                for slow in engine.stats()["types"][event.type].get("late_sources", ()):
                    if slow["source"] == event.source:
                        answer["late_source"] = slow
        return answer

    def wait(self, fate: Fate) -> int | None:
        """How long an event waited, in stream time; None if it was not delivered."""
        if fate.outcome != "delivered" or fate.at is None or fate.arrived < 0:
            return None
        start, end = self.engine.steps[fate.arrived].clk, self.engine.steps[fate.at].clk
        return 0 if NEVER in (start, end) else end - start

    def _event(self, event: Event) -> dict[str, Any]:
        try:
            fields = json.loads(to_json(event.payload))
        except SlacklineError:
            fields = {name: repr(value) for name, value in event.payload.items()}
        return {"event": self._name(event), "fields": fields}

    def _name(self, event: Event) -> str:
        source = "" if event.source is None else f"/{event.source}"
        seq = "" if event.seq is None else f"#{event.seq}"
        return f"{event.type}{source}{seq}@{self._time(event.ts)}"

    def _time(self, ts: Any) -> Any:
        if type(ts) is not int:
            return ts
        if ts in (NEVER, FOREVER) or ts < 0:
            return None
        return ts if self.form.is_number else str(self.form.back(ts))

    def _length(self, length: int | None) -> Any:
        return length if length is None or self.form.is_number else str(self.form.length(length))

    def _step(self, at: int) -> dict[str, Any] | None:
        if at < 0:
            return None
        step = self.engine.steps[at]
        shown: dict[str, Any] = {"what": step.what, "arrival": step.number, "stream_time": self._time(step.clk)}
        if step.event is not None:
            shown["event"] = self._name(step.event)
        if step.now is not None:
            shown["arrival_time"] = self._time(step.now)
        return shown

    def _fate(self, fate: Fate, event: Event) -> dict[str, Any]:
        shown: dict[str, Any] = {"detector": fate.detector, "outcome": fate.outcome}
        if fate.at is not None:
            shown["at"] = self._step(fate.at)
        if fate.outcome == "late":
            shown["lateness"] = self._length(fate.lateness)
        elif fate.outcome == "delivered":
            shown["wait"] = self._length(self.wait(fate))
            first, last = (
                None if at is None or at < 0 else self.engine.steps[at].now for at in (fate.arrived, fate.at)
            )
            if first is not None and last is not None:
                shown["arrival_time_wait"] = self._length(last - first)
        shown["waited_for"] = [self._waited(each) for each in fate.waited]
        return shown

    def _waited(self, waited: Waited) -> dict[str, Any]:
        before, after = waited.before, waited.after
        shown: dict[str, Any] = {"input": waited.input, "complete_up_to": self._time(before.watermark)}
        if before.watermark != NEVER and waited.publisher is None:
            shown["K"] = self._length(before.K)
            shown["evidence"] = {kind: self._time(reached) for kind, reached in before.reached.items()}
        if before.has_source:
            shown["source"] = before.source
            shown["last"] = self._time(before.last)
            if waited.since is not None:
                shown["since"] = self._step(waited.since)
        if waited.publisher is not None:
            name, below = waited.publisher
            shown["detector"], shown["waited_for"] = name, [self._waited(each) for each in below]
        if after is not None:
            shown["then"] = {
                "complete_up_to": self._time(after.watermark),
                "by": waited.released,
                "K": self._length(after.K),
                "evidence": {kind: self._time(reached) for kind, reached in after.reached.items()},
            }
        return shown

    def _lineage(self, lineage: Lineage) -> dict[str, Any]:
        shown: dict[str, Any] = {**self._event(lineage.event), "at": self._step(lineage.at)}
        if lineage.detector is not None:
            shown["detector"] = lineage.detector
            shown["on"] = (
                {"timer": self._time(lineage.timer)}
                if lineage.trigger is None
                else {"event": self._name(lineage.trigger)}
            )
            shown["inputs"] = [self._lineage(each) for each in lineage.inputs]
            if lineage.note is not None:
                shown["note"] = lineage.note
        return shown
