"""Three streams merged: a log file that grows, a web server that fails now and then, and a file of recorded lines.

A door writes its log while it is read. A lift is a web server on this machine that answers 500 at first and closes the
connection later. A light was recorded as JSON lines, one of them broken. Their events are merged in the order of event
time, whichever source delivers first. Run it with `python examples/06_streams.py`; it needs the extra `connectors`, but
no network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from slackline.connectors import FileSource, HttpSource
from slackline.runtime import Junction, OutputRecord

DOOR = [(1, "open"), (4, "closed"), (12, "open"), (21, "closed")]
LIFT = [(2, 0), (5, 1), (9, 2), (14, 3), (18, 0)]
LIGHT = '{"ts": 3, "on": true}\n{"ts": 8, "on": fal\n{"ts": 20, "on": false}\n'
EVENTS = len(DOOR) + len(LIFT) + 2


class Lift(BaseHTTPRequestHandler):
    """Server-sent events of a lift. The server is not ready at first, and disconnects after each two events."""

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
    """The door: writes its lines in pieces."""
    with path.open("w") as log:
        log.write("ts,state\n")
        for ts, state in DOOR:
            for part in (f"{ts},{state[:2]}", f"{state[2:]}\n"):
                log.write(part)
                log.flush()
                await asyncio.sleep(0.05)


async def main(folder: Path, port: int) -> None:
    (folder / "light.jsonl").write_text(LIGHT)
    written = 0

    def show(records: list[OutputRecord]) -> None:
        nonlocal written
        for record in records:
            if record.kind == "event":
                print(f"{record.ts:3} {record.source:6} {record.payload}")
                written += 1
            else:
                print(f"{record.kind}: {record.payload}")
        if written == EVENTS:
            junction.stop()  # a log that is followed has no end

    sources = [
        FileSource(folder / "door.csv", follow=True, poll=0.02),
        HttpSource(f"http://127.0.0.1:{port}/lift", name="lift"),
        FileSource(folder / "light.jsonl"),
    ]
    junction = Junction(sources, show, ahead=10)
    stats, _ = await asyncio.gather(junction.run(), write_log(folder / "door.csv"))

    print(f"events: {stats.metrics.outputs}, late: {stats.metrics.late}, quarantined: {stats.metrics.quarantined}")
    for name, source in stats.sources.items():
        print(f"{name}: {source.state}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="log: %(message)s")
    os.environ["NO_PROXY"] = "127.0.0.1"  # the server is on this machine
    server = ThreadingHTTPServer(("127.0.0.1", 0), Lift)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(main(Path(temporary), server.server_port))
    server.shutdown()
