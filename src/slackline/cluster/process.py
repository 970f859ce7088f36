"""A node as a process runs it: the plan of a node, and the nodes of one process, its own and lost ones that it resumes.

The command line makes a :class:`NodePlan` of its options, a task on Spark of the cluster's description.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from slackline.cluster.ingress import Ingress, Part, TablesSource
from slackline.cluster.interface import Takeover
from slackline.cluster.links import Credentials, Listener
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.tcp import CHECKPOINT_KIND, TcpHost
from slackline.compile import run_everything, run_solver
from slackline.connectors.addresses import scheme_of, sink_of, sources_of
from slackline.connectors.files import CopyingSink, FolderInUseError, FolderSink, ResultFolder
from slackline.connectors.kafka.settings import KafkaAddress, client_properties
from slackline.connectors.stdio import StdoutSink
from slackline.connectors.store import Store, StoreSink
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import PER_SECOND
from slackline.engine.options import Options
from slackline.ordering.policy import with_policy
from slackline.running.deferral import Pause
from slackline.runtime.address import Address
from slackline.runtime.application import load_application
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.metrics import MetricsCollector, MetricsListener
from slackline.runtime.options import RunOptions, by_option, run_options
from slackline.runtime.schema import Decoder
from slackline.runtime.sink import Sink

if TYPE_CHECKING:
    from slackline.connectors.kafka.bus import KafkaBus

#: Some recordings have event times in picoseconds.
TS_PER_SECOND = {**PER_SECOND, "ps": 10**12}

logger = logging.getLogger("slackline.node")


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a node as plain data, named as those of ``slackline node``.

    ``run``, ``ingress``  names; None: all without ``join``, none with it.
    ``parts``             by sensor type that enters in parts, how many: the same on all nodes.
    ``to``                where records go besides the folder: a URL.
    ``bus``               ``kafka://HOST:PORT/PREFIX``, a bus that retains what is sent.
    ``records``           options of records and Kafka, by the fields of :class:`~slackline.runtime.options.RunOptions`.
    ``tls``               files of the certificate, its key and the authority; empty: none.
    """

    app: str
    name: str
    inputs: list[str] = []
    listen: str = "127.0.0.1:0"
    join: list[str] = []
    run: list[str] | None = None
    ingress: list[str] | None = None
    parts: dict[str, int] = {}
    folder: str | None = None
    to: str | None = None
    shared_folder: str | None = None
    bus: str | None = None
    failover_after: float = 5.0
    idle_timeout: float = NodeSettings().idle_timeout
    checkpoint_every: float = 1.0
    speed: float = 0.0
    unit: str | None = None
    engine: dict[str, Any] = {}
    optimise: str | None = None
    limit: float = NodeSettings().limit
    shed: bool = False
    stays: list[str] = []
    pause: float | None = None
    until_end: bool = False
    tls: list[str] = []
    records: dict[str, Any] = {}


