"""``slackline node APP``: run a node of a cluster in this process."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import typer

from slackline.cli.applications import load_application
from slackline.cli.console import reports_errors
from slackline.cli.logs import log_to_stderr, served_metrics
from slackline.cli.options import TlsCa, TlsCert, TlsKey, engine_options, given_options, help_of, takes
from slackline.cli.run import sources_of
from slackline.cluster.ingress import Ingress, TablesSource
from slackline.cluster.interface import Takeover
from slackline.cluster.links import Credentials, Listener
from slackline.cluster.protocol import Node, NodeSettings
from slackline.cluster.tcp import CHECKPOINT_KIND, TcpHost
from slackline.compile import run_everything, run_solver
from slackline.connectors.addresses import scheme_of
from slackline.connectors.files import FolderSink
from slackline.connectors.stdio import StdoutSink
from slackline.core.errors import ConfigError, SlacklineError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import PER_SECOND
from slackline.engine.options import Options
from slackline.ordering.policy import with_policy
from slackline.running.deferral import Pause
from slackline.runtime.address import Address
from slackline.runtime.checkpoint import Checkpoint
from slackline.runtime.metrics import MetricsCollector, MetricsListener
from slackline.runtime.options import RunOptions, run_options
from slackline.runtime.schema import Decoder
from slackline.runtime.sink import Sink

#: Options of the engine that are set by other options of the node.
_NOT_GIVEN = ("late", "pause")
#: Some recordings have event times in picoseconds.
_PER_SECOND = {**PER_SECOND, "ps": 10**12}

logger = logging.getLogger("slackline.node")


@dataclass(frozen=True)
class Plan:
    """The options of the command, checked.

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
    folder: Path | None
    settings: NodeSettings
    engine: dict[str, Any]
    until_end: bool
    metrics: int | None
    #: The folder of all nodes, if lost nodes are resumed; and the input as plain data, to be opened by another node.
    shared_folder: Path | None
    described: dict[str, Any]


#: Options of records, Kafka and logs that are as those of ``slackline run``.
_SHARED = ("ts", "type", "source", "seq", "follow", "format", "avro_schema", "start", "kafka_config", "metrics", "log")


