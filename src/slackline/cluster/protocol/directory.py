"""Who runs what, and where sensor types enter, as far as is known here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackline.core.hierarchy import Hierarchy


class Directory:
    """By node: the detectors that it runs, with their terms, and the sensor types that enter there.

    Where two nodes say that they run a detector, the higher term is right.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.runs: dict[str, dict[str, int]] = {}
        self.enters: dict[str, tuple[str, ...]] = {}
        self._seen: set[str] = set()  # detectors that somebody has said to run, ever

    def learn(self, node: str, runs: Mapping[str, int], enters: Iterable[str]) -> None:
        """What a node says of itself."""
        self.runs[node] = {detector: term for detector, term in runs.items() if detector in self.hierarchy.names}
        self._seen.update(self.runs[node])
        self.enters[node] = tuple(kind for kind in enters if kind in self.hierarchy.sensor_types)

    def forget(self, node: str) -> None:
        """A node has left."""
        self.runs.pop(node, None)
        self.enters.pop(node, None)

    def host(self, detector: str) -> str | None:
        """The node that runs a detector, if one does."""
        claims = [(runs[detector], node) for node, runs in self.runs.items() if detector in runs]
        return max(claims)[1] if claims else None

    def term(self, detector: str) -> int:
        """The highest term of a detector that is known."""
        return max([runs[detector] for runs in self.runs.values() if detector in runs], default=0)

    def publisher(self, kind: str) -> str | None:
        """The node from which a type comes."""
        detector = self.hierarchy.publisher.get(kind)
        if detector is not None:
            return self.host(detector)
        return next((node for node, kinds in sorted(self.enters.items()) if kind in kinds), None)

    def listeners(self, kind: str) -> set[str]:
        """The nodes that run detectors which listen to a type."""
        hosts = {self.host(name) for name, kinds in self.hierarchy.listens.items() if kind in kinds}
        return {host for host in hosts if host is not None}

    def is_awaited(self, kind: str) -> bool:
        """Whether somebody will listen to a type of whom we have not heard yet."""
        return any(kind in kinds and name not in self._seen for name, kinds in self.hierarchy.listens.items())

    def missing(self) -> tuple[list[str], list[str]]:
        """The detectors that nobody runs, and the sensor types that enter nowhere."""
        detectors = [name for name in self.hierarchy.names if self.host(name) is None]
        return detectors, [kind for kind in self.hierarchy.sensor_types if self.publisher(kind) is None]

    def lacks(self) -> list[str]:
        """What must be there before anything can begin, in words."""
        detectors, kinds = self.missing()
        lacks = [f"no node runs the detectors {detectors} (--run)"] if detectors else []
        lacks += [f"the sensor types {kinds} enter nowhere (--ingress)"] if kinds else []
        clock = sorted({*self.hierarchy.clock} & {*kinds})
        return lacks + ([f"without {clock}, stream time does not move"] if clock else [])

    def objection(self, node: str, runs: Mapping[str, int], enters: Iterable[str], there: Iterable[str]) -> str | None:
        """Why a node cannot be in a network with those who are there, by what it runs and lets in; None if it can.

        Another term is no objection: a detector has changed hands, and who was left behind gives way.
        """
        for other in there:
            known = self.runs.get(other, {})
            twice = sorted(detector for detector, term in runs.items() if known.get(detector) == term)
            if other != node and twice:
                return (
                    f"{node!r} claims the detectors {twice}, which run on {other!r}; start it without them, and move "
                    f"them with `slackline migrate`"
                )
            both = sorted(set(enters) & set(self.enters.get(other, ())))
            if other != node and both:
                return f"{node!r} lets in {both}, which enter at {other!r}; a sensor type has one ingress"
        return None
