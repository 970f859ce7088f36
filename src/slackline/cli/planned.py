"""What ``slackline run`` is about to do, as text: application, sources, engines, sinks, guarantees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slackline.cli.settings import RunSettings
from slackline.core.hierarchy import Hierarchy
from slackline.hosts.sources import Source
from slackline.hosts.targets import Target

WIDTH = 13


def plan_text(settings: RunSettings, hierarchy: Hierarchy, sources: Sequence[Source], target: Target) -> str:
    """The plan of a run in this process, a line for each thing."""
    promise, at_stop = guarantee(sources, target, settings.checkpoint_every), at_stop_of(settings, target)
    read = [f"{source.url} ({source.says})" for source in sources]
    return "\n".join(plan_lines(settings, hierarchy, read, f"{settings.to} ({target.says})", promise, at_stop))


def plan_lines(
    settings: RunSettings, hierarchy: Hierarchy, sources: Sequence[str], to: str, promise: str, at_stop: str | None
) -> Iterator[str]:
    """The plan of any run, a line for each thing; what only ends by itself has no ``at_stop``."""
    yield _line("application", settings.app)
    yield _line("sensor types", ", ".join(_typed(hierarchy, kind) for kind in hierarchy.sensor_types))
    for level in sorted(set(hierarchy.levels.values())):
        for name in [each for each in hierarchy.names if hierarchy.levels[each] == level]:
            listens = ", ".join(sorted(hierarchy.listens[name]))
            publishes = ", ".join(hierarchy.published(name)) or "nothing"
            yield _line(f"level {level}", f"{name}: {listens} -> {publishes}")
    for source in sources:
        yield _line("from", source)
    yield _line("to", to)
    engines = "one for all" if settings.key is None else f"one for each {settings.key}"
    options = ", ".join(f"{name}={value}" for name, value in sorted(settings.engine.items()))
    yield _line("engines", f"{engines}, in {'Spark' if settings.on == 'spark' else 'this process'}")
    yield _line("options", options or "policy=auto, late_target=0.001, and the other defaults")
    yield _line("guarantee", promise)
    if at_stop is not None:
        yield _line("at a stop", f"what waits is {'kept' if at_stop == 'keep' else 'flushed'}")
    if settings.metrics is not None:
        yield _line("metrics", f"http://127.0.0.1:{settings.metrics}/metrics")


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


def _line(what: str, text: str) -> str:
    return f"{what:<{WIDTH}} {text}"