@takes(*_SHARED)
@reports_errors
def node(
    app: Annotated[
        str,
        typer.Argument(metavar="APP", help="module:name of a Hierarchy, the same on all nodes, in the same version."),
    ],
    name: Annotated[str, typer.Option(help="Name of this node, unique in the cluster.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Input of this node: a file (CSV, JSON lines, both also .gz, or Parquet), a folder of files, - "
            "(standard input, JSON lines), http://…, https://…, mqtt://HOST/TOPIC, kafka://HOST:PORT/TOPIC; or the "
            "recording that the application reads itself, which all nodes of such an application need.",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT at which other nodes reach this one; port 0: any free port.")
    ] = "127.0.0.1:0",
    join: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST:PORT of a node of the cluster; the addresses of the others are found there. Several times."
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Detectors that run here at first, separated by commas; '' is none. Default: all without --join, none "
            "with it."
        ),
    ] = None,
    ingress: Annotated[
        str | None,
        typer.Option(
            help="Sensor types that enter here, from INPUT, separated by commas; rows of other types are skipped. "
            "Default: all without --join, if there is an INPUT; none with it."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder for outputs, late and quarantined events (JSON lines) and checkpoints, from which the node "
            "resumes after a crash, with --run and --ingress as they were. Without it, outputs are printed, and a "
            "crash loses the node's state.",
            file_okay=False,
        ),
    ] = None,
    shared_folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder that all nodes share, instead of --folder: this node uses the folder NAME in it. A node that "
            "is lost for --failover-after seconds is resumed from there by another node, with its detectors and input.",
            file_okay=False,
        ),
    ] = None,
    failover_after: Annotated[
        float,
        typer.Option(help="Seconds after which a lost node is resumed by another, with --shared-folder.", min=0.0),
    ] = 5.0,
    checkpoint_every: Annotated[
        float, typer.Option(help="Seconds between checkpoints, with --folder.", min=0.01)
    ] = 1.0,
    speed: Annotated[
        str,
        typer.Option(
            help="Replay speed of a recording: 1 is real time by its event times, 2 twice as fast, 'max' unpaced."
        ),
    ] = "max",
    unit: Annotated[
        Literal["s", "ms", "us", "ns", "ps"] | None,
        typer.Option(help=f"{help_of('unit')} ps is for applications that read recordings themselves."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="Option of the engine, the same on all nodes: KEY=VALUE, e.g. policy=slack or late_target=0.01. "
            "Several times."
        ),
    ] = None,
    optimise: Annotated[
        Literal["master", "neighbours"] | None,
        typer.Option(
            help="Optimise the placement of detectors: as the master of the cluster (of several such nodes, the first "
            "by name), or each node for its own detectors, by the metrics of its neighbours."
        ),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(help="The share of a core that detectors may use here, for placement and load shedding.", min=0.0),
    ] = NodeSettings().limit,
    shed: Annotated[
        bool,
        typer.Option("--shed", help="Migrate detectors to other nodes before those here need more than --limit."),
    ] = False,
    stays: Annotated[str, typer.Option(help="Detectors that must run on this node, separated by commas.")] = "",
    pause: Annotated[
        float | None,
        typer.Option(
            help="Defer detectors while this node is busy for more than this share of the time, e.g. 0.9; their "
            "results are the same, later. Per node."
        ),
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option("--until-end", help="Stop when all input has ended, and all subscribers have the results."),
    ] = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    **shared: Any,
) -> None:
    """Run some detectors of a hierarchy as one node of a cluster, until Ctrl-C.

    The first node of a cluster needs no --join; the others join it, or any other. On Ctrl-C or SIGTERM its detectors
    migrate to other nodes first; a second signal stops it at once. After a crash it resumes from its --folder.

    A cluster on one machine: `slackline node app:hierarchy FILE --name n1 --listen 127.0.0.1:7001 --run Low`, then
    `slackline node app:hierarchy --name n2 --join 127.0.0.1:7001 --run High`. Show what runs where with
    `slackline nodes --at 127.0.0.1:7001`, and move one with `slackline migrate High n1 --at 127.0.0.1:7001`.
    """
    given = inputs or []
    if folder is not None and shared_folder is not None:
        raise ConfigError("--folder and --shared-folder exclude each other; give one of them.")
    if shared_folder is not None:
        folder = _folder_of(shared_folder, name)
    described: dict[str, Any] = {
        "app": app,
        "given": given,
        "unit": unit,
        "options": _plain(shared),
        "speed": _speed(speed),
    }
    hierarchy, tables, read = _opened(described, folder)
    alone = not join
    plan = Plan(
        name=name,
        application=app,
        hierarchy=hierarchy,
        listen=Address.of(listen),
        join=[Address.of(each) for each in join or ()],
        credentials=Credentials.of(tls_cert, tls_key, tls_ca),
        detectors=_chosen("run", run, hierarchy.names, alone),
        ingress=_chosen("ingress", ingress, hierarchy.sensor_types, alone and bool(given)),
        tables=tables,
        inputs=read if given and tables is None else None,
        speed=described["speed"],
        ts_per_second=_PER_SECOND[unit or "us"],
        folder=folder,
        settings=NodeSettings(
            checkpoint_every=None if folder is None else checkpoint_every,
            optimise=optimise,
            limit=limit,
            sheds=shed,
            stays=tuple(_chosen("stays", stays, hierarchy.names, False)),
            failover_after=None if shared_folder is None else failover_after,
        ),
        engine=with_policy(engine_options(engine or [], _NOT_GIVEN))
        | ({} if pause is None else {"pause": Pause(pause)}),
        until_end=until_end,
        metrics=read.metrics,
        shared_folder=shared_folder,
        described=described,
    )
    described["ingress"] = plan.ingress
    if plan.ingress and not given:
        raise ConfigError(f"--ingress {','.join(plan.ingress)}: these sensor types need an INPUT; give one.")
    for address in (plan.listen, *plan.join):
        plan.credentials.check(address)
    run_everything([Options(**plan.engine).policy.name])  # a node that compiles sends no heartbeats
    if optimise == "master":
        run_solver()
    log_to_stderr(name, read.log)
    asyncio.run(_Process(plan).run())


