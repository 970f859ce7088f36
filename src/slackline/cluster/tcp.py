"""A node in this process: sockets, checkpoints and a clock around :class:`slackline.nodes.Node`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping

from slackline.cluster.links import LOOK, Links, Listener, logger
from slackline.cluster.playback import Playback
from slackline.core.errors import SlacklineError
from slackline.core.time import Now
from slackline.nodes import Actions, Node, ProtocolError
from slackline.nodes.actions import SearchOrder
from slackline.nodes.searching import solved
from slackline.placement import Solution
from slackline.runtime.address import Address
from slackline.runtime.keeping import Keeping, Kept
from slackline.runtime.numbers import Figures, RunTotals
from slackline.runtime.vitals import Pace, Vitals, Watcher

#: Seconds within which the detectors of a node that shuts down must have migrated.
LEAVING = 10.0
#: The share of busy time is measured over so many seconds.
INTERVAL = 1.0

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class TcpHost:
    """Runs a node until :meth:`stop`.

    ``listener``   accepts connections.
    ``keeping``    stores outputs and checkpoints.
    ``playback``   local arrivals, if any.
    ``join``       addresses of nodes to connect to; they know the other nodes.
    ``known``      addresses of nodes at the last checkpoint, by name.
    ``until_end``  stop when everything that runs here has ended and all subscribers have it.
    ``watch``      gets metrics of the node every second, as ``tally`` adds them up; ``per_second`` units of event time
                   are a second.

    In each turn the node gets all waiting inputs and runs once; then its actions are carried out.
    """

    def __init__(
        self,
        node: Node,
        listener: Listener,
        keeping: Keeping,
        playback: Playback | None = None,
        *,
        join: Iterable[Address] = (),
        known: Mapping[str, str] | None = None,
        until_end: bool = False,
        watch: Watcher | None = None,
        tally: RunTotals | None = None,
        per_second: int = 1_000_000,
        now: Now = time.monotonic,
    ) -> None:
        self.node = node
        self._keeping = keeping
        self._playback = playback
        self._join = {address: "" for address in join}
        self._known = dict(known or {})
        self._join |= {Address.of(text): name for name, text in self._known.items() if name != node.name}
        self._until_end = until_end
        self._now = now
        self._wake = asyncio.Event()
        self._wake.set()
        self._links = Links(node.name, listener, self._wake)
        self._call_at: float | None = None
        self._leave_until: float | None = None
        self._stops = self._plays = self._has_arrived = False
        self._worked = 0.0  # seconds, since
        self._since = now()
        self._look_at = 0.0
        self._behind_said = 0.0
        self._searches: set[asyncio.Task[None]] = set()
        self._found: list[tuple[SearchOrder, Solution | str]] = []
        self._watch = watch
        self._per_second = per_second
        self._tally = tally or RunTotals((), None)
        self._pace = Pace(now)
        self._kept: tuple[int, float] | None = None  # bytes of the last checkpoint, and when it was made

    async def run(self) -> None:
        """Until :meth:`stop`, or the end. A SlacklineError if the cluster refuses the node; checkpoints remain."""
        self._keep(self.node.save())  # before any peer knows the node, so that it can restart from a checkpoint
        try:
            self._links.start(self._join)
            while not self._is_over():
                await self._pause()
                self._turn()
            self._act(self.node.run(self._now()))
            self._keep(self.node.save())
        finally:
            await self._links.close()

    def stop(self) -> None:
        """Shut down: the detectors migrate first, within ``LEAVING`` seconds. Called again: stop at once."""
        if self._leave_until is None:
            logger.info("shutting down; migrating its detectors first")
            self._leave()
        else:
            self._stops = True
        self._wake.set()

    def _leave(self) -> None:
        now = self._now()
        self._leave_until = now + LEAVING
        self.node.leave(now)

    def _is_over(self) -> bool:
        node = self.node
        if node.failed is not None:
            raise SlacklineError(node.failed)
        if self._leave_until is None:
            if self._until_end and node.is_ready and node.is_through and not node.is_idle:
                logger.info("shutting down; all input has ended")
                self._leave()
            return False
        if node.is_gone or self._stops:
            return True
        if self._now() > self._leave_until:
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

    def _turn(self) -> None:
        node = self.node
        start = self._now()
        for heard in self._links.take():
            if heard.frame is not None:
                self._receive(heard.link, heard.frame, start)
            elif heard.is_up:
                node.link_up(heard.link, start)
            else:
                node.link_down(heard.link, start)
        self._arrive(start)
        for search, solution in self._found:
            node.found(search, solution, start)
        self._found.clear()
        actions = node.run(start)
        self._act(actions)
        if actions.checkpoint is not None:
            node.saving_took = self._now() - start
        if start >= self._look_at:
            self._look_at = start + LOOK
            self._links.know(node.addresses())
        stop = self._now()
        self._worked += stop - start
        if stop - self._since >= INTERVAL:
            node.busy = self._worked / (stop - self._since)
            self._worked, self._since = 0.0, stop
            if self._watch is not None:
                self._watch(self.vitals())

    def vitals(self) -> Vitals:
        """The metrics of the node."""
        own = self.node.overview()["nodes"][self.node.name]
        tally, here = self._tally, own["detectors"]
        tally.arrivals = own["arrivals"]
        tally.note(None, (Figures.of(here[name]) if name in here else Figures() for name in tally.detectors))
        rates = self._pace.rates(tally.arrivals, tally.outputs)
        size, at = self._kept or (None, None)
        return Vitals(
            tally.numbers(1),
            rate=rates[0],
            found_rate=rates[1],
            checkpoint_bytes=size,
            checkpoint_age=None if at is None else self._now() - at,
            per_second=self._per_second,
        )

    def _receive(self, link: str, frame: bytes, now: float) -> None:
        if not self._links.has(link):
            return  # closed because of an earlier frame
        try:
            self.node.receive(link, frame, now)
        except ProtocolError as error:
            self._links.cut(link, str(error))

    # Local arrivals.

    def _may_arrive(self) -> bool:
        return self._leave_until is None and self.node.is_ready and not self.node.is_full

    def _arrival_at(self, now: float) -> float | None:
        return self._playback.next_at(now) if self._playback is not None and self._may_arrive() else None

    def _arrive(self, now: float) -> None:
        playback = self._playback
        if playback is None or self._has_arrived or not self._may_arrive():
            return
        if not self._plays:
            self._plays = True
            logger.info("replaying the recording from row %s", f"{playback.position:,}")
        table = playback.take(now)
        if table is not None and len(table):
            self.node.push(table, now)
        self._say_behind(playback, now)
        if playback.has_ended:
            self._has_arrived = True
            self.node.end(now)
            logger.info("recording ended after %s rows", f"{playback.position:,}")

    def _say_behind(self, playback: Playback, now: float) -> None:
        lag = playback.lag(now)
        if lag > 1.0 and now - self._behind_said > 10.0:
            self._behind_said = now
            logger.warning("replay is %.1f s behind: the cluster cannot keep up", lag)

    # Actions, in the order that Actions demands.

    def _act(self, actions: Actions) -> None:
        if actions.outputs or actions.late or actions.quarantined:
            self._keeping.write(actions.outputs, actions.late, actions.quarantined)
            if self._watch is not None:
                self._tally.found(actions.outputs)
                self._tally.late += len(actions.late)
                self._tally.reasons.update(item.reason for item in actions.quarantined)
        if actions.checkpoint is not None:
            self._keep(actions.checkpoint)
        self._links.send(actions.messages)
        if actions.search is not None:
            task = asyncio.create_task(self._search(actions.search))
            self._searches.add(task)
            task.add_done_callback(self._searches.discard)
        for notice in actions.notices:
            logger.log(_LEVELS.get(notice.level, logging.INFO), "%s", notice.text)
        for link in actions.cut:
            self._links.hang_up(link)
        self._call_at = actions.call_at

    async def _search(self, search: SearchOrder) -> None:
        """In a thread of its own, while the node runs."""
        try:
            solution = await asyncio.to_thread(solved, search, time.monotonic)
        except Exception as error:  # a solver must not stop the node
            solution = f"the search failed: {error!r}"
        self._found.append((search, solution))
        self._wake.set()

    def _keep(self, checkpoint: bytes) -> None:
        position = 0 if self._playback is None else self._playback.position
        self._keeping.keep(Kept(checkpoint, position, self.node.addresses() or self._known))
        self._kept = len(checkpoint), self._now()
