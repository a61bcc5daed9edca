"""How many arrays and objects the requests under way hold together, decoded."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack

import attrs
import trio

from greenroom.schemas.problems import Problem, ProblemError

MAX_HELD = 150_000
"""Objects of all requests together; each takes some 0.4 kB with its strings."""
UNCOUNTED = 5_000
"""Of each body; an agent's conversation is answered whatever large ones are under way."""
MAX_WAIT = 30.0
"""Seconds that a body waits, as bytes, until there is room for what it becomes."""


@attrs.define(eq=False)
class _Waiting:
    objects: int
    admitted: trio.Event = attrs.field(factory=trio.Event)


class DecodedObjects:
    """Lets bodies be decoded in their order, as far as there is room; they wait as bytes, which are small."""

    def __init__(self) -> None:
        self._held = 0
        self._waiting: deque[_Waiting] = deque()

    async def hold(self, objects: int, resources: ExitStack) -> None:
        """Wait until there is room for a body's objects, and hold it until the request's resources close.

        Raises:
            ProblemError: 503, there was none for too long.
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
            detail = "The requests under way hold as many objects as this server decodes at once. Try again."
            raise ProblemError(Problem(503, "too_many_bodies", detail, retry_after=1))

    def _release(self, objects: int) -> None:
        self._held -= objects
        self._admit()

    def _admit(self) -> None:
        # One that is larger than all the room is decoded alone.
        while self._waiting and (not self._held or self._held + self._waiting[0].objects <= MAX_HELD):
            waiting = self._waiting.popleft()
            self._held += waiting.objects
            waiting.admitted.set()
