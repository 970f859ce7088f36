"""The directory: which node runs which detectors, where sensor types enter; and the overview of the cluster.

Code is not shipped, so all nodes must have the same version of the application: :func:`fingerprint` tells versions
apart.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from slackline.cluster.controller.metrics import PRESENT
from slackline.cluster.protocol.membership import Membership
from slackline.core.hierarchy import Hierarchy


class Directory:
    """By node: the detectors that it runs, with their terms, and the sensor types that enter there.

    Where two nodes claim a detector, the higher term is right. No answer takes time that grows with the cluster.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.runs: dict[str, dict[str, int]] = {}
        self.ingress: dict[str, tuple[str, ...]] = {}
        self._placed: set[str] = set()  # detectors that a node runs, or ran when it left the cluster
        # By detector the nodes that claim it, with their terms; by sensor type the nodes where it enters.
        self._claims: dict[str, dict[str, int]] = {}
        self._enters: dict[str, set[str]] = {}
        #: What runs and enters somewhere before processing starts.
        self.detectors, self.types = hierarchy.names, hierarchy.sensor_types
        self._listeners: dict[str, list[str]] = {}
        for name, kinds in hierarchy.listens.items():
            for kind in kinds:
                self._listeners.setdefault(kind, []).append(name)

    def update(self, node: str, runs: Mapping[str, int], ingress: Iterable[str]) -> None:
        """A node has announced what it runs."""
        former = self.runs.get(node, {})
        known = self.hierarchy.levels
        self._set(node, {detector: term for detector, term in runs.items() if detector in known}, ingress)
        self._placed -= {detector for detector in former if self.host(detector) is None}
        self._placed.update(self.runs[node])

    def remove(self, node: str) -> None:
        """A node has left the cluster."""
        self._set(node, {}, ())
        self.runs.pop(node, None)
        self.ingress.pop(node, None)

    def _set(self, node: str, runs: dict[str, int], ingress: Iterable[str]) -> None:
        for detector in self.runs.get(node, ()):
            self._claims[detector].pop(node)
            if not self._claims[detector]:
                del self._claims[detector]
        for kind in self.ingress.get(node, ()):
            self._enters[kind].discard(node)
            if not self._enters[kind]:
                del self._enters[kind]
        known = self.hierarchy.sensor_types
        self.runs[node], self.ingress[node] = runs, tuple(kind for kind in ingress if kind in known)
        for detector, term in runs.items():
            self._claims.setdefault(detector, {})[node] = term
        for kind in self.ingress[node]:
            self._enters.setdefault(kind, set()).add(node)

    def host(self, detector: str) -> str | None:
        """The node that runs a detector, if one does."""
        claims = self._claims.get(detector)
        return max((term, node) for node, term in claims.items())[1] if claims else None

    def term(self, detector: str) -> int:
        """The highest known term of a detector."""
        return max(self._claims.get(detector, {}).values(), default=0)

    def publisher(self, kind: str) -> str | None:
        """The node that publishes a type, or at which it enters."""
        detector = self.hierarchy.publisher.get(kind)
        if detector is not None:
            return self.host(detector)
        return min(self._enters.get(kind, ()), default=None)

    def listeners(self, kind: str) -> set[str]:
        """The nodes that run detectors which listen to a type."""
        hosts = {self.host(name) for name in self._listeners.get(kind, ())}
        return {host for host in hosts if host is not None}

    def has_unplaced_listener(self, kind: str) -> bool:
        """Whether a detector listens to a type that no node has claimed yet, or that is between two nodes."""
        return any(name not in self._placed for name in self._listeners.get(kind, ()))

    def missing(self) -> tuple[list[str], list[str]]:
        """The detectors that no node runs, and the sensor types that enter nowhere."""
        detectors = [name for name in self.detectors if name not in self._claims]
        return detectors, [kind for kind in self.types if kind not in self._enters]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return all(map(self._claims.__contains__, self.detectors)) and all(map(self._enters.__contains__, self.types))

    def obstacles(self) -> list[str]:
        """What is missing before processing can start, in words."""
        detectors, kinds = self.missing()
        obstacles = [f"no node runs the detectors {detectors} (--run)"] if detectors else []
        obstacles += [f"the sensor types {kinds} enter nowhere (--ingress)"] if kinds else []
        clock = sorted({*self.hierarchy.clock} & {*kinds})
        return obstacles + ([f"without {clock}, stream time does not move"] if clock else [])

    def claimants(self, runs: Iterable[str], ingress: Iterable[str]) -> set[str]:
        """The nodes that claim one of these detectors or sensor types."""
        claims = [self._claims.get(detector, ()) for detector in runs]
        return set().union(*claims, *(self._enters.get(kind, ()) for kind in ingress))

    def objection(self, node: str, runs: Mapping[str, int], ingress: Iterable[str], peers: Iterable[str]) -> str | None:
        """Why a node that claims these detectors and types cannot join these peers; None if it can.

        Another term is no objection: the detector has migrated, and the node with the lower term stops it.
        """
        for other in peers:
            if other == node:
                continue
            known = self.runs.get(other, {})
            twice = sorted(detector for detector, term in runs.items() if known.get(detector) == term)
            if twice:
                return (
                    f"{node!r} claims the detectors {twice}, which run on {other!r}; start it without them, and move "
                    f"them with `slackline migrate`"
                )
            both = sorted(set(ingress) & set(self.ingress.get(other, ())))
            if both:
                return (
                    f"{node!r} claims the ingress of {both}, which enter at {other!r}; a sensor type, or a part of "
                    f"one, has one ingress"
                )
        return None

    def claimed(self, runs: Iterable[str], peers: Iterable[str]) -> tuple[str, str] | None:
        """One of these detectors that runs on one of these peers, and where; None if none does."""
        return next(((name, peer) for peer in peers for name in runs if name in self.runs.get(peer, {})), None)


