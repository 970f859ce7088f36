"""Logs of long-running commands on stderr, as text or JSON, and their metrics."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from slackline.runtime.prometheus import PrometheusServer

logger = logging.getLogger("slackline.metrics")


def served_metrics(port: int | None) -> PrometheusServer | None:
    """A server of metrics, if a port is given."""
    if port is None:
        return None
    server = PrometheusServer(port)
    logger.info("metrics for Prometheus at http://127.0.0.1:%d/metrics", server.port)
    return server


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
