"""How much CPU detectors will need: from the rate of their events, the cost of one, and how both change.

What a detector needs is the number of events that it gets per second times the seconds that one takes. In the story of
[Migration, V-B] both rise at once: more players in the penalty area are more events, and each of them takes longer. So
each of the two gets a line of its own, and the forecast is their product; a line through the product would lag behind.
The rate is that of the events that were sent, not of those that were processed: a node that falls behind processes no
more than it can, and would look as if all were well.

A line is that of Theil and Sen: its slope is the median of those between any two looks, its height the median of what
is left. It has no parameter but the number of looks, and that has a reason: of five, one bad look spoils four of ten
slopes, and so not the median; of four it spoils three of six, and does. A rise that has ended is seen in the last three
first, while the five still promise more: what counts is the lower of the two forecasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

#: A line goes through so many looks: the fewest of which one may be wrong. Before, it is level.
LOOKS = 5
#: Another goes through the last of them: the fewest with a median.
LATEST = 3


class TrendLine(NamedTuple):
    """A straight line through looks."""

    slope: float
    height: float

    def at(self, time: float) -> float:
        """Where it is at a time."""
        return self.height + self.slope * time


def line(times: Sequence[float], values: Sequence[float]) -> TrendLine:
    """The line of Theil and Sen; level through a single look.

    >>> line([0, 1, 2, 3, 4], [1, 2, 99, 4, 5]).at(6)
    7.0
    """
    slopes = [
        (values[later] - value) / (times[later] - time)
        for nth, (time, value) in enumerate(zip(times, values, strict=True))
        for later in range(nth + 1, len(times))
        if times[later] > time
    ]
    slope = median(slopes) if slopes else 0.0
    return TrendLine(slope, median(value - slope * time for time, value in zip(times, values, strict=True)))


class Measured(NamedTuple):
    """What a detector got and took at a time: events per second, and CPU seconds per event."""

    at: float
    events: float
    cost: float


class Demand:
    """The CPU that one detector needs, over time.

    >>> demand = Demand()
    >>> for second in range(5):
    ...     demand.look(second, events=100 + 20 * second, cost=0.001)
    >>> round(demand.now, 3), round(demand.at(6), 3)
    (0.18, 0.22)
    """

    def __init__(self) -> None:
        self._looks: deque[Measured] = deque(maxlen=LOOKS)

    def look(self, at: float, events: float, cost: float | None) -> None:
        """One more look; one that is not later than the last is left out. Nothing processed has no cost: as before."""
        if cost is None:
            cost = self._looks[-1].cost if self._looks else 0.0
        if not self._looks or at > self._looks[-1].at:
            self._looks.append(Measured(at, events, cost))

    @property
    def now(self) -> float:
        """The share of a core at the last look."""
        return self._looks[-1].events * self._looks[-1].cost if self._looks else 0.0

    def at(self, time: float) -> float:
        """The share of a core at a later time, if both go on as they do. Never less than nothing."""
        looks = list(self._looks)
        if len(looks) < LOOKS:
            return self.now
        return min(_product(looks, time), _product(looks[-LATEST:], time))


def _product(looks: list[Measured], time: float) -> float:
    """Where the lines through rate and cost are at a time, multiplied."""
    times = [look.at - looks[0].at for look in looks]
    rate = line(times, [look.events for look in looks]).at(time - looks[0].at)
    cost = line(times, [look.cost for look in looks]).at(time - looks[0].at)
    return max(0.0, rate) * max(0.0, cost)
