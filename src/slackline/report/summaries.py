"""Text summaries of a study and of synchronised recordings, for the command line and the pages, and numbers for people:
times in a unit that suits them, shares in per cent. They need no plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slackline.core.time import PER_SECOND
from slackline.ordering.input import SOURCE_LIMIT
from slackline.ordering.startup import SPANS
from slackline.ordering.watermark import LATE_TARGET
from slackline.study import FIXED, STEADY, PolicyResult, StreamResult, StudyResult, SyncResult

_NAMES = {"ns": "ns", "us": "µs", "ms": "ms", "s": "s"}


@dataclass(frozen=True, slots=True)
class Scale:
    """Shows times of a stream in one unit, so that a column of them can be compared.

    >>> scale = Scale.of([29_100, 423_000], "us")
    >>> scale.name, scale.text(29_100), scale.text(None)
    ('ms', '29.1', '-')
    """

    name: str
    factor: float

    @classmethod
    def of(cls, values: Iterable[float | None], unit: str) -> Scale:
        """The largest unit that leaves the middle one of the values at one or more."""
        known = sorted(v for v in values if v)
        middle = known[len(known) // 2] / PER_SECOND[unit] if known else 1e-3
        name = next((n for n in ("s", "ms", "us") if middle * PER_SECOND[n] >= (20 if n == "s" else 1)), "ns")
        if PER_SECOND[name] > PER_SECOND[unit]:
            name = unit
        return cls(_NAMES[name], PER_SECOND[name] / PER_SECOND[unit])

    @classmethod
    def of_study(cls, result: StudyResult) -> Scale:
        return cls.of([p.waits.mean_wait for p in result.policies] + [result.clairvoyant.mean_wait], result.unit)

    def value(self, time: float) -> float:
        return time * self.factor

    def text(self, time: float | None) -> str:
        """The time without its unit, with as many digits as it deserves."""
        return "-" if time is None else number_text(self.value(time))

    def with_unit(self, time: float | None) -> str:
        return "-" if time is None else f"{self.text(time)} {self.name}"


def number_text(value: float) -> str:
    """Three significant digits, thousands apart.

    >>> number_text(4154.7), number_text(423.8), number_text(31.48), number_text(0.0)
    ('4,155', '424', '31.5', '0')
    """
    if value == 0:
        return "0"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def time_text(time: float, unit: str) -> str:
    """A time by itself, in the largest unit of which it is at least one.

    >>> time_text(12_100, "ms"), time_text(903_000, "us"), time_text(0, "s")
    ('12.1 s', '903 ms', '0 s')
    """
    seconds = time / PER_SECOND[unit]
    name = next((n for n, per in PER_SECOND.items() if seconds * per >= 1 or n == unit), unit)
    return f"{number_text(seconds * PER_SECOND[name])} {_NAMES[name]}"


def share_text(share: float) -> str:
    """A share in per cent.

    >>> share_text(0.00323), share_text(0.339), share_text(0.0), share_text(3.4e-6)
    ('0.32 %', '33.9 %', '0', '0.0003 %')
    """
    if share == 0:
        return "0"
    per_cent = share * 100
    if per_cent < 0.001:
        return f"{per_cent:.4f} %" if per_cent >= 0.0001 else "< 0.0001 %"
    return f"{per_cent:.{1 if per_cent >= 10 else 2 if per_cent >= 0.1 else 3}f} %"


def params_text(result: PolicyResult, unit: str) -> str:
    """Parameters in words; those that are times with a unit."""
    if result.is_default:
        return "default"
    if "late_target" in result.params:
        return f"target {100 * result.params['late_target']:g} %"
    shown = {name: value for name, value in result.params.items() if name != "window"}
    return ", ".join(f"{name} {_value_text(name, value, unit)}" for name, value in shown.items())


def _value_text(name: str, value: Any, unit: str) -> str:
    if name in ("bound", "delay"):
        scale = Scale.of([value], unit)
        shown = scale.value(value)
        return f"{shown:,.0f} {scale.name}" if shown >= 1_000 else f"{shown:.4g} {scale.name}"
    return f"{value:g}"


# Sentences.

#: In the order in which they are preferred when they do equally well.
POLICIES = (
    "auto", "ready", "slack", "quantile", "max_slack", "percentile", "adwin", "aqkslack", "fixed", "timer",
)  # fmt: skip
#: Policies whose names say too little.
POLICY_NAMES = {
    "fixed": "fixed watermark",
    "timer": "fixed timer",
    "max_slack": "maximal K-slack",
    "quantile": "sliding quantile",
    "percentile": "histogram percentile",
    "adwin": "ADWIN watermark",
    "aqkslack": "AQ-K-slack",
}
_KINDS = {"fixed": "watermark", "timer": "timer"}
#: Mean waits that differ by no more are as good as equal.
LIKE = 1.1


def disorder(result: StudyResult) -> str:
    """How much of the stream is out of order, in a sentence."""
    if not result.late_share:
        return "All events arrive in order."
    return f"{share_text(result.late_share)} of the events arrive out of order."


def late_source_text(found: Mapping[str, Any]) -> str:
    """A source of which far more events are late than the target allows.

    >>> late_source_text({"source": "s7", "events": 100, "late": 84, "share": 0.84, "of_all_late": 0.5})
    's7 (84 of 100 events, 84.0 %; 50.0 % of all late events)'
    """
    return (
        f"{found['source']} ({found['late']:,} of {found['events']:,} events, {share_text(found['share'])}; "
        f"{share_text(found['of_all_late'])} of all late events)"
    )


def late_sources_text(result: StudyResult) -> str:
    """The sources that are late far more often than the target, and what to do; empty if none are, or all."""
    if len(result.late_sources) in (0, result.sources):
        return ""
    return (
        f"Under default auto more than {SOURCE_LIMIT} times the target are late of "
        f"{', '.join(map(late_source_text, result.late_sources))}. To wait for such a source, make it an event type of "
        f"its own, or an engine of its own (--key): each has its own target."
    )


def verdict(result: StudyResult) -> str:
    """What to choose: default `auto`, or the cheapest fixed watermark or timer that loses no more; or what beats it."""
    wait = result.default.waits.mean_wait
    if wait is None:
        return "Default auto delivers no event in time, so there is nothing to compare."
    rival = result.cheapest(*FIXED)
    if rival is None:
        return f"No fixed watermark or timer loses as few events as auto, which {_figures(result.default, result)}."
    if result.misses_target:
        return _target_missed(result)
    fixed, its_wait = f"fixed {_KINDS[rival.policy]}", rival.waits.mean_wait or 0
    auto = f"slackline's auto {_figures(result.default, result)}"
    needs = f"needs a delay of {_delay(rival, result)} for {_late(result.default.waits.late_share)}"
    on_average = f"waits {time_text(its_wait, result.unit)} on average"
    winner = _winner(wait, its_wait)
    if not any(rival.params.values()):
        text = f"Not waiting at all is best here: a delay of 0 gives {_late(rival.waits.late_share)}; {auto}."
    elif winner == "auto":
        less = f", {number_text(its_wait / wait)} times less" if wait else ""
        waits = f"slackline waits {time_text(wait, result.unit)}{less}"
        text = f"Use default auto: a {fixed} {needs} and {on_average}; {waits}."
    elif winner == "fixed":
        it_has = f"with a delay of {_delay(rival, result)} it {_figures(rival, result)}"
        text = f"A {fixed} is better here: {it_has}; {auto}."
    else:
        text = (
            f"A {fixed} is as good here: it {needs}, found with hindsight, and {on_average}; slackline needs "
            f"no setting and waits {time_text(wait, result.unit)}."
        )
    return text + _once_learnt(result, winner) + _better_still(result, min(wait, its_wait))


def _target_missed(result: StudyResult) -> str:
    """Why the default misses its target, and what to do."""
    bound = result.bound_for(LATE_TARGET)
    missed = f"Default auto misses its target of {share_text(LATE_TARGET)} here: it {_figures(result.default, result)}."
    if bound is None:
        return f"{missed} No fixed watermark keeps it either."
    needs, span = time_text(bound, result.unit), time_text(result.span, result.unit)
    if bound * SPANS > result.span:
        return (
            f"{missed} The target needs a wait of {needs}, and the recording spans {span}: such delays cannot be "
            f"measured in so short a time. Record at least {time_text(bound * SPANS, result.unit)}, start from a "
            f"calibration (slackline calibrate), or use a fixed watermark of {needs}."
        )
    return (
        f"{missed} Its delays change faster than they can be measured. Use a smaller late_target, start from a "
        f"calibration (slackline calibrate), or use a fixed watermark of {needs}, which keeps the target on this "
        f"recording."
    )


def _winner(auto: float, fixed: float) -> str:
    return "auto" if auto * LIKE < fixed else "fixed" if fixed * LIKE < auto else "none"


def _once_learnt(result: StudyResult, winner: str) -> str:
    """The verdict by the steady figures, if it differs."""
    rival = result.cheapest(*FIXED, steady=True)
    late, wait = result.default.waits.steady_late_share, result.default.waits.steady_mean_wait
    if rival is None or late is None or wait is None:
        return ""
    kind, its_wait = _KINDS[rival.policy], rival.waits.steady_mean_wait or 0
    steady = _winner(wait, its_wait)
    if steady == winner:
        return ""
    comparison = {"auto": "slackline waits less", "fixed": f"a {kind} waits less", "none": "both wait alike"}[steady]
    return (
        f" After the first {STEADY:,} arrivals {comparison}: with {_late(late)} slackline waits "
        f"{time_text(wait, result.unit)}, a fixed {kind} of {_delay(rival, result)} "
        f"{time_text(its_wait, result.unit)}."
    )


def _better_still(result: StudyResult, wait: float) -> str:
    """A policy, or another target, that waits clearly less than both and loses no more."""
    able = [p for policy in POLICIES if (p := result.cheapest(policy)) is not None]
    best = min(able, key=lambda p: p.waits.mean_wait or 0)
    if (best.waits.mean_wait or 0) * LIKE >= wait:
        return ""
    return f" Least of all waits {_name(best, result.unit)}: it {_figures(best, result)}."


def _figures(p: PolicyResult, result: StudyResult) -> str:
    return f"has {_late(p.waits.late_share)} and waits {time_text(p.waits.mean_wait or 0, result.unit)} on average"


def _late(share: float) -> str:
    return f"{share_text(share)} late events" if share else "no late events"


def _delay(p: PolicyResult, result: StudyResult) -> str:
    """The delay of a fixed watermark, or of a timer."""
    after = " after arrival" if p.policy == "timer" else ""
    (delay,) = p.params.values()
    return time_text(delay, result.unit) + after


def _name(p: PolicyResult, unit: str) -> str:
    return f"{POLICY_NAMES.get(p.policy, p.policy)} ({params_text(p, unit)})" if params_text(p, unit) else p.policy


#: So many names are listed; of the rest only the number.
NAMED = 4


class SyncSummary:
    """Sentences and numbers about one result, with one scale for waits, one for sums of them and one for moments."""

    def __init__(self, result: SyncResult) -> None:
        self._result = result
        arrival = result.recording.stream.arrival
        self._start = int(arrival[0])
        waits = [result.waits.mean, result.at_end.mean, *[stream.wait.mean for stream in result.streams]]
        self.waits = Scale.of(waits, result.unit)
        self.sums = Scale.of([stream.blocked.all_time for stream in result.streams], result.unit)
        self.times = Scale.of([float(arrival[-1] - arrival[0])], result.unit)

    def moment(self, time: float) -> str:
        """A time as text: since the first arrival."""
        return self.times.with_unit(time - self._start)

    def waited_for(self, row: int) -> str:
        """The streams that an event waited for, as text."""
        names = self._result.waited_for(row)
        return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")

    def since_start(self, time: float) -> float:
        return self.times.value(time - self._start)

    def headline(self) -> str:
        result = self._result
        late = count_text(len(result.late), "late event") if len(result.late) else "no event late"
        waits = (
            f"mean wait {self.waits.with_unit(result.waits.mean)}, p99 {self.waits.with_unit(result.waits.p99)}"
            if result.waits.events
            else "no event was released before the recording ended"
        )
        return (
            f"{count_text(len(result), 'event')} of {count_text(len(result.recording.names), 'stream')}: "
            f"{share_text(result.out_of_order / len(result))} out of order on arrival, "
            f"{result.out_of_order_after:,} after synchronisation; {late}; {waits}."
        )

    def slowest(self) -> str:
        """The stream that the others waited for."""
        result = self._result
        worst, total = result.streams[0], float(result.wait.sum())
        if not worst.blocked.all_time:
            return "No stream had to wait for another."
        return (
            f"The slowest stream is {worst.name!r}: it blocked {count_text(worst.blocked.all_events, 'event')} for "
            f"{self.sums.with_unit(worst.blocked.all_time)} in total, "
            f"{share_text(worst.blocked.all_time / total)} of all waits."
        )

    def state(self, stream: StreamResult) -> str:
        if stream.disabled_since is not None and stream.state == "disabled":
            return f"disabled since {self.moment(stream.disabled_since)}"
        if stream.state == "silent":
            return f"silent since {self.moment(stream.last_arrival or 0)}"
        return stream.state

    def dead(self) -> list[str]:
        """Streams that do not deliver, each with what to do."""
        return [*self._never_delivered(), *self._silent(), *self._disabled()]

    def _never_delivered(self) -> list[str]:
        result = self._result
        silent = [stream.name for stream in result.streams if stream.state == "never delivered"]
        if not silent:
            return []
        start = f"{listed(silent)} never delivered"
        if result.max_delay is None:
            return [
                f"{start}, so no event was released before the recording ended: without --max-delay all streams wait "
                f"for a silent one without limit. Set --max-delay, or leave {_it(silent)} out."
            ]
        return [
            f"{start}, and {'was' if len(silent) == 1 else 'were'} disabled after {result.max_failures} timeouts. "
            f"Find out why, or leave {_it(silent)} out."
        ]

    def _silent(self) -> list[str]:
        end = self._result.at_end.events
        return [
            f"{stream.name!r} fell silent: its last event came at {self.moment(stream.last_arrival or 0)}, and "
            f"{count_text(end, 'event')} waited for it until the recording ended. Set --max-delay, so that no "
            f"event waits for a silent stream without limit."
            for stream in self._result.streams
            if stream.state == "silent"
        ][:NAMED]

    def _disabled(self) -> list[str]:
        found = [stream for stream in self._result.streams if stream.dead and stream.state == "disabled"]
        shown = [
            f"{stream.name!r} fell silent: its last event came at {self.moment(stream.last_arrival or 0)}, and it is "
            f"disabled since {self.moment(stream.disabled_since or 0)}. No event waits for it until it delivers again; "
            f"if it never will, leave it out."
            for stream in found[:NAMED]
        ]
        if len(found) > NAMED:
            shown.append(f"{count_text(len(found) - NAMED, 'more stream')} fell silent.")
        return shown

    def notes(self) -> list[str]:
        """Notes on the figures."""
        result = self._result
        notes = []
        if not result.recording.recorded_arrival:
            notes.append(
                "No arrival times were given, so every event arrives when it occurs: the waits are "
                "those of synchronisation alone, without the network."
            )
        if result.at_end.events:
            awaited = f" for {listed(result.waited_for_at_end)}" if result.waited_for_at_end else ""
            notes.append(
                f"{count_text(result.at_end.events, 'event')} still waited{awaited} when the recording ended, for "
                f"{self.waits.with_unit(result.at_end.mean)} on average; the waits above are without them."
            )
        ended = [stream.name for stream in result.streams if stream.state == "disabled" and not stream.dead]
        if ended:
            notes.append(
                f"{listed(ended)} {'was' if len(ended) == 1 else 'were'} disabled shortly before the recording ended; "
                f"that may be no more than its end."
            )
        return [*notes, *self._impatient(), *self._disorder()]

    def warnings(self) -> list[str]:
        """What of the files is not in the figures, and why."""
        recording = self._result.recording
        warnings = [f"{each.name} is left out: {each.reason}" for each in recording.failed]
        if recording.quarantined:
            counts = ", ".join(f"{name} {count:,}" for name, count in recording.quarantined.items())
            rows = count_text(sum(recording.quarantined.values()), "row")
            warnings.append(
                f"{rows} without a time or a name left out (by file: {counts}). "
                f"The first: {recording.first_quarantined}."
            )
        return [*warnings, *recording.warnings]

    def _impatient(self) -> list[str]:
        """A maximum delay below the period of the streams makes them fail without a reason."""
        result = self._result
        often = sum(stream.times_disabled for stream in result.streams)
        if result.max_delay is None or often < max(20, len(result) // 100):
            return []
        return [
            f"Streams were disabled {often:,} times. --max-delay {result.max_delay} is probably shorter than the time "
            f"a stream takes between two events; then set a larger one."
        ]

    def _disorder(self) -> list[str]:
        back = sum(stream.backwards for stream in self._result.streams)
        if not back:
            return []
        return [
            f"{count_text(back, 'event')} arrived after a newer one of the same stream. The synchroniser expects each "
            f"stream to be in order; for streams that are not, see `slackline study`."
        ]


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b"]), listed(list("abcdef"))
    ("'a'", "'a' and 'b'", "'a', 'b', 'c', 'd' and 2 more")
    """
    shown = [repr(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def count_text(number: int, noun: str) -> str:
    """A number of things, in words.

    >>> count_text(1, "event"), count_text(3000, "event")
    ('1 event', '3,000 events')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
