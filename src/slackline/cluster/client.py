"""A client of a running node: overview of the cluster, migration of detectors, and global placement from outside.

:class:`RemotePlacement` runs the policy of a placement master (``controller.global_placement``) against the overview of
one node, and requests its migrations [Thesis, 5.2.3]; here are the clock and the requests.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from slackline.cluster.controller.global_placement import GlobalPlacement, PlacementPlan
from slackline.cluster.controller.metrics import ClusterMetrics, Statistics
from slackline.cluster.controller.policy import MOVE_TIMEOUT, Move, PolicyActions, run_search
from slackline.cluster.interface import SearchOrder
from slackline.cluster.links import Connection, Credentials, HandshakeError, dial
from slackline.cluster.placement import Improvement, Placement, Problem, Solution
from slackline.cluster.placement.problem import PlacementChange
from slackline.cluster.protocol import messages as m
from slackline.core.errors import SlacklineError
from slackline.core.time import Now
from slackline.runtime.address import Address

#: Seconds between two requests for the overview, by a placement.
INTERVAL = 1.0
#: Seconds after which missing metrics are an error.
METRICS_TIMEOUT = 10.0


class NoAnswerError(SlacklineError):
    """A node could not be reached, or did not answer."""


async def overview(address: Address, credentials: Credentials, timeout: float = 10.0) -> dict[str, Any]:
    """The cluster as seen by the node at ``address``."""
    answer = await _ask(address, credentials, m.Query(), timeout)
    assert isinstance(answer, m.Overview)
    return answer.nodes


async def migrate(
    address: Address, credentials: Credentials, detector: str, node: str, timeout: float = 30.0
) -> dict[str, Any]:
    """Migrate a detector to a node; returns its duration and costs. A SlacklineError says why it failed."""
    request = m.MigrationRequest(detector, node, secrets.token_hex(8))
    answer = await _ask(address, credentials, request, timeout)
    assert isinstance(answer, m.MigrationResult)
    if answer.error:
        raise SlacklineError(answer.error)
    return answer.metrics


async def _ask(
    address: Address, credentials: Credentials, body: m.Query | m.MigrationRequest, timeout: float
) -> m.Body:
    """Send a request to a node; returns its answer."""
    credentials.check(address)
    connection: Connection | None = None
    try:
        connection = await dial(address, credentials)
        connection.write([m.encode(m.Envelope(m.VERSION, f"client {secrets.token_hex(8)}", 1, 0, 0, 0, body))])
        async with asyncio.timeout(timeout):
            return await _answer(connection, body, timeout)
    except TimeoutError:
        raise NoAnswerError(f"the node at {address} did not answer within {timeout:g} s.") from None
    except HandshakeError as error:
        raise NoAnswerError(f"cannot connect to a node at {address}: {error}") from error
    except (SlacklineError, OSError) as error:
        raise NoAnswerError(f"the node at {address} did not answer: {error}") from error
    finally:
        if connection is not None:
            connection.drop()


async def _answer(connection: Connection, body: m.Query | m.MigrationRequest, timeout: float) -> m.Body:
    """Read until the answer is received; a node sends other messages to every peer."""
    frames = await connection.first(timeout + 1)
    while frames:
        for frame in frames:
            answer = m.decode(frame).body
            if isinstance(answer, m.Rejected):
                raise SlacklineError(answer.reason)
            if isinstance(answer, m.Overview) and isinstance(body, m.Query):
                return answer
            if isinstance(answer, m.MigrationResult) and answer.request == getattr(body, "request", None):
                return answer
        frames = await connection.read()
    raise SlacklineError("it closed the connection.")


class LoadSample(NamedTuple):
    """A node at a time: its CPU load, and the share of a core that its detectors took, as far as measured."""

    at: float
    load: float
    detectors: float


class CompletedMigration(NamedTuple):
    """A migration: when it was requested, how many seconds it took, and why it failed (``error``)."""

    at: float
    detector: str
    source: str
    to: str
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """A placement run, for a page. All times are seconds since its start.

    ``problem``    at the time of the decision; its ``now`` is ``before``.
    ``before``     the placement before, and ``after``: the placement that was found.
    ``changes``    the detectors that migrate, the gain of each and why.
    ``histories``  by solver, its best objective over the seconds of its search.
    ``solver``     the one that found ``after``; ``bound``: a lower bound of the objective, if known.
    ``loads``      by node, over time.
    ``migrations`` the migrations in order of time; empty with ``--dry-run``.
    """

    problem: Problem
    before: Placement
    after: Placement
    changes: tuple[PlacementChange, ...]
    histories: Mapping[str, tuple[Improvement, ...]]
    solver: str
    bound: float | None
    loads: Mapping[str, tuple[LoadSample, ...]]
    migrations: tuple[CompletedMigration, ...]


class RemotePlacement:
    """Runs the policy against a cluster.

    ``log``      called with messages for the user.
    ``on_plan``  called with the result of each search.
    """

    def __init__(
        self,
        address: Address,
        credentials: Credentials,
        policy: GlobalPlacement,
        *,
        log: Callable[[str], None],
        on_plan: Callable[[PlacementPlan], None],
        now: Now = time.monotonic,
    ) -> None:
        self._address, self._credentials = address, credentials
        self._policy = policy
        self._log, self._on_plan = log, on_plan
        self._now = now
        self._metrics = ClusterMetrics()
        self._tasks: set[asyncio.Task[None]] = set()
        self._began = now()
        self._last: PlacementPlan | None = None
        self._moves_detectors = True
        self._logged = ""
        #: Why the last search failed, if it did.
        self.failed: str | None = None
        self.loads: dict[str, list[LoadSample]] = {}
        self.migrations: list[CompletedMigration] = []

    async def once(self, dry_run: bool) -> PlacementPlan:
        """Search once, execute the plan (not with ``dry_run``), and return when its last step was evaluated.

        An IncompleteMetricsError if metrics stay missing, a SlacklineError if there is no placement.
        """
        self._moves_detectors = not dry_run
        while True:
            seen = await self._overview()
            if seen["master"] is not None and not dry_run:
                self._log_once(
                    f"node {seen['master']} is the placement master of the cluster: it may migrate detectors again"
                )
            statistics = self._statistics(seen)
            if statistics.missing and self._now() - self._began > METRICS_TIMEOUT and self._policy.last_plan is None:
                statistics.problem(self._policy.every)  # raises
            self._heartbeat(statistics)
            if self.failed is not None:
                raise SlacklineError(self.failed)
            if self._last is not None and (dry_run or self._policy.is_idle):
                return self._last
            await asyncio.sleep(INTERVAL)

    async def watch(self) -> None:
        """Search again and again, until cancelled. While a node of the cluster is the master, stand by."""
        while True:
            try:
                seen = await self._overview()
            except NoAnswerError as error:
                self._log_once(str(error))
            else:
                master = seen["master"]
                statistics = self._statistics(seen)
                if master is None:
                    self._logged = ""
                    self._heartbeat(statistics)
                else:
                    self._log_once(f"standing by: node {master} is the placement master")
                    self._policy.stand_down()
            await asyncio.sleep(INTERVAL)

    async def _overview(self) -> dict[str, Any]:
        return await overview(self._address, self._credentials)

    def _statistics(self, seen: dict[str, Any]) -> Statistics:
        now = self._now()
        self._metrics.update(seen, now)
        statistics = self._metrics.statistics(now)
        for name, node in statistics.nodes.items():
            share = sum(statistics.cpu.get(each, 0.0) for each, runs in statistics.runs.items() if runs == name)
            self.loads.setdefault(name, []).append(LoadSample(now - self._began, node.load, share))
        return statistics

    def _heartbeat(self, statistics: Statistics) -> None:
        self._apply(self._policy.on_heartbeat(statistics, self._now()))
        if self._policy.last_plan is not self._last and self._policy.last_plan is not None:
            self._last = self._policy.last_plan
            self._on_plan(self._last)

    def _apply(self, actions: PolicyActions) -> None:
        for notice in actions.notices:
            self._log(notice.text)
        if actions.search is not None:
            self._start(self._search(actions.search))
        for wanted in actions.moves if self._moves_detectors else ():
            self._start(self._move(wanted))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _search(self, search: SearchOrder) -> None:
        solution: Solution | str = await asyncio.to_thread(run_search, search, time.monotonic)
        self.failed = solution if isinstance(solution, str) else None
        self._policy.on_search_result(search, solution)

    async def _move(self, wanted: Move) -> None:
        start = self._now()
        figures: dict[str, Any] = {}
        error = ""
        try:
            figures = await migrate(self._address, self._credentials, wanted.detector, wanted.to, MOVE_TIMEOUT)
            self._metrics.record_handover(wanted.detector, float(figures["stopped_seconds"]))
            self._log(
                f"migrated {wanted.detector} from {wanted.source} to {wanted.to} in {1000 * figures['seconds']:.0f} ms"
            )
        except SlacklineError as refused:
            error = str(refused)
        seconds = figures.get("seconds", self._now() - start)
        self.migrations.append(
            CompletedMigration(start - self._began, wanted.detector, wanted.source, wanted.to, seconds, error)
        )
        self._apply(self._policy.on_move_result(wanted, error, figures, self._now()))

    def _log_once(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            self._log(text)
