"""The seconds of the match, for detectors that publish regularly but have no use for positions.

A ``second`` is not set back to the grid point, as the queries' results are: whoever listens would have to wait for the
longest gap between two positions there ever was. It carries the time stamp of the position that ends it.
"""

from __future__ import annotations

from collections.abc import Iterator

from slackline import Batch, Detector, Event
from slackline_soccer.model.match import Match
from slackline_soccer.queries.clock import GameClock
from slackline_soccer.queries.events import SECOND_OVER


class Seconds(Detector):
    """Publishes ``second`` at each full second of a period."""

    listens = ("position",)
    publishes = (SECOND_OVER,)

    def __init__(self, match: Match) -> None:
        self.clock = GameClock.of(match, per_second=1)

    def on_batch(self, batch: Batch) -> Iterator[tuple[int, Event]]:
        for stretch in self.clock.stretches(batch.ts):
            ends = zip(stretch.at.tolist(), stretch.grid.tolist(), stretch.number.tolist(), strict=True)
            for row, at, number in ends:
                payload = {"at": at, "period": stretch.period, "number": number}
                yield row, Event.of(SECOND_OVER.name, int(batch.ts[row]), None, None, payload)
