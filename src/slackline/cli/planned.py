"""What ``slackline run`` is about to do, as text: application, sources, engines, sinks, guarantees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from slackline.cli.settings import CHECKPOINT_EVERY, RunSettings
from slackline.connectors.sources import Source
from slackline.connectors.targets import Target
from slackline.core.hierarchy import Hierarchy

WIDTH = 13


#: What there is, and how it is.
Pairs = Iterable[tuple[str, str]]


def plan_text(settings: RunSettings, hierarchy: Hierarchy, key: str | None, places: Pairs, promises: Pairs) -> str:
    """The plan, a line for each thing; ``places`` and ``promises`` are what differs from host to host."""
    options = ", ".join(f"{name}={value}" for name, value in sorted(settings.engine.items()))
    engines = "one for all" if key is None else f"one for each {key}"
    lines = [
        ("application", settings.app),
        ("sensor types", ", ".join(_typed(hierarchy, kind) for kind in hierarchy.sensor_types)),
        *_levels(hierarchy),
        *places,
        ("engines", f"{engines}, in {'Spark' if settings.on == 'spark' else 'this process'}"),
        ("options", options or "policy=auto, late_target=0.001, and the other defaults"),
        *promises,
    ]
    if settings.metrics is not None:
        lines.append(("metrics", f"http://127.0.0.1:{settings.metrics}/metrics"))
    return "\n".join(f"{what:<{WIDTH}} {text}" for what, text in lines)


def _levels(hierarchy: Hierarchy) -> Iterator[tuple[str, str]]:
    for name in sorted(hierarchy.names, key=hierarchy.levels.__getitem__):
        listens = ", ".join(sorted(hierarchy.listens[name]))
        publishes = ", ".join(hierarchy.published(name)) or "nothing"
        yield f"level {hierarchy.levels[name]}", f"{name}: {listens} -> {publishes}"


def places(settings: RunSettings, sources: Sequence[Source], target: Target) -> Iterator[tuple[str, str]]:
    """From where to where."""
    for source in sources:
        yield "from", f"{source.url} ({source.says})"
    yield "to", f"{settings.to} ({target.says})"


def promises(settings: RunSettings, sources: Sequence[Source], target: Target) -> Iterator[tuple[str, str]]:
    """What can be relied on."""
    yield "guarantee", guarantee(sources, target, settings.checkpoint_every or CHECKPOINT_EVERY)
    yield "at a stop", f"what waits is {'kept' if at_stop_of(settings, target) == 'keep' else 'flushed'}"


def at_stop_of(settings: RunSettings, target: Target) -> str:
    """What becomes of what waits: kept where it can be, unless told otherwise."""
    return settings.at_stop or ("keep" if target.keeps else "flush")


def guarantee(sources: Sequence[Source], target: Target, every: float) -> str:
    """What a crash does to results."""
    if not target.keeps:
        return "none beyond this process's life: nothing is kept, a new run begins at the start"
    lost = [source.url for source in sources if source.path is None]
    if not lost:
        return f"exactly once, a checkpoint every {every:g} s; the same command goes on after a crash"
    return (
        f"a checkpoint every {every:g} s, from which the same command goes on; what came from {', '.join(lost)} after "
        f"the last one is lost by a crash"
    )


def _typed(hierarchy: Hierarchy, kind: str) -> str:
    return f"{kind} (clock)" if kind in hierarchy.clock else kind
