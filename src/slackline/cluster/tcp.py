"""A node in this process: sockets, checkpoints and a clock around :class:`slackline.cluster.protocol.Node`."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slackline.cluster.controller.policy import run_search
from slackline.cluster.ingress import Ingress, InputBatch
from slackline.cluster.interface import Actions, SearchOrder, Takeover
from slackline.cluster.links import LOOK, Links, Listener, logger
from slackline.cluster.placement import Solution
from slackline.cluster.protocol import Node, ProtocolError
from slackline.core.errors import SlacklineError
from slackline.core.time import Now
from slackline.runtime.address import Address
from slackline.runtime.backoff import Backoff
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.metrics import DetectorMetrics, Metrics, MetricsCollector, MetricsListener, Rates
from slackline.runtime.output import NOT_AN_EVENT, OutputRecord, RecordBuilder, bad_record
from slackline.runtime.sink import Sink
from slackline.runtime.worker import warn_of_duplicates

if TYPE_CHECKING:
    from slackline.connectors.kafka.bus import KafkaBus  # needs the extra kafka

#: Seconds within which the detectors of a node that shuts down must have migrated.
LEAVING = 10.0
#: The share of busy time is measured over so many seconds.
INTERVAL = 1.0

#: Seconds before a checkpoint is retried for which no file descriptor was free, at first, and the number of attempts.
RETRY, ATTEMPTS = 0.25, 6

CHECKPOINT_KIND = "node"

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class TcpHost:
    """Runs a node until :meth:`stop`.

    ``listener``   accepts connections.
    ``sink``       where output records go, and checkpoints if it commits. It is open.
    ``bus``        retains what is sent, if the node's settings name one.
    ``ingress``    local arrivals, if any.
    ``join``       addresses of nodes to connect to; they know the other nodes.
    ``saved``      header of the checkpoint from which the node resumes.
    ``inputs``     plain data by which another host can open the same input; it is stored in checkpoints.
    ``resume``     resumes a lost node in this process, from the shared checkpoint store; whether it has left instead.
    ``until_end``  stop when everything that runs here has ended and all subscribers have it.
    ``metrics``    receives metrics of the node every second, as ``collector`` counts them; ``ts_per_second`` units of
                   event time are a second, where no ingress knows.

    In each turn the node gets all waiting inputs and runs once; then its actions are carried out.
    """

    def __init__(
        self,
        node: Node,
        listener: Listener,
        sink: Sink,
        ingress: Ingress | None = None,
        *,
        bus: KafkaBus | None = None,
        join: Iterable[Address] = (),
        saved: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Any] | None = None,
        resume: Callable[[Takeover], bool] | None = None,
        until_end: bool = False,
        metrics: MetricsListener | None = None,
        collector: MetricsCollector | None = None,
        ts_per_second: int = 1_000_000,
        now: Now = time.monotonic,
    ) -> None:
        self.node = node
        self._sink = sink
        self._ingress = ingress
        self._join = {address: "" for address in join}
        header = saved or {}
        self._known: dict[str, str] = dict(header.get("addresses", {}))
        self._join |= {Address.of(text): name for name, text in self._known.items() if name != node.name}
        self._build = RecordBuilder(None)
        self._changes: int = header.get("changes", 0)  # events that were written
        self._records: list[OutputRecord] = []  # to be written before those of the node's next actions
        self._until_end = until_end
        self._inputs = dict(inputs or {})
        self._resume = resume
        self._now = now
        self._wake = asyncio.Event()
        self._wake.set()
        self._links = Links(node.name, listener, self._wake)
        self._bus = bus
        self._call_at: float | None = None
        self._leave_until: float | None = None
        self._stops = self._reads = self._has_arrived = self._warned = False
        self._worked = 0.0  # seconds, since
        self._since = now()
        self._look_at = 0.0
        self._behind_said = 0.0
        self._searches: set[asyncio.Task[None]] = set()
        self._found: list[tuple[SearchOrder, Solution | str]] = []
        self._listener = metrics
        self._ts_per_second = ts_per_second
        self._collector = collector or MetricsCollector()
        if "counts" in header:
            self._collector.load(header["counts"])
        self._rates = Rates(now, self._collector.events, self._collector.outputs)
        self._reserved: int | None = None  # a file descriptor, for checkpoints
        self._checkpoint: tuple[int, float] | None = None  # bytes of the last checkpoint, and when it was made

    async def run(self) -> None:
        """Until :meth:`stop`, or the end. A SlacklineError if the cluster refuses the node; checkpoints remain."""
        self._reserve_descriptor()
        try:
            await self._commit(self.node.save())  # before any peer knows it, so that it can restart from a checkpoint
            if self._bus is not None:
                await self._open(self._bus)
            self._links.start(self._join)
            if self._ingress is not None:
                self._ingress.start(self._wake.set)
            while not self._is_over():
                await self._pause()
                await self._turn()
            await self._act(self.node.run(self._now()))
            await self._commit(self.node.save())
        finally:
            self._release_descriptor()
            if self._ingress is not None:
                await self._ingress.close()
            if self._bus is not None:
                await self._bus.close()
            await self._links.close()

    async def _open(self, bus: KafkaBus) -> None:
        begins = self.node.publishes if self.node.incarnation == 1 else ()
        opening = asyncio.create_task(bus.open(begins, self._wake.set))
        while not opening.done():
            await asyncio.wait([opening], timeout=0.2)
            if self._stops or self._leave_until is not None:
                await bus.close()  # it may wait for a broker
        await opening

    def stop(self, *, at_once: bool = False) -> None:
        """Shut down: the detectors migrate first, within ``LEAVING`` seconds. ``at_once``, or called again: they stay
        in the checkpoint."""
        if self._leave_until is None and not at_once:
            logger.info("shutting down; migrating its detectors first")
            self._leave()
        else:
            self._stops = True
        self._wake.set()

    def _leave(self) -> None:
        now = self._now()
        self._leave_until = now + LEAVING
        if self._ingress is not None and not self._has_arrived:
            self._push(self._ingress.drain(), now)
        self.node.leave(now)

    def _is_over(self) -> bool:
        node = self.node
        if node.failed is not None:
            raise SlacklineError(node.failed)
        if self._leave_until is None and not self._stops:
            if self._until_end and node.is_ready and node.has_ended and not node.is_idle:
                logger.info("shutting down; all input has ended")
                self._leave()
            return False
        if node.has_left or self._stops:
            return True
        if self._leave_until is not None and self._now() > self._leave_until:
            logger.warning("stopping with its detectors in the checkpoint: no node took them within %g s", LEAVING)
            return True
        return False

    async def _pause(self) -> None:
        """Wait for the next input or timer. Other tasks run in any case."""
        await asyncio.sleep(0)
        if self._wake.is_set():
            return
        now = self._now()
        times = [self._since + INTERVAL, *(at for at in (self._call_at, self._arrival_at(now)) if at is not None)]
        delay = min(times) - now
        if delay > 0:
            timer = asyncio.get_running_loop().call_later(delay, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _turn(self) -> None:
        node = self.node
        start = self._now()
        for item in self._links.take():
            if item.frame is not None:
                self._receive(item.link, item.frame, start)
            elif item.is_up:
                node.link_up(item.link, start)
            else:
                node.link_down(item.link, start)
        if self._bus is not None:
            self._take_from(self._bus, start)
        self._arrive(start)
        for search, solution in self._found:
            node.found(search, solution, start)
        self._found.clear()
        actions = node.run(start)
        await self._act(actions)
        if actions.checkpoint is not None:
            node.checkpoint_seconds = self._now() - start
        if start >= self._look_at:
            self._look_at = start + LOOK
            self._links.stay_connected(node.addresses())
        stop = self._now()
        self._worked += stop - start
        if stop - self._since >= INTERVAL:
            node.busy = self._worked / (stop - self._since)
            self._worked, self._since = 0.0, stop
            if self._listener is not None or self._ingress is not None:
                self._report(self.metrics())

    def _report(self, metrics: Metrics) -> None:
        if self._listener is not None:
            self._listener(metrics)
        if self._ingress is not None and not self._warned:
            self._warned = warn_of_duplicates(self._collector, self._ingress.schema)

    def metrics(self) -> Metrics:
        """Metrics of the node, at this moment."""
        own, found = self.node.overview()["nodes"][self.node.name], self._collector
        here = own["detectors"]
        known = {name: DetectorMetrics.of(here[name], own["clk"]) for name in here}
        found.update(None, (known.get(name, DetectorMetrics()) for name in found.detectors))
        found.count_aside(0, max(0, own["duplicates"] - found.duplicates), ())
        event_rate, output_rate = self._rates.of(found.events, found.outputs)
        size, at = self._checkpoint or (None, None)
        ingress = self._ingress
        return replace(
            found.metrics(1),
            event_rate=event_rate,
            output_rate=output_rate,
            lag=None if ingress is None else ingress.waiting,
            checkpoint_bytes=size,
            checkpoint_age=None if at is None else self._now() - at,
            ts_per_second=self._ts_per_second if ingress is None else ingress.ts_per_second,
        )

    def _receive(self, link: str, frame: bytes, now: float) -> None:
        if not self._links.has(link):
            return  # closed because of an earlier frame
        try:
            self.node.receive(link, frame, now)
        except ProtocolError as error:
            self._links.abort(link, str(error))

    def _take_from(self, bus: KafkaBus, now: float) -> None:
        for append in bus.confirmed().values():
            self.node.appended(append, now)
        if records := bus.take():
            self.node.read(records, now)

    # Local arrivals.

    def _may_arrive(self) -> bool:
        return self._leave_until is None and self.node.is_ready and not self.node.is_full

    def _arrival_at(self, now: float) -> float | None:
        return self._ingress.next_at(now) if self._ingress is not None and self._may_arrive() else None

    def _arrive(self, now: float) -> None:
        ingress = self._ingress
        if ingress is None or self._has_arrived or not self._may_arrive():
            return
        if not self._reads:
            self._reads = True
            logger.info("reading input from record %s", f"{ingress.taken:,}")
        self._push(ingress.take(now), now)
        self._warn_behind(ingress, now)
        if ingress.has_ended:
            self._has_arrived = True
            self.node.end(now)
            logger.info("input ended after %s records", f"{ingress.taken:,}")

    def _push(self, batch: InputBatch | None, now: float) -> None:
        if batch is None:
            return
        if batch.bad:
            self._records += [bad_record(one, source) for source, one in batch.bad]
            self._collector.count_aside(0, 0, [NOT_AN_EVENT] * len(batch.bad))
        if len(batch.rows) or batch.wall is not None:
            self._collector.count_events(len(batch.rows))
            self.node.push(batch.rows, now, wall=batch.wall, repeatable=batch.repeatable)

    def _warn_behind(self, ingress: Ingress, now: float) -> None:
        lag = ingress.lag(now)
        if lag > 1.0 and now - self._behind_said > 10.0:
            self._behind_said = now
            logger.warning("input is %.1f s behind: the cluster cannot keep up", lag)

    # Actions, in the order that Actions demands.

    async def _act(self, actions: Actions) -> None:
        records, self._records = self._records, []
        records += self._build.events(actions.outputs, self._changes)
        self._changes += len(actions.outputs)
        late = list(self._build.late(actions.late))
        records += [*late, *self._build.quarantine(actions.quarantined)]
        self._collector.count_outputs(actions.outputs)
        self._collector.count_aside(len(late), 0, [item.reason for item in actions.quarantined])
        if records:
            await self._sink.write(records)
        if actions.checkpoint is not None:
            await self._commit(actions.checkpoint)
        if self._bus is not None:
            self._bus.append(actions.appends, self.node.publishes)
            self._bus.read(actions.reads)
        self._links.send(actions.messages)
        if actions.search is not None:
            task = asyncio.create_task(self._search(actions.search))
            self._searches.add(task)
            task.add_done_callback(self._searches.discard)
        if self._resume is not None:
            for takeover in actions.takeovers:
                if self._resume(takeover):
                    self.node.forget(takeover.node)
        for notice in actions.notices:
            logger.log(_LEVELS.get(notice.level, logging.INFO), "%s", notice.text)
        for link in actions.close:
            self._links.close_link(link)
        self._call_at = actions.call_at

    async def _search(self, search: SearchOrder) -> None:
        """In a thread of its own, while the node runs."""
        solution = await asyncio.to_thread(run_search, search, time.monotonic)
        self._found.append((search, solution))
        self._wake.set()

    async def _commit(self, node: bytes) -> None:
        if not self._sink.commits:
            return
        ingress = self._ingress
        header = {
            "ingress": {} if ingress is None else ingress.save(),
            "schema": {} if ingress is None else ingress.schema.plain(),
            "addresses": self.node.addresses() or self._known,
            "changes": self._changes,
            "counts": self._collector.save(),
            "incarnation": self.node.incarnation,
            "inputs": self._inputs,
            "left": self.node.has_left,
        }
        await self._write(Checkpoint(CHECKPOINT_KIND, header, [node]))
        self._checkpoint = len(node), self._now()

    async def _write(self, checkpoint: Checkpoint) -> None:
        """Commit a checkpoint. Without a free file descriptor the reserved one is used, and then it is retried."""
        backoff = Backoff("checkpoint", first=RETRY, what="file descriptor for the")
        while True:
            try:
                self._sink.commit(checkpoint)
            except SlacklineError as error:
                cause = error.__cause__
                exhausted = isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE)
                if not exhausted or backoff.attempts + 1 >= ATTEMPTS:
                    raise
                if self._reserved is None:
                    await backoff.wait(error)
                self._release_descriptor()
            else:
                self._reserve_descriptor()
                return

    def _reserve_descriptor(self) -> None:
        if self._reserved is None:
            with contextlib.suppress(OSError):
                self._reserved = os.open(os.devnull, os.O_RDONLY)

    def _release_descriptor(self) -> None:
        if self._reserved is not None:
            os.close(self._reserved)
            self._reserved = None
