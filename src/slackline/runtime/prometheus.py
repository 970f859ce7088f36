"""Metrics for Prometheus, by HTTP; on the loopback address unless another one is given.

All names begin with ``slackline_``. Lengths of stream time are in seconds. ``docs/grafana/slackline.json`` is a
dashboard for them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from slackline.core.errors import ConfigError
from slackline.core.extras import explain
from slackline.runtime.metrics import Metrics

LOOPBACK = "127.0.0.1"
#: Seconds that a client has to send its request and to read the response. Clients are served one after the other.
CLIENT_TIMEOUT = 2.0


def families(metrics: Metrics) -> Iterator[Any]:
    """The metrics as Prometheus has them. Those without a value are left out."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    counts = {
        "slackline_events": ("Events received.", metrics.events),
        "slackline_outputs": ("Events emitted by detectors.", metrics.outputs),
        "slackline_late": ("Late events.", metrics.late),
        "slackline_duplicates": ("Events dropped as duplicates.", metrics.duplicates),
    }
    for name, (help, count) in counts.items():
        yield CounterMetricFamily(name, help, value=count)
    reasons = CounterMetricFamily("slackline_quarantined", "Records in quarantine, by reason.", labels=["reason"])
    for reason, count in sorted(metrics.quarantined.items()):
        reasons.add_metric([reason], count)
    yield reasons
    gauges: dict[str, tuple[str, float | None]] = {
        "slackline_events_per_second": ("Events received per second.", metrics.event_rate),
        "slackline_outputs_per_second": ("Events emitted per second.", metrics.output_rate),
        "slackline_late_share": ("Share of late events, of the detector with the largest.", metrics.late_share),
        "slackline_late_target": ("Target of the share of late events.", metrics.late_target),
        "slackline_slack_seconds": ("Slack K, the largest.", metrics.seconds(metrics.K)),
        "slackline_alpha": ("Share of the slack before events are emitted early, the largest.", metrics.alpha),
        "slackline_buffered": ("Events in reorder buffers.", metrics.buffered),
        "slackline_keys": ("Keys with an engine.", metrics.keys),
        "slackline_lag": ("Records that are available and were not processed.", metrics.lag),
        "slackline_checkpoint_bytes": ("Size of the last checkpoint.", metrics.checkpoint_bytes),
        "slackline_checkpoint_age_seconds": ("Time since the last checkpoint.", metrics.checkpoint_age),
    }
    for name, (help, value) in gauges.items():
        if value is not None:
            yield GaugeMetricFamily(name, help, value=value)
    latency = GaugeMetricFamily(
        "slackline_latency_seconds", "From event time to emission, of recent events.", labels=["quantile"]
    )
    for quantile, length in (("0.5", metrics.latency_p50), ("0.99", metrics.latency_p99)):
        if length is not None:
            latency.add_metric([quantile], length / metrics.ts_per_second)
    yield latency
    yield from _by_detector(metrics)


def _by_detector(metrics: Metrics) -> Iterator[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    label = ["detector"]
    delivered = CounterMetricFamily("slackline_detector_events", "Events delivered to a detector.", labels=label)
    late = CounterMetricFamily("slackline_detector_late", "Events late for a detector.", labels=label)
    slack = GaugeMetricFamily("slackline_detector_slack_seconds", "Slack K of a detector.", labels=label)
    buffered = GaugeMetricFamily("slackline_detector_buffered", "Events in its reorder buffer.", labels=label)
    for name, each in metrics.detectors.items():
        delivered.add_metric([name], each.delivered)
        late.add_metric([name], each.late)
        slack.add_metric([name], each.K / metrics.ts_per_second)
        buffered.add_metric([name], each.buffered)
    yield from (delivered, late, slack, buffered)


class _Handler(WSGIRequestHandler):
    """Handles a connection, for :data:`CLIENT_TIMEOUT` at most, however often the client sends something."""

    def handle(self) -> None:
        deadline = threading.Timer(CLIENT_TIMEOUT, self._disconnect)
        deadline.daemon = True
        deadline.start()
        try:
            with contextlib.suppress(OSError):  # the client disconnected, or was disconnected
                super().handle()
        finally:
            deadline.cancel()

    def _disconnect(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class PrometheusServer:
    """Serves the metrics that it was called with last; :meth:`close` it at the end.

    ``port`` 0 is any free port; :attr:`port` is the one in use.
    """

    def __init__(self, port: int, address: str = LOOPBACK) -> None:
        try:
            from prometheus_client import CollectorRegistry, make_wsgi_app
        except ImportError as error:
            raise explain(error, "--metrics") from error
        self._metrics = Metrics()
        registry: Any = CollectorRegistry()
        registry.register(self)
        try:
            self._server = make_server(address, port, make_wsgi_app(registry), handler_class=_Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"cannot serve metrics at {address}:{port}: {error}. Give another --metrics PORT, or 0 for any."
            ) from error
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="slackline-metrics", daemon=True)
        self._thread.start()

    def __call__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Any]:
        """Called by the server's thread: what it reads is never changed, only replaced."""
        return families(self._metrics)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
