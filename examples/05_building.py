"""Which devices of a building depend on which? Sixteen devices, each in order but late; the truth is known.

Doors, lights, a lift and an alarm report their states. A synchroniser puts them in order; the detectors turn events
into occurrences of states, these into transitions, and find which transitions regularly follow which. Then the same is
done in the order of arrival, as if the time of arrival were the time it happened. Run it with
`python examples/05_building.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import slackline as sl
from slackline.occurrence import Dependencies, Dependency, Occurrences, Transitions
from slackline.sync import Synchroniser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where the simulated stream is

from scenarios.building import HOUR, MINUTE, SECOND, Building, Change, building

MAX_LAG = 40 * SECOND


def in_step(day: Building) -> tuple[list[sl.Event], Synchroniser]:
    """The events in order, as a synchroniser gives them that lives through the arrivals."""
    now = 0
    # Every device reports its state once a minute, and the gateway adds up to 20 s: a device 90 s behind has failed.
    names = [device.name for device in day.devices]
    sync = Synchroniser(names, max_delay=90 * SECOND, now=lambda: now)
    events: list[sl.Event] = []
    for now, event in zip(day.arrivals, day.events, strict=True):  # noqa: B007 (the synchroniser reads it)
        events += sync.push(event)
    return events + sync.close(), sync


def find(events: Iterable[sl.Event], types: tuple[str, ...]) -> list[sl.Event]:
    """What the detectors publish about events that are in order."""
    detectors = [
        Occurrences(*types, silence=5 * MINUTE),
        Transitions(),
        Dependencies(window=8 * HOUR, max_lag=MAX_LAG),
    ]
    engine = sl.Engine(sl.Hierarchy(detectors, clock=types), policy="ordered")
    return [output.event for output in engine.push(events) + engine.close()]


def dependency(event: sl.Event) -> Dependency:
    return Dependency(**{name: value for name, value in event.payload.items() if name != "reason"})


def ends(one: Dependency) -> tuple[Change, Change]:
    """The kinds of transitions at both ends."""
    return (
        Change(one.cause, one.cause_before, one.cause_after),
        Change(one.effect, one.effect_before, one.effect_after),
    )


def order(outputs: list[sl.Event], cause: Change, effect: Change) -> tuple[int, int, int]:
    """How often the effect that was nearest to a cause came before it, how often at the same time; of how many."""
    times: dict[Change, list[int]] = {cause: [], effect: []}
    for event in outputs:
        if event.type == "transition":
            times.get(Change(event["device"], event["before"], event["after"]), []).append(event.ts)
    lags = [min((ts - start for ts in times[effect]), key=abs) for start in times[cause]]
    return sum(-MAX_LAG <= lag < 0 for lag in lags), lags.count(0), len(lags)


def groups(day: Building) -> dict[str, str]:
    """Devices that are linked, even through others, have the same group."""
    group = {device.name: device.name for device in day.devices}
    for planted in day.planted:
        old, new = group[planted.effect.device], group[planted.cause.device]
        group = {name: new if one == old else one for name, one in group.items()}
    return group


def compare(day: Building, outputs: list[sl.Event]) -> None:
    """Print what was found beside what is there."""
    found = {ends(dependency(event)): event for event in outputs if event.type == "dependency"}
    truth = {(planted.cause, planted.effect): planted for planted in day.planted}
    print(f"  {'cause':20}{'effect':20}{'planted lag':>13}{'found':>8}{'confidence':>12}{'known at':>10}")
    for (cause, effect), planted in truth.items():
        lags = f"{planted.least / SECOND:.1f}-{planted.most / SECOND:.1f} s"
        line = f"  {cause.device + ' ' + cause.after:20}{effect.device + ' ' + effect.after:20}{lags:>13}"
        event = found.get((cause, effect))
        if event is None:
            print(f"{line}{'missed':>8}")
        else:
            wrong = "" if planted.least <= event["lag"] <= planted.most else "  the lag is wrong"
            print(f"{line}{event['lag'] / SECOND:6.1f} s{event['confidence']:11.0%}{event.ts / HOUR:8.1f} h{wrong}")
    group = groups(day)
    rest = [pair for pair in found if pair not in truth]
    echoes = [(cause, effect) for cause, effect in rest if group[cause.device] == group[effect.device]]
    missed = sum(pair not in found for pair in truth)
    print(f"  planted: {len(truth)}, found: {len(truth) - missed}, missed: {missed}")
    print(f"  echoes, between devices that are linked: {len(echoes)}; spurious: {len(rest) - len(echoes)}")
    for cause, effect in truth:
        if (cause, effect) not in found:
            before, same, causes = order(outputs, cause, effect)
            what = f"{effect.device} {effect.after} came before its cause {before} times"
            print(f"  missed: {what}, at the same time {same}, of {causes}")
    for event in outputs:
        if event.type == "dependency_lost" and ends(dependency(event)) in truth:
            print(f"  lost at {event.ts / HOUR:.1f} h: {event['cause']} -> {event['effect']} ({event['reason']})")


def main() -> None:
    day = building(seed=1)
    types = tuple(sorted({device.type for device in day.devices}))
    events, sync = in_step(day)
    stats = sync.stats()
    dead = [name for name, one in stats.items() if one.times_disabled]
    print(f"{len(day.events)} events of {len(day.devices)} devices; late: {len(sync.late)}")
    print(f"in order: {all(a.ts <= b.ts for a, b in pairwise(events))}")
    wait = sum(one.wait_total for one in stats.values()) / len(events)
    print(f"mean wait: {wait / SECOND:.1f} s; dead for a while: {', '.join(dead)}")

    print("\nin step:")
    compare(day, find(events, types))

    print("\nin the order of arrival, with the time of arrival:")
    arrived = [
        sl.Event.of(event.type, arrival, event.source, event.seq, dict(event.payload))
        for arrival, event in zip(day.arrivals, day.events, strict=True)
    ]
    compare(day, find(arrived, types))
    broken = next(planted for planted in day.planted if planted.until is not None)
    print(f"\n({broken.cause.device} -> {broken.effect.device} was broken at {(broken.until or 0) / HOUR:.1f} h.)")


if __name__ == "__main__":
    main()
