"""Two real goals as tracking data, in whichever order the objects of a frame are listed (see data/last_row)."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

FOLDER = Path(__file__).parent / "data" / "last_row"
RATE = 20
#: Of each play: the team at the low end, and the goal that is scored in.
PLAYS = {"liv_che": ("defense", 0), "real_barcelona": ("attack", 1)}


def tracked(play, rng=None, ball="first"):
    """Rows (ts in s, object, x, y, z in m) frame by frame, and the mapping.

    The ball is listed ``first`` or ``last`` in every frame; given a generator, rows and mapping are listed anyhow.
    """
    frame = pd.read_csv(FOLDER / f"{play}.csv.gz")
    objects = sorted(frame["player"].unique().tolist(), key=lambda number: (number == 0) == (ball == "last"))
    if rng is not None:
        objects = rng.permutation(objects).tolist()
    place = {number: at for at, number in enumerate(objects)}
    within = rng.random(len(frame)) if rng is not None else frame["player"].map(place)
    frame = frame.iloc[np.lexsort((within, frame["frame"]))]
    table = pa.table(
        {
            "ts": frame["frame"].to_numpy() / RATE,
            "object": frame["player"].astype(str).tolist(),
            "x": frame["x"].to_numpy() * 1.05,
            "y": frame["y"].to_numpy() * 0.68,
            "z": frame["z"].to_numpy(),
        }
    )
    teams = frame.groupby("player")["team"].first()
    entries = [
        {"object": str(number), "role": "ball"} if number == 0 else {"object": str(number), "team": teams[number]}
        for number in objects
    ]
    low, _ = PLAYS[play]
    return table, {"objects": entries, "unit": "m", "origin": "corner", "low": low}


def write(table, path):
    pyarrow.csv.write_csv(table, path)
    return path
