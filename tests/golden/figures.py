"""The detector of the figures of [Order], and their events by name."""

from __future__ import annotations

import slackline as sl


class NearKick(sl.Detector):
    """A, then C, and no B in between, makes D at the time of C (Figure 3(a))."""

    name = "D"
    listens, publishes = ("A", "B", "C"), ("D",)

    def __init__(self) -> None:
        self.near = False
        self.seen: list[str] = []

    def on_event(self, event: sl.Event):
        self.seen.append(f"{event.type}{event.ts}")
        if event.type == "C" and self.near:
            yield event.derive("D")
        elif event.type in "AB":
            self.near = event.type == "A"
