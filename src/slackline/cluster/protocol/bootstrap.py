"""When a node begins: after a crash it hears first who runs what, and then all must be there who are needed."""

from __future__ import annotations

from collections.abc import Callable

from slackline.cluster.protocol.peer_protocol import PeerProtocol


class Bootstrap:
    """Whether work goes on here, and whether there is somebody for everything."""

    def __init__(self, talk: PeerProtocol, patience: float, note: Callable[[str, str], None]) -> None:
        self._talk = talk
        self._patience = patience
        self._note = note
        self._since: float | None = None
        self._is_complete = self._has_complained = False

    @property
    def is_ready(self) -> bool:
        """Whether everybody is there who is needed, and has told what they run."""
        return self._is_complete and not self._talk.awaits

    def has_started(self, now: float) -> bool:
        """Whether work goes on: after a crash, when those who were there have told what they run, or are gone."""
        self._since = now if self._since is None else self._since
        if self._has_waited(now):
            self._talk.await_nobody()
        return not self._talk.awaits and self._talk.membership.turned_away is None

    def _has_waited(self, now: float) -> bool:
        return self._since is not None and now - self._since >= self._patience

    def look_around(self, now: float) -> None:
        """Whether everybody is there who is needed to begin; if not for long, say who is not."""
        if self._is_complete:
            return
        talk = self._talk
        lacks = talk.directory.lacks()
        self._is_complete = talk.exchange.has_begun or not lacks
        if self._is_complete:
            talk.membership.ready_since = now
        elif not self._has_complained and self._has_waited(now):
            self._has_complained = True
            self._note("warning", f"{talk.card.name} waits to begin: {'; '.join(lacks)}.")
