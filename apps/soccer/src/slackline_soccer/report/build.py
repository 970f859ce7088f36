"""From the events and statistics of a run to what the page shows of the match.

Events may come from anywhere: an engine's outputs, rows of a Spark query. Give those of the match's detectors, all of
them, and of the queries at least the last of each kind and player.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline import Event
from slackline_soccer.accuracy import COMPARED, KEYS, accuracy, pair, possession_time
from slackline_soccer.model.events import ALL
from slackline_soccer.model.match import Match
from slackline_soccer.queries.clock import WHOLE_GAME
from slackline_soccer.queries.events import SECOND_OVER
from slackline_soccer.queries.running import INTENSITIES
from slackline_soccer.queries.tables import unpack
from slackline_soccer.report.accuracy import ROWS
from slackline_soccer.report.model import (
    Approach,
    Delays,
    DetectorNode,
    DetectorWait,
    EventWait,
    Heat,
    Mark,
    MatchReport,
    Mistakes,
    PassLine,
    Place,
    Point,
    PolicyWaits,
    PossessionShare,
    PossessionSpan,
    RunningFigures,
    Sameness,
    Series,
    Shot,
    Timeline,
    Verdict,
)
from slackline_soccer.run import match_hierarchy
from slackline_soccer.summary import Summary

#: Cells across and along of the heat maps on the page.
GRID = (32, 50)


def match_report(
    match: Match,
    events: Iterable[Event],
    title: str,
    *,
    truth: Iterable[Event] | None = None,
    ordered: Iterable[Event] | None = None,
    in_arrival_order: Iterable[Event] | None = None,
    until: int | None = None,
    **more: Any,
) -> MatchReport:
    """A report of the events found; whatever ``more`` a report has is passed on.

    ``ordered`` are the events that the same detectors find in the perfectly ordered stream, ``in_arrival_order`` those
    they find in the stream as it comes. What is after ``until`` (ps) is left out: a stream that has not ended has no
    final answer for its last moments.
    """
    found = _within(events, until)
    true = None if truth is None else _within(truth, until)
    naive = None if in_arrival_order is None else _within(in_arrival_order, until)
    reference = None if ordered is None else _within(ordered, until)
    stop = until if until is not None else max((event.ts for event in (*found, *(true or ()))), default=0)
    return MatchReport(
        title,
        match,
        mistakes=mistakes(naive, true) if naive is not None and true is not None else None,
        sameness=sameness(match, found, reference, naive) if reference is not None else (),
        verdicts=verdicts(found, true, naive) if true is not None else (),
        possession=possession(match, found, true, naive, stop),
        shots=shots(match, found),
        passes=passes(found),
        timeline=Timeline(marks(found), marks(true or ()), spans(found, stop), spans(true or (), stop)),
        heat=heat(match, found),
        runners=runners(found),
        **more,
    )


def approach(
    name: str,
    kind: str,
    events: Iterable[Event],
    truth: Iterable[Event],
    until: int,
    *,
    wait: float,
    late: int = 0,
    why: str = "",
) -> Approach:
    """What an approach found up to ``until``, against the truth, over all types that are compared."""
    found, true = _judged(_within(events, until)), _judged(_within(truth, until))
    scores = [accuracy(kind, found, true) for kind in COMPARED]
    true_count, found_count, right = (sum(getattr(s, what) for s in scores) for what in ("true", "found", "matched"))
    return Approach(name, kind, true_count, found_count, right, wait, late, why)


def mistakes(found: Sequence[Event], true: Sequence[Event]) -> Mistakes:
    """The passes and shots that were missed, and those that were invented, with their places."""
    wrong: dict[str, tuple[list[Event], list[Event]]] = {}
    for kind in ("pass", "shot"):
        ours, theirs = ([event for event in events if event.type == kind] for events in (found, true))
        pairing = pair(ours, theirs, KEYS[kind])
        wrong[kind] = list(pairing.missed), list(pairing.wrong)
    (missed_passes, invented_passes), (missed_shots, invented_shots) = wrong["pass"], wrong["shot"]
    found_hits, true_hits = ([event for event in events if event.type == "hit"] for events in (found, true))
    return Mistakes(
        passes([*true_hits, *missed_passes]),
        passes([*found_hits, *invented_passes]),
        [_shot(event) for event in missed_shots],
        [_shot(event) for event in invented_shots],
    )


def _shot(event: Event, outcome: str = "on target", path: Sequence[Place] = ()) -> Shot:
    place = event["x"], event["y"]
    return Shot(event.ts, event["player"], event["team"], place, event["goal"], outcome, event.get("speed"), path)


def _within(events: Iterable[Event], until: int | None) -> list[Event]:
    """Up to ``until``, in order."""
    return sorted((event for event in events if until is None or event.ts <= until), key=lambda event: event.ts)


def _judged(events: Iterable[Event]) -> list[Event]:
    """Of the areas that a ball may leave only the field: it alone is in the truth."""
    return [event for event in events if event.get("area", "field") == "field"]


def verdicts(found: Sequence[Event], true: Sequence[Event], naive: Sequence[Event] | None) -> list[Verdict]:
    """Of each type that there was or was thought to be something of."""
    ours, theirs = _judged(found), None if naive is None else _judged(naive)
    judged = [
        Verdict(accuracy(kind, ours, true), None if theirs is None else accuracy(kind, theirs, true))
        for kind in COMPARED
    ]
    return [v for v in judged if v.ordered.true or v.ordered.found]


def sameness(
    match: Match, found: Sequence[Event], ordered: Sequence[Event], naive: Sequence[Event] | None
) -> list[Sameness]:
    """Type by type, for all that the detectors of a match (not the queries) found."""
    ours, reference, theirs = (_by_type(events) for events in (found, ordered, naive or ()))
    hierarchy = match_hierarchy(match, queries=False)
    rows = []
    for kind in (kind.name for kind in ALL):
        mine, wanted, other = ours[kind], reference[kind], theirs[kind]
        if not (mine or wanted or other):
            continue
        unordered = () if naive is None else (other.total(), (other & wanted).total())
        rows.append(
            Sameness(
                kind,
                hierarchy.levels[hierarchy.publisher[kind]],
                wanted.total(),
                mine.total(),
                (mine & wanted).total(),
                *unordered,
            )
        )
    return rows


def _by_type(events: Iterable[Event]) -> defaultdict[str, Counter[str]]:
    """Per type, the events as text that is equal if they are; what is None is as good as left out."""
    texts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    known = {kind.name for kind in ALL}
    for event in events:
        if event.type not in known:
            continue
        fields = {name: value for name, value in event.payload.items() if value is not None}
        texts[event.type][json.dumps([event.ts, fields], sort_keys=True, default=_plain)] += 1
    return texts


def _plain(value: Any) -> Any:
    """NumPy's own numbers as Python's."""
    return value.item()


def possession(
    match: Match, found: Sequence[Event], true: Sequence[Event] | None, naive: Sequence[Event] | None, until: int
) -> list[PossessionShare]:
    """The teams' shares; nothing if no team was found to have the ball."""
    ours, truly, unordered = (_held(match, events, until) for events in (found, true, naive))
    if ours is None:
        return []
    return [
        PossessionShare(team, ours[team], truly[team] if truly else None, unordered[team] if unordered else None)
        for team in match.teams
    ]


