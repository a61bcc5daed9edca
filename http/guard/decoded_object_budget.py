"""Limit on the decoded JSON arrays and objects of all concurrent requests."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack

import attrs
import trio

from greenroom.schemas.problems import Problem, ProblemError

MAX_HELD = 150_000
"""Limit on the objects of all requests together; each takes some 0.4 kB with its strings."""
UNCOUNTED = 5_000
"""Free allowance of each body, in objects; ordinary agent conversations are never delayed by large bodies."""
MAX_WAIT = 30.0
"""Longest time that an undecoded body waits for the budget, in seconds."""


@attrs.define(eq=False)
class _Waiting:
    objects: int
    admitted: trio.Event = attrs.field(factory=trio.Event)


class DecodedObjectBudget:
    """Admits bodies to decoding in order of arrival; undecoded bodies wait as bytes, which are smaller."""

    def __init__(self) -> None:
        self._held = 0
        self._waiting: deque[_Waiting] = deque()

    async def hold(self, objects: int, resources: ExitStack) -> None:
        """Wait until a body's objects fit the budget, and charge them until the request's resources close.

        Raises:
            ProblemError: 503: the wait was too long.
        """
        if objects <= UNCOUNTED:
            return
        waiting = _Waiting(objects)
        self._waiting.append(waiting)
        self._admit()
        try:
            with trio.move_on_after(MAX_WAIT):
                await waiting.admitted.wait()
        finally:
            if waiting.admitted.is_set():
                resources.callback(self._release, objects)
            else:
                self._waiting.remove(waiting)
                self._admit()
        if not waiting.admitted.is_set():
            detail = "Current requests use up the limit of decoded JSON objects. Try again."
            raise ProblemError(Problem(503, "too_many_bodies", detail, retry_after=1))

    def _release(self, objects: int) -> None:
        self._held -= objects
        self._admit()

    def _admit(self) -> None:
        # A body beyond the whole budget is decoded while no other is charged.
        while self._waiting and (not self._held or self._held + self._waiting[0].objects <= MAX_HELD):
            waiting = self._waiting.popleft()
            self._held += waiting.objects
            waiting.admitted.set()
