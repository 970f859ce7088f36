"""Metrics for Prometheus, by HTTP on the loopback address.

All names begin with ``slackline_``. Lengths of stream time are in seconds. ``docs/grafana/slackline.json`` is a
dashboard for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from slackline.core.extras import explain
from slackline.runtime.http_server import DocumentServer
from slackline.runtime.metrics import Metrics


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


class PrometheusServer:
    """Serves the metrics that it was called with last; :meth:`close` it at the end.

    ``port`` 0 is any free port; :attr:`port` is the one in use.
    """

    def __init__(self, port: int) -> None:
        try:
            import prometheus_client
            from prometheus_client.exposition import choose_encoder
        except ImportError as error:
            raise explain(error, "--metrics") from error
        self._metrics = Metrics()
        registry: Any = prometheus_client.CollectorRegistry()
        registry.register(self)

        def document(accept: str) -> tuple[str, bytes]:
            encode, kind = choose_encoder(accept)
            return kind, encode(registry)

        self._server = DocumentServer("metrics", "--metrics", port, {"/": document, "/metrics": document})
        self.port: int = self._server.server_port

    def __call__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Any]:
        """Called by the server's thread: what it reads is never changed, only replaced."""
        return families(self._metrics)

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
