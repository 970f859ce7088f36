"""Makes the pictures of docs/concepts from a recording: `python docs/images/concepts.py FOLDER` writes pages there.

A screenshot of each is kept beside this file:

    chromium --headless --hide-scrollbars --window-size=SIZE --screenshot=NAME.png PAGE

    k-over-time, watermarks, recovery   1000,420    this file
    migration                           1100,1480   slackline bench migrate --html PAGE
    placement                           1150,1290   slackline place --html PAGE, on the cluster of docs/guides/nodes.md
    study-d1                            1200,1060   slackline study --html PAGE, as in docs/guides/study-a-stream.md
    sync-d1                             1150,1190   slackline sync --html PAGE, as in docs/guides/synchronise.md
    match                               a part of the page of ./run demo
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from slackline.core.time import NEVER
from slackline.engine.options import Options
from slackline.ordering.clock import JUMP_OFF, Clock
from slackline.ordering.input import SensorInput
from slackline.ordering.startup import StartupEstimator
from slackline.runtime import RecordSchema
from slackline.study import load_stream
from slackline.study.policies import replay

PHONES = Path(__file__).parents[2] / "examples" / "data" / "d-1.csv.gz"
TARGET = 0.002


def line(x, y, name, color, **more):
    return go.Scatter(x=x, y=y, name=name, mode="lines", line={"color": color, "width": 2, **more})


def dots(x, y, name, color, **more):
    return go.Scatter(x=x, y=y, name=name, mode="markers", marker={"color": color, "size": 4, **more})


def write(path: Path, figure: go.Figure, x: str, y: str, **more) -> None:
    figure.update_layout(
        template="plotly_white", xaxis_title=x, yaxis_title=y, margin={"l": 70, "r": 20, "t": 20, "b": 50},
        legend={"orientation": "h", "y": 1.1}, height=400, **more,
    )  # fmt: skip
    figure.write_html(path, include_plotlyjs=True, config={"displayModeBar": False})


def k_over_time(folder: Path) -> None:
    stream = load_stream(PHONES, RecordSchema(arrival="arrival_ms", ts="ts_ms", source="source", unit="ms"))
    result = replay(stream.ts, stream.source, late_target=TARGET)
    delay = np.maximum.accumulate(stream.ts) - stream.ts
    x = np.arange(len(delay))
    behind = delay > 0
    figure = go.Figure([
        dots(x[behind], delay[behind], "delay of an event", "#9db7d5"),
        line(x, np.maximum(result.K, 1), "K", "#1b4f8a"),
        dots(x[result.late], np.maximum(delay[result.late], 1), "late", "#c0392b", symbol="x", size=8),
    ])  # fmt: skip
    write(folder / "k-over-time.html", figure, "arrival", "ms", yaxis_type="log")


def watermarks(folder: Path) -> None:
    stream = load_stream(PHONES, RecordSchema(arrival="arrival_ms", ts="ts_ms", source="source", unit="ms"))
    n, ts = len(stream), stream.ts
    input = SensorInput("event", 0, Options(late_target=TARGET).evidence, is_clock=True)
    for number in range(stream.sources):
        input.sources.slot(number)
    clk = np.empty(n, dtype=np.int64)
    Clock(JUMP_OFF).run(ts, np.ones(n, dtype=np.int64), stream.source, clk)
    reached, slack = input.run(
        np.arange(n), stream.source, ts, 0, NEVER, clk, StartupEstimator(None).run(ts, NEVER, clk)
    )
    owing = np.argmax((clk - reached)[3_000:]) + 3_000
    shown = slice(owing - 400, owing + 400)
    seconds = (stream.arrival[shown] - stream.arrival[shown][0]) / 1e3
    figure = go.Figure([
        line(seconds, slack[shown], "slack alone: K behind", "#e08e45", dash="dot"),
        line(seconds, (clk - reached)[shown], "the greater of slack and readiness", "#1b4f8a"),
    ])  # fmt: skip
    write(folder / "watermarks.html", figure, "arrival, s", "input watermark behind stream time, ms")


def recovery(folder: Path) -> None:
    target, n = 0.01, 10_000
    rng = np.random.default_rng(1)
    ts, delay = np.arange(n) * 10, rng.exponential(300, n)
    delay[1_500] = 30_000
    delay[3_000:3_012] += 30_000
    delay[6_500:7_000] *= 10
    order = np.argsort(ts + delay, kind="stable")
    result = replay(ts[order], np.zeros(n, dtype=np.int64), late_target=target)
    behind = np.maximum.accumulate(ts[order]) - ts[order]
    x = np.arange(n)
    figure = go.Figure([
        dots(x[behind > 0], behind[behind > 0], "delay of an event", "#9db7d5", opacity=0.5),
        line(x, np.maximum(result.K, 1), "K", "#1b4f8a"),
        dots(x[result.late], np.maximum(behind[result.late], 1), "late", "#c0392b", symbol="x", size=8),
    ])  # fmt: skip
    write(folder / "recovery.html", figure, "arrival", "units of event time", yaxis_type="log")


if __name__ == "__main__":
    for make in (k_over_time, watermarks, recovery):
        make(Path(sys.argv[1]))
