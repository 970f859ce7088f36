"""What long-running commands say on stderr, as text or JSON, and where their figures are to be had."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from slackline.runtime.metrics import Metrics

MetricsPort = Annotated[
    int | None,
    typer.Option(
        help="Serve figures for Prometheus at http://127.0.0.1:PORT/metrics; 0: any port that is free. Off unless "
        "given.",
        min=0,
        max=65535,
    ),
]
LogForm = Literal["text", "json"]
Log = Annotated[LogForm, typer.Option(help="How to say on stderr what happens: a line of text, or of JSON.")]

logger = logging.getLogger("slackline.metrics")


def served_metrics(port: int | None) -> Metrics | None:
    """Metrics at a port, if one is given."""
    if port is None:
        return None
    metrics = Metrics(port)
    logger.info("figures for Prometheus at http://127.0.0.1:%d/metrics", metrics.port)
    return metrics


def say_on_stderr(name: str, log: LogForm = "text") -> None:
    """Everything that is logged, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Line(f"%(asctime)s {name}: %(message)s", "%H:%M:%S")
    handler.setFormatter(text if log == "text" else JsonLine(name))
    root = logging.getLogger("slackline")
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if record.levelno < logging.WARNING else f"{line} ({record.levelname.lower()})"


class JsonLine(logging.Formatter):
    """A record as an object: ``time`` (ISO 8601, UTC), ``level``, ``name``, ``logger``, ``message``, and ``figures``
    where there are some."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "name": self._name,
            "logger": record.name,
            "message": record.getMessage(),
        }
        figures = getattr(record, "figures", None)
        if figures is not None:
            told["figures"] = figures
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)
