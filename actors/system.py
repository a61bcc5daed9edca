"""The system: the nursery around every actor, and the threads that they borrow."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog
import trio

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.worker import HANG_TIMEOUT, Workers, WorkersStatistics
from greenroom.actors.engines import Engines
from greenroom.actors.pool.pool import Pool
from greenroom.actors.responses.responses import Responses
from greenroom.actors.store.store import Store
from greenroom.schemas.pool_protocol import Drain, Drained, PoolMessage
from greenroom.schemas.problems import device_lost
from greenroom.schemas.settings import Settings

if TYPE_CHECKING:
    from sqlite_utils import Database

log = structlog.get_logger()

_SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that computes gives the GIL to one that waits: a model's worker needs it
often and briefly."""

LOSS_SECONDS = 5.0
"""For what still answers, and for all that follows, once the device is lost."""

STORE_SHARE = 0.5
"""Fraction of the time that is left at the end in which the store may write what it was asked to."""


class System:
    """A running system. Made by `open_system`.

    Attributes:
        pool: Where requests begin.
        refs: All actors that may be spoken to.
        device_lost: Set when nothing can be computed in this process any more: it should `drain`, and end.
        hung: A thread could not be ended: flush the logs and leave with `os._exit`. Known after the close.
    """

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        store: Store,
        responses: Responses,
        children: trio.Nursery,
        workers: Workers,
    ) -> None:
        self.settings = settings
        self.pool: Ref[PoolMessage] = pool.ref
        self.refs = ActorRefs(pool.ref, store.ref, responses.ref)
        self.device_lost = workers.device_lost
        self.hung = False
        self._actor = pool
        self._children = children
        self._workers = workers
        self._deadline: float | None = None

    async def start(self, run: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Start a child that lives in the system, as the HTTP server does (`Nursery.start`).

        Children are cancelled before the pool is, when the system closes.
        """
        return await self._children.start(run, *args)

    async def drain(self) -> None:
        """Refuse new requests, and return when those that were accepted have ended.

        Whatever is left when most of `seconds_to_end` is over fails with a `draining` problem.
        """
        reserve = min(5.0, self.seconds_to_end * 0.25)
        with contextlib.suppress(ActorStopped):
            with trio.move_on_after(self.remaining() - reserve):
                await self._drained()
                return
            self._actor.fail_all()
            with trio.move_on_after(reserve / 2):
                await self._drained()

    async def _drained(self) -> None:
        """Wait until no request is left, and what was to be stored is."""
        await self.refs.responses.tell(Drain())
        await self.pool.ask(Drain(), Drained)
        await self.refs.responses.ask(Drain(), Drained)

    @property
    def seconds_to_end(self) -> float:
        """How long a shutdown may take."""
        timeout = self.settings.shutdown_timeout
        return min(timeout, LOSS_SECONDS) if self.device_lost.is_set() else timeout

    def remaining(self) -> float:
        """Return the seconds left to shut down, counted from the first call (by `drain`, or by the close)."""
        if self._deadline is None:
            self._deadline = trio.current_time() + self.seconds_to_end
        return self._deadline - trio.current_time()

    async def tell_loss(self) -> None:
        """Wait for the device to be lost; then have the pool say so to whoever asks it for a model."""
        await self.device_lost.wait()
        self._actor.lose_device(device_lost(self._workers.loss))

    def statistics(self) -> WorkersStatistics:
        """Return how many threads the system has, and what they do."""
        return self._workers.statistics()


@asynccontextmanager
async def open_system(
    settings: Settings,
    *,
    database: Database | sqlite3.Connection | None = None,
    engines: Engines | None = None,
    hang_timeout: float = HANG_TIMEOUT,
) -> AsyncIterator[System]:
    """Run the actors in a nursery of one's own, with or without a server.

    On leaving, children are cancelled first, then the pool and its models; then the store ends, once it has
    stored what they asked; threads are joined within what is left of `settings.shutdown_timeout`, whatever
    hangs. An exception of the body comes out in exception groups, as from any nursery.

    Args:
        database: Where responses are stored instead of the settings' `db`: an open database (made with
            `check_same_thread=False`) that nothing else uses meanwhile; it stays open. With neither they are
            kept in memory: only a command writes into the user's data folder.
        engines: How models are found and loaded; other than the default only in tests of failures.
        hang_timeout: Seconds without a sign of life after which a working thread counts as hung.
    """
    workers = Workers(hang_timeout)
    pool = Pool(settings, workers, engines or Engines(settings))
    store = Store(settings, workers, database)
    responses = Responses(pool.ref, store.ref)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    log.info("started", actor="system")
    system: System | None = None
    try:
        async with trio.open_nursery() as outermost:
            outermost.start_soon(workers.watch)
            outermost.start_soon(store.run)
            try:
                async with trio.open_nursery() as actors:
                    actors.start_soon(pool.run)
                    async with trio.open_nursery() as runs:
                        runs.start_soon(responses.run)
                        async with trio.open_nursery() as children:
                            system = System(settings, pool, store, responses, children, workers)
                            actors.start_soon(system.tell_loss)
                            yield system
                            children.cancel_scope.cancel("the system closes")
                        # What still generates ends and is stored while there are models and a store.
                        runs.cancel_scope.cancel("the system closes")
                    actors.cancel_scope.cancel("the system closes")
            finally:
                # Last of all: what ended before it may have had something to store.
                left = system.remaining() if system is not None else settings.shutdown_timeout
                await store.stop(max(left * STORE_SHARE, 0.5))
            outermost.cancel_scope.cancel("the system closes")
    finally:
        remaining = system.remaining() if system is not None else settings.shutdown_timeout
        ended = await workers.close(max(remaining, 0.5))
        if system is not None:
            system.hung = not ended
        sys.setswitchinterval(interval)
        log.info("stopped", actor="system", hung=not ended)
