"""Optional packages: which extra installs which package, and the error when one is missing.

A plain install has numpy, numba, pyarrow and msgspec. Every other package belongs to an extra; where it is imported, a
missing package becomes an error with the command that installs it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from slackline.core.errors import SlacklineError

#: The name on the package index, where ``slackline`` is another project.
DISTRIBUTION = "slackline-streams"

#: The top-level module of a package, and the extra that installs it.
EXTRA_OF: Mapping[str, str] = {
    "confluent_kafka": "kafka",
    "cryptography": "cluster",
    "fastavro": "kafka",
    "google": "spark",
    "grpc": "spark",
    "grpc_status": "spark",
    "httpx": "connectors",
    "httpx_sse": "connectors",
    "ortools": "placement",
    "paho": "connectors",
    "pandas": "spark",
    "plotly": "report",
    "prometheus_client": "metrics",
    "pyspark": "spark",
    "rich": "cli",
    "typer": "cli",
}


class MissingExtraError(SlacklineError, ImportError):
    """A part of Slackline was used whose packages are not installed.

    >>> print(MissingExtraError("slackline.spark", "spark"))
    slackline.spark needs the extra 'spark': pip install 'slackline-streams[spark]'
    """

    def __init__(self, user: str, extra: str) -> None:
        self.user = user
        self.extra = extra
        super().__init__(f"{user} needs the extra {extra!r}: pip install '{DISTRIBUTION}[{extra}]'")


def explain(error: ImportError, user: str) -> ImportError:
    """The error to raise when an import failed: the extra to install, or the error itself if no extra helps.

    >>> explain(ModuleNotFoundError("No module named 'plotly'", name="plotly.offline"), "the page")
    MissingExtraError("the page needs the extra 'report': pip install 'slackline-streams[report]'")
    """
    extra = EXTRA_OF.get((error.name or "").split(".")[0])
    return error if extra is None or isinstance(error, MissingExtraError) else MissingExtraError(user, extra)


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: imports a public name from its module on first access.

    So a package can export names whose modules are slow to import, or need an extra.

    >>> lazy("slackline.core", {"Event": "slackline.core.event"})("Event").__name__
    'Event'
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        try:
            value = getattr(importlib.import_module(homes[name]), name)
        except ImportError as error:
            raise explain(error, f"{package}.{name}") from error
        setattr(sys.modules[package], name, value)  # later accesses find the attribute
        return value

    return __getattr__
