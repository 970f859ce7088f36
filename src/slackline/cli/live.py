"""The status of a run: a table that is updated in a terminal, or a line in the log every ten seconds."""

from __future__ import annotations

import logging
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from slackline.core.time import Now
from slackline.runtime.metrics import Metrics

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

    def __enter__(self) -> Status:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, metrics: Metrics) -> None:
        if self._live is not None:
            self._live.update(table_of(self._name, metrics), refresh=True)
        elif self._now() >= self._next:
            self._next = self._now() + EVERY
            self.log(metrics)

    def log(self, metrics: Metrics) -> None:
        """Log the metrics now."""
        logger.info("%s", line_of(metrics), extra={"metrics": metrics.plain()})


def line_of(metrics: Metrics) -> str:
    """The metrics in a line."""
    parts = [
        f"{metrics.events:,} events ({metrics.event_rate:,.0f}/s)", f"{metrics.outputs:,} outputs",
        f"late {metrics.late:,} ({_share(metrics.late_share)}{_target(metrics)})",
        f"duplicates {metrics.duplicates:,}",
        f"latency p50 {_seconds(metrics, metrics.latency_p50)}, p99 {_seconds(metrics, metrics.latency_p99)}",
        f"K {_seconds(metrics, metrics.K)}", f"buffered {metrics.buffered:,}",
    ]  # fmt: skip
    if metrics.lag is not None:
        parts.append(f"lag {metrics.lag:,}")
    if metrics.alpha is not None:
        parts.append(f"α {metrics.alpha:.2f}")
    if metrics.quarantined:
        parts.append(f"quarantined {_reasons(metrics)}")
    return "; ".join(parts)


def table_of(name: str, metrics: Metrics) -> Table:
    """The metrics as a table."""
    table = Table(title=name, title_justify="left", show_header=False)
    age = metrics.checkpoint_age
    size = "" if metrics.checkpoint_bytes is None else f"{metrics.checkpoint_bytes:,} bytes, "
    rows = [
        ("events", f"{metrics.events:,}, {metrics.event_rate:,.0f} per second"),
        ("outputs", f"{metrics.outputs:,}, {metrics.output_rate:,.0f} per second"),
        ("late", f"{metrics.late:,}, {_share(metrics.late_share)}{_target(metrics)}"),
        ("duplicates", f"{metrics.duplicates:,}"),
        ("latency", f"p50 {_seconds(metrics, metrics.latency_p50)}, p99 {_seconds(metrics, metrics.latency_p99)}"),
        ("slack K", _seconds(metrics, metrics.K)),
        ("α", "-" if metrics.alpha is None else f"{metrics.alpha:.2f}"),
        ("buffered", f"{metrics.buffered:,} events of {metrics.keys:,} keys"),
        ("lag", "-" if metrics.lag is None else f"{metrics.lag:,} records"),
        ("quarantined", _reasons(metrics) or "none"),
        ("checkpoint", "none" if age is None else f"{size}{age:.0f} s ago"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _reasons(metrics: Metrics) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in sorted(metrics.quarantined.items()))


def _share(share: float) -> str:
    return f"{share * 100:.3g} %"


def _target(metrics: Metrics) -> str:
    return "" if metrics.late_target is None else f", target {_share(metrics.late_target)}"


def _seconds(metrics: Metrics, length: float | None) -> str:
    seconds = metrics.seconds(length)
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
