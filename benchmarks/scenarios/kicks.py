"""Players come near the ball and leave, the ball is kicked: a stream whose hits are known.

A **hit** is a kick while a player is near the ball; two players can be near at once. This is the input of the
`PlayerHitsBall` detector of [Order, Figures 1 and 9]: near and not_near come 5 to 45 ms after they
happened, kicks 1 to 2 ms. So a kick often overtakes the near event it belongs to, and in arrival order
the hits are wrong.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa

from slackline.core.errors import ConfigError
from slackline_soccer.simulator.locating import in_order, kick_delay, near_delay

#: A hit: time stamp of the kick and the player's number.
HIT = tuple[int, int]

PLAYERS = 22
_MS = 1_000


def kicks(seed: int, seconds: float, ticks: int = 0) -> tuple[pa.Table, list[HIT]]:
    """One site: its events in arrival order and the hits that are really in them, in order.

    Columns: ``arrival`` and ``ts`` (int64, microseconds), ``type`` (near, not_near, kick), ``source`` ("p7",
    "ball"), ``seq`` (int64, per source), ``player`` (int64, null for kicks). Each source delivers in order.
    With ``ticks`` per second the ball's transmitter also sends ticks: frequent events of little
    delay, good as a clock.
    """
    if not seconds > 0:
        raise ConfigError(f"cannot simulate {seconds} seconds; give a positive number.")
    rng = np.random.default_rng([seed, 2])
    visits, kicked = _play(rng, round(seconds * 1_000_000))
    rows: list[tuple[int, int, str, str, int, int | None]] = []
    for player in range(1, PLAYERS + 1):
        mine = [(near, away) for who, near, away in visits if who == player]
        times = np.array([t for visit in mine for t in visit], np.int64)
        arrivals = in_order(times, near_delay(rng, len(times))).tolist()
        for seq, (ts, arrival) in enumerate(zip(times.tolist(), arrivals, strict=True)):
            rows.append((arrival, ts, "not_near" if seq % 2 else "near", f"p{player}", seq, player))
    times = np.array(kicked, np.int64)
    arrivals = in_order(times, kick_delay(rng, len(times))).tolist()
    for seq, (ts, arrival) in enumerate(zip(kicked, arrivals, strict=True)):
        rows.append((arrival, ts, "kick", "ball", seq, None))
    if ticks:
        times = np.arange(0, round(seconds * 1_000_000), 1_000_000 // ticks, dtype=np.int64)
        arrivals = in_order(times, kick_delay(rng, len(times))).tolist()
        for seq, (ts, arrival) in enumerate(zip(times.tolist(), arrivals, strict=True)):
            rows.append((arrival, ts, "tick", "ball", seq, None))
    rows.sort(key=lambda row: (row[0], row[3], row[4], row[2]))
    # At equal times the total order puts a kick before near and before not_near.
    truth = sorted(
        (ts, who)
        for who, near, away in visits
        for ts in kicked[bisect_right(kicked, near) : bisect_right(kicked, away)]
    )
    return _table(rows), truth


def kick_sites(seed: int, seconds: float, sites: int, ticks: int = 0) -> tuple[pa.Table, dict[str, list[HIT]]]:
    """Several independent sites in one stream, with a column ``site``, and the hits of each."""
    parts = []
    truth: dict[str, list[HIT]] = {}
    for number in range(sites):
        name = f"site-{number}"
        table, truth[name] = kicks(seed * 1_000_003 + number, seconds, ticks)
        parts.append(table.add_column(0, "site", pa.array([name] * len(table), pa.string())))
    whole = pa.concat_tables(parts)
    order = np.argsort(whole["arrival"].to_numpy(), kind="stable")
    return whole.take(pa.array(order)).combine_chunks(), truth


def _play(rng: np.random.Generator, end: int) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Visits (player, near, not_near) and kicks; encounters are apart, so no player visits twice at once."""
    visits: list[tuple[int, int, int]] = []
    kicked: list[int] = []
    now = int(rng.integers(200 * _MS, 800 * _MS))
    while now + 600 * _MS < end:
        first, second = (int(p) for p in rng.choice(np.arange(1, PLAYERS + 1), 2, replace=False))
        kind = rng.random()
        kick = now + int(rng.integers(2 * _MS, 80 * _MS))
        if kind < 0.85:  # a player gets to the ball ...
            away = kick + int(rng.integers(2 * _MS, 100 * _MS))
            visits.append((first, now, away))
        if kind >= 0.15:  # ... and kicks it, or it bounces off a post with no player near
            kicked.append(kick)
        if kind < 0.30:  # an opponent is close, perhaps too late or too early for the kick
            near = now + int(rng.integers(-80 * _MS, 120 * _MS))
            visits.append((second, near, near + int(rng.integers(20 * _MS, 200 * _MS))))
        now += int(rng.integers(500 * _MS, 1_500 * _MS))
    return visits, kicked


def _table(rows: list[tuple[int, int, str, str, int, int | None]]) -> pa.Table:
    schema = pa.schema(
        {
            "arrival": pa.int64(),
            "ts": pa.int64(),
            "type": pa.string(),
            "source": pa.string(),
            "seq": pa.int64(),
            "player": pa.int64(),
        }
    )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
