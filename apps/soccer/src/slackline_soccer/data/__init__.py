"""Recorded matches that come with the package; where they are from is in the README beside them."""

from __future__ import annotations

from pathlib import Path

from slackline import ConfigError

#: To be shown wherever these matches, or figures from them, are shown.
DEBS_ATTRIBUTION = (
    "DEBS 2013 Grand Challenge: RedFIR positions recorded by Fraunhofer IIS; excerpt published in citmp2015/soccer "
    "(Apache-2.0)."
)
METRICA_ATTRIBUTION = "Match events: Metrica Sports sample data, games 1 and 3 (repository metrica-sports/sample-data)."

_HERE = Path(__file__).resolve().parent


def debs_excerpt() -> Path:
    """0.82 s of raw RedFIR positions of the DEBS 2013 match: CSV, in occurrence order."""
    return _HERE / "debs2013" / "second_half_excerpt.csv.gz"


def debs_sensors() -> Path:
    """Which transmitter of that match sits on which ball, limb or the referee: CSV."""
    return _HERE / "debs2013" / "sensors.csv"


def metrica_events(game: int) -> Path:
    """Annotated events of a real match: game 1 as CSV, game 3 as JSON, both compressed.

    >>> metrica_events(1).name
    'game_1_events.csv.gz'
    """
    files = {1: "game_1_events.csv.gz", 3: "game_3_events.json.gz"}
    if game not in files:
        raise ConfigError(f"there are Metrica games 1 and 3; got {game!r}.")
    return _HERE / "metrica" / files[game]
