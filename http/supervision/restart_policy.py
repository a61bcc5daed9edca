"""Decisions after the end of a supervised server: whether, when and with which models it is started again."""

from __future__ import annotations

import attrs

from greenroom.http.process.exit_status import Restart, restart_after

STABLE_SECONDS = 60.0
"""Seconds of service after which earlier deaths are forgotten."""
SERVED_DELAYS = (0.0, 0.25, 0.5, 1.0)
"""Seconds before a restart, for the first and later deaths in a row of servers that had begun to serve."""
LONGEST_DELAY = 30.0
"""Longest time before a restart of a server that dies before it serves, in seconds."""


@attrs.frozen
class ChildEnd:
    """The end of a supervised server.

    Args:
        status: Exit status, or the negative number of the signal that killed it.
        served: Seconds for which it accepted requests; None if it never did.
        busy: Names of the models that were loading or computing.
    """

    status: int
    served: float | None = None
    busy: tuple[str, ...] = ()


@attrs.frozen
class StartAgain:
    """The decision to start the server again.

    Args:
        delay: Seconds to wait before.
        left_out: Models that it must not load before a request wants them.
    """

    delay: float
    left_out: tuple[str, ...]


@attrs.frozen
class GiveUp:
    """The decision to end with the server's exit status."""

    status: int


class RestartPolicy:
    """The decisions about one server, by its exit statuses (`notes/exit-statuses.md`) and its earlier ends.

    A server that dies soon after its start has a cause that will be there again, so the pauses grow; one that
    dies while it serves is started at once, since clients wait. A wrong setting or a fault at the very first
    start ends the parent too, so that the operator sees it.
    """

    def __init__(self) -> None:
        self._has_served = False
        self._deaths = 0
        self._left_out: tuple[str, ...] = ()

    def judge(self, end: ChildEnd) -> StartAgain | GiveUp:
        """Decide about a restart after an end that nobody has asked for."""
        self._has_served = self._has_served or end.served is not None
        restart = Restart.AT_ONCE if end.status < 0 else restart_after(end.status)
        if restart is Restart.NO or (restart is not Restart.AT_ONCE and not self._has_served):
            return GiveUp(end.status)
        if end.served is not None and end.served >= STABLE_SECONDS:
            self._deaths, self._left_out = 0, ()
        self._left_out = tuple(dict.fromkeys((*self._left_out, *end.busy)))
        self._deaths += 1
        return StartAgain(self._delay(end), self._left_out)

    def _delay(self, end: ChildEnd) -> float:
        if end.served is not None:
            return SERVED_DELAYS[min(self._deaths, len(SERVED_DELAYS)) - 1]
        return float(min(2 ** min(self._deaths - 1, 10), LONGEST_DELAY))
