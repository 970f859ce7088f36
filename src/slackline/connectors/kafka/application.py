"""``slackline run … --from kafka://… --to kafka://…``: the plan, the signals, and how it fares."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from slackline.connectors.kafka.host import KafkaHost, KafkaNumbers
from slackline.core.errors import ConfigError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.numbers import Figures, Numbers
from slackline.runtime.roles import Roles
from slackline.runtime.vitals import Pace, Vitals, Watcher

#: Of the figures of several partitions: those that are added up, and those of which the largest counts.
ADDED = ("keys", "arrivals", "outputs", "late", "buffered")
LARGEST = ("wait_p50", "wait_p99", "K", "alpha")


class Application:
    """What the command line asks for (:class:`~slackline.cli.settings.RunSettings`), between two topics."""

    def __init__(self, settings: Any, hierarchy: Hierarchy, roles: Roles) -> None:
        self.host = host_of(settings, hierarchy, roles)
        self._per_second = roles.per_second
        self._flush = settings.at_stop == "flush"
        if self._flush:
            self.host.settings.check_flush("--at-stop flush")

    def run(self, watch: Watcher) -> None:
        """Until a signal says stop."""
        host, flush, numbers = self.host, self._flush, (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: host.stop(flush)) for number in numbers}
        try:
            host.run(watching(watch, self._per_second))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def key(self) -> str | None:
        """The field whose every value has an engine of its own."""
        return self.host.settings.reading.key

    @property
    def places(self) -> Iterator[tuple[str, str]]:
        """From where to where."""
        ours = self.host.settings
        yield "from", f"{ours.source} ({ours.reading.format}), group {ours.group}"
        yield "to", f"{ours.sink}, what is set aside to {ours.quarantine_topic}"
        where = ours.state_folder or f"the topic {ours.state_topic}"
        yield "state", f"in {where}, a snapshot every {ours.snapshot:g} s"

    @property
    def promises(self) -> Iterator[tuple[str, str]]:
        """What can be relied on."""
        ours = self.host.settings
        if ours.is_exact:
            yield "guarantee", f"exactly once, for those who read read_committed; a transaction every {ours.commit:g} s"
        else:
            yield "guarantee", "at least once: after a crash some outputs come again, with the same header id"
        if ours.idle is not None:
            yield "when idle", f"what waits is flushed after {ours.idle:g} s in which nothing came"
        yield "at a stop", f"what waits is {'flushed' if self._flush else 'kept'}"


def host_of(settings: Any, hierarchy: Hierarchy, roles: Roles) -> KafkaHost:
    """The host that is asked for."""
    if len(settings.sources) != 1 or not all(url.startswith("kafka://") for url in (*settings.sources, settings.to)):
        raise ConfigError(
            f"--from {' --from '.join(settings.sources)} --to {settings.to}: on Kafka one topic is read and one is "
            f"written, kafka://HOST:PORT/TOPIC both. Others are read and written in a process without Kafka."
        )
    if settings.on != "process" or settings.follow:
        raise ConfigError("--on spark and --follow are for files; for Kafka on Spark see the guide to Kafka.")
    fields = {"ts": roles.ts, "type": roles.type, "source": roles.source, "seq": roles.seq, "unit": roles.unit}
    standard = {"ts": "ts", "unit": "us"}
    given = {name: value for name, value in fields.items() if value is not None and value != standard.get(name)}
    return KafkaHost(
        hierarchy, settings.sources[0], settings.to, options=settings.engine, key=roles.key, group=settings.group,
        delivery=settings.delivery, snapshot=settings.checkpoint_every, **given,
    )  # fmt: skip


def watching(watch: Watcher, per_second: int) -> Any:
    """Turns the figures of a host into those that are shown and scraped."""
    pace = Pace(time.monotonic)

    def tick(numbers: KafkaNumbers) -> None:
        all_sites = merged(numbers.sites.values())
        rate, found_rate = pace.rates(all_sites.arrivals, all_sites.outputs)
        watch(
            Vitals(
                all_sites, max(0.0, rate), max(0.0, found_rate), numbers.lag, numbers.rejected,
                numbers.snapshot_bytes, numbers.snapshot_age, per_second,
            )
        )  # fmt: skip

    return tick


def merged(each: Iterable[Numbers]) -> Numbers:
    """The figures of several partitions as one: sums, and of what cannot be added the worst."""
    parts = list(each)
    if not parts:
        return Numbers()
    reasons: Counter[str] = Counter()
    for part in parts:
        reasons.update(part.quarantined)
    detectors: dict[str, Figures] = {}
    for part in parts:
        for name, one in part.detectors.items():
            so_far = detectors.get(name, Figures())
            detectors[name] = Figures(
                so_far.delivered + one.delivered, so_far.late + one.late, so_far.buffered + one.buffered,
                max(so_far.K, one.K), _largest((so_far.alpha, one.alpha)),
            )  # fmt: skip
    return replace(
        parts[0],
        **{name: sum(getattr(part, name) for part in parts) for name in ADDED},
        **{name: _largest(getattr(part, name) for part in parts) for name in LARGEST},
        late_share=max((one.late_share for one in detectors.values()), default=0.0),
        quarantined=dict(reasons),
        detectors=detectors,
    )


def _largest(values: Iterable[float | None]) -> Any:
    return max((value for value in values if value is not None), default=None)