@dataclass(frozen=True)
class NodePlan:
    """The options of a node, checked.

    ``tables``  reads the recording, if the application does that itself; ``inputs``: how other input is read.
    """

    name: str
    application: str
    hierarchy: Hierarchy
    listen: Address
    join: list[Address]
    credentials: Credentials
    detectors: list[str]
    ingress: list[str]
    tables: Callable[[], Iterable[pa.Table]] | None
    inputs: RunOptions | None
    speed: float
    ts_per_second: int
    folder: Store | None
    settings: NodeSettings
    engine: dict[str, Any]
    until_end: bool
    #: The folder of all nodes, if lost nodes are resumed; and the input as plain data, to be opened by another node.
    shared_folder: Store | None
    described: dict[str, Any]
    bus: KafkaAddress | None = None

    @classmethod
    def of(cls, options: NodeOptions) -> NodePlan:
        """Load the application and check the options. A ConfigError if they are not valid."""
        name, given = options.name, options.inputs
        if options.folder is not None and options.shared_folder is not None:
            raise ConfigError("--folder and --shared-folder exclude each other; give one of them.")
        shared = None if options.shared_folder is None else Store.of(options.shared_folder)
        folder = None if options.folder is None else Store.of(options.folder)
        if shared is not None:
            folder = folder_of(shared, name)
        described: dict[str, Any] = {
            "app": options.app,
            "given": given,
            "unit": options.unit,
            "options": options.records,
            "speed": options.speed,
            "to": options.to,
        }
        if options.to is not None and (folder is None or not scheme_of(options.to)):
            raise ConfigError(f"--to {options.to}: records go to a URL besides a folder; give kafka://… and a folder.")
        hierarchy, tables, read = _opened(described, folder)
        bus = None if options.bus is None else KafkaAddress.of(options.bus)
        alone = not options.join
        hierarchy = hierarchy.in_parts(options.parts)
        ingress = _chosen("ingress", options.ingress, hierarchy.sensor_types, alone and bool(given))
        if ingress and not given:
            raise ConfigError(f"--ingress {','.join(ingress)}: these sensor types need an INPUT; give one.")
        if Part.of(hierarchy, ingress) is not None and "-" in given:
            raise ConfigError(
                "standard input is not one input that nodes share; give a topic of Kafka, of which each node reads "
                "some partitions, or a file, of which each reads the rows of some sources."
            )
        plan = cls(
            name=name,
            application=options.app,
            hierarchy=hierarchy,
            listen=Address.of(options.listen),
            join=[Address.of(each) for each in options.join],
            credentials=Credentials.of(*map(Path, options.tls)),
            detectors=_chosen("run", options.run, hierarchy.names, alone),
            ingress=ingress,
            tables=tables,
            inputs=read if given and tables is None else None,
            speed=options.speed,
            ts_per_second=TS_PER_SECOND[options.unit or "us"],
            folder=folder,
            settings=NodeSettings(
                checkpoint_every=None if folder is None else options.checkpoint_every,
                optimise=options.optimise,
                limit=options.limit,
                sheds=options.shed,
                stays=tuple(_chosen("stays", options.stays, hierarchy.names, False)),
                failover_after=None if shared is None else options.failover_after,
                idle_timeout=options.idle_timeout,
                bus=None if bus is None else f"kafka/{bus.topic}",
            ),
            engine=with_policy(options.engine) | ({} if options.pause is None else {"pause": Pause(options.pause)}),
            until_end=options.until_end,
            shared_folder=shared,
            described=described | {"ingress": ingress, "parts": options.parts},
            bus=bus,
        )
        for address in (plan.listen, *plan.join):
            plan.credentials.check(address)
        return plan

    def compile(self) -> None:
        """Compile what the node will call: a node that compiles sends no heartbeats."""
        run_everything([Options(**self.engine).policy.name])
        if self.settings.optimise == "master":
            run_solver()


def _opened(
    described: Mapping[str, Any], folder: Store | None
) -> tuple[Hierarchy, Callable[[], Iterable[pa.Table]] | None, RunOptions]:
    """The application, the recording if it reads that itself, and how other input is read."""
    app, given, unit = described["app"], described["given"], described["unit"]
    is_path = len(given) == 1 and not scheme_of(given[0]) and given[0] != "-"
    hierarchy, tables = load_application(app, Path(given[0]) if is_path else None)
    reads = bool(given) and tables is None
    if reads and unit == "ps":
        raise ConfigError("--unit ps is for applications that read recordings themselves; give ns or coarser.")
    to, of_unit = "-" if folder is None else str(folder), unit if reads else None
    options = {"app": app, "sources": given or ["-"], "to": to, "unit": of_unit, **described["options"]}
    return hierarchy, tables, run_options(by_option(options), None)


def folder_of(shared: Store, name: str) -> Store:
    """The folder of a node in the shared one."""
    if Path(name).name != name or name in (".", ".."):
        raise ConfigError(f"node {name!r} cannot have a folder of its name in {shared}; give it another --name.")
    return shared.child(name)


def _results(folder: Store) -> ResultFolder:
    """The results and checkpoints of a node."""
    if folder.is_local:
        return FolderSink(folder.path, kind=CHECKPOINT_KIND)
    return StoreSink(folder, kind=CHECKPOINT_KIND)


def _folder_sink(folder: Store, described: Mapping[str, Any]) -> ResultFolder:
    """The folder of a node, and the sink besides, if there is one."""
    results, to = _results(folder), described.get("to")
    if to is None:
        return results
    options = {"app": described["app"], "sources": ["-"], "to": to, **described["options"]}
    return CopyingSink(results, sink_of(run_options(by_option(options), None)))


