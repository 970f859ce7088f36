"""What the watermark of an input rests on, read without changing anything: to explain why events wait, or are late."""

from __future__ import annotations

from typing import NamedTuple

from slackline.core.event import Source
from slackline.core.time import FOREVER, NEVER
from slackline.ordering import readiness, watermark
from slackline.ordering.input import DerivedInput, Input, SensorInput
from slackline.ordering.target_slack import BY_ARRIVAL, READY_REACH, SLACK_REACH
from slackline.ordering.watermark import ORDERED, SLACK

#: Evidence by name. The last one is that of derived inputs.
SLACK_EVIDENCE, READINESS, ARRIVAL_TIME, IN_ORDER, PROGRESS = EVIDENCE = (
    "slack", "readiness", "arrival time", "order", "progress",
)  # fmt: skip


class Basis(NamedTuple):
    """The watermark of an input, and the event time up to which each kind of evidence allows release (NEVER: none).

    ``K``       the slack.
    ``source``  the source that readiness waits for, ``last`` the greatest event time that it has delivered.
    """

    watermark: int
    reached: dict[str, int]
    K: int = 0
    has_source: bool = False
    source: Source = None
    last: int = NEVER

    def allowing(self, ts: int) -> list[str]:
        """The kinds of evidence that allow the release of an event of this time."""
        return [kind for kind, reached in self.reached.items() if reached >= ts]


def basis(input: Input, clk: int) -> Basis:
    """What the watermark of an input rests on; it was evaluated at stream time ``clk``."""
    reached, slack = input.watermark, input.K
    if isinstance(input, DerivedInput):
        return Basis(reached, {SLACK_EVIDENCE if input.uses_slack else PROGRESS: reached}, slack)
    assert isinstance(input, SensorInput)
    if input.remote_watermark is not None or reached in (NEVER, FOREVER):
        return Basis(reached, {}, slack)
    policy = input.evidence.policy
    if policy in (ORDERED, SLACK):
        return Basis(reached, {IN_ORDER if policy == ORDERED else SLACK_EVIDENCE: reached}, slack)
    if input.tracks:
        by_slack, ready = int(input.ints[SLACK_REACH]), int(input.ints[READY_REACH])
        arrival = input.startup.arrival_watermark if input.ints[BY_ARRIVAL] == 1 else NEVER
        kinds = {SLACK_EVIDENCE: by_slack, READINESS: ready, ARRIVAL_TIME: min(arrival, reached)}
    else:
        slack = watermark.source_timeout(input.ints, input.evidence.rules(input.is_clock))
        ready = int(input.readiness_tree[1])
        kinds = {SLACK_EVIDENCE: clk - slack, READINESS: NEVER if ready == FOREVER else min(ready, clk)}
    return Basis(reached, kinds, slack, *_slowest(input))


def _slowest(input: SensorInput) -> tuple[bool, Source, int]:
    tree = input.readiness_tree
    if tree[1] == FOREVER:
        return False, None, NEVER
    slot = readiness.slowest(tree) - len(input.readiness)
    return True, input.sources.names[slot], int(input.readiness[slot, readiness.LAST])
