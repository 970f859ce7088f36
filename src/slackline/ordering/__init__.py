"""Event-time order: stream time, delays, readiness, and the watermarks that follow from them.

The kernels are compiled by Numba on first use in an environment and cached on disk (beside the source where that is
writable, else in the user's cache, or in ``NUMBA_CACHE_DIR``). Compiling takes from ten seconds to half a minute,
loading the cache a fraction of a second. So that the first push is not silent, importing this package registers a
listener that logs one line when a kernel of ours is compiled.
"""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

log = logging.getLogger("slackline")

#: Only compilation of functions in these packages is logged, not that of users' own.
OURS = ("slackline", "slackline_soccer")


class CompilationLogger(event.Listener):
    """Logs one line when the first of our functions is compiled in this process."""

    def __init__(self) -> None:
        self.logged = False

    def on_start(self, event: Any) -> None:
        package = event.data["dispatcher"].py_func.__module__.partition(".")[0]
        if package in OURS and not self.logged:
            self.logged = True
            log.warning(
                "compiling for this machine, once: the first push takes up to half a minute longer. "
                "`python -m slackline.compile` compiles ahead of time."
            )

    def on_end(self, event: Any) -> None:
        pass


_compilation_logger = CompilationLogger()
event.register("numba:compile", _compilation_logger)


def mute_compilation_log() -> None:
    """Log no compilation from now on, where the caller reports it itself."""
    event.unregister("numba:compile", _compilation_logger)