def _held(match: Match, events: Sequence[Event] | None, until: int) -> dict[str, float] | None:
    changes = [event for event in events or () if event.type == "possession"]
    held = possession_time(match, changes, until) if changes else {}
    total = sum(held.values())
    return {team: time / total for team, time in held.items()} if total else None


# On the pitch and on the timeline.


def shots(match: Match, events: Iterable[Event]) -> list[Shot]:
    """With how they ended and, where query 4 followed them, the way of the ball."""
    events = list(events)
    keepers = {player.name for player in match.players if player.goalkeeper}
    scored = {event["shot_at"] for event in events if event.type == "goal"}
    stopped = {
        event["shot_at"]: "saved"
        if event["blocker"] in keepers and event["blocker_team"] != event["team"]
        else "blocked"
        for event in events
        if event.type == "blocked_shot"
    }
    ways: dict[int, list[Place]] = {}
    for event in events:
        if event.type == "shot_motion":
            ways.setdefault(event["shot_at"], []).append((event["x"], event["y"]))
    return [
        _shot(shot, "goal" if shot.ts in scored else stopped.get(shot.ts, "on target"), ways.get(shot.ts, ()))
        for shot in events
        if shot.type == "shot"
    ]


def passes(events: Iterable[Event]) -> list[PassLine]:
    """From the hit they began with; a pass whose hit is not among the events is left out."""
    events = list(events)
    hits = {(event.ts, event["player"]): (event["x"], event["y"]) for event in events if event.type == "hit"}
    offside = {(event["kicked_at"], event["player"]): event["by"] for event in events if event.type == "offside"}
    made = []
    for event in events:
        if event.type != "pass" or (start := hits.get((event["kicked_at"], event["player"]))) is None:
            continue
        made.append(
            PassLine(
                event.ts,
                event["player"],
                event.get("to"),
                event["team"],
                start,
                (event["x"], event["y"]),
                bool(event["successful"]),
                event.get("length"),
                offside.get((event["kicked_at"], event.get("to"))),
            )
        )
    return made


def marks(events: Iterable[Event]) -> list[Mark]:
    return [
        Mark(event.ts, event.type, event.get("player"), event.get("team"))
        for event in _judged(events)
        if event.type in ROWS
    ]


def spans(events: Iterable[Event], stop: int) -> list[PossessionSpan]:
    """Who had the ball from when to when."""
    changes = sorted((event for event in events if event.type == "possession"), key=lambda event: event.ts)
    ends = [event.ts for event in changes[1:]] + [stop] * bool(changes)
    return [
        PossessionSpan(change.ts, end, change.get("team"), change.get("player"))
        for change, end in zip(changes, ends, strict=True)
        if change.ts < end
    ]


# Of the queries.


