"""What happens at one time happens at once: in which order a file or a mapping lists it changes nothing.

Among others in two real goals as tracking data (data/last_row).
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from apps.soccer.tests.tracked import mapping_entries, tracking_of

from slackline_soccer import simulate
from slackline_soccer.recordings import mapping_of, open_recording
from slackline_soccer.run import run

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


def facts(result, ignore=("ball",)):
    """All events with all their fields; transmitters are numbered as they are listed, so their numbers are left out."""
    return Counter(
        (
            event.type,
            event.ts,
            *sorted((name, str(value)) for name, value in event.payload.items() if name not in ignore),
        )
        for event in result.events()
    )


def found_in(play, path, **listed):
    table, mapping = tracked(play, **listed)
    return run(open_recording(write(table, path / "play.csv"), mapping_of(mapping)), queries=False)


@pytest.mark.parametrize("play", PLAYS)
@pytest.mark.parametrize("ball", ["first", "last"])
def test_the_shots_of_two_real_goals_are_found(tmp_path, play, ball):
    result = found_in(play, tmp_path, ball=ball)
    (shot,), (goal,) = result.events("shot"), result.events("goal")
    assert shot["team"] == "attack" and shot["goal"] == PLAYS[play][1]
    assert goal["player"] == shot["player"] and goal["shot_at"] == shot.ts
    assert 0 < goal.ts - shot.ts < 1.5e12


@pytest.mark.parametrize("play", PLAYS)
def test_real_goals_are_the_same_however_frames_are_listed(tmp_path, play):
    expected = facts(found_in(play, tmp_path))
    assert sum(expected.values()) > 30
    for seed in range(4):
        assert facts(found_in(play, tmp_path, rng=np.random.default_rng(seed))) == expected


def test_a_simulated_match_on_camera_is_the_same_however_frames_are_listed(tmp_path):
    simulation = simulate(seconds=40, seed=5, delays="none")
    table = tracking_of(simulation, noise=0.05, gaps=0.01, seed=1)
    objects = mapping_entries(simulation.match)["objects"]

    def found(rows, listed):
        pq.write_table(rows, tmp_path / "match.parquet")
        return facts(run(open_recording(tmp_path / "match.parquet", mapping_of({"objects": listed})), queries=False))

    expected = found(table, objects)
    assert sum(expected.values()) > 100
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order = np.lexsort((rng.random(table.num_rows), table["ts"].to_numpy()))
        assert found(table.take(pa.array(order)), [objects[n] for n in rng.permutation(len(objects))]) == expected


def test_a_match_of_transmitters_is_the_same_however_they_are_numbered():
    simulation = simulate(seconds=15, seed=3, delays="none")
    match, table = simulation.match, simulation.table()
    ts = table["ts"].to_numpy() // (5 * 10**8) * (5 * 10**8)  # a picture of many transmitters every 0.5 ms
    sid = table["sid"].to_numpy()

    def found(numbers):
        renumbered = replace(match, sensors=tuple(replace(s, sid=numbers[s.sid]) for s in match.sensors))
        new = np.array([numbers[number] for number in sid.tolist()])
        rows = table.drop_columns(["sid", "ts"]).append_column("sid", pa.array(new)).append_column("ts", pa.array(ts))
        return facts(run([rows.take(pa.array(np.lexsort((new, ts))))], renumbered, queries=False))

    expected = found({number: number for number in match.sids})
    assert sum(expected.values()) > 50
    rng = np.random.default_rng(1)
    assert found(dict(zip(match.sids, rng.permutation(match.sids).tolist(), strict=True))) == expected
