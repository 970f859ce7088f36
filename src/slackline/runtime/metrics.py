"""How a host fares, for Prometheus: figures by HTTP, on this machine alone unless told otherwise.

All names begin with ``slackline_``. Lengths of stream time are in seconds. ``docs/grafana/slackline.json`` is a
dashboard of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from slackline.core.errors import ConfigError
from slackline.core.extras import explain
from slackline.runtime.numbers import Numbers
from slackline.runtime.vitals import Vitals

LOOPBACK = "127.0.0.1"


def families(vitals: Vitals) -> Iterator[Any]:
    """The figures as Prometheus has them. A figure that there is none of is left out."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    numbers = vitals.numbers
    counts = {
        "slackline_events": ("Events that came.", numbers.arrivals),
        "slackline_found": ("Events that detectors found.", numbers.outputs),
        "slackline_late": ("Events that came too late, once for each detector.", numbers.late),
    }
    for name, (says, count) in counts.items():
        yield CounterMetricFamily(name, says, value=count)
    reasons = CounterMetricFamily("slackline_quarantined", "Events that were set aside, by reason.", labels=["reason"])
    for reason, count in sorted(vitals.quarantined.items()):
        reasons.add_metric([reason], count)
    yield reasons
    gauges: dict[str, tuple[str, float | None]] = {
        "slackline_events_per_second": ("Events that came, per second.", vitals.rate),
        "slackline_found_per_second": ("Events that detectors found, per second.", vitals.found_rate),
        "slackline_late_share": ("Share of late events, of the detector with the largest.", numbers.late_share),
        "slackline_late_target": ("Share of late events that is kept to.", numbers.late_target),
        "slackline_slack_seconds": ("K: how long events wait at most, the largest.", vitals.seconds(numbers.K)),
        "slackline_alpha": ("How much of the wait is waited before speculating, the largest.", numbers.alpha),
        "slackline_buffered": ("Events that wait.", numbers.buffered),
        "slackline_keys": ("Keys that have an engine.", numbers.keys),
        "slackline_lag": ("Records that lie there and were not taken yet.", vitals.lag),
        "slackline_checkpoint_bytes": ("Size of the last checkpoint.", vitals.checkpoint_bytes),
        "slackline_checkpoint_age_seconds": ("Time since the last checkpoint.", vitals.checkpoint_age),
    }
    for name, (says, value) in gauges.items():
        if value is not None:
            yield GaugeMetricFamily(name, says, value=value)
    waits = GaugeMetricFamily(
        "slackline_wait_seconds", "From an event's time stamp to its being found, of recent ones.", labels=["quantile"]
    )
    for quantile, wait in (("0.5", numbers.wait_p50), ("0.99", numbers.wait_p99)):
        if wait is not None:
            waits.add_metric([quantile], wait / vitals.per_second)
    yield waits
    yield from _by_detector(vitals)


def _by_detector(vitals: Vitals) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    delivered = CounterMetricFamily("slackline_detector_events", "Events a detector was given.", labels=["detector"])
    late = CounterMetricFamily("slackline_detector_late", "Events late for a detector.", labels=["detector"])
    slack = GaugeMetricFamily("slackline_detector_slack_seconds", "K of a detector.", labels=["detector"])
    buffered = GaugeMetricFamily("slackline_detector_buffered", "Events that wait for it.", labels=["detector"])
    for name, figures in vitals.numbers.detectors.items():
        delivered.add_metric([name], figures.delivered)
        late.add_metric([name], figures.late)
        slack.add_metric([name], figures.K / vitals.per_second)
        buffered.add_metric([name], figures.buffered)
    yield from (delivered, late, slack, buffered)


class Metrics:
    """Serves the vitals that it was given last. Call it with them; :meth:`close` it at the end.

    ``port`` 0 is any that is free; :attr:`port` tells which.
    """

    def __init__(self, port: int, address: str = LOOPBACK) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise explain(error, "--metrics") from error
        self._vitals = Vitals(Numbers())
        registry: Any = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot serve metrics at {address}:{port}: {error}. Give another --metrics PORT, or 0 for any."
            ) from error
        self.port: int = self._server.server_port

    def __call__(self, vitals: Vitals) -> None:
        self._vitals = vitals

    def collect(self) -> Iterable[Any]:
        """Called by Prometheus's own server, in its own thread: what it reads is never changed, only replaced."""
        return families(self._vitals)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
