"""A cluster of nodes on the executors of a Spark session.

Each node is a long-lived task (:mod:`~slackline.spark.tasks`). The driver has the registry, where tasks report their
addresses, and the lease of the checkpoint folder. It decides nothing about the stream; nodes talk to each other as
processes do.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from slackline.cluster import client
from slackline.cluster.controller.global_placement import GlobalPlacement, PlacementPlan
from slackline.cluster.links import Credentials
from slackline.cluster.process import NodeOptions, NodePlan, folder_of
from slackline.cluster.registry import DESCRIPTION, STOP, Registry, description_of
from slackline.cluster.task import NodeTask
from slackline.connectors.addresses import scheme_of
from slackline.connectors.files import FolderInUseError
from slackline.connectors.store import Store, StoreLease
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.hierarchy import Hierarchy
from slackline.runtime.address import Address
from slackline.runtime.application import load_application
from slackline.spark.tasks import SparkTasks, absolute, check_slots, host_of

#: Seconds between two looks at the lease, and at the request to stop.
LOOK = 0.5
#: Options of a node that the cluster sets.
_OWN = (
    "app", "name", "inputs", "listen", "join", "run", "ingress", "parts", "folder", "shared_folder", "to", "tls",
    "stays",
)  # fmt: skip

logger = logging.getLogger("slackline.cluster")

Names = Mapping[str, Sequence[str]]


def cluster(
    spark: SparkSession,
    app: str,
    *,
    nodes: int | Names,
    source: str | Sequence[str],
    checkpoint: str | Path,
    sink: str | None = None,
    ingress: Names | None = None,
    stays: Sequence[str] = (),
    tls: Sequence[str | Path] = (),
    host: str | None = None,
    take_over: bool = False,
    start_timeout: float = 60.0,
    **options: Any,
) -> SparkCluster:
    """Run a hierarchy on nodes that are tasks of this session; returns when all of them run.

    ``app``         the application as ``slackline run`` names it: a file, or ``module:name``. Executors load it from
                    there; no code is sent to them.
    ``nodes``       detectors by node, or the number of nodes, to which the detectors are dealt by level. Each node
                    takes one slot (``spark.task.cpus`` cores) until it ends.
    ``source``      addresses of the input, as for ``slackline run --from``. Every executor can open them.
    ``checkpoint``  folder that the driver and all executors share, or URI of one (``s3://…``, ``hdfs://…``): results
                    and checkpoints by node. The same call resumes from there.
    ``sink``        URL of a topic or server that gets the records, too: at least once, with ids by which to drop
                    repeats.
    ``ingress``     sensor types by node that enter there. Default: all, at the first node. A type may enter in parts,
                    numbered from 0: ``{"n1": ["reading/0"], "n2": ["reading/1"]}``. Of a topic of Kafka each part is
                    a share of the partitions, of other input the rows of some sources.
    ``stays``       detectors that are not to be migrated by placement.
    ``tls``         files of a certificate, its key, and the authority, on the driver and on executors; required unless
                    all run on this machine.
    ``host``        address of the driver that executors can reach; that of the session by default.
    ``take_over``   stop another driver that runs a cluster in this checkpoint folder; refused otherwise.
    ``options``     as of ``slackline node``: ``until_end``, ``failover_after``, ``checkpoint_every``, ``speed``,
                    ``unit``, ``engine`` and ``records`` (dicts), ``optimise``, ``limit``, ``shed``, ``pause``.
    """
    known = [name for name in NodeOptions.__struct_fields__ if name not in _OWN]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(f"unknown options {', '.join(unknown)}; known are {', '.join(known)}.")
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError("nodes run as tasks of RDDs, and Spark Connect has none; give a session with a SparkContext.")
    sources = [source] if isinstance(source, str) else list(source)
    sources = [each if scheme_of(each) or each == "-" else str(Path(each).resolve()) for each in sources]
    if "-" in sources:
        raise ConfigError("an executor has no standard input; give a file, a topic or a URL that executors can open.")
    app = absolute(app)
    is_path = len(sources) == 1 and not scheme_of(sources[0])
    hierarchy, _ = load_application(app, Path(sources[0]) if is_path else None)
    placed = _placed(nodes, hierarchy)
    entering = {next(iter(placed)): list(hierarchy.sensor_types)} if ingress is None else dict(ingress)
    parts = _parts_in(hierarchy, entering)
    _check_nodes(hierarchy.in_parts(parts), placed, entering)
    folder = Store.of(str(checkpoint) if scheme_of(str(checkpoint)) else Path(checkpoint).resolve())
    described = [
        NodeOptions(
            app=app, name=name, inputs=sources, run=list(detectors), ingress=list(entering.get(name, ())),
            parts=parts,
            shared_folder=str(folder), to=sink, tls=[str(Path(each).resolve()) for each in tls],
            stays=[each for each in stays if each in detectors], **options,
        )
        for name, detectors in placed.items()
    ]  # fmt: skip
    for each in described:
        NodePlan.of(each)  # what is not valid is an error here
    made = SparkCluster(spark, described, folder, host or host_of(spark), take_over)
    try:
        made._start(start_timeout)
    except BaseException:
        made.stop()
        raise
    return made


class SparkCluster(SparkTasks):
    """A running cluster; :func:`cluster` starts one. A context manager that stops it.

    Nodes that end with the input (``until_end``) leave their slots; :meth:`wait` returns when all have ended.
    """

    def __init__(
        self, spark: SparkSession, nodes: Sequence[NodeOptions], folder: Store, host: str, take_over: bool
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._folder = folder
        self._host = host
        self._credentials = Credentials.of(*map(Path, nodes[0].tls))
        self._take_over = take_over
        self._lease = StoreLease(folder)
        self._marker = secrets.token_hex(16)
        super().__init__(
            spark,
            Registry(self._nodes, self._credentials, self._describe),
            group=f"slackline {Path(folder.path).name} {self._marker[:8]}",
            what="node",
            stopped=f"the Spark session was stopped while the cluster ran. Its state is in {folder}: start the cluster "
            f"in a new session to resume.",
        )

    # What users call.

    def status(self) -> dict[str, Any]:
        """The cluster as one of its nodes sees it, as ``slackline nodes --json`` prints it; under ``tasks`` the host,
        process and number of attempts of each node, and whether it runs."""
        return {**self._overview(), "tasks": self.tasks()}

    def _overview(self) -> dict[str, Any]:
        """As the first node that answers sees it: one may have been killed at this moment."""
        error: SlacklineError = SlacklineError("no node of the cluster runs at this moment.")
        self._check()
        for address in self._registry.addresses().values():
            try:
                return self._registry.call(client.overview(Address.of(address), self._credentials))
            except client.NoAnswerError as caught:
                error = caught
        raise error

    def migrate(self, detector: str, node: str, timeout: float = 30.0) -> dict[str, Any]:
        """Migrate a detector to a node; its duration and costs. A SlacklineError says why it failed."""
        return self._registry.call(client.migrate(self.address, self._credentials, detector, node, timeout))

    def place(self, *, dry_run: bool = False, seconds: float = 3.0, **policy: Any) -> PlacementPlan:
        """Search for a better placement of the detectors, and migrate them step by step, as ``slackline place`` does.

        ``policy``  further options of the search: ``solver``, ``seed``, ``together``, ``pinned``.
        """
        found: list[PlacementPlan] = []
        placement = client.RemotePlacement(
            self.address, self._credentials, GlobalPlacement(seconds=seconds, **policy), log=logger.info,
            on_plan=found.append,
        )  # fmt: skip
        return self._registry.call(placement.once(dry_run))

    def stop(self) -> None:
        """Stop all nodes. Their state stays in the checkpoint folder, from which the same call resumes."""
        if not self._is_open:
            return
        super().stop()
        if not self._lease.is_fenced:
            self._folder.delete(STOP)
        self._describe()
        self._lease.release()

    @property
    def address(self) -> Address:
        """Where a node of the cluster can be asked."""
        self._check()
        addresses = self._registry.addresses()
        if not addresses:
            raise SlacklineError("no node of the cluster runs at this moment.")
        return Address.of(next(iter(addresses.values())))

    # Start, and end.

    def _start(self, timeout: float) -> None:
        self._credentials.check(Address(self._host, 0))
        check_slots(self._context, len(self._nodes), self._what)
        self._acquire()
        self._is_open = True
        self._folder.delete(STOP)
        at = str(self._registry.start(self._host))
        self._describe()
        tasks = {
            name: NodeTask(node=node, registry=at, token=self._registry.token, marker=self._marker)
            for name, node in self._nodes.items()
        }
        self._launch(tasks, threading.Thread(target=self._look, daemon=True))
        self._until(self._is_connected, timeout, lambda missing: _incomplete(timeout, missing))

    def _is_connected(self) -> bool:
        """Whether all nodes run and see each other, as far as they have not ended already."""
        seats = {name: seat for name, seat in self._registry.seats.items() if name not in self._ended}
        if not all(seat.is_up for seat in seats.values()):
            return False
        try:
            seen = [
                self._registry.call(client.overview(Address.of(seat.address), self._credentials))["nodes"]
                for seat in seats.values()
            ]
        except SlacklineError:
            return False  # it has ended, or has just begun
        return all(seats.keys() <= nodes.keys() for nodes in seen)

    def _acquire(self) -> None:
        try:
            self._lease.acquire()
        except FolderInUseError:
            if not self._take_over:
                raise ConfigError(
                    f"another driver runs a cluster in {self._folder}. Stop that one, or take over (take_over=True, "
                    f"--take-over)."
                ) from None
            self._lease.take_over()
        before = description_of(self._folder)
        former = before.get("nodes", {})
        if set(former) != set(self._nodes) and any(folder_of(self._folder, name).exists() for name in former):
            self._lease.release()
            raise ConfigError(
                f"the cluster in {self._folder} has the nodes {', '.join(former)}, and nodes= gives "
                f"{', '.join(self._nodes)}. Give the same, or start with another checkpoint folder."
            )

    def _describe(self) -> None:
        """Write what executors and commands need to know of this cluster."""
        if self._lease.is_fenced:
            return  # it is the description of the successor's
        text = json.dumps(
            {
                "marker": self._marker,
                "application": next(iter(self._nodes.values())).app,
                "nodes": {name: node.run for name, node in self._nodes.items()},
                "addresses": self._registry.addresses(),
            }
        )
        self._folder.write(DESCRIPTION, [text.encode()])

    def _look(self) -> None:
        """Watch the lease, and the request to stop."""
        while not self._stops.wait(LOOK) and not self._is_over:
            try:
                is_fenced = self._lease.is_fenced
                if not is_fenced:
                    self._lease.renew()
                is_wanted = self._folder.read(STOP) is None
            except SlacklineError as error:
                logger.warning("%s", error)
                continue
            if is_fenced:
                self._fail("another driver has taken over the cluster; this one stops.")
            elif not is_wanted:
                self.stop()
                with self._changed:
                    self._ended |= self._nodes.keys()
                    self._changed.notify_all()


def _incomplete(timeout: float, missing: list[str]) -> str:
    return (
        f"the cluster is not complete after {timeout:g} s: "
        + (f"no slot of Spark has run {', '.join(missing)}." if missing else "its nodes do not reach each other.")
        + " Start fewer nodes, add executors, or give a longer start_timeout."
    )


def _placed(nodes: int | Names, hierarchy: Hierarchy) -> dict[str, list[str]]:
    """Detectors by node. By number: dealt in the order of levels, so that publishers and subscribers are near."""
    if isinstance(nodes, Mapping):
        return {name: list(detectors) for name, detectors in nodes.items()}
    if isinstance(nodes, bool) or nodes < 1:
        raise ConfigError(f"nodes={nodes!r} is not valid; give a number from 1, or detectors by node.")
    ordered = sorted(hierarchy.names, key=hierarchy.levels.__getitem__)
    ends = [round(len(ordered) * at / nodes) for at in range(nodes + 1)]
    return {f"n{at + 1}": ordered[ends[at] : ends[at + 1]] for at in range(nodes)}


def _parts_in(hierarchy: Hierarchy, entering: Names) -> dict[str, int]:
    """By sensor type that enters in parts, how many: up to the last that is named."""
    found: dict[str, int] = {}
    for name in [each for some in entering.values() for each in some]:
        kind, _, number = name.rpartition("/")
        if name not in hierarchy.sensor_types and kind in hierarchy.sensor_types and number.isdecimal():
            found[kind] = max(found.get(kind, 2), int(number) + 1)
    return found


def _check_nodes(hierarchy: Hierarchy, placed: Names, entering: Names) -> None:
    """Everything runs or enters somewhere, once."""
    if not placed:
        raise ConfigError("nodes={} has no node; give detectors by node, or a number from 1.")
    for option, known, given in (("nodes", hierarchy.names, placed), ("ingress", hierarchy.sensor_types, entering)):
        names = [each for some in given.values() for each in some]
        wrong = sorted((set(names) ^ set(known)) | {each for each in names if names.count(each) > 1})
        if wrong:
            raise ConfigError(
                f"{option}= has to give each of {', '.join(known)} to one node; look at {', '.join(wrong)}."
            )
    strange = sorted(set(entering) - set(placed))
    if strange:
        raise ConfigError(f"ingress= names {', '.join(strange)}, and the nodes are {', '.join(placed)}.")
