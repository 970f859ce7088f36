"""The detectors of the demo: hits in a near/not-near/kick stream, and phones that report at the same moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from slackline import Detector, Event, Hierarchy


class PlayerHitsBall(Detector):
    """A kick while a player is near the ball is a hit of that player (seed 000, Figure 3)."""

    listens = ("near", "not_near", "kick")
    publishes = ("hit",)

    def __init__(self) -> None:
        self.close: set[int] = set()

    def on_event(self, event: Event) -> Iterator[Event]:
        if event.type == "near":
            self.close.add(event["player"])
        elif event.type == "not_near":
            self.close.discard(event["player"])
        else:
            for player in sorted(self.close):
                yield event.derive("hit", player=player)


class BallGoesTo(Detector):
    """From one player's hit to another's is a pass."""

    listens = ("hit",)
    publishes = ("pass",)

    def __init__(self) -> None:
        self.last: Event | None = None

    def on_event(self, event: Event) -> Iterator[Event]:
        if self.last is not None and self.last["player"] != event["player"] and event.ts > self.last.ts:
            yield event.derive("pass", giver=self.last["player"], taker=event["player"])
        self.last = event


class Together(Detector):
    """Phones that report within ``within`` of each other, at least ``phones`` of them: a meeting, at its start."""

    listens = ("report",)
    publishes = ("meeting",)

    def __init__(self, within: int = 60, phones: int = 3) -> None:
        self.within = within
        self.phones = phones
        self.recent: deque[tuple[int, str]] = deque()

    def on_event(self, event: Event) -> Iterator[Event]:
        while self.recent and self.recent[0][0] < event.ts - self.within:
            self.recent.popleft()
        self.recent.append((event.ts, str(event.source)))
        names = {name for _, name in self.recent}
        if len(names) >= self.phones:
            start = self.recent[0][0]
            self.recent.clear()
            yield event.derive("meeting", ts=start, phones=len(names))


class Busy(Detector):
    """How many meetings there were in each minute."""

    listens = ("meeting",)
    publishes = ("minute",)

    def __init__(self, minute: int = 60_000) -> None:
        self.minute = minute
        self.current = -1
        self.meetings = 0

    def on_event(self, event: Event) -> Iterator[Event]:
        number = event.ts // self.minute
        if number != self.current:
            if self.meetings:
                yield event.derive("minute", meetings=self.meetings)
            self.current, self.meetings = number, 0
        self.meetings += 1


def kick_hierarchy() -> Hierarchy:
    """Hits and passes; the ticks of the ball's transmitter, frequent and with little delay, set the clock."""
    return Hierarchy([PlayerHitsBall(), BallGoesTo()], clock="tick")


def phone_hierarchy() -> Hierarchy:
    """Meetings of phones and how many per minute; the reports set the clock."""
    return Hierarchy([Together(), Busy()], clock="report")
