"""A master outside of all nodes: it asks one of them how the network goes, and has detectors moved [Thesis, 5.2.3].

It is the :class:`~slackline.cluster.controller.master.Master` that runs in nodes, too; here are the clock and the questions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from slackline.cluster.actions import SearchOrder
from slackline.cluster.client import NoAnswerError, migrate, overview
from slackline.cluster.connection import Credentials
from slackline.cluster.controller.master import Decision, Master
from slackline.cluster.controller.metrics import ClusterMetrics
from slackline.cluster.controller.mover import PATIENCE
from slackline.cluster.controller.policy import Advice, Move
from slackline.cluster.controller.searching import solved
from slackline.cluster.controller.statistics import Statistics
from slackline.cluster.placement import Solution
from slackline.cluster.placement.report import LoadSample, MoveMade
from slackline.core.errors import SlacklineError
from slackline.core.time import Now
from slackline.runtime.address import Address

#: Seconds between two looks.
BETWEEN = 1.0
#: Seconds after which what is still not known will not be.
PATIENT = 10.0


class Placing:
    """Looks, decides and moves, from outside.

    ``say``      hears, as it happens, what people may want to know.
    ``decided``  hears each decision.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        master: Master,
        *,
        say: Callable[[str], None],
        decided: Callable[[Decision], None],
        now: Now = time.monotonic,
    ) -> None:
        self._address, self._credentials = address, credentials
        self._master = master
        self._say, self._decided = say, decided
        self._now = now
        self._survey = ClusterMetrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = now()
        self._last: Decision | None = None
        self._moves_detectors = True
        self._said = ""
        #: Why the last search gave nothing, if so.
        self.failed: str | None = None
        self.loads: dict[str, list[LoadSample]] = {}
        self.moves: list[MoveMade] = []

    async def once(self, dry_run: bool) -> Decision:
        """Search once, and move what is to be moved (not with ``dry_run``), until it was seen to be better.

        A LackingError if too little can be learnt of the network, a SlacklineError if there is no placement.
        """
        self._moves_detectors = not dry_run
        while True:
            seen = await self._look()
            if seen["master"] is not None and not dry_run:
                self._say_once(f"{seen['master']} looks after where detectors run, too: it may move them again")
            statistics = self._statistics(seen)
            if statistics.lacks and self._now() - self._began > PATIENT and self._master.decision is None:
                statistics.problem(self._master.every)  # which raises
            self._beat(statistics)
            if self.failed is not None:
                raise SlacklineError(self.failed)
            if self._last is not None and (dry_run or self._master.is_resting):
                return self._last
            await asyncio.sleep(BETWEEN)

    async def watch(self) -> None:
        """Keep doing it, until cancelled. While a node of the network does it, stand by."""
        while True:
            try:
                seen = await self._look()
            except NoAnswerError as error:
                self._say_once(str(error))
            else:
                master = seen["master"]
                statistics = self._statistics(seen)
                if master is None:
                    self._said = ""
                    self._beat(statistics)
                else:
                    self._say_once(f"stands by, as {master} looks after where detectors run")
                    self._master.stand_down()
            await asyncio.sleep(BETWEEN)

    async def _look(self) -> dict[str, Any]:
        return await overview(self._address, self._credentials)

    def _statistics(self, seen: dict[str, Any]) -> Statistics:
        now = self._now()
        self._survey.look(seen, now)
        statistics = self._survey.statistics(now)
        for name, node in statistics.nodes.items():
            share = sum(statistics.cpu.get(each, 0.0) for each, runs in statistics.runs.items() if runs == name)
            self.loads.setdefault(name, []).append(LoadSample(now - self._began, node.load, share))
        return statistics

    def _beat(self, statistics: Statistics) -> None:
        self._follow(self._master.beat(statistics, self._now()))
        if self._master.decision is not self._last and self._master.decision is not None:
            self._last = self._master.decision
            self._decided(self._last)

    def _follow(self, advice: Advice) -> None:
        for notice in advice.notices:
            self._say(notice.text)
        if advice.search is not None:
            self._begin(self._search(advice.search))
        for wanted in advice.moves if self._moves_detectors else ():
            self._begin(self._move(wanted))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _search(self, search: SearchOrder) -> None:
        solution: Solution | str = await asyncio.to_thread(solved, search, time.monotonic)
        self.failed = solution if isinstance(solution, str) else None
        self._master.found(search, solution)

    async def _move(self, wanted: Move) -> None:
        start = self._now()
        figures: dict[str, Any] = {}
        error = ""
        try:
            figures = await migrate(self._address, self._credentials, wanted.detector, wanted.to, PATIENCE)
            self._survey.moved(wanted.detector, float(figures["stopped_seconds"]))
            self._say(f"{wanted.detector} runs on {wanted.to} now; it took {1000 * figures['seconds']:.0f} ms")
        except SlacklineError as refused:
            error = str(refused)
        seconds = figures.get("seconds", self._now() - start)
        self.moves.append(MoveMade(start - self._began, wanted.detector, wanted.source, wanted.to, seconds, error))
        self._follow(self._master.answered(wanted, error, figures, self._now()))

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._say(text)
