"""The options of an engine: validated, resolved, and as they are saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from slackline.core.calibration import Calibration
from slackline.core.check import number, one_of, whole_number
from slackline.core.errors import ConfigError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import PER_SECOND, Now, duration
from slackline.ordering.clock import JUMP_AUTO, JUMP_OFF
from slackline.ordering.input import Evidence
from slackline.ordering.policy import OPTIONS, Auto, Ordered, Policy, Slack, policy_of, with_policy
from slackline.ordering.watermark import LATE_TARGET
from slackline.running.deferral import Pause
from slackline.speculation.config import Speculation

#: Wall clock in seconds, from any origin; or "host" if the host measures CPU time itself.
WallTime = Now | Literal["host"] | None
#: A length of event time: a number of the unit of event times, or one with a unit of its own (``core.time``).
Length = int | str | timedelta


@dataclass(frozen=True)
class Options:
    """The options of :class:`~slackline.Engine`. One object serves any number of engines."""

    policy: Policy = Auto()  # noqa: RUF009 (frozen)
    late: str = "divert"
    duplicates: str = "drop"
    on_error: str = "fail"
    max_jump: Length | None = "auto"
    max_buffered: int = 1_000_000
    overflow: str = "error"
    speculation: Speculation | Mapping[str, Speculation] | None = None
    late_target: float | Mapping[str, float] | None = None
    skew: str | None = None
    pause: Pause | None = None
    #: Used at the start only, and not saved: the engine saves the delays that it has measured since.
    calibration: Calibration | None = None
    #: The unit of event times, if given.
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.unit is not None:
            one_of("unit", self.unit, PER_SECOND)
        object.__setattr__(self, "policy", policy_of(self.policy).resolved(self.unit))
        one_of("late", self.late, ("divert", "deliver"))
        one_of("duplicates", self.duplicates, ("drop", "keep"))
        one_of("on_error", self.on_error, ("fail", "quarantine"))
        one_of("overflow", self.overflow, ("error", "release"))
        if self.late_target is not None:
            for target in self.targets.values() if isinstance(self.late_target, Mapping) else (self.late_target,):
                self._check_target(target)
        if self.skew is not None:
            one_of("skew", self.skew, ("report", "correct"))
        if self.skew == "correct" and isinstance(self.policy, Ordered):
            raise ConfigError(
                "skew='correct' has no effect under policy='ordered', which does not change time stamps; leave it out."
            )
        whole_number("max_buffered", self.max_buffered, 1)
        if self.calibration is not None and isinstance(self.policy, Ordered):
            raise ConfigError(
                "a calibration has no effect under policy='ordered', which does not wait for delays; leave it out."
            )
        if self.max_jump is not None and self.max_jump != "auto":
            object.__setattr__(self, "max_jump", duration("max_jump", self.max_jump, self.unit, 1))
        if not all(isinstance(one, Speculation) for one in self._speculations):
            raise ConfigError(
                f"speculation={self.speculation!r} is not valid; pass slackline.Speculation(...), or a dict of them by "
                f"detector."
            )
        self._check_pause()

    def _check_pause(self) -> None:
        given: Any = self.pause
        if given is None:
            return
        if not isinstance(given, Pause):
            raise ConfigError(f"pause={given!r} is not valid; pass slackline.Pause(...).")
        if isinstance(self.policy, Slack):
            raise ConfigError(
                "pause is not supported under policy='slack': higher levels would advance by stream time, without the "
                "deferred results. Use 'auto', 'ready' or 'ordered'."
            )
        if self.late == "deliver":
            raise ConfigError(
                "pause is not supported with late='deliver': results would depend on which detectors are deferred. "
                "Use late='divert'."
            )

    def _check_target(self, target: Any) -> None:
        number("late_target", target, 0)
        if not target < 1:
            raise ConfigError(f"late_target={target!r} is not valid; it must be from 0 to less than 1, such as 0.001.")
        if not isinstance(self.policy, Auto):
            raise ConfigError(
                f"late_target={target!r} has no effect under policy={self.policy.name!r}; it requires policy='auto'."
            )
        if not self.policy.by_target:
            raise ConfigError(
                f"late_target={target!r} and policy={self.policy!r} both determine how long to wait; give one or the "
                f"other."
            )

    @property
    def target(self) -> float | None:
        """The late target from which K is computed, if any; the smallest one if detectors differ."""
        if not isinstance(self.policy, Auto) or not self.policy.by_target:
            return None
        if isinstance(self.late_target, Mapping):
            return min([LATE_TARGET, *(float(target) for target in self.targets.values())])
        return LATE_TARGET if self.late_target is None else float(self.late_target)

    @cached_property
    def evidence(self) -> Evidence:
        """The evidence for input watermarks that the policy uses."""
        return self.policy.evidence(self.target)

    @property
    def targets(self) -> Mapping[str, float]:
        """The late targets by detector, if given so; others have the default."""
        return self.late_target if isinstance(self.late_target, Mapping) else {}

    def check(self, hierarchy: Hierarchy, now: Any) -> None:
        """Refuse unknown detectors, and options that require a wall clock without one."""
        if not isinstance(hierarchy, Hierarchy):
            raise ConfigError(f"an engine runs a slackline.Hierarchy; got {hierarchy!r}.")
        for option, named in (("speculation", self.speculation), ("late_target", self.late_target)):
            unknown = sorted(set(named) - set(hierarchy.names)) if isinstance(named, Mapping) else []
            if unknown:
                raise ConfigError(
                    f"{option} refers to unknown detectors {unknown}; the hierarchy has {list(hierarchy.names)}."
                )
        if self.calibration is not None:
            self.calibration.check(hierarchy)
        if now is not None and now != "host" and not callable(now):
            raise ConfigError(f"now={now!r} is not valid; pass a function of seconds, such as time.monotonic.")
        if self.pause is not None and now is None:
            raise ConfigError("pause measures CPU load, which requires a wall clock: pass now=time.monotonic.")
        if now is None and any(one.alpha == "auto" for one in self._speculations):
            raise ConfigError(
                "speculation with alpha='auto' measures CPU load, which requires a wall clock: pass "
                "now=time.monotonic, or set alpha to a number from 0 to 1."
            )

    @property
    def jump(self) -> int:
        """``max_jump`` as a number for the clock."""
        if isinstance(self.max_jump, int):
            return self.max_jump
        return JUMP_OFF if self.max_jump is None or isinstance(self.policy, Ordered) else JUMP_AUTO

    @property
    def lags(self) -> str | None:
        """``skew``, unless the input is in order."""
        return None if isinstance(self.policy, Ordered) else self.skew

    def speculation_of(self, detector: str) -> Speculation | None:
        """The speculation options of a detector, if it speculates."""
        if isinstance(self.speculation, Mapping):
            return self.speculation.get(detector)
        return self.speculation

    @property
    def _speculations(self) -> list[Any]:
        """The speculation options of all detectors."""
        given = self.speculation
        return [*given.values()] if isinstance(given, Mapping) else [] if given is None else [given]

    def changed(self, given: Mapping[str, Any]) -> Options:
        """The options, with saved ones replaced by those given."""
        check_known(given)
        policy = policy_of(given.get("policy", self.policy))
        if policy.name != self.policy.name:
            raise StateError(
                f"the checkpoint was saved with policy={self.policy.name!r}, and policy={policy.name!r} is given; the "
                f"measured delays cannot be converted. Load it with policy={self.policy!r}, or start without it."
            )
        return replace(self, **{name: value for name, value in given.items() if name != "calibration"})

    def named(self) -> dict[str, Any]:
        """The options by name."""
        return {option.name: getattr(self, option.name) for option in fields(self)}

    # As they are saved and shown.

    def plain(self) -> dict[str, Any]:
        """The options as plain values; those of the policy among them, by their own names."""
        values = dict(self._flat)
        given = self.speculation
        if isinstance(given, Mapping):
            values["speculation"] = {"by_detector": {name: asdict(one) for name, one in given.items()}}
        elif given is not None:
            values["speculation"] = asdict(given)
        if self.pause is not None:
            values["pause"] = asdict(self.pause)
        return values

    @cached_property
    def _flat(self) -> dict[str, Any]:
        objects = ("policy", "calibration")
        others = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in objects}
        return self.policy.flat() | others

    def in_force(self, detectors: Iterable[str]) -> dict[str, Any]:
        """The options as plain values with their defaults resolved: None only where nothing applies.

        ``timeout`` stays None where K takes its place, and ``warmup`` where it ends as soon as delays are known.
        """
        target, evidence = self.target, self.evidence
        waits_for_slack = target is None and not isinstance(self.policy, Ordered)
        by_detector = {name: self.targets.get(name, LATE_TARGET) for name in detectors} if self.targets else None
        return {
            **self.plain(),
            "late_target": by_detector or target,
            "margin": evidence.margin if waits_for_slack else None,
            "window": evidence.window if waits_for_slack else None,
            "warmup": evidence.warmup,
        }

    def differences(self, other: Options) -> dict[str, list[Any]]:
        """The options that differ, as plain values: this one and the other."""
        before, after = self.plain(), other.plain()
        return {name: [before[name], after[name]] for name in after if after[name] != before[name]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Options:
        """The options from their plain values; missing options have their defaults."""
        given = plain.get("speculation")
        try:
            values = with_policy(plain)
            if given is not None:
                by = given.get("by_detector")
                values["speculation"] = (
                    Speculation(**given) if by is None else {name: Speculation(**one) for name, one in by.items()}
                )
            if values.get("pause") is not None:
                values["pause"] = Pause(**values["pause"])
            return cls(**values)
        except ConfigError as error:
            raise StateError(f"the checkpoint is damaged: {error} Restore an older one.") from error


#: The default options.
DEFAULTS: dict[str, Any] = {option.name: option.default for option in fields(Options)}


def check_known(given: Iterable[str]) -> None:
    """Refuse options that an engine does not have."""
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        moved = next((name for name in unknown if name in OPTIONS), None)
        hint = f" {moved} is an option of a policy: pass policy=slackline.Auto({moved}=...)." if moved else ""
        raise ConfigError(f"an engine has no options {unknown}; it has {list(DEFAULTS)}.{hint}")
