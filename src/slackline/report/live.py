"""A page to watch a running application: hierarchy, rates, waits, late share, slack and, of a cluster, its nodes.

``/`` is the page, ``/events`` the metrics as server-sent events: those of the last :data:`HISTORY` reports, then each
as it is made. Everything is served from here; nothing is fetched from elsewhere. A browser that does not read is
disconnected, and never slows down the application.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from slackline.core.hierarchy import Hierarchy
from slackline.core.time import Now
from slackline.runtime.http_server import LOOPBACK, DocumentServer, Stream
from slackline.runtime.metrics import DetectorMetrics, Metrics, Rates

#: Reports that a new browser is sent: ten minutes at one per second.
HISTORY = 600
#: Seconds after which something is sent even if there is nothing to report, to notice a browser that is gone.
KEEP_ALIVE = 10.0


class Stage(NamedTuple):
    """A detector of the hierarchy, as the page draws it."""

    name: str
    level: int
    listens: Sequence[str]
    publishes: Sequence[str]


class Panel(NamedTuple):
    """A part of the page that the application draws: ``script`` defines ``drawPanel(element, data)`` in JavaScript."""

    title: str
    script: str


class Migration(NamedTuple):
    """A detector that moved from one node to another; ``at`` is in seconds since the page was opened."""

    at: float
    detector: str
    origin: str
    target: str


def stages_of(hierarchy: Hierarchy) -> list[Stage]:
    """The detectors of a hierarchy, from the lowest level up."""
    found = (
        Stage(name, hierarchy.levels[name], sorted(hierarchy.listens[name]), hierarchy.published(name))
        for name in hierarchy.names
    )
    return sorted(found, key=lambda stage: stage.level)


class LivePage:
    """Serves the page; call it with metrics as they are made, and :meth:`close` it at the end.

    ``port`` 0 is any free port; :attr:`url` is where the page is.
    """

    def __init__(
        self, port: int, title: str, stages: Sequence[Stage], panel: Panel | None = None, now: Now = time.monotonic
    ) -> None:
        self._now, self._started = now, now()
        self._rates = Rates(now)
        self._names = [stage.name for stage in stages]
        self._runs: dict[str, str] = {}  # the node of each detector
        self._migrations: deque[Migration] = deque(maxlen=100)
        self._channel = _Channel(
            {"title": title, "stages": [stage._asdict() for stage in stages], "panel": panel and panel.title}
        )
        script = ("" if panel is None else panel.script).encode()
        self._server = DocumentServer(
            "the page", "--page", port,
            {
                "/": lambda _: ("text/html; charset=utf-8", _page()),
                "/panel.js": lambda _: ("text/javascript; charset=utf-8", script),
            },
            Stream("/events", self._channel.messages),
            names=(LOOPBACK, "localhost"),  # a page of another site could reach this port under its own name
        )  # fmt: skip
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/"

    @property
    def browsers(self) -> int:
        """How many browsers are connected."""
        return self._server.streams

    def __call__(self, metrics: Metrics) -> None:
        """Show the metrics of this moment."""
        self._channel.add("metrics", self._report(metrics))

    def show_panel(self, data: Any) -> None:
        """Draw the application's panel from ``data``, which JSON can hold; only the latest is kept."""
        self._channel.replace("panel", data)

    def show_cluster(self, overview: Mapping[str, Any], metrics: Metrics) -> None:
        """Show what one node knows of its cluster, and the metrics of all its nodes as one."""
        nodes = overview["nodes"]
        self._note_migrations({detector: name for name, node in nodes.items() for detector in node["runs"]})
        shown = {
            name: {"state": node["state"], "load": node["load"], "runs": node["runs"], "enters": node["enters"]}
            for name, node in nodes.items()
        }
        cluster = {
            "nodes": shown,
            "migrating": sorted(overview["moving"]),
            "migrations": [each._asdict() for each in self._migrations],
        }
        self._channel.replace("cluster", cluster)
        loads = {name: node["load"] for name, node in nodes.items()}
        self._channel.add("metrics", {**self._report(metrics), "loads": loads})

    def close(self) -> None:
        """Notify the browsers that the run has ended, and stop serving."""
        self._channel.end()
        self._server.close()

    def _report(self, metrics: Metrics) -> dict[str, Any]:
        each = [metrics.detectors.get(name, DetectorMetrics()) for name in self._names]
        event_rate, output_rate, *rates = self._rates.of(
            metrics.events, metrics.outputs, *(one.delivered for one in each)
        )
        detectors = {
            name: {
                "rate": rate,
                "late_share": one.late_share,
                "buffered": one.buffered,
                "alpha": one.alpha,
                "K": metrics.seconds(one.K),
                "wait": metrics.seconds(one.wait),
                "watermark_lag": metrics.seconds(one.watermark_lag),
            }
            for name, one, rate in zip(self._names, each, rates, strict=True)
        }
        own = {"at": self._now() - self._started, "event_rate": event_rate, "output_rate": output_rate}
        return {**metrics.plain(), **own, "detectors": detectors}

    def _note_migrations(self, runs: dict[str, str]) -> None:
        at = self._now() - self._started
        for detector, node in sorted(runs.items()):
            if self._runs.get(detector, node) != node:
                self._migrations.append(Migration(at, detector, self._runs[detector], node))
        self._runs |= runs


@cache
def _page() -> bytes:
    return files(__package__).joinpath("live.html").read_bytes()


class _Channel:
    """The messages of the page, each encoded once, for any number of browsers."""

    def __init__(self, first: Any) -> None:
        self._first = _encoded("first", first)
        self._changed = threading.Condition()
        self._number = 0
        self._history: deque[tuple[int, bytes]] = deque(maxlen=HISTORY)
        self._latest: dict[str, tuple[int, bytes]] = {}
        self._ended = False

    def add(self, name: str, data: Any) -> None:
        """A message that is kept for browsers that connect later."""
        message = _encoded(name, data)
        with self._changed:
            self._number += 1
            self._history.append((self._number, message))
            self._changed.notify_all()

    def replace(self, name: str, data: Any) -> None:
        """A message that replaces the one of that name."""
        message = _encoded(name, data)
        with self._changed:
            self._number += 1
            self._latest[name] = self._number, message
            self._changed.notify_all()

    def end(self) -> None:
        """There are no more messages."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def messages(self) -> Iterator[bytes]:
        """All messages for one browser, as they come; those that it was too slow to read are left out."""
        yield self._first
        seen = 0
        while True:
            new, ended = self._after(seen)
            yield b"".join(message for _, message in new) or b": nothing new\n\n"
            seen = new[-1][0] if new else seen
            if ended:
                yield _encoded("end", None)
                return

    def _after(self, seen: int) -> tuple[list[tuple[int, bytes]], bool]:
        """The messages after the one of that number, and whether they are the last. Waits until there are any."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > seen or self._ended, KEEP_ALIVE)
            return sorted(each for each in (*self._history, *self._latest.values()) if each[0] > seen), self._ended


def _encoded(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
