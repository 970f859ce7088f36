"""A hierarchy at work in this process: sources in, engines by key, results and checkpoints out."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from slackline.connectors.delivery import Delivery, joined, merged
from slackline.connectors.sources import ReadPlace, Source
from slackline.connectors.targets import Results, Target
from slackline.core import codec
from slackline.core.errors import StateError
from slackline.core.time import Now
from slackline.runtime.forms import quickest
from slackline.runtime.keeping import Kept
from slackline.runtime.roles import Roles
from slackline.runtime.sites import Sites
from slackline.runtime.vitals import INTERVAL, Pace, Vitals, Watcher

#: Rows that are pushed at once, and that may have come and not been pushed yet. In a larger push a row costs less.
LEAST, MOST, ROOM = 4_096, 65_536, 131_072
#: A push that is quicker, in seconds, or had to wake many, may be four times as long the next time; one four times as
#: slow half as long.
QUICK = 0.25
#: The share of its time that a run over files takes for checkpoints, at most.
CHECKPOINTS = 0.2
#: Seconds between two looks at the wall clock, for what waits while nothing comes.
LOOK = 0.25

STATE_KIND, STATE_VERSION = "run", 1

logger = logging.getLogger("slackline.run")


class RunHost:
    """Runs until all sources have ended, or :meth:`stop`.

    ``at_stop``  what becomes of what waits then: ``"flush"``, it goes on as if nothing earlier could come; ``"keep"``,
                 it is kept, for a target that keeps.
    ``every``    seconds between checkpoints; more, if all that comes can be read again and they take long.
    ``watch``    is given how it fares, every second.

    **Exactly once** is what a target that keeps gives for files: a checkpoint holds the engines, how far each file was
    taken, and how long the files of results were; what came after it is cut off and done again.
    """

    def __init__(
        self,
        sites: Sites,
        sources: Sequence[Source],
        target: Target,
        roles: Roles,
        *,
        at_stop: str = "flush",
        every: float = 1.0,
        watch: Watcher | None = None,
        now: Now = time.monotonic,
        wall: Now = time.time,
    ) -> None:
        self._sites = sites
        self._sources = list(sources)
        self._target = target
        self._roles = roles
        self._at_stop = at_stop
        self._every = every
        self._watch = watch
        self._now = now
        self._wall = wall
        #: Wall time is evidence where all that comes, comes when it happens: not while we catch up with what lay there.
        self._timed = all(source.live for source in sources)
        self._live = any(source.live or source.path is None for source in sources)
        self._caught_up = False
        self._arrived: deque[Delivery] = deque()
        self._lag = 0  # rows in it
        self._most = LEAST  # rows in the next push
        self._something, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._stops = False
        self._results = Results(sites.keyed)
        self._pace = Pace(now)
        self._next_keep = -math.inf
        self._kept: tuple[int, float] | None = None  # bytes of the last checkpoint, and when it was made
        self._told_at = self._looked_at = now()
        self._keyless = False

    def stop(self) -> None:
        """Read nothing more; what came and cannot be read again is taken, and what waits is flushed or kept."""
        logger.info("stops; what waits is %s", "kept" if self._at_stop == "keep" else "flushed")
        self._stops = True
        arrived, self._arrived, self._lag = self._arrived, deque(), 0
        for delivery in arrived:
            if any(source.path is None for source, *_ in delivery.taken):
                self._arrived.append(delivery)
                self._lag += len(delivery.rows)
        self._something.set()

    async def run(self) -> bool:
        """Whether there was anything to do: a run that has ended is not run again."""
        kept = self._target.open()
        try:
            if kept is not None and self._has_ended(kept):
                return False
            tasks = [asyncio.create_task(self._fill(stream)) for stream in self._streams()]
            try:
                await self._work(tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            return True
        finally:
            await self._target.close()

    def vitals(self) -> Vitals:
        """How it fares."""
        numbers = self._sites.numbers()
        rates = self._pace.rates(numbers.arrivals, numbers.outputs)
        size, at = self._kept or (None, None)
        return Vitals(
            numbers,
            rate=rates[0],
            found_rate=rates[1],
            lag=self._lag,
            rejected=sum(source.place.rejected for source in self._sources),
            checkpoint_bytes=size,
            checkpoint_age=None if at is None else self._now() - at,
            per_second=self._roles.per_second,
        )

    # In.

    def _streams(self) -> list[AsyncIterator[Delivery]]:
        """What is read at the same time."""
        once = [source for source in self._sources if source.path is not None and not source.live]
        others = [source.read() for source in self._sources if source not in once]
        return [merged(once), *others] if len(once) > 1 else [source.read() for source in self._sources]

    async def _fill(self, stream: AsyncIterator[Delivery]) -> None:
        given = 0
        async for delivery in stream:
            if self._stops:
                return
            self._arrived.append(delivery)
            self._lag += len(delivery.rows)
            self._something.set()
            given += len(delivery.rows)
            if self._lag >= ROOM:
                self._caught_up = False
                self._room.clear()
                await self._room.wait()
            elif given >= LEAST:
                given = 0
                await asyncio.sleep(0)

    def _take(self) -> Delivery:
        """The next rows, as many as are pushed at once."""
        taken: list[Delivery] = []
        rows = 0
        while self._arrived and rows < self._most:
            taken.append(self._arrived.popleft())
            rows += len(taken[-1].rows)
        self._lag -= rows
        if self._lag < ROOM // 2:
            self._room.set()
        for each in taken:
            each.took()
        return joined(taken)

    # Work.

    async def _work(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.add_done_callback(lambda _: self._something.set())
        while True:
            await self._pause(tasks)
            if self._arrived:
                self._push(self._take())
            elif self._timed and self._caught_up and self._now() - self._looked_at >= LOOK:
                self._looked_at = self._now()
                self._results.outputs += self._sites.wait(self._wall_time())
            await self._give()
            await self._tell()
            await asyncio.sleep(0)  # signals and streams have their turn
            for task in tasks:
                if task.done() and not self._arrived:
                    task.result()
            over = all(task.done() for task in tasks) and not self._arrived
            if over or (self._stops and not self._arrived):
                await self._end(over and not self._stops)
                return

    async def _pause(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for something to come; out of files, for as much as is pushed at once."""
        wanted = 1 if self._live else self._most
        try:
            async with asyncio.timeout(LOOK):
                while self._lag < wanted and not self._stops and not all(task.done() for task in tasks):
                    self._something.clear()
                    await self._something.wait()
        except TimeoutError:
            self._caught_up = self._caught_up or not self._arrived

    def _push(self, delivery: Delivery) -> None:
        rows, keys, _ = delivery
        many = 1
        if isinstance(keys, pa.ChunkedArray):
            many = pc.count_distinct(keys, mode="all").as_py()
        elif keys and not self._keyless and not any(key is not None for key in keys):
            self._keyless = True
            logger.warning(
                "none of %s events has a field %r for its key; they are set aside", len(keys), self._roles.key
            )
        if isinstance(rows, pa.Table):
            rows = quickest(rows, self._sites.types, many)
        if isinstance(keys, pa.ChunkedArray) and not isinstance(rows, pa.Table):
            keys = keys.to_pylist()
        start = self._now()
        now = self._wall_time() if self._timed and self._caught_up else None
        self._results.outputs += self._sites.push(rows, keys, now)
        stop = self._now()
        self._sites.worked(start, stop)
        if stop - start < QUICK or self._sites.woken > len(rows) // 8:
            self._most = min(MOST, 4 * self._most)
        elif stop - start > 4 * QUICK:
            self._most = max(LEAST, self._most // 2)

    def _wall_time(self) -> int:
        return int(self._wall() * self._roles.per_second)

    async def _end(self, is_over: bool) -> None:
        """All was read, or nothing more is to be."""
        if is_over:
            self._results.outputs += self._sites.close()
        elif self._at_stop == "flush":
            self._results.outputs += self._sites.flush("stop")
        await self._give()
        self._keep(is_over)
        if self._watch is not None:
            self._watch(self.vitals())

    # Out.

    async def _give(self) -> None:
        """Write what has come of it, and make a checkpoint when it is time."""
        results = self._results
        late, quarantined = self._sites.drain()
        results.late += late
        results.quarantined += quarantined
        for source in self._sources:
            results.rejected += [(source.url, record) for record in source.rejected()]
        if results:
            self._results = Results(self._sites.keyed)
            await self._target.write(results)
        if self._target.keeps and self._now() >= self._next_keep:
            self._keep()

    def _keep(self, has_ended: bool = False) -> None:
        if not self._target.keeps:
            return
        start = self._now()
        places = {source.url: tuple(source.place) for source in self._sources}
        state = {"sites": self._sites.save(), "places": places, "ended": has_ended}
        data = codec.dump(STATE_KIND, STATE_VERSION, state)
        self._target.keep(Kept(data, self._sites.numbers().arrivals, {}))
        stop = self._now()
        self._kept = len(data), stop
        self._next_keep = stop + max(self._every, 0 if self._live else (stop - start) / CHECKPOINTS)

    def _has_ended(self, kept: Kept) -> bool:
        """Go on from a checkpoint; whether there is nothing to go on with."""
        match codec.load(STATE_KIND, STATE_VERSION, kept.node):
            case {"sites": bytes(sites), "places": dict(places), "ended": bool(ended)}:
                pass
            case _:
                raise StateError("the checkpoint was not written by this release; start anew with another folder.")
        if ended:
            logger.info("all was read in an earlier run, of %s events; nothing to do", f"{kept.position:,}")
            return True
        self._sites.load(sites)
        missing = sorted(set(places) - {source.url for source in self._sources})
        if missing:
            raise StateError(f"{', '.join(missing)} was read before and is not given now. Give it, or another folder.")
        for source in self._sources:
            said = source.go_on(ReadPlace(*places[source.url])) if source.url in places else None
            if said is not None:
                logger.warning("%s", said)
        self._pace = Pace(self._now, self._sites.numbers().arrivals, self._sites.numbers().outputs)
        logger.info("goes on after %s events", f"{kept.position:,}")
        return False

    async def _tell(self) -> None:
        if self._watch is not None and self._now() - self._told_at >= INTERVAL:
            self._told_at = self._now()
            self._watch(self.vitals())
