"""The options of an engine: checked, as the machines take them, and as they are saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from slackline.core.calibration import Calibration
from slackline.core.check import number, one_of, whole_number
from slackline.core.errors import ConfigError, StateError
from slackline.core.hierarchy import Hierarchy
from slackline.core.time import Now
from slackline.ordering.clock import JUMP_AUTO, JUMP_OFF
from slackline.ordering.input import Evidence
from slackline.ordering.watermark import LATE_TARGET, NO_TIMEOUT, POLICIES, WARMUP
from slackline.running.pause import Pause
from slackline.speculation.config import Speculation

#: What K without a target is made of, unless given: λ, and the measurements it rests on.
MARGIN, WINDOW = 0.5, 2048

#: Wall time in seconds, from any origin; or "host" if the host measures the work itself.
WallTime = Now | Literal["host"] | None


@dataclass(frozen=True, slots=True)
class Options:
    """What an engine was asked for; see :class:`~slackline.Engine`."""

    policy: str = "auto"
    margin: float | None = None
    window: int | None = None
    timeout: int | None = None
    warmup: int | None = None
    late: str = "divert"
    duplicates: str = "drop"
    on_error: str = "fail"
    max_jump: int | str | None = "auto"
    max_buffered: int = 1_000_000
    overflow: str = "error"
    speculation: Speculation | Mapping[str, Speculation] | None = None
    late_target: float | Mapping[str, float] | None = None
    skew: str | None = None
    pause: Pause | None = None
    #: Only for the start: what an engine has learnt since is saved, this is not.
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        one_of("policy", self.policy, POLICIES)
        one_of("late", self.late, ("divert", "deliver"))
        one_of("duplicates", self.duplicates, ("drop", "keep"))
        one_of("on_error", self.on_error, ("fail", "quarantine"))
        one_of("overflow", self.overflow, ("error", "release"))
        if self.margin is not None:
            number("margin", self.margin, 0)
        if self.window is not None:
            whole_number("window", self.window, 1)
        if self.late_target is not None:
            for target in self.targets.values() if isinstance(self.late_target, Mapping) else (self.late_target,):
                self._check_target(target)
        if self.skew is not None:
            one_of("skew", self.skew, ("report", "correct"))
        if self.skew == "correct" and self.policy == "ordered":
            raise ConfigError(
                "skew='correct' means nothing under policy='ordered', which takes time stamps as they are."
            )
        whole_number("max_buffered", self.max_buffered, 1)
        if self.timeout is not None:
            whole_number("timeout", self.timeout, 0)
            if self.policy in ("slack", "ordered"):
                raise ConfigError(
                    f"timeout={self.timeout} means nothing under policy={self.policy!r}; it waits for no source."
                )
        if self.warmup is not None:
            whole_number("warmup", self.warmup, 0)
            if self.policy == "ordered" and self.warmup:
                raise ConfigError(
                    f"warmup={self.warmup} means nothing under policy='ordered', which has nothing to learn."
                )
        if self.calibration is not None and self.policy == "ordered":
            raise ConfigError(
                "a calibration means nothing under policy='ordered', which waits for no delay; leave it out."
            )
        if self.max_jump is not None and self.max_jump != "auto":
            whole_number("max_jump", self.max_jump, 1)
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
        if self.policy == "slack":
            raise ConfigError(
                "pause means nothing good under policy='slack': detectors above would go on by the clock, without what "
                "is held up. Choose 'auto', 'ready' or 'ordered'."
            )
        if self.late == "deliver":
            raise ConfigError("with pause, late='deliver' would make what is found depend on who is held up; divert.")

    def _check_target(self, target: Any) -> None:
        number("late_target", target, 0)
        if not target < 1:
            raise ConfigError(f"late_target={target!r} is a share of the events: from 0 to less than 1, such as 0.001.")
        if self.policy != "auto":
            raise ConfigError(f"late_target={target!r} means nothing under policy={self.policy!r}; 'auto' keeps it.")
        others = {"timeout": self.timeout, "margin": self.margin, "window": self.window}
        given = {name: value for name, value in others.items() if value is not None}
        if given:
            raise ConfigError(
                f"late_target={target!r} and {given} both say how long to wait. Leave out the one or the other."
            )

    @property
    def target(self) -> float | None:
        """The share of events that may be late, where K is to keep one."""
        if self.policy != "auto" or any(given is not None for given in (self.timeout, self.margin, self.window)):
            return None
        if isinstance(self.late_target, Mapping):
            return min([LATE_TARGET, *(float(target) for target in self.targets.values())])
        return LATE_TARGET if self.late_target is None else float(self.late_target)

    @property
    def targets(self) -> Mapping[str, float]:
        """The share that each detector accepts, where they differ; the others accept the default."""
        return self.late_target if isinstance(self.late_target, Mapping) else {}

    def check(self, hierarchy: Hierarchy, now: Any) -> None:
        """Refuse what names detectors that are not there, and what takes a wall clock without one."""
        if not isinstance(hierarchy, Hierarchy):
            raise ConfigError(f"an engine runs a slackline.Hierarchy; got {hierarchy!r}.")
        for option, named in (("speculation", self.speculation), ("late_target", self.late_target)):
            unknown = sorted(set(named) - set(hierarchy.names)) if isinstance(named, Mapping) else []
            if unknown:
                raise ConfigError(f"{option} names no detectors {unknown}; the hierarchy has {list(hierarchy.names)}.")
        if self.calibration is not None:
            self.calibration.check(hierarchy)
        if now is not None and now != "host" and not callable(now):
            raise ConfigError(f"now={now!r} is not valid; pass a function that gives seconds, such as time.monotonic.")
        if self.pause is not None and now is None:
            raise ConfigError(
                "pause goes by how busy the process is, which takes a wall clock: pass now=time.monotonic."
            )
        if now is None and any(one.alpha == "auto" for one in self._speculations):
            raise ConfigError(
                "speculation with alpha='auto' is set from how busy the process is, which takes a wall clock: pass "
                "now=time.monotonic, or give alpha a number from 0 to 1."
            )

    @property
    def evidence(self) -> Evidence:
        """How input watermarks are found."""
        warmup, target = self.warmup, self.target
        if warmup is None and target is None:
            warmup = 0 if self.policy in ("slack", "ordered") else WARMUP
        timeout = NO_TIMEOUT if self.timeout is None else self.timeout
        margin = MARGIN if self.margin is None else float(self.margin)
        window = WINDOW if self.window is None else self.window
        return Evidence(POLICIES[self.policy], margin, window, timeout, warmup, target)

    @property
    def jump(self) -> int:
        """How far the clock may jump, as the clock takes it."""
        if isinstance(self.max_jump, int):
            return self.max_jump
        return JUMP_OFF if self.max_jump is None or self.policy == "ordered" else JUMP_AUTO

    @property
    def lags(self) -> str | None:
        """What to do about sources whose clocks are off: nothing where the input is in order."""
        return None if self.policy == "ordered" else self.skew

    def speculation_of(self, detector: str) -> Speculation | None:
        """How a detector speculates, if it does."""
        if isinstance(self.speculation, Mapping):
            return self.speculation.get(detector)
        return self.speculation

    @property
    def _speculations(self) -> list[Any]:
        """All that is said about speculation, of whatever detector."""
        given = self.speculation
        return [*given.values()] if isinstance(given, Mapping) else [] if given is None else [given]

    def changed(self, given: Mapping[str, Any]) -> Options:
        """These options, with those given in place of the saved ones."""
        unknown = sorted(set(given) - {each.name for each in fields(self)})
        if unknown:
            raise ConfigError(f"an engine has no options {unknown}; it has {[each.name for each in fields(self)]}.")
        policy = given.get("policy", self.policy)
        if policy != self.policy:
            raise StateError(
                f"the state was saved with policy={self.policy!r}, and policy={policy!r} is given; what one policy has "
                f"learnt is of no use to another. Load it with policy={self.policy!r}, or start anew."
            )
        return replace(self, **{name: value for name, value in given.items() if name != "calibration"})

    # As they are saved and shown.

    def plain(self) -> dict[str, Any]:
        """The options as plain values."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "calibration"}
        told = self.speculation
        if isinstance(told, Mapping):
            values["speculation"] = {"by_detector": {name: asdict(one) for name, one in told.items()}}
        elif told is not None:
            values["speculation"] = asdict(told)
        if self.pause is not None:
            values["pause"] = asdict(self.pause)
        return values

    def in_force(self, detectors: Iterable[str]) -> dict[str, Any]:
        """The options as plain values with their defaults resolved: None only where nothing applies.

        ``timeout`` stays None where K takes its place, and ``warmup`` where it ends as soon as delays are known.
        """
        target, evidence = self.target, self.evidence
        waits_for_slack = target is None and self.policy != "ordered"
        by_detector = {name: self.targets.get(name, LATE_TARGET) for name in detectors} if self.targets else None
        return {
            **self.plain(),
            "late_target": by_detector or target,
            "margin": evidence.margin if waits_for_slack else None,
            "window": evidence.window if waits_for_slack else None,
            "warmup": evidence.warmup,
        }

    def differences(self, other: Options) -> dict[str, list[Any]]:
        """The options that are others there, as plain values: here and there."""
        before, after = self.plain(), other.plain()
        return {name: [before[name], after[name]] for name in after if after[name] != before[name]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Options:
        """The options from their plain values; an option that was not there yet has its default."""
        values = dict(plain)
        told = values.get("speculation")
        try:
            if told is not None:
                by = told.get("by_detector")
                values["speculation"] = (
                    Speculation(**told) if by is None else {name: Speculation(**one) for name, one in by.items()}
                )
            if values.get("pause") is not None:
                values["pause"] = Pause(**values["pause"])
            return cls(**values)
        except ConfigError as error:
            raise StateError(f"the checkpoint is damaged: {error} Restore an older one.") from error


#: The options that an engine has where none is given.
DEFAULTS: dict[str, Any] = {option.name: option.default for option in fields(Options)}
