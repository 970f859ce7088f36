"""What a synchronised recording says, in sentences: for the command line and the page alike."""

from __future__ import annotations

from collections.abc import Sequence

from slackline.report.scale import Scale, share_text
from slackline.study import StreamResult, SyncResult

#: So many names are listed; of the rest only the number is told.
NAMED = 4


class SyncWords:
    """Sentences and numbers about one result, with one scale for waits, one for sums of them and one for moments."""

    def __init__(self, result: SyncResult) -> None:
        self._result = result
        arrival = result.recording.stream.arrival
        self._start = int(arrival[0])
        waits = [result.waits.mean, result.at_end.mean, *[stream.wait.mean for stream in result.streams]]
        self.waits = Scale.of(waits, result.unit)
        self.sums = Scale.of([stream.held_up.all_time for stream in result.streams], result.unit)
        self.times = Scale.of([float(arrival[-1] - arrival[0])], result.unit)

    def moment(self, time: float) -> str:
        """A moment, as the time since the first arrival."""
        return self.times.with_unit(time - self._start)

    def whom(self, row: int) -> str:
        """For whom an event waited, briefly."""
        names = self._result.waited_for(row)
        return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")

    def since_start(self, time: float) -> float:
        return self.times.value(time - self._start)

    def headline(self) -> str:
        result = self._result
        late = f"{_count(len(result.late), 'late event')} set aside" if len(result.late) else "no event late"
        waits = (
            f"mean wait {self.waits.with_unit(result.waits.mean)}, p99 {self.waits.with_unit(result.waits.p99)}"
            if result.waits.events
            else "nothing went out before the recording ended"
        )
        return (
            f"{_count(len(result), 'event')} of {_count(len(result.recording.names), 'stream')}: "
            f"{share_text(result.out_of_order / len(result))} out of order on arrival, "
            f"{result.out_of_order_after:,} after synchronisation; {late}; {waits}."
        )

    def blame(self) -> str:
        """Whom everybody waited for."""
        result = self._result
        worst, total = result.streams[0], float(result.wait.sum())
        if not worst.held_up.all_time:
            return "Nobody had to wait for anybody."
        return (
            f"Everybody waited most for {worst.name!r}: it held up {_count(worst.held_up.all_events, 'event')} for "
            f"{self.sums.with_unit(worst.held_up.all_time)} altogether, "
            f"{share_text(worst.held_up.all_time / total)} of all waiting."
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
                f"{start}, so nothing could go out before the recording ended: without --max-delay everybody waits "
                f"for a silent stream for ever. Give --max-delay, or leave {_it(silent)} out."
            ]
        return [
            f"{start}: the others went on without {_it(silent)} after {result.max_failures} time-outs. Find out why, "
            f"or leave {_it(silent)} out."
        ]

    def _silent(self) -> list[str]:
        end = self._result.at_end.events
        return [
            f"{stream.name!r} fell silent: its last event came at {self.moment(stream.last_arrival or 0)}, and "
            f"{_count(end, 'event')} waited for it until the recording ended. Give --max-delay, so that nobody "
            f"waits for a silent stream for ever."
            for stream in self._result.streams
            if stream.state == "silent"
        ][:NAMED]

    def _disabled(self) -> list[str]:
        found = [stream for stream in self._result.streams if stream.dead and stream.state == "disabled"]
        shown = [
            f"{stream.name!r} fell silent: its last event came at {self.moment(stream.last_arrival or 0)}, and it is "
            f"disabled since {self.moment(stream.disabled_since or 0)}. Nobody waits for it until it delivers again; "
            f"if it never will, leave it out."
            for stream in found[:NAMED]
        ]
        if len(found) > NAMED:
            shown.append(f"{_count(len(found) - NAMED, 'more stream')} fell silent.")
        return shown

    def notes(self) -> list[str]:
        """What else one must know to read the figures."""
        result = self._result
        notes = []
        if not result.recording.recorded_arrival:
            notes.append(
                "No arrival times were given, so every event arrives when it occurs: the waits are what "
                "synchronisation alone costs, without the network."
            )
        if result.at_end.events:
            whom = f" for {listed(result.waited_for_at_end)}" if result.waited_for_at_end else ""
            notes.append(
                f"{_count(result.at_end.events, 'event')} still waited{whom} when the recording ended, for "
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
            rows = _count(sum(recording.quarantined.values()), "row")
            warnings.append(
                f"{rows} without a time or a name left out (by file: {counts}). "
                f"The first: {recording.first_quarantined}."
            )
        return [*warnings, *recording.warnings]

    def _impatient(self) -> list[str]:
        """A maximal delay below the streams' own rhythm makes failures of what is none."""
        result = self._result
        often = sum(stream.times_disabled for stream in result.streams)
        if result.max_delay is None or often < max(20, len(result) // 100):
            return []
        return [
            f"Streams were disabled {often:,} times. --max-delay {result.max_delay} is probably shorter than the time "
            f"a stream takes between two events; then a larger one waits for everybody."
        ]

    def _disorder(self) -> list[str]:
        back = sum(stream.backwards for stream in self._result.streams)
        if not back:
            return []
        return [
            f"{_count(back, 'event')} came behind a newer one of the same stream. The synchroniser expects each "
            f"stream to be in order in itself; for streams that are not, see `slackline study`."
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


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
