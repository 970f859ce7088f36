"""The options of ``slackline run``, out of a TOML file and the command line; the command line wins.

The file's keys are called like the options: ``from``, ``to``, ``at-stop``. ``app`` is the application, and ``engine`` a
table.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from slackline.cli.engine_options import known_options
from slackline.cli.logs import LogForm
from slackline.core.errors import ConfigError
from slackline.core.time import PER_SECOND

AT_STOP = ("flush", "keep")
ON = ("process", "spark")
DELIVERIES = ("exactly-once", "at-least-once")

#: Seconds between checkpoints in a folder, unless given.
CHECKPOINT_EVERY = 1.0

#: Of each key of the file: what it must be, and how to say so.
_TEXT = (lambda value: isinstance(value, str) and bool(value), "a text")
_FLAG = (lambda value: isinstance(value, bool), "true or false")
_PORT = (lambda value: type(value) is int and 0 <= value < 65536, "a port, a whole number from 0 to 65535")
_SECONDS = (lambda value: type(value) in (int, float) and value > 0, "a number of seconds above 0")
_TABLE = (lambda value: isinstance(value, dict), "a table")
_TEXTS = (
    lambda value: _TEXT[0](value) or (isinstance(value, list) and all(map(_TEXT[0], value))),
    "a text, or a list of texts",
)


def _one_of(*words: str) -> Any:
    return lambda value: value in words, "one of " + ", ".join(words)


KEYS: Mapping[str, Any] = {
    "app": _TEXT,
    "from": _TEXTS,
    "to": _TEXT,
    "key": _TEXT,
    "ts": _TEXT,
    "type": _TEXT,
    "source": _TEXT,
    "seq": _TEXT,
    "unit": _one_of(*PER_SECOND),
    "engine": _TABLE,
    "follow": _FLAG,
    "on": _one_of(*ON),
    "at-stop": _one_of(*AT_STOP),
    "checkpoint-every": _SECONDS,
    "metrics": _PORT,
    "log": _one_of(*get_args(LogForm)),
    "group": _TEXT,
    "delivery": _one_of(*DELIVERIES),
}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What is to be run, from where and to where, and how."""

    app: str
    sources: tuple[str, ...]
    to: str
    key: str | None = None
    ts: str = "ts"
    type: str | None = None
    source: str | None = None
    seq: str | None = None
    unit: str = "us"
    engine: Mapping[str, Any] = field(default_factory=dict)
    follow: bool = False
    on: str = "process"
    at_stop: str | None = None
    checkpoint_every: float | None = None
    metrics: int | None = None
    log: LogForm = "text"
    group: str | None = None
    delivery: str | None = None


def settings_of(given: Mapping[str, Any], config: Path | None) -> RunSettings:
    """The settings. What is given and not None goes before what the file says; options of the engine one by one."""
    told = {} if config is None else read_config(config)
    engine = {**told.pop("engine", {}), **given.get("engine", {})}
    chosen = told | {name: value for name, value in given.items() if value is not None and name != "engine"}
    sources = chosen.pop("from", ())
    for name, what in (("app", "APP, module:hierarchy or a file"), ("to", "--to FOLDER, FILE, URL or -")):
        if name not in chosen:
            raise ConfigError(f"{what} is missing; give it, or `{name}` in the file of --config.")
    named = {name.replace("-", "_"): value for name, value in chosen.items()}
    return RunSettings(sources=(sources,) if isinstance(sources, str) else tuple(sources), engine=engine, **named)


def read_config(path: Path) -> dict[str, Any]:
    """What a TOML file says, if all of it means something."""
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    _check_known(path, "", told, KEYS)
    for name, value in told.items():
        is_right, words = KEYS[name]
        if not is_right(value):
            raise ConfigError(f"{path}: {name} = {value!r} is not valid; it must be {words}.")
    _check_known(path, "engine.", told.get("engine", {}), known_options())
    return told


def _check_known(path: Path, before: str, told: Mapping[str, Any], known: Any) -> None:
    for name in told:
        if name not in known:
            close = difflib.get_close_matches(name.replace("_", "-") if not before else name, known, 1, 0.5)
            hint = f" Did you mean {before}{close[0]}?" if close else ""
            words = ", ".join(known)
            raise ConfigError(f"{path}: there is no option {before}{name}.{hint} Known are {words}.")
