"""What long-running commands show: logs on stderr, as text or JSON, and metrics: a table that is updated in a terminal,
or a line in the log every ten seconds, a server for Prometheus, and a page to watch."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table

from slackline.core.hierarchy import Hierarchy
from slackline.core.time import Now
from slackline.runtime.metrics import Metrics
from slackline.runtime.prometheus import PrometheusServer

if TYPE_CHECKING:
    from slackline.report.live import LivePage

#: Seconds between two lines in a log.
EVERY = 10.0

logger = logging.getLogger("slackline.run")


class Status:
    """Shows metrics: call it with them. A context manager, so that the terminal is left in order."""

    def __init__(self, name: str, console: Console | None = None, now: Now = time.monotonic) -> None:
        console = console or Console(stderr=True)
        self._name = name
        self._now = now
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._next = now() + EVERY
        self._unlogged: Metrics | None = None

    def __enter__(self) -> Status:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, metrics: Metrics) -> None:
        self._unlogged = metrics
        if self._live is not None:
            self._live.update(table_of(self._name, metrics), refresh=True)
        elif self._now() >= self._next:
            self._next = self._now() + EVERY
            self.log()

    def log(self) -> None:
        """Log the metrics that it was called with last, if they were not logged."""
        if self._unlogged is not None:
            logger.info("%s", line_of(self._unlogged), extra={"metrics": self._unlogged.plain()})
        self._unlogged = None


def line_of(metrics: Metrics) -> str:
    """The metrics in a line."""
    return "; ".join(f"{name} {text}" for name, text in _shown(metrics).items())


def table_of(name: str, metrics: Metrics) -> Table:
    """The metrics as a table."""
    table = Table(title=name, title_justify="left", show_header=False)
    for row in _shown(metrics).items():
        table.add_row(*row)
    return table


def _shown(metrics: Metrics) -> dict[str, str]:
    """The metrics in words, without those that are not known."""
    target = "" if metrics.late_target is None else f", target {_share(metrics.late_target)}"
    p50, p99, slack = map(_seconds, map(metrics.seconds, (metrics.latency_p50, metrics.latency_p99, metrics.K)))
    shown = {
        "events": f"{metrics.events:,} ({metrics.event_rate:,.0f}/s)",
        "outputs": f"{metrics.outputs:,} ({metrics.output_rate:,.0f}/s)",
        "late": f"{metrics.late:,} ({_share(metrics.late_share)}{target})",
        "duplicates": f"{metrics.duplicates:,}",
        "latency": f"p50 {p50}, p99 {p99}",
        "slack K": slack,
        "buffered": f"{metrics.buffered:,}" + (f" of {metrics.keys:,} keys" if metrics.keys > 1 else ""),
    }
    if metrics.lag is not None:
        shown["lag"] = f"{metrics.lag:,}"
    if metrics.alpha is not None:
        shown["α"] = f"{metrics.alpha:.2f}"
    if metrics.quarantined:
        reasons = sorted(metrics.quarantined.items())
        shown["quarantined"] = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
    if metrics.checkpoint_age is not None:
        size = "" if metrics.checkpoint_bytes is None else f"{metrics.checkpoint_bytes:,} bytes, "
        shown["checkpoint"] = f"{size}{metrics.checkpoint_age:.0f} s ago"
    return shown


def _share(share: float) -> str:
    return f"{share * 100:.3g} %"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def served_metrics(port: int | None) -> PrometheusServer | None:
    """A server of metrics, if a port is given."""
    if port is None:
        return None
    server = PrometheusServer(port)
    logger.info("metrics for Prometheus at http://127.0.0.1:%d/metrics", server.port)
    return server


def served_page(port: int | None, title: str, hierarchy: Hierarchy) -> LivePage | None:
    """A page to watch, if a port is given."""
    if port is None:
        return None
    from slackline.report.live import LivePage, stages_of

    page = LivePage(port, title, stages_of(hierarchy))
    logger.info("page to watch at %s", page.url)
    return page


def log_to_stderr(name: str, format: Literal["text", "json"] = "text") -> None:
    """Log to stderr, a line per record."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Line(f"%(asctime)s {name}: %(message)s", "%H:%M:%S")
    handler.setFormatter(text if format == "text" else JsonLine(name))
    root = logging.getLogger("slackline")
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if record.levelno < logging.WARNING else f"{line} ({record.levelname.lower()})"


class JsonLine(logging.Formatter):
    """A record as an object: ``time`` (ISO 8601, UTC), ``level``, ``name``, ``logger``, ``message``, and ``metrics``
    where there are some."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "name": self._name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        metrics = getattr(record, "metrics", None)
        if metrics is not None:
            line["metrics"] = metrics
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
