"""Slackline inside any Python process: hits from a shuffled list of events.

A hit is a kick while a player is near the ball. Kicks come 1 to 2 ms after they happened, players' events 5 to 45 ms:
a kick often overtakes the `near` that it belongs to. Run it with `python examples/01_embedded.py`.
"""

from __future__ import annotations

import random

import slackline as sl


class PlayerHitsBall(sl.Detector):
    """A kick while players are near is a hit of each of them."""

    listens = ("near", "not_near", "kick")
    publishes = ("hit",)

    def __init__(self) -> None:
        self.close: set[int] = set()

    def on_event(self, event: sl.Event):
        if event.type == "near":
            self.close.add(event["player"])
        elif event.type == "not_near":
            self.close.discard(event["player"])
        else:
            for player in sorted(self.close):
                yield event.derive("hit", player=player)


def shuffled_events(rng: random.Random) -> tuple[list[sl.Event], list[tuple[int, int]]]:
    """Events in the order of their arrival, and the hits that are in them: (ts, player). Times are milliseconds."""
    arrivals: list[tuple[int, sl.Event]] = []
    hits = []
    seqs = dict.fromkeys(["ball", *(f"p{player}" for player in range(1, 6))], 0)
    free = dict.fromkeys(seqs, 0)  # a source delivers in order: not before its last event arrived

    def send(kind: str, ts: int, source: str, delay: int, **payload: int) -> None:
        free[source] = max(free[source], ts + delay)
        arrivals.append((free[source], sl.Event(kind, ts=ts, source=source, seq=seqs[source], **payload)))
        seqs[source] += 1

    for encounter in range(60):
        player, start = rng.randint(1, 5), 1_000 * encounter
        kick = start + rng.randint(2, 80)
        send("near", start, f"p{player}", rng.randint(5, 45), player=player)
        send("kick", kick, "ball", rng.randint(1, 2))
        send("not_near", kick + rng.randint(2, 60), f"p{player}", rng.randint(5, 45), player=player)
        hits.append((kick, player))
    # One event is stuck on its way for eight seconds, much longer than any before it.
    arrivals.append((38_000, sl.Event("near", ts=30_000, source="p6", seq=0, player=6)))
    arrivals.sort(key=lambda arrival: arrival[0])
    return [event for _, event in arrivals], hits


def main() -> None:
    events, truth = shuffled_events(random.Random(7))

    unordered = PlayerHitsBall()
    naive = [(hit.ts, hit["player"]) for event in events for hit in unordered.on_event(event)]

    engine = sl.Engine(sl.Hierarchy([PlayerHitsBall()], clock=("kick",)))
    outputs: list[sl.Output] = []
    for event in events:  # one by one, as they arrive; a list of several, or a pyarrow table, gives the same
        outputs += engine.push([event])
    outputs += engine.close()

    hits = [(output.event.ts, output.event["player"]) for output in outputs]
    print(f"hits: {len(hits)}, the first three: {hits[:3]}")
    print(f"as it should be: {hits == truth}")
    print(f"taken as they came, without ordering: {len(set(naive) & set(truth))} of {len(truth)} hits right")
    for late in engine.late:
        print(f"late: {late.event} was {late.lateness} ms below the watermark of {late.detector}")
    stats = engine.stats()["detectors"]["PlayerHitsBall"]
    print(f"stats: delivered {stats['delivered']}, late {stats['late']}, K {stats['K']} ms")


if __name__ == "__main__":
    main()
