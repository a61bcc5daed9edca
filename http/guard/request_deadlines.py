"""Time limits of whole requests, by path: the models of overdue ones are told to stop."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import attrs
import trio

from greenroom.actors.core.ref import Ref, ask_actor
from greenroom.http.guard.request_body import BodyLimit
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.pool_protocol import CancelRequest, PoolMessage, RequestCancelled

INTERVAL = 0.1  # Seconds between checks for overdue requests
_ALL = "*"


@attrs.frozen
class _Timed:
    seconds: float
    deadline: float


class RequestDeadlines:
    """The requests with a time limit, from their heads to the ends of their answers.

    Background responses have none: their requests are answered at once.

    Args:
        limits: Limits as the setting `request_timeout` has them.

    Raises:
        ValueError: A limit has another form.
    """

    def __init__(self, limits: Iterable[str]) -> None:
        self._limits = parse_request_timeouts(limits)
        self._running: dict[str, _Timed] = {}

    def attend(self, request_id: str, path: str) -> tuple[BodyLimit | None, Callable[[], object]]:
        """Begin a request's time.

        Returns:
            Limit on the arrival of its body, None if it has none, and the function to call at its end.
        """
        seconds, limit = self._limits.get(path, self._limits.get(_ALL)), None
        if seconds is not None:
            timed = self._running[request_id] = _Timed(seconds, trio.current_time() + seconds)
            limit = BodyLimit(timed.deadline, partial(self._late, request_id))
        return limit, lambda: self._running.pop(request_id, None)

    async def run(self, pool: Ref[PoolMessage]) -> None:
        """Fail overdue requests until cancelled; without limits, return at once."""
        while self._limits:
            await trio.sleep(INTERVAL)
            for request_id, timed in self._overdue():
                with contextlib.suppress(ProblemError):  # no model works for it yet, or any more
                    problem = _timed_out(timed.seconds)
                    await ask_actor(pool, CancelRequest(request_id, problem), RequestCancelled)
                    self._running.pop(request_id, None)

    def _late(self, request_id: str) -> ProblemError:
        """Return the error that ends a request whose body has not arrived in time."""
        return ProblemError(_timed_out(self._running.pop(request_id).seconds))

    def _overdue(self) -> list[tuple[str, _Timed]]:
        now = trio.current_time()
        return [(ident, timed) for ident, timed in self._running.items() if timed.deadline <= now]


def parse_request_timeouts(limits: Iterable[str]) -> Mapping[str, float]:
    """Return the limits in seconds by path, with `*` for all other paths. Raises ValueError: an entry is
    neither `SECONDS` nor `PATH=SECONDS`.
    """
    found = {}
    for limit in limits:
        path, equals, text = limit.rpartition("=")
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds > 0) or (equals and not path.startswith("/")):
            raise ValueError("must be SECONDS or PATH=SECONDS, such as /v1/chat/completions=600")
        found[path or _ALL] = seconds
    return found


def _timed_out(seconds: float) -> Problem:
    detail = f"The request took longer than the {seconds:g} s that the operator of this server allows."
    return Problem(504, "request_timeout", detail)
