"""Three streams in step: a log file that grows, a web server that stumbles, and a file of recorded lines.

A door writes its log while we read it. A lift is a web server on this machine that answers 500 at first and hangs up
later. A light was recorded as lines of JSON, one of them spoilt. Their events come out in one order, whoever delivers
first. Run it with `python examples/06_streams.py`; it needs the extra `connectors`, but no network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import slackline as sl
from slackline.connectors import FileStream, HttpStream, Junction

DOOR = [(1, "open"), (4, "closed"), (12, "open"), (21, "closed")]
LIFT = [(2, 0), (5, 1), (9, 2), (14, 3), (18, 0)]
LIGHT = '{"ts": 3, "on": true}\n{"ts": 8, "on": fal\n{"ts": 20, "on": false}\n'
EVENTS = len(DOOR) + len(LIFT) + 2


class Lift(BaseHTTPRequestHandler):
    """Server-sent events of a lift. It is not ready at first, and hangs up after each two events."""

    requests = 0

    def do_GET(self) -> None:
        type(self).requests += 1
        seen = int(self.headers.get("Last-Event-ID", -1)) + 1
        self.send_response(500 if self.requests == 1 else 200 if seen < len(LIFT) else 204)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if self.requests > 1:
            for number, (ts, floor) in list(enumerate(LIFT))[seen : seen + 2]:
                text = f'retry: 50\nid: {number}\ndata: {{"ts": {ts}, "floor": {floor}}}\n\n'
                self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


async def write_log(path: Path) -> None:
    """The door: writes a line now and then, and not always a whole one."""
    with path.open("w") as log:
        log.write("ts,state\n")
        for ts, state in DOOR:
            for part in (f"{ts},{state[:2]}", f"{state[2:]}\n"):
                log.write(part)
                log.flush()
                await asyncio.sleep(0.05)


async def main(folder: Path, port: int) -> None:
    (folder / "light.jsonl").write_text(LIGHT)
    printed = 0

    def show(events: list[sl.Event]) -> None:
        nonlocal printed
        for event in events:
            print(f"{event.ts:3} {event.source:6} {dict(event.payload)}")
            printed += 1
        if printed == EVENTS:
            junction.stop()  # nobody else knows that the log is complete

    light = FileStream(folder / "light.jsonl", ts="ts")
    streams = [
        FileStream(folder / "door.csv", ts="ts", follow=True, poll=0.02),
        HttpStream(f"http://127.0.0.1:{port}/lift", ts="ts", name="lift"),
        light,
    ]
    junction = Junction(streams, show, queue=100, ahead=10)
    stats, _ = await asyncio.gather(junction.run(), write_log(folder / "door.csv"))

    print(f"given to the sink: {stats.fed}, late: {stats.late}")
    for name, adapter in stats.adapters.items():
        print(f"{name}: {adapter.state}, {dict(adapter.counts)}")
    print(f"rejected: {light.rejected[0].place} of light: {light.rejected[0].record}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="log: %(message)s")
    os.environ["NO_PROXY"] = "127.0.0.1"  # the lift is here, whatever proxy there is for the rest of the world
    server = ThreadingHTTPServer(("127.0.0.1", 0), Lift)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary), server.server_port))
    server.shutdown()