def _opened(
    described: Mapping[str, Any], folder: Path | None
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
    return hierarchy, tables, run_options(given_options(options), None)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they can be stored."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}


def _folder_of(shared: Path, name: str) -> Path:
    """The folder of a node in the shared one."""
    if Path(name).name != name or name in (".", ".."):
        raise ConfigError(f"node {name!r} cannot have a folder of its name in {shared}; give it another --name.")
    return shared / name


class _Process:
    """The nodes of this process: its own, and lost ones that it has resumed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._hosts: list[TcpHost] = []
        self._resumed: set[asyncio.Task[None]] = set()
        self._sink: Sink = StdoutSink() if plan.folder is None else FolderSink(plan.folder, kind=CHECKPOINT_KIND)

    async def run(self) -> None:
        """Until all nodes have ended."""
        loop, plan = asyncio.get_running_loop(), self._plan
        listener = await Listener.at(plan.listen, plan.credentials)
        metrics = None
        try:
            metrics = served_metrics(plan.metrics)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._stop)
            await self._host(plan, listener, self._sink, self._sink.open(), metrics)
            while self._resumed:
                await asyncio.wait(self._resumed)
            logger.info("stopped")
        finally:
            for task in self._resumed:
                task.cancel()
            await asyncio.gather(*self._resumed, return_exceptions=True)
            listener.close()
            if metrics is not None:
                metrics.close()
            await self._sink.close()

    def _stop(self) -> None:
        for host in self._hosts:
            host.stop()

    async def _host(
        self, plan: Plan, listener: Listener, sink: Sink, saved: Checkpoint | None, metrics: MetricsListener | None
    ) -> None:
        header = None if saved is None else _header(saved)
        host = TcpHost(
            _node(plan, str(listener.address), saved), listener, sink, _ingress(plan, header), join=plan.join,
            saved=header, until_end=plan.until_end, metrics=metrics,
            collector=MetricsCollector(plan.hierarchy.names, Options(**plan.engine).target),
            ts_per_second=plan.ts_per_second, inputs=plan.described,
            resume=lambda takeover: self._resume(takeover, listener.address),
        )  # fmt: skip
        runs = ", ".join(plan.detectors) if saved is None else "the detectors of its checkpoint"
        logger.info("listening at %s; running %s", listener.address, runs or "no detectors")
        self._hosts.append(host)
        try:
            await host.run()
        finally:
            self._hosts.remove(host)

    def _resume(self, takeover: Takeover, join: Address) -> None:
        """Resume a lost node from the shared folder, beside the own one."""
        shared, own = self._plan.shared_folder, self._sink
        assert shared is not None and isinstance(own, FolderSink)
        try:
            sink = FolderSink(_folder_of(shared, takeover.node), kind=CHECKPOINT_KIND)
            with (shared / "failover.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                last = sink.last_checkpoint()
                header = None if last is None else _header(last)
                if own.is_fenced or header is None or header["incarnation"] > takeover.incarnation:
                    logger.warning("node %s is not resumed here: it has no checkpoint, or runs again", takeover.node)
                    return
                plan = self._plan_of(takeover.node, header["inputs"], join)
                saved = sink.take_over()
        except (SlacklineError, OSError) as error:
            logger.warning("node %s cannot be resumed here: %s", takeover.node, error)
            return
        logger.warning("resuming node %s from %s", takeover.node, sink.path)
        task = asyncio.create_task(self._run_resumed(plan, sink, saved))
        self._resumed.add(task)
        task.add_done_callback(self._resumed.discard)

    def _plan_of(self, name: str, described: Mapping[str, Any], join: Address) -> Plan:
        own = self._plan
        assert own.shared_folder is not None
        folder = _folder_of(own.shared_folder, name)
        if "-" in described["given"]:
            raise ConfigError("it reads standard input, which another process cannot.")
        described = {**described, "app": own.application}
        _, tables, read = _opened(described, folder)
        return replace(
            own, name=name, listen=Address(own.listen.host, 0), join=[join], detectors=[],
            ingress=list(described["ingress"]), tables=tables,
            inputs=read if described["given"] and tables is None else None, speed=described["speed"],
            ts_per_second=_PER_SECOND[described["unit"] or "us"], folder=folder, metrics=None,
            described=described,
        )  # fmt: skip

    async def _run_resumed(self, plan: Plan, sink: FolderSink, saved: Checkpoint | None) -> None:
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
            "incarnation": int(), "inputs": dict(),
        }:  # fmt: skip
            return saved.header
    raise StateError("the checkpoint was not written by this release; start with another --folder.")


def _ingress(plan: Plan, header: Mapping[str, Any] | None) -> Ingress | None:
    """The input of this node, from the position of the checkpoint."""
    if not plan.ingress:
        return None
    elsewhere = [kind for kind in plan.hierarchy.sensor_types if kind not in plan.ingress]
    saved = None if header is None else header["ingress"]
    if plan.tables is not None:
        return Ingress(
            [TablesSource(plan.tables)], None, elsewhere, speed=plan.speed, saved=saved,
            ts_per_second=plan.ts_per_second,
        )  # fmt: skip
    assert plan.inputs is not None
    schema = plan.inputs.schema
    if header is not None and header["schema"]:
        schema = schema.resumed(header["schema"], f"the checkpoint in {plan.folder}")
    sources = sources_of(plan.inputs)
    return Ingress(sources, Decoder(schema, plan.hierarchy), elsewhere, speed=plan.speed, saved=saved)


def _node(plan: Plan, address: str, saved: Checkpoint | None) -> Node:
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


def _chosen(option: str, given: str | None, known: tuple[str, ...], all_of_them: bool) -> list[str]:
    """The names given by an option, checked."""
    if given is None:
        return list(known) if all_of_them else []
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"--{option} {','.join(unknown)}: not in the application, which has {', '.join(known)}.")
    return names


def _speed(text: str) -> float:
    """
    >>> _speed("max"), _speed("2.5")
    (0.0, 2.5)
    """
    try:
        speed = 0.0 if text == "max" else float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise ConfigError(f"--speed {text} is not valid; give 'max', or a factor: 1 is real time.")
    return speed
