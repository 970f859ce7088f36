"""What really happened in a simulated match, and how well the detectors found it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackline import Event, SchemaError
from slackline_soccer.accuracy import Accuracy, PossessionShares, accuracy, possession_shares
from slackline_soccer.model.match import Match

#: What is compared: the types that both the simulation and the detectors know.
COMPARED = (
    "ball_left", "hit", "possession", "pass", "shot", "blocked_shot", "goal", "double_pass", "offside",
)  # fmt: skip
#: The truth has one column for whoever is on the other side of an event; the detectors call them by their parts.
_OTHER = {"blocked_shot": "blocker", "double_pass": "partner", "offside": "passer"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Found and true events side by side, type by type, and the teams' shares of possession."""

    accuracies: tuple[Accuracy, ...]
    possession: PossessionShares


def load_truth(source: Path | str | pa.Table) -> list[Event]:
    """The true events that the simulation wrote, as the detectors would have published them."""
    table = source if isinstance(source, pa.Table) else pq.read_table(source)
    if not {"type", "ts"} <= set(table.column_names):
        raise SchemaError(f"the truth of a match has the columns ts and type; got {table.column_names}.")
    found = []
    for row in table.to_pylist():
        kind, ts = row.pop("type"), row.pop("ts")
        payload = {name: value for name, value in row.items() if value is not None}
        if kind in _OTHER and "to" in payload:
            payload[_OTHER[kind]] = payload["to"]
        found.append(Event.of(kind, ts, None, None, payload))
    return found


def compare(match: Match, found: Iterable[Event], true: Iterable[Event], until: int) -> Comparison:
    """How well the events found up to ``until`` (ps) agree with the true ones."""
    mine = [event for event in found if _counts(event, until)]
    theirs = [event for event in true if _counts(event, until)]
    return Comparison(
        tuple(accuracy(kind, mine, theirs) for kind in COMPARED), possession_shares(match, mine, theirs, until)
    )


def _counts(event: Event, until: int) -> bool:
    """The truth knows the field as an area, not those within it."""
    return event.ts <= until and (event.type != "ball_left" or event.get("area") == "field")
