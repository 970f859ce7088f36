"""``slackline run … --from kafka://… --to kafka://…``: the plan, the signals, the metrics."""

from __future__ import annotations

import signal

from slackline.connectors.kafka.address import client_properties
from slackline.connectors.kafka.host import KafkaHost
from slackline.connectors.kafka.settings import CHECKPOINT_EVERY, COMMIT_INTERVAL
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.metrics import Metrics, MetricsListener
from slackline.runtime.options import RunOptions


class KafkaApplication:
    """An application between two topics, by the options of the command line."""

    def __init__(self, options: RunOptions, hierarchy: Hierarchy) -> None:
        if len(options.sources) != 1:
            raise ConfigError(
                f"--from {' --from '.join(options.sources)}: between topics, one is read. Give one --from, or another "
                f"--to: a folder takes records of several topics."
            )
        if options.group is None:
            raise ConfigError("--group is missing: the name of the application, the same for all its processes.")
        self.host = KafkaHost(
            hierarchy,
            options.sources[0],
            options.to,
            group=options.group,
            schema=options.schema,
            engine_options=options.engine,
            shards=options.shards,
            idle_timeout=options.idle_timeout,
            state_ttl=options.state_ttl,
            delivery=options.delivery or "exactly-once",
            start=options.start,
            commit_interval=COMMIT_INTERVAL if options.commit_interval is None else options.commit_interval,
            checkpoint_every=CHECKPOINT_EVERY if options.checkpoint_every is None else options.checkpoint_every,
            state=options.state or "",
            late_topic=options.late_topic,
            quarantine_topic=options.quarantine_topic,
            duplicates=options.duplicates,
            client={} if options.kafka_config is None else client_properties(options.kafka_config),
        )
        self._flush = options.at_stop == "flush"
        if self._flush:
            self.host.settings.check_flush("--at-stop flush")

    def plan(self) -> list[tuple[str, str]]:
        """From where to where, and what is guaranteed: a line each."""
        settings = self.host.settings
        topics = settings.topics
        others = f"late events to {topics.late}, quarantined ones to {topics.quarantine}"
        if topics.duplicate is not None:
            others += f", duplicates to {topics.duplicate}"
        state = settings.state_folder or f"topic {settings.state_topic}"
        guarantee = (
            f"exactly once for read_committed consumers, a transaction every {settings.commit_interval:g} s"
            if settings.is_exact
            else "at least once: after a crash some outputs are repeated, with the same header id"
        )
        return [
            ("from", f"{settings.source} ({settings.schema.format}), group {settings.group}"),
            ("to", f"{settings.sink}; {others}"),
            ("state", f"{state}, a checkpoint every {settings.checkpoint_every:g} s"),
            ("guarantee", guarantee),
            ("at a stop", f"buffered events are {'flushed' if self._flush else 'kept'}"),
        ]

    def run(self, listener: MetricsListener) -> Metrics:
        """Process until SIGINT or SIGTERM; the last metrics."""
        host, flush, numbers = self.host, self._flush, (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: host.stop(flush)) for number in numbers}
        try:
            return host.run(listener)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
