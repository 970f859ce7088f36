"""From the statistics of a run to what the page shows of waits and delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackline_soccer.model.match import Match
from slackline_soccer.queries.events import SECOND_OVER
from slackline_soccer.report.model import Delays, DetectorNode, DetectorWait, EventWait, PolicyWaits
from slackline_soccer.report.series import Point, Series
from slackline_soccer.run import match_hierarchy
from slackline_soccer.summary import Summary


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
    """Per type, its own back-setting and the largest sum of those of the types below it."""
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
