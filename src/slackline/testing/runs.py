"""Detectors run on a stream, and assertions on what they publish."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slackline.core.detector import Detector
from slackline.core.errors import ConfigError
from slackline.core.event import Event
from slackline.core.hierarchy import Hierarchy
from slackline.core.outcome import Late, Output, Quarantined
from slackline.engine import Engine
from slackline.testing.streams import Arrivals, show, stream

Detectors = Detector | Hierarchy | Iterable[Detector]


@dataclass(frozen=True)
class Run:
    """What became of a stream. As text it is the published events, see :func:`~slackline.testing.stream`."""

    outputs: list[Output]
    late: list[Late] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    duplicates: int = 0

    @property
    def events(self) -> list[Event]:
        """The published events that are valid in the end, without source and number, in order of publication."""
        valid: dict[str, Event] = {}
        for output in self.outputs:
            if output.op == "retract":
                valid.pop(output.id, None)
            elif output.op == "insert":
                valid[output.id] = output.event
        return [Event.of(each.type, each.ts, None, None, dict(each.payload)) for each in valid.values()]

    def of(self, *types: str) -> list[Event]:
        """The published events of some types."""
        return [event for event in self.events if event.type in types]

    def expect(self, text: Arrivals) -> None:
        """Raise AssertionError unless exactly these events were published, in this order."""
        __tracebackhide__ = True  # by pytest
        expected = [Event.of(each.type, each.ts, None, None, dict(each.payload)) for each in stream(text)]
        if expected != self.events:
            beside = f"\n  late      {show(each.event for each in self.late)}" if self.late else ""
            refused = "; ".join(f"{each.reason}: {each.detail}" for each in self.quarantined)
            beside += f"\n  quarantine {refused}" if refused else ""
            raise AssertionError(
                f"other events were published:\n  expected  {show(expected) or 'nothing'}\n  published "
                f"{show(self.events) or 'nothing'}{beside}"
            )

    def __str__(self) -> str:
        return show(self.events)


def hierarchy_of(detectors: Detectors) -> Hierarchy:
    """A hierarchy of copies, so that each run begins with the detectors as they were given."""
    if isinstance(detectors, Hierarchy):
        return copy.deepcopy(detectors)
    given = [detectors] if isinstance(detectors, Detector) else list(detectors)
    if not all(isinstance(each, Detector) for each in given):
        raise ConfigError(f"give a detector, several, or a Hierarchy; got {detectors!r}.")
    return Hierarchy(copy.deepcopy(given))


def run(detectors: Detectors, arrivals: Arrivals, **options: Any) -> Run:
    """Run detectors on arrivals, to the end of the stream; ``options`` are those of :class:`~slackline.Engine`.

    >>> class Double(Detector):
    ...     listens, publishes = ("a",), ("b",)
    ...     def on_event(self, event):
    ...         yield event.derive("b", x=2 * event["x"])
    >>> run(Double(), "a@2(x=1) a@1(x=5)").expect("b@1(x=10) b@2(x=2)")
    """
    engine = Engine(hierarchy_of(detectors), **options)
    outputs = engine.push(stream(arrivals)) + engine.close()
    return Run(outputs, engine.late, engine.quarantined, engine.duplicates)
