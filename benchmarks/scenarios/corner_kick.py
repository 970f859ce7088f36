"""A corner kick: many players run into one penalty area, and the detectors there overload their host.

The example of [Thesis, 5.1.1 and 6.3; Migration, V-B]. In a penalty area rules are stricter, so positions there are
looked at in more detail, by detectors that cost more the more players are there: which players touch, mark or follow
each other. For 25 seconds play is in midfield, and three hosts have little to do. Then there is a corner: 13 players
and the ball go where a keeper waits for them, into the area that host ``n1`` watches, and within ten seconds that is
much more than it can do. At 48 s the ball is cleared, and they go back.

Positions come from a generator with a seed: 22 players and the ball, ten times a second each. Detectors report their
cost: to a simulated processor (:class:`slackline.cluster.simulation.Cpu`), or to a loop that uses as much CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackline.core.detector import Detector
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline_soccer.simulator.locating import in_order

#: Takes what something costs, in seconds of a core.
Work = Callable[[float], None]
Floats = npt.NDArray[np.float64]

#: Seconds of midfield play, and how long after it the last are there, the ball is cleared, all are back, it is over.
QUIET = 25.0
THERE, CLEARED, BACK, OVER = 11.0, 23.0, 31.0, 45.0
#: Positions per second of each player and the ball, and microseconds in a second: time stamps are in those.
RATE, PER_SECOND = 10, 1_000_000
#: Numbers: the ball, 11 who attack to the right with their keeper, 11 others with theirs.
BALL, KEEPERS, PLAYERS = 0, (1, 22), 22
#: Those who are near a keeper all the time.
NEAR = {1: (2, 3, 12, 13), 22: (4, 14)}
#: The pitch, and what of it is a penalty area, in metres.
LENGTH, WIDTH, DEPTH, FROM_Y, TO_Y = 105.0, 68.0, 16.5, 13.84, 54.16
#: A player without a position in an area for so long has left it, in microseconds.
GONE = PER_SECOND // 2
SIDES = ("left", "right")
#: What is looked for in an area, and what one event costs there for each player who is there, in seconds. The text
#: names fouls, handball and intentions; the costs are ours, so that at a corner one area needs more than a core.
WATCHES = {"Foul": 70e-6, "Handball": 60e-6, "Marking": 55e-6, "Offside": 40e-6, "Intent": 95e-6, "Screen": 50e-6}
#: What looks at all positions, and what one of them costs: a steady load, one for each host.
STEADY = {"Speeds": 700e-6, "Distances": 700e-6, "Shape": 700e-6}


# Where players are.


def positions(seed: int = 7, quiet: float = QUIET) -> pa.Table:
    """In arrival order: ``arrival`` and ``ts`` (microseconds), ``type``, ``source``, ``seq``, ``player``, ``x``, ``y``.

    The corner is given after ``quiet`` seconds. Half of the players are located at once, then the other
    half. Positions take 5 to 95 ms, and overtake those of others.
    """
    rng = np.random.default_rng([seed, 13])
    count = int((quiet + OVER) * RATE)
    turns = rng.permutation(PLAYERS + 1) / PLAYERS
    names = ("arrival", "ts", "seq", "player", "x", "y")
    parts: list[tuple[Any, ...]] = []
    for player in range(PLAYERS + 1):
        ts = (2 * np.arange(count, dtype=np.int64) + player % 2) * (PER_SECOND // RATE // 2)
        arrival = in_order(ts, rng.integers(5_000, 95_000, count))
        way = _way(rng, player, turns[player], ts / PER_SECOND - quiet)
        parts.append((arrival, ts, np.arange(count), np.full(count, player), *way))
    columns = dict(zip(names, (np.concatenate(each) for each in zip(*parts, strict=True)), strict=True))
    order = np.lexsort((columns["player"], columns["arrival"]))
    table = pa.table({name: values[order] for name, values in columns.items()})
    source = pa.array([f"p{player}" for player in columns["player"][order]])
    return table.append_column("source", source).append_column("type", pa.array(["position"] * len(table)))


def _way(rng: np.random.Generator, player: int, turn: float, times: Floats) -> tuple[Floats, Floats]:
    """One player's: about his place in midfield, then, from time 0 on, about one in the right area, and back.

    Some are quick, others take their time: ``turn`` is 0 for the first, 1 for the last.
    """
    home = (rng.uniform(35.0, 70.0), rng.uniform(15.0, 53.0))
    for end, keeper in zip((5.0, 100.0), KEEPERS, strict=True):
        if player == keeper or player in NEAR[keeper]:
            home = (end, WIDTH / 2) if player == keeper else (end + 10 * (end < 50) - 5, rng.uniform(24.0, 44.0))
    goes = player == BALL or (player not in KEEPERS and player not in NEAR[KEEPERS[0]])
    spot = (rng.uniform(91.0, 101.0), rng.uniform(24.0, 44.0)) if goes else home
    there, back = 4.0 + turn * (THERE - 4.0), CLEARED + 4.0 + turn * (BACK - CLEARED - 4.0)
    share = np.interp(times, [there - 4.0, there, back - 4.0, back], [0.0, 1.0, 1.0, 0.0])
    x, y = (home[axis] + share * (spot[axis] - home[axis]) for axis in (0, 1))
    for swing in (0.13, 0.31, 0.71):  # no player stands still
        x = x + 1.2 * np.sin(2 * math.pi * (swing * times + rng.random()))
        y = y + 1.2 * np.sin(2 * math.pi * (swing * times + rng.random()))
    return np.clip(x, 0.0, LENGTH), np.clip(y, 0.0, WIDTH)


# What is found.


class Costly(Detector):
    """A detector that reports its cost."""

    fixed = ("work", "cost")

    def __init__(self, name: str, work: Work, cost: float) -> None:
        self.name, self.work, self.cost = name, work, cost


class Areas(Costly):
    """Who is in a penalty area, and how fast."""

    listens, publishes = ("position",), tuple(f"in_{side}" for side in SIDES)

    def __init__(self, work: Work) -> None:
        super().__init__("Areas", work, 50e-6)
        self.last: dict[int, tuple[int, float, float]] = {}

    def on_event(self, event: Event) -> Iterable[Event]:
        self.work(self.cost)
        player, x, y = event["player"], event["x"], event["y"]
        ts, last_x, last_y = self.last.get(player, (event.ts - PER_SECOND // RATE, x, y))
        self.last[player] = event.ts, x, y
        if (x <= DEPTH or x >= LENGTH - DEPTH) and FROM_Y <= y <= TO_Y:
            seconds = (event.ts - ts) / PER_SECOND
            speed = {"vx": (x - last_x) / seconds, "vy": (y - last_y) / seconds}
            yield event.derive("in_left" if x <= DEPTH else "in_right", player=player, x=x, y=y, **speed)


class Steady(Costly):
    """A steady load: publishes the distance that a player has run, every 100 metres."""

    listens = ("position",)

    def __init__(self, name: str, work: Work, cost: float) -> None:
        super().__init__(name, work, cost)
        self.publishes = (name.lower(),)  # type: ignore[misc]
        self.last: dict[int, tuple[float, float, float]] = {}

    def on_event(self, event: Event) -> Iterable[Event]:
        self.work(self.cost)
        player, x, y = event["player"], event["x"], event["y"]
        last_x, last_y, run = self.last.get(player, (x, y, 0.0))
        further = run + math.hypot(x - last_x, y - last_y)
        self.last[player] = x, y, further
        if further // 100 > run // 100:
            yield event.derive(self.name.lower(), player=player, hundreds=int(further // 100))


class Seen(NamedTuple):
    """A player in an area."""

    ts: int
    x: float
    y: float


def _opponents(one: int, other: int) -> bool:
    return BALL not in (one, other) and (one <= 11) != (other <= 11)


class AreaWatch(Costly):
    """Watches one area. Each event is compared with all players in it, which is its cost.

    Detections are numbered: after a missing one all others have other numbers.
    """

    def __init__(self, name: str, side: str, work: Work) -> None:
        super().__init__(f"{name}_{side}", work, WATCHES[name])
        self.listens, self.publishes = (f"in_{side}",), (self.name.lower(),)  # type: ignore[misc]
        self.kind = name
        self.there: dict[int, Seen] = {}
        self.holds: set[tuple[int, int]] = set()
        self.found = 0

    def on_event(self, event: Event) -> Iterable[Event]:
        player, here = event["player"], Seen(event.ts, event["x"], event["y"])
        self.there = {who: seen for who, seen in self.there.items() if event.ts - seen.ts < GONE}
        self.there[player] = here
        self.work(self.cost * len(self.there))
        for pair in self._pairs(player, here, event):
            self.found += 1
            yield event.derive(self.name.lower(), player=player, other=pair[1], number=self.found)

    def _pairs(self, player: int, here: Seen, event: Event) -> list[tuple[int, int]]:
        """What has begun to hold between this player and others; what no longer holds may begin again."""
        begun = []
        for other, seen in self.there.items():
            if other != player:
                pair, holds = (player, other), self._holds(player, here, other, seen, event)
                if holds and pair not in self.holds:
                    begun.append(pair)
                (self.holds.add if holds else self.holds.discard)(pair)
        return begun

    def _holds(self, player: int, here: Seen, other: int, seen: Seen, event: Event) -> bool:
        apart = math.hypot(here.x - seen.x, here.y - seen.y)
        match self.kind:
            case "Foul":
                return _opponents(player, other) and apart < 0.8
            case "Handball":
                return other == BALL and apart < 1.0
            case "Marking":
                return _opponents(player, other) and apart < 2.0
            case "Screen":
                return other in KEEPERS and _opponents(player, other) and apart < 3.0
            case "Offside":
                return _opponents(player, other) and here.x > seen.x + 3.0
            case _:  # means to go where another is
                towards = event["vx"] * (seen.x - here.x) + event["vy"] * (seen.y - here.y)
                fast = math.hypot(event["vx"], event["vy"])
                return apart > 0 and fast > 2.0 and apart < 6.0 and towards > 0.95 * fast * apart


class AreaVerdict(Costly):
    """A penalty: an intended foul, or a handball, in the last two seconds and not offside."""

    def __init__(self, side: str, work: Work) -> None:
        super().__init__(f"Verdict_{side}", work, 100e-6)
        self.listens = tuple(f"{name.lower()}_{side}" for name in WATCHES)  # type: ignore[misc]
        self.publishes = (self.name.lower(),)  # type: ignore[misc]
        self.last: dict[tuple[str, int], int] = {}
        self.found = 0

    def on_event(self, event: Event) -> Iterable[Event]:
        self.work(self.cost)
        kind, player = event.type.partition("_")[0], event["player"]
        self.last[kind, player] = event.ts

        def lately(what: str) -> bool:
            return event.ts - self.last.get((what, player), -(10**9)) <= 2 * PER_SECOND

        if kind in ("foul", "handball") and not lately("offside") and (kind == "handball" or lately("intent")):
            self.found += 1
            marked = lately("marking") or lately("screen")
            yield event.derive(self.name.lower(), kind=kind, player=player, marked=marked, number=self.found)


class Referee(Costly):
    """All verdicts, in order."""

    listens, publishes = tuple(f"verdict_{side}" for side in SIDES), ("whistle",)

    def __init__(self, work: Work) -> None:
        super().__init__("Referee", work, 100e-6)
        self.found = 0

    def on_event(self, event: Event) -> Iterable[Event]:
        self.work(self.cost)
        self.found += 1
        yield event.derive("whistle", kind=event["kind"], player=event["player"], number=self.found)


def hierarchy(work: Work, reliable: bool = False) -> Hierarchy:
    """All detectors; each reports its cost to ``work``. ``reliable``: nothing is lost if a host is considered lost."""
    watches = [AreaWatch(name, side, work) for side in SIDES for name in WATCHES]
    steady = [Steady(name, work, cost) for name, cost in STEADY.items()]
    verdicts = [AreaVerdict(side, work) for side in SIDES]
    detectors = [Areas(work), *steady, *watches, *verdicts, Referee(work)]
    for detector in detectors if reliable else ():
        detector.reliable = detector.listens  # type: ignore[misc]
    return Hierarchy(detectors, clock="position")


#: Where detectors run at first: a penalty area each for two hosts, and where positions enter the third.
PLACES = {
    "n1": ("Speeds", *(f"{name}_right" for name in WATCHES)),
    "n2": ("Areas", "Distances", "Referee"),
    "n3": ("Shape", *(f"{name}_left" for name in WATCHES), *(f"Verdict_{side}" for side in SIDES)),
}
ENTERS = "n2"
