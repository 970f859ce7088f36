"""An application for tests: shuffled readings of several vans, and what a detector with a state makes of them."""

from __future__ import annotations

import slackline as sl


class Sums(sl.Detector):
    """The sum of a van's readings so far; where order or a reading is lost or doubled, it shows ever after."""

    listens, publishes = ("reading",), ("sum",)

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0

    def on_event(self, event: sl.Event):
        self.count += 1
        self.sum = (self.sum * 31 + event["value"]) % 1_000_003
        yield event.derive("sum", count=self.count, sum=self.sum)


class Peaks(sl.Detector):
    """Sums that are larger than the one before."""

    listens, publishes = ("sum",), ("peak",)

    def __init__(self) -> None:
        self.last = 0

    def on_event(self, event: sl.Event):
        if event["sum"] > self.last:
            yield event.derive("peak", rise=event["sum"] - self.last)
        self.last = event["sum"]


hierarchy = sl.Hierarchy([Sums(), Peaks()], clock="reading")
