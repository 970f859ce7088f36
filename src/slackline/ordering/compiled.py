"""The first push must not be silent: whoever has to wait for the compiler is told so, once.

The kernels are compiled on their first use in an environment and kept on disk (beside the source where that can be
written, else in the user's cache, or where ``NUMBA_CACHE_DIR`` says). That takes from ten seconds to half a minute;
loading what was kept takes a fraction of a second. Numba says when it really compiles, so there is no guess here.
"""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

log = logging.getLogger("slackline")

#: Functions of these packages are ours; what users compile is theirs to tell.
OURS = ("slackline", "slackline_soccer")


class _Announce(event.Listener):
    """Logs one line when the first of our functions is compiled in this process."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        package = event.data["dispatcher"].py_func.__module__.partition(".")[0]
        if package in OURS and not self.said:
            self.said = True
            log.warning(
                "compiling for this machine, once: the first push takes up to half a minute longer. "
                "`python -m slackline.compile` does it ahead."
            )

    def on_end(self, event: Any) -> None:
        pass


_announce = _Announce()


def announce_compilation() -> None:
    """From now on say so, in the log ``slackline``, when a push has to wait for the compiler."""
    event.register("numba:compile", _announce)


def say_nothing() -> None:
    """Undo :func:`announce_compilation`: somebody else tells."""
    event.unregister("numba:compile", _announce)
