"""How a run fares, for people: a table that is kept up to date in a terminal, or a line in the log now and then."""

from __future__ import annotations

import logging
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from slackline.core.time import Now
from slackline.runtime.vitals import Vitals

#: Seconds between two lines in a log.
EVERY = 10.0

logger = logging.getLogger("slackline.run")


class Status:
    """Shows vitals. Call it with them; it is a context, so that the terminal is left in order."""

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

    def __call__(self, vitals: Vitals) -> None:
        if self._live is not None:
            self._live.update(table_of(self._name, vitals), refresh=True)
        elif self._now() >= self._next:
            self._next = self._now() + EVERY
            self.log(vitals)

    def log(self, vitals: Vitals) -> None:
        """A line, whatever was said when."""
        logger.info("%s", line_of(vitals), extra={"figures": vitals.plain()})


def line_of(vitals: Vitals) -> str:
    """The figures in a line."""
    numbers = vitals.numbers
    told = [
        f"{numbers.arrivals:,} events ({vitals.rate:,.0f}/s)", f"{numbers.outputs:,} found",
        f"late {_share(numbers.late_share)}{_target(vitals)}",
        f"wait p50 {_seconds(vitals, numbers.wait_p50)}, p99 {_seconds(vitals, numbers.wait_p99)}",
        f"K {_seconds(vitals, numbers.K)}", f"{numbers.buffered:,} wait",
    ]  # fmt: skip
    if vitals.lag is not None:
        told.append(f"lag {vitals.lag:,}")
    if numbers.alpha is not None:
        told.append(f"α {numbers.alpha:.2f}")
    if vitals.quarantined:
        told.append("set aside: " + ", ".join(f"{count:,} {why}" for why, count in sorted(vitals.quarantined.items())))
    return "; ".join(told)


def table_of(name: str, vitals: Vitals) -> Table:
    """The figures as a table."""
    numbers = vitals.numbers
    table = Table(title=name, title_justify="left", show_header=False)
    age = vitals.checkpoint_age
    rows = [
        ("events", f"{numbers.arrivals:,}, {vitals.rate:,.0f} per second"),
        ("found", f"{numbers.outputs:,}, {vitals.found_rate:,.0f} per second"),
        ("late", f"{numbers.late:,}, {_share(numbers.late_share)}{_target(vitals)}"),
        ("wait", f"p50 {_seconds(vitals, numbers.wait_p50)}, p99 {_seconds(vitals, numbers.wait_p99)}"),
        ("K", _seconds(vitals, numbers.K)),
        ("α", "-" if numbers.alpha is None else f"{numbers.alpha:.2f}"),
        ("waiting", f"{numbers.buffered:,} events of {numbers.keys:,} keys"),
        ("lag", "-" if vitals.lag is None else f"{vitals.lag:,} records"),
        ("set aside", ", ".join(f"{count:,} {why}" for why, count in sorted(vitals.quarantined.items())) or "none"),
        ("checkpoint", "none" if age is None else f"{vitals.checkpoint_bytes:,} bytes, {age:.0f} s ago"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _share(share: float) -> str:
    return f"{share * 100:.3g} %"


def _target(vitals: Vitals) -> str:
    target = vitals.numbers.late_target
    return "" if target is None else f" (target {_share(target)})"


def _seconds(vitals: Vitals, length: float | None) -> str:
    seconds = vitals.seconds(length)
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"