@contextmanager
def _one_failover(shared: Store) -> Iterator[None]:
    """One at a time, where there are locks: of two nodes that resume each other, only one does."""
    with ExitStack() as stack:
        if shared.is_local:
            lock = stack.enter_context(Path(shared.path, "failover.lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class NodeProcess:
    """The nodes of this process: its own, and lost ones that it has resumed.

    ``metrics``    receives the metrics of its own node.
    ``listening``  called with the address at which the own node can be reached.
    ``take_over``  take the folder from a former process of the node that still holds it; that one is fenced.
    """

    def __init__(
        self,
        plan: NodePlan,
        metrics: MetricsListener | None = None,
        *,
        listening: Callable[[Address], object] = lambda _: None,
        take_over: bool = False,
    ) -> None:
        self._plan = plan
        self._metrics = metrics
        self._listening = listening
        self._take_over = take_over
        self._stops_at_once = False
        self._hosts: list[TcpHost] = []
        self._resumed: set[asyncio.Task[None]] = set()
        self._sink: Sink = StdoutSink() if plan.folder is None else _folder_sink(plan.folder, plan.described)

    async def run(self) -> None:
        """Until all nodes have ended."""
        loop, plan = asyncio.get_running_loop(), self._plan
        listener = await Listener.at(plan.listen, plan.credentials)
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.stop)
            saved = self._open()
            self._listening(listener.address)
            await self._host(plan, listener, self._sink, saved, self._metrics)
            while self._resumed:
                await asyncio.wait(self._resumed)
            logger.info("stopped")
        finally:
            for task in self._resumed:
                task.cancel()
            await asyncio.gather(*self._resumed, return_exceptions=True)
            listener.close()
            await self._sink.close()

    def _open(self) -> Checkpoint | None:
        try:
            return self._sink.open()
        except FolderInUseError:
            if not self._take_over:
                raise
        assert isinstance(self._sink, ResultFolder)
        return self._sink.take_over()

    def stop(self, *, at_once: bool = False) -> None:
        """Shut down: detectors migrate to other nodes first, unless ``at_once`` or this is called again."""
        self._stops_at_once = self._stops_at_once or at_once
        for host in self._hosts:
            host.stop(at_once=at_once)

    async def _host(
        self, plan: NodePlan, listener: Listener, sink: Sink, saved: Checkpoint | None, metrics: MetricsListener | None
    ) -> None:
        header = None if saved is None else _header(saved)
        if header is not None:
            _check_parts(plan, header["inputs"])
        host = TcpHost(
            _node(plan, str(listener.address), saved), listener, sink, _ingress(plan, header), join=plan.join,
            bus=_bus(plan), saved=header, until_end=plan.until_end, metrics=metrics,
            collector=MetricsCollector(plan.hierarchy.names, Options(**plan.engine).target),
            ts_per_second=plan.ts_per_second, inputs=plan.described,
            resume=lambda takeover: self._resume(takeover, listener.address),
        )  # fmt: skip
        runs = ", ".join(plan.detectors) if saved is None else "the detectors of its checkpoint"
        logger.info("listening at %s; running %s", listener.address, runs or "no detectors")
        self._hosts.append(host)
        if self._stops_at_once:
            host.stop(at_once=True)
        try:
            await host.run()
        finally:
            self._hosts.remove(host)

    def _resume(self, takeover: Takeover, join: Address) -> bool:
        """Resume a lost node from the shared folder, beside the own one; whether it has left the cluster instead."""
        shared, own = self._plan.shared_folder, self._sink
        assert shared is not None and isinstance(own, ResultFolder)
        try:
            folder = folder_of(shared, takeover.node)
            with _one_failover(shared):
                last = _results(folder).last_checkpoint()
                header = None if last is None else _header(last)
                lost = math.inf if takeover.incarnation is None else takeover.incarnation
                if own.is_fenced or header is None or header["incarnation"] > lost:
                    logger.warning("node %s is not resumed here: it has no checkpoint, or runs again", takeover.node)
                    return False
                if header["left"]:
                    return True
                plan = self._plan_of(takeover.node, header["inputs"], join)
                sink = _folder_sink(folder, header["inputs"])
                saved = sink.take_over()
        except (SlacklineError, OSError) as error:
            logger.warning("node %s cannot be resumed here: %s", takeover.node, error)
            return False
        logger.warning("resuming node %s from %s", takeover.node, folder)
        task = asyncio.create_task(self._run_resumed(plan, sink, saved))
        self._resumed.add(task)
        task.add_done_callback(self._resumed.discard)
        return False

    def _plan_of(self, name: str, described: Mapping[str, Any], join: Address) -> NodePlan:
        own = self._plan
        assert own.shared_folder is not None
        folder = folder_of(own.shared_folder, name)
        if "-" in described["given"]:
            raise ConfigError("it reads standard input, which another process cannot.")
        described = {**described, "app": own.application}
        _, tables, read = _opened(described, folder)
        return replace(
            own, name=name, listen=Address(own.listen.host, 0), join=[join], detectors=[],
            ingress=list(described["ingress"]), tables=tables,
            inputs=read if described["given"] and tables is None else None, speed=described["speed"],
            ts_per_second=TS_PER_SECOND[described["unit"] or "us"], folder=folder, described=described,
        )  # fmt: skip

    async def _run_resumed(self, plan: NodePlan, sink: ResultFolder, saved: Checkpoint | None) -> None:
        listener = await Listener.at(plan.listen, plan.credentials)
        try:
            await self._host(plan, listener, sink, saved, None)
            logger.info("resumed node %s stopped", plan.name)
        except SlacklineError as error:
            logger.error("resumed node %s stopped: %s", plan.name, error)
        finally:
            listener.close()
            await sink.close()


def _header(saved: Checkpoint) -> Mapping[str, Any]:
    match saved.header:
        case {
            "ingress": dict(), "schema": dict(), "addresses": dict(), "changes": int(), "counts": dict(),
            "incarnation": int(), "inputs": dict(), "left": bool(),
        }:  # fmt: skip
            return saved.header
    raise StateError("the checkpoint was not written by this release; start with another --folder.")


def _check_parts(plan: NodePlan, before: Mapping[str, Any]) -> None:
    """Raise a StateError if the checkpoint is of a node that has read other parts of the input."""
    parts, now = before.get("parts", {}), plan.described["parts"]
    if parts != now or (now and sorted(before["ingress"]) != sorted(plan.ingress)):
        given = "".join(f"--parts {kind}={number} " for kind, number in parts.items())
        raise StateError(
            f"the checkpoint in {plan.folder} is of a node with other parts of the input: give {given}--ingress "
            f"{','.join(before['ingress'])} as then, or start with another --folder."
        )


def _ingress(plan: NodePlan, header: Mapping[str, Any] | None) -> Ingress | None:
    """The input of this node, from the position of the checkpoint."""
    if not plan.ingress:
        return None
    here = plan.hierarchy.event_types(plan.ingress)
    elsewhere = [kind for kind in plan.hierarchy.entering if kind not in here]
    part = Part.of(plan.hierarchy, plan.ingress)
    saved = None if header is None else header["ingress"]
    if plan.tables is not None:
        return Ingress(
            [TablesSource(plan.tables)], None, elsewhere, part=part, speed=plan.speed, saved=saved,
            ts_per_second=plan.ts_per_second,
        )  # fmt: skip
    assert plan.inputs is not None
    schema = plan.inputs.schema
    if header is not None and header["schema"]:
        schema = schema.resumed(header["schema"], f"the checkpoint in {plan.folder}")
    sources = sources_of(plan.inputs)
    return Ingress(sources, Decoder(schema, plan.hierarchy), elsewhere, part=part, speed=plan.speed, saved=saved)


def _bus(plan: NodePlan) -> KafkaBus | None:
    if plan.bus is None:
        return None
    client = client_properties(plan.described["options"].get("kafka_config"))
    from slackline.connectors.kafka.bus import KafkaBus  # needs the extra kafka

    hierarchy = plan.hierarchy
    read = {kind for name in hierarchy.names for kind in hierarchy.listens[name]}
    return KafkaBus(plan.bus, sorted(read | {*hierarchy.clock, *hierarchy.clock_aids}), hierarchy.publisher, client)


def _node(plan: NodePlan, address: str, saved: Checkpoint | None) -> Node:
    """A new node, or the one of the checkpoint."""
    # The cost of detectors is measured as CPU time, as other processes use the machine; deferral needs elapsed time.
    engine = {"now": time.monotonic if "pause" in plan.engine else time.thread_time, **plan.engine}
    if saved is None:
        return Node(
            plan.name, plan.hierarchy, identity=secrets.randbits(63), ingress=plan.ingress, detectors=plan.detectors,
            application=plan.application, address=address, settings=plan.settings, **engine,
        )  # fmt: skip
    (state,) = saved.pieces
    machine = Node.load(state, plan.hierarchy, address=address, settings=plan.settings, **engine)
    if machine.name != plan.name:
        raise ConfigError(
            f"the folder {plan.folder} holds node {machine.name!r}, not {plan.name!r}. Give --name {machine.name}, or "
            f"another --folder."
        )
    return machine


def _chosen(option: str, given: list[str] | None, known: tuple[str, ...], all_of_them: bool) -> list[str]:
    """The names given by an option, checked."""
    if given is None:
        return list(known) if all_of_them else []
    unknown = [name for name in given if name not in known]
    if unknown:
        hint = next((name.partition("/")[0] for name in unknown if name.partition("/")[0] in known), None)
        more = f" For parts of {hint}, give their number: --parts {hint}=2." if hint and option == "ingress" else ""
        raise ConfigError(
            f"--{option} {','.join(unknown)}: not in the application, which has {', '.join(known)}.{more}"
        )
    return list(dict.fromkeys(given))