def overview_of(
    name: str,
    load: float,
    metrics: dict[str, Any],
    membership: Membership,
    directory: Directory,
    moving: dict[str, str],
) -> dict[str, Any]:
    """The cluster, node by node, as plain values; ``moving`` has the detectors that migrate from or to this node."""
    nodes = {name: {"state": "self", "load": load, "round_trip": None, **metrics}}
    for peer in membership.peers.values():
        state = "left" if peer.has_left else "up" if peer.is_up else "lost"
        nodes[peer.name] = {**peer.metrics, "state": state, "load": peer.load, "round_trip": peer.session.rtt}
    for node, shown in nodes.items():
        shown["runs"] = sorted(directory.runs.get(node, {}))
        shown["enters"] = list(directory.ingress.get(node, ()))
    hierarchy = directory.hierarchy
    detectors, kinds = directory.missing()
    return {
        "seen_from": name,
        "nodes": nodes,
        "moving": moving,
        "missing": {"detectors": detectors, "types": kinds},
        "hierarchy": {
            each: {
                "level": hierarchy.levels[each],
                "listens": list(hierarchy.listens[each]),
                "publishes": hierarchy.published(each),
            }
            for each in hierarchy.names
        },
        "master": master_of(nodes),
    }


def master_of(nodes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The node that optimises the placement: of the connected nodes that are willing, the first by name.

    All nodes know the metrics of all nodes, so no election is needed; when the master is lost, the next one takes over.
    While an earlier node has not sent its metrics yet, there is no master.
    """
    for name in sorted(name for name, shown in nodes.items() if shown["state"] in PRESENT):
        if "at" not in nodes[name]:
            return None
        if nodes[name].get("master") is True:
            return name
    return None


def fingerprint(hierarchy: Hierarchy, options: Mapping[str, Any]) -> str:
    """A short digest of how the detectors are connected, of their code, and of the engine's options; then the number of
    parts of each sensor type that enters in parts.

    >>> from slackline.core.detector import Detector
    >>> class Twice(Detector):
    ...     listens, publishes = ("a",), ("b",)
    ...     def on_event(self, event):
    ...         yield event.derive("b")
    >>> one = fingerprint(Hierarchy([Twice()], clock="a"), {"policy": "auto"})
    >>> one == fingerprint(Hierarchy([Twice()], clock="a"), {"policy": "slack"}), len(one)
    (False, 16)
    """
    whole = hierarchy.event_types
    described = {
        "clock": [whole(hierarchy.clock), whole(hierarchy.clock_aids)],
        "types": sorted(repr(kind) for name, kind in hierarchy.types.items() if name == hierarchy.event_type(name)),
        "detectors": {
            name: [
                f"{kind.__module__}.{kind.__qualname__}", _source(kind), whole(hierarchy.listens[name]),
                hierarchy.published(name), whole(hierarchy.unsorted[name]), whole(hierarchy.reliable[name]),
                hierarchy.max_backdate[name],
            ]
            for name, kind in hierarchy.classes.items()
        },
        # Deferral may differ from node to node.
        "options": {name: repr(value) for name, value in sorted(options.items()) if name != "pause"},
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
    return " ".join([digest, *(f"{kind}={parts}" for kind, parts in sorted(hierarchy.parts.items()))])


@lru_cache(maxsize=1000)
def _source(kind: type) -> str:
    """A digest of the source code of a detector's class and its bases, as far as it can be read."""
    texts = []
    for each in kind.__mro__:
        if each.__module__.split(".")[0] not in ("builtins", "slackline"):
            try:
                texts.append(inspect.getsource(each))
            except (OSError, TypeError):
                continue
    return hashlib.sha256("".join(texts).encode()).hexdigest()
