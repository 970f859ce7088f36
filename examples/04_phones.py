"""Real phones over a mobile network: when is each slow, and do slow-downs follow each other?

Eight or nine phones sent an event every half second for ten minutes (recordings d-1 to d-3). No two phones have the
same clock or the same way to the server, so a phone is measured by itself: *slow* is the slowest tenth of its own
delays, *stalled* the slowest hundredth, *quick* the rest. (By a fixed limit, half a second beyond a phone's shortest
delay, there are 41 slow-downs in all three recordings: too few to say anything about.) The phones are put in step, and
the detectors find occurrences, transitions and dependencies.

To see that a dependency would be found if there were one, a phone that does not exist is added: it repeats what the
first phone does, 0.7 s later. Run it with `python examples/04_phones.py`.
"""

from __future__ import annotations

from collections import Counter
from math import exp
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import slackline as sl
from slackline.occurrence import Dependencies, Occurrences, Transitions
from slackline.sync import Synchroniser

DATA = Path(__file__).parent / "data"
ATTRIBUTION = (
    "Phone streams d-1 to d-3: OoO-Dataset (Weiss, Expósito Jiménez, Zeiner; IoTBDS 2017), repository "
    "JR-DIGITAL/ooo-dataset, CC BY-SA 4.0; columns selected and renamed."
)
INTERVAL = 500  # ms between two events of a phone


class DelayStates(Occurrences):
    """Occurrences of a phone's delay states, with its limits for slow and stalled."""

    fixed = (*Occurrences.fixed, "limits")

    def __init__(self, limits: dict[str, tuple[float, float]]) -> None:
        super().__init__("delay", overlaps=32)
        self.limits = limits

    def state_of(self, event: sl.Event) -> str:
        slow, stalled = self.limits[str(event.source)]
        return "quick" if event["delay"] < slow else "slow" if event["delay"] < stalled else "stalled"


def delay_limits(table: pa.Table) -> dict[str, tuple[float, float]]:
    """Beyond which delays, in ms, each phone is slow, and stalled. A live system would take yesterday's."""
    source = np.array(table["source"].to_pylist())
    delay = table["arrival_ms"].to_numpy() - table["ts_ms"].to_numpy()
    return {str(phone): tuple(np.quantile(delay[source == phone], [0.9, 0.99])) for phone in np.unique(source)}


def in_step(table: pa.Table) -> tuple[list[sl.Event], Synchroniser]:
    """A recording in order, as a synchroniser gives it that lives through the arrivals."""
    now = 0
    # A phone that is 3 s behind has failed: the others go on. That is six of its events.
    sync = Synchroniser(sorted(set(table["source"].to_pylist())), max_delay=6 * INTERVAL, now=lambda: now)
    events: list[sl.Event] = []
    for row in table.to_pylist():
        now, ts = row["arrival_ms"], row["ts_ms"]
        events += sync.push(sl.Event("delay", ts=ts, source=row["source"], seq=row["seq"], delay=now - ts))
    return events + sync.close(), sync


def find(events: list[sl.Event], limits: dict[str, tuple[float, float]]) -> list[sl.Event]:
    """What the detectors publish."""
    # One window over the whole recording. A slow-down that brings about another should do so within two seconds.
    detectors = [DelayStates(limits), Transitions(), Dependencies(window=600_000, max_lag=4 * INTERVAL)]
    engine = sl.Engine(sl.Hierarchy(detectors), policy="ordered")
    return [output.event for output in engine.push(events) + engine.close()]


def with_shadow(events: list[sl.Event], phone: str) -> list[sl.Event]:
    """The events, and those of a made-up phone that does what ``phone`` does, 0.7 s later."""
    mine = [event for event in events if event.source == phone]
    shadow = [sl.Event("delay", event.ts + 700, "shadow", event.seq, delay=event["delay"]) for event in mine]
    return sorted(events + shadow, key=lambda event: event.ts)


def by_chance(bad: list[sl.Event], length: int) -> float:
    """How many of these occurrences would overlap with one of another phone if none had to do with any other."""
    expected = 0.0
    for event in bad:
        others = [other["duration"] for other in bad if other["device"] != event["device"]]
        expected += 1 - exp(-sum(other + event["duration"] for other in others) / length)
    return expected


def report(name: str) -> None:
    table = pyarrow.csv.read_csv(DATA / f"{name}.csv.gz")
    limits = delay_limits(table)
    events, sync = in_step(table)
    length = events[-1].ts - events[0].ts
    print(f"\n{name}: {len(events)} events of {len(sync.streams)} phones in {length / 60_000:.0f} minutes", end=", ")
    print(
        f"{len(sync.late)} late, {sum(one.times_disabled for one in sync.stats().values())} times a phone was given up"
    )
    outputs = find(events, limits)
    bad = [event for event in outputs if event.type == "occurrence" and event["state"] != "quick"]
    for phone in sync.streams:
        mine = [event for event in bad if event["device"] == phone]
        states = Counter(event["state"] for event in mine)
        mean = sum(event["duration"] for event in mine) / len(mine)
        slow, _ = limits[phone]
        print(
            f"  {phone:7}slow (from {slow:3.0f} ms) {states['slow']:3} times, stalled {states['stalled']:2} times",
            end="",
        )
        print(f", {mean:3.0f} ms on average")
    company = sum(any(other["state"] != "quick" for other in event["overlaps"]) for event in bad)
    expected = by_chance(bad, length)
    print(f"  while another was slow or stalled too: {company} of {len(bad)}; by chance it would be {expected:.0f}")
    found = [event for event in outputs if event.type == "dependency"]
    print(f"  dependencies: {len(found)}")
    for event in found:
        print(f"    {described(event)}")
    first = sync.streams[0]
    for event in find(with_shadow(events, first), {**limits, "shadow": limits[first]}):
        if event.type == "dependency" and event["cause_after"] == event["effect_after"] == "slow":
            print(f"  if {first} had a shadow: {described(event)}")


def described(event: sl.Event) -> str:
    """A dependency in words."""
    return (
        f"{event['cause']} {event['cause_after']} is followed by {event['effect']} {event['effect_after']} after "
        f"{event['lag']} ms, {event['support']} of {event['causes']} times (by chance {event['chance']:.0%})"
    )


def main() -> None:
    for name in ("d-1", "d-2", "d-3"):
        report(name)
    print(f"\n{ATTRIBUTION}")


if __name__ == "__main__":
    main()
