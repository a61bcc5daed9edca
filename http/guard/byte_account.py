"""Memory budgets of what concurrent requests hold (bodies, unsent answers), shared between clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import ExitStack, asynccontextmanager

import attrs
import trio

from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE

UNCOUNTED_BYTES = 65_536
"""Free allowance of each holder, in bytes, so that large requests never block small ones."""


class ByteAccount:
    """Counts bytes by holder, and refuses to exceed a limit. `most`: limit on the bytes of all holders
    together. A single holder may exceed it if there is no other.
    """

    def __init__(self, most: int, problem: Problem) -> None:
        self._most = most
        self._problem = problem
        self._held: dict[Hashable, int] = {}
        self._total = 0

    def hold(self, holder: Hashable, size: int) -> None:
        """Charge a holder for a total of `size` bytes; a charge only grows until it is released. Raises
        ProblemError: the growth exceeds the limit; the charge stays as it was.
        """
        before = self._held.get(holder, 0)
        growth = max(0, size - UNCOUNTED_BYTES - before)
        if growth and self._total > before and self._total + growth > self._most:
            raise ProblemError(self._problem)
        self._held[holder] = before + growth
        self._total += growth

    def release(self, holder: Hashable) -> None:
        self._total -= self._held.pop(holder, 0)


ANSWER_BYTES = 96 * MEGABYTE
"""Bytes that all unsent responses may take together, about as many as request bodies may."""
_LARGE_SIZE = 65_536  # Size of stored data, in characters, from which on its JSON is built on a worker thread


class AnswerAccount:
    """Counts complete responses from the moment their size is known until they are sent or abandoned. `most`:
    limit on the bytes of all of them together; None for `ANSWER_BYTES`.
    """

    def __init__(self, most: int | None = None) -> None:
        detail = "Answers that clients have not read yet use all the memory for answers. Try again."
        problem = Problem(503, "too_many_answers", detail, retry_after=1)
        self._account = ByteAccount(most or ANSWER_BYTES, problem)
        self._known: set[ExitStack] = set()
        # Encoding takes several times a response's size in memory, and two jobs would fight for the GIL.
        self._encoding = trio.CapacityLimiter(1)

    def hold(self, resources: ExitStack, size: int) -> None:
        """Charge a request's response.

        Args:
            resources: Resources of the request; the charge is released when they close.
            size: Size in bytes; a repeated charge replaces a smaller one instead of adding to it.

        Raises:
            ProblemError (503): other unsent responses use up the memory budget.
        """
        self._account.hold(resources, size)
        if resources not in self._known:
            self._known.add(resources)
            resources.callback(self._release, resources)

    async def encode(self, size: int, document: Callable[[], bytes]) -> bytes:
        """Return JSON that is built from stored data, on a worker thread if that is large. `size`: size of
        the stored data, in characters; `document`: builds the JSON; must be callable from any thread.
        """
        if size < _LARGE_SIZE:
            return document()
        return await trio.to_thread.run_sync(document, abandon_on_cancel=True, limiter=self._encoding)

    def _release(self, resources: ExitStack) -> None:
        self._known.discard(resources)
        self._account.release(resources)


@attrs.define(eq=False)
class _Lane:
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0


class ClientLanes:
    """Admits one job per client at a time, and a limited number of jobs in all.

    A client's jobs queue behind each other first, so that each client has at most one place in the common
    queue and many jobs of one client delay only that client.

    Args:
        at_once: Number of jobs that may run concurrently.
    """

    def __init__(self, at_once: int) -> None:
        self._running = trio.CapacityLimiter(at_once)
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def lane(self, client: str) -> AsyncIterator[None]:
        """Wait for the client's turn and for a free slot, and hold both. `client`: name of the client,
        `address` or `address#key`. Keys of one address also take turns, since anybody may invent keys.
        """
        address = client.partition("#")[0]
        async with self._locked(f"{client}#"), self._locked(address), self._running:
            yield

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        lane = self._lanes.setdefault(name, _Lane())
        lane.users += 1
        try:
            async with lane.lock:
                yield
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[name]