def heat(match: Match, events: Iterable[Event]) -> list[Heat]:
    """The last whole-game map of each player, and of each team all of its players' together."""
    last = {event["player"]: event for event in events if event.type == "heatmap"}
    maps: list[Heat] = []
    for team in match.teams:
        whole = np.zeros(GRID)
        for name, event in sorted(last.items()):
            if event["team"] != team:
                continue
            grid = np.zeros(GRID)
            across, along, share = unpack(event.payload)[GRID, WHOLE_GAME]
            grid[across, along] = share
            maps.append(Heat(name, team, grid))
            whole += grid
        if whole.any():
            maps.append(Heat(team, team, whole / whole.sum()))
    return maps


def runners(events: Iterable[Event]) -> list[RunningFigures]:
    """Time and distance from the last totals, the top speed from all runs."""
    top: dict[str, float] = {}
    totals: Event | None = None
    for event in events:
        if event.type == "run":
            top[event["player"]] = max(top.get(event["player"], 0.0), event["top"])
        elif event.type == "running":
            for name, speed in zip(event["player"], event["top"], strict=True):
                top[name] = max(top.get(name, 0.0), speed)
        elif event.type == "running_total":
            totals = event
    if totals is None:
        return []
    whole = list(totals["window"]).index(WHOLE_GAME)
    return [
        RunningFigures(
            name, team, top.get(name, 0.0), sum(far[whole]), dict(zip(INTENSITIES, long[whole], strict=True))
        )
        for name, team, long, far in zip(
            totals["player"], totals["team"], totals["time"], totals["distance"], strict=True
        )
        if sum(long[whole]) > 0
    ]


# Waits and delays.


def policy_waits(policy: str, summary: Summary, history: Sequence[Mapping[str, Any]]) -> PolicyWaits:
    """The waits of a run: its summary, and an engine's ``stats()`` (or statistics rows), oldest first."""
    last = history[-1]
    backs = path_backs(summary.match, {name: kind.get("back", 0) for name, kind in last["types"].items()})
    units = [
        DetectorWait(
            name, unit["level"], unit["K"], unit["wait_mean"], unit["wait_max"], unit["delivered"], unit["late"]
        )
        for name, unit in last["detectors"].items()
    ]  # fmt: skip
    waits = [
        EventWait(kind, summary.levels[kind], wait.count, wait.mean, wait.largest, backs.get(kind, 0))
        for kind, wait in summary.waits.items()
        if wait.count and kind != SECOND_OVER.name  # the queries' own clock, no result
    ]
    series = [Series(name, _points(history, name)) for name in last["detectors"]]
    return PolicyWaits(policy, units, waits, series, sum(unit["late"] for unit in last["detectors"].values()))


def _points(history: Sequence[Mapping[str, Any]], name: str) -> list[Point]:
    """A detector over time; its wait is the mean since the point before."""
    points = []
    waited, delivered = 0.0, 0
    for stats in history:
        unit = stats["detectors"].get(name)
        if unit is None or stats["stream_time"] is None:
            continue
        total, fresh = unit["wait_mean"] * unit["delivered"], unit["delivered"] - delivered
        wait = (total - waited) / fresh if fresh else None
        waited, delivered = total, unit["delivered"]
        points.append(Point(stats["stream_time"], unit["K"], wait, unit["buffered"], unit["late"]))
    return points


def hierarchy_nodes(summary: Summary) -> list[DetectorNode]:
    """The hierarchy that the summary is of, lowest level first."""
    hierarchy = match_hierarchy(summary.match)
    published: dict[str, dict[str, int]] = {}
    for kind, name in hierarchy.publisher.items():
        if kind in summary.levels:
            published.setdefault(name, {})[kind] = summary.counts[kind]
    nodes = [
        DetectorNode(name, hierarchy.levels[name], hierarchy.listens[name], counts)
        for name, counts in published.items()
    ]
    return sorted(nodes, key=lambda node: node.level)


def path_backs(match: Match, backs: Mapping[str, float]) -> dict[str, float]:
    """Per type, its own backdating and the largest sum of those of the types below it."""
    hierarchy = match_hierarchy(match)
    made_from = {kind: hierarchy.listens[name] for kind, name in hierarchy.publisher.items()}

    def along(kind: str) -> float:
        if kind not in made_from:
            return 0.0
        if kind not in sums:
            sums[kind] = backs.get(kind, 0) + max(along(below) for below in made_from[kind])
        return sums[kind]

    sums: dict[str, float] = {}
    for kind in made_from:
        along(kind)
    return sums


def delays_by_kind(
    match: Match, sid: NDArray[np.integer], ts: NDArray[np.int64], arrival: NDArray[np.int64]
) -> list[Delays]:
    """The delays of the ball's transmitters and of the others, from columns in order of arrival."""
    late = ts < np.maximum.accumulate(ts) if len(ts) else np.zeros(0, dtype=bool)
    of_ball = np.isin(sid, match.balls)
    return [
        Delays(kind, (arrival - ts)[rows], float(late[rows].mean()))
        for kind, rows in (("balls", of_ball), ("players and referees", ~of_ball))
        if rows.any()
    ]
