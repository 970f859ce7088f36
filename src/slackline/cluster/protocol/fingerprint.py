"""Fingerprints tell versions of an application apart: code is not shipped, so all nodes must have the same."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

from slackline.core.hierarchy import Hierarchy


def fingerprint(hierarchy: Hierarchy, options: Mapping[str, Any]) -> str:
    """A short digest of how the detectors are connected, of their code, and of the engine's options.

    >>> from slackline.core.detector import Detector
    >>> class Twice(Detector):
    ...     listens, publishes = ("a",), ("b",)
    ...     def on_event(self, event):
    ...         yield event.derive("b")
    >>> one = fingerprint(Hierarchy([Twice()], clock="a"), {"policy": "auto"})
    >>> one == fingerprint(Hierarchy([Twice()], clock="a"), {"policy": "slack"}), len(one)
    (False, 16)
    """
    detectors = {name: type(hierarchy.fresh(name)) for name in hierarchy.names}
    described = {
        "clock": [hierarchy.clock, hierarchy.clock_aids],
        "types": sorted(repr(kind) for kind in hierarchy.types.values()),
        "detectors": {
            name: [
                f"{kind.__module__}.{kind.__qualname__}", _source(kind), hierarchy.listens[name],
                hierarchy.published(name), hierarchy.unsorted[name], hierarchy.reliable[name],
                hierarchy.max_backdate[name],
            ]
            for name, kind in detectors.items()
        },
        # Deferral may differ from node to node.
        "options": {name: repr(value) for name, value in sorted(options.items()) if name != "pause"},
    }  # fmt: skip
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


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
