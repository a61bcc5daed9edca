"""Limit on the decoded JSON arrays and objects of all concurrent requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import attrs
import trio

from greenroom.actors.core.pot import Pot
from greenroom.schemas.problems import Problem, ProblemError

MAX_HELD = 150_000
"""Limit on the objects of all requests together; each takes some 0.4 kB with its strings."""
UNCOUNTED = 5_000
"""Free allowance of each body, in objects; ordinary agent conversations are never delayed by large bodies."""
MAX_WAIT = 30.0
"""Longest time that an undecoded body waits for the budget, in seconds."""
_AGED = 5.0
"""Seconds after which a waiting body is passed by no other."""
_KEPT = 4
"""Divisor of a body's charge after its translation: a quarter stays for what the request keeps of it."""


@attrs.define(eq=False)
class _Waiting:
    client: str
    objects: int
    since: float = attrs.field(factory=trio.current_time)
    admitted: trio.Event = attrs.field(factory=trio.Event)


class DecodedObjectBudget:
    """Admits bodies to decoding, each client up to its share; undecoded bodies wait as bytes.

    What fits passes what does not, until that has waited for some seconds.
    """

    def __init__(self) -> None:
        self._pot = Pot(MAX_HELD)
        self._waiting: list[_Waiting] = []

    async def hold(self, client: str, objects: int, resources: ExitStack) -> Callable[[], None]:
        """Wait until a body's objects fit, and charge the client for them.

        Returns:
            Function to call once the body is translated; the rest stays charged until the resources close.

        Raises:
            ProblemError: 503: the wait was too long.
        """
        if objects <= UNCOUNTED:
            return lambda: None
        waiting = _Waiting(client, objects)
        self._waiting.append(waiting)
        self._admit()
        charge = ExitStack()
        try:
            with trio.move_on_after(MAX_WAIT):
                await waiting.admitted.wait()
        finally:
            if waiting.admitted.is_set():
                charge.callback(self._release, client, objects - objects // _KEPT)
                resources.push(charge)
                resources.callback(self._release, client, objects // _KEPT)
            else:
                self._waiting.remove(waiting)
                self._admit()
        if not waiting.admitted.is_set():
            detail = "Current requests use up the limit of decoded JSON objects. Try again."
            raise ProblemError(Problem(503, "too_many_bodies", detail, retry_after=1))
        return charge.close

    def _release(self, client: str, objects: int) -> None:
        self._pot.give_back(client, objects)
        self._admit()

    def _admit(self) -> None:
        for waiting in tuple(self._waiting):
            if self._fits(waiting):
                self._waiting.remove(waiting)
                self._pot.take(waiting.client, waiting.objects)
                waiting.admitted.set()
            elif not self._pot.held(waiting.client) and trio.current_time() - waiting.since > _AGED:
                return  # what is released gathers for it

    def _fits(self, waiting: _Waiting) -> bool:
        client, held = waiting.client, self._pot.total
        if not self._pot.held(client):
            # A body beyond the whole budget is decoded while no other is charged.
            return not held or held + waiting.objects <= MAX_HELD
        others_wait = any(other.client != client for other in self._waiting)
        return waiting.objects <= self._pot.room(client, others_wait)
