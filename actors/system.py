"""The system: the nursery around every actor, and the threads that they borrow."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.worker import Workers, WorkersStatistics
from greenroom.actors.core.worker_thread import Activity
from greenroom.actors.downloads.downloads import Downloads
from greenroom.actors.engines.engines import Engines
from greenroom.actors.engines.residences import ProbedModels
from greenroom.actors.pool.pool import Pool
from greenroom.actors.records.audit import AuditBook, AuditWriter
from greenroom.actors.records.tracing import follow_program
from greenroom.actors.remotes.remote_servers import RemoteServers, watch_remotes
from greenroom.actors.requests.probing import Probing
from greenroom.actors.requests.prompt_queries import reload_models
from greenroom.actors.responses.responses import Responses
from greenroom.actors.store.connection import check_database
from greenroom.actors.store.database_file import MEMORY, UnusableDatabase, default_path
from greenroom.actors.store.read_only import read_capabilities, read_working_space
from greenroom.actors.store.store import Store
from greenroom.actors.tools.tools import Tools
from greenroom.engine.loading.libraries import watch_imports
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import device_lost
from greenroom.schemas.protocols.pool_protocol import Drain, Drained, PoolMessage
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from sqlite_utils import Database

log = get_logger()

Known = TypeVar("Known")

LOSS_SECONDS = 5.0
"""Maximum seconds for a shutdown once the device is lost, including requests that can still finish."""

STORE_SHARE = 0.5  # Fraction of the remaining shutdown time in which the store may finish its writes


@attrs.frozen(eq=False)
class _Actors:
    store: Store
    pool: Pool
    downloads: Downloads
    responses: Responses
    tools: Tools
    engines: Engines
    audit: AuditWriter | None
    remotes: RemoteServers

    @property
    def refs(self) -> ActorRefs:
        return ActorRefs(
            self.pool.ref,
            self.store.ref,
            self.responses.ref,
            self.downloads.ref,
            self.tools.ref,
            self.engines.inspector,
            self.audit,
            self.engines.meter,
        )


class System:
    """A running system, created by `open_system`.

    Attributes:
        pool: Reference to the pool, for inference requests.
        refs: References to all public actors.
        remotes: Models elsewhere.
        device_lost: Event, set when the device is lost: the process should then call `drain` and end.
        hung: True if a thread could not be ended; then flush the logs and leave with `os._exit`. Valid after
            close.
    """

    def __init__(self, settings: Settings, actors: _Actors, children: trio.Nursery, workers: Workers) -> None:
        self.settings = settings
        self.pool: Ref[PoolMessage] = actors.pool.ref
        self.refs = actors.refs
        self.device_lost = workers.device_lost
        self.hung = False
        self.remotes = actors.remotes
        self._actor, self._downloads = actors.pool, actors.downloads
        self._children = children
        self._workers, self._engines = workers, actors.engines
        self._deadline: float | None = None

    async def start(self, run: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Start a child task in the system, such as the HTTP server (see `Nursery.start`).

        When the system closes, children are cancelled before the pool.
        """
        return await self._children.start(run, *args)

    def attend(self, run: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Begin a child task in the system that nobody waits for; see `start`."""
        self._children.start_soon(run, *args)

    async def reload(self, settings: Settings) -> tuple[str, ...]:
        """Put changed settings of models and their names in force; return the models to be opened anew."""
        return await reload_models(self.pool, self._engines, settings)

    async def drain(self) -> None:
        """Reject new requests, and return when the accepted ones have ended.

        Requests that are left after most of `seconds_to_end` fail with a `draining` problem.
        """
        reserve = min(5.0, self.seconds_to_end * 0.25)
        self._downloads.drain()
        with contextlib.suppress(ActorStopped):
            with trio.move_on_after(max(0.0, self.remaining() - reserve)):
                await self._drained()
                return
            self._actor.fail_all()
            with trio.move_on_after(reserve / 2):
                await self._drained()

    async def _drained(self) -> None:
        """Wait until no request is left and all responses are stored."""
        await self.refs.responses.tell(Drain())
        await self.pool.ask(Drain(), Drained)
        await self.refs.responses.ask(Drain(), Drained)

    @property
    def seconds_to_end(self) -> float:
        """Time limit of a shutdown, in seconds."""
        timeout = self.settings.shutdown_timeout
        return min(timeout, LOSS_SECONDS) if self.device_lost.is_set() else timeout

    def remaining(self) -> float:
        """Return the seconds left for the shutdown, counted from the first call (by `drain` or at close)."""
        if self._deadline is None:
            self._deadline = trio.current_time() + self.seconds_to_end
        return self._deadline - trio.current_time()

    async def tell_loss(self) -> None:
        """Wait until the device is lost, and then let the pool reject requests for that reason."""
        await self.device_lost.wait()
        self._actor.lose_device(device_lost(self._workers.loss))

    def statistics(self) -> WorkersStatistics:
        return self._workers.statistics()


def _known_before(
    read: Callable[[Path | sqlite3.Connection], Iterable[Known]],
    settings: Settings,
    database: Database | sqlite3.Connection | None,
) -> Callable[[], Iterable[Known]] | None:
    """Return a reader of what an earlier system has stored; None if no database outlives this one.

    A passed database is read now, before the store uses it.
    """
    if database is not None:
        connection = database if isinstance(database, sqlite3.Connection) else database.conn
        return partial(tuple, read(connection))
    if settings.db is None or settings.db == MEMORY:
        return None
    return partial(read, Path(settings.db))


def _open_engines(
    settings: Settings, store: Store, database: Database | sqlite3.Connection | None, engines: Engines | None
) -> Engines:
    """Return access to models that knows what was measured and probed before. `store`: store of later
    measurements, where the database outlives the system.
    """
    if engines is None:
        engines = Engines(
            settings, ProbedModels(_known_before(read_capabilities, settings, database) or tuple)
        )
    measured = _known_before(read_working_space, settings, database)
    if measured is not None:
        engines.residences.connect(
            measured, lambda working: store.keep(lambda tables: tables.working_space.save(working))
        )
    return engines


def _create_actors(
    settings: Settings,
    workers: Workers,
    database: Database | sqlite3.Connection | None,
    engines: Engines | None,
    left_out: Collection[str],
) -> _Actors:
    store = Store(settings, workers, database)
    engines = _open_engines(settings, store, database, engines)
    # Without a database of the operator's, rows would only fill the memory.
    is_audited = settings.audit and (settings.db is not None or database is not None)
    audit = AuditWriter(AuditBook(content=settings.audit_content), store.ref) if is_audited else None
    engines.audit = None if audit is None else audit.book
    probing = Probing(engines, workers, store.ref)
    remotes = RemoteServers(settings)
    pool = Pool(settings, workers, engines, probe=probing.run, left_out=left_out, remotes=remotes)
    downloads = Downloads(pool.ref, engines)
    engines.downloads, engines.abandon = downloads.fetch_from_thread, downloads.abandon
    tools = Tools(settings, engines.audit, engines.inspector)
    responses = Responses(pool.ref, store.ref, tools.ref, engines.audit)
    return _Actors(store, pool, downloads, responses, tools, engines, audit, remotes)


@asynccontextmanager
async def open_system(
    settings: Settings,
    *,
    database: Database | sqlite3.Connection | None = None,
    engines: Engines | None = None,
    hang_timeout: float | None = None,
    activity: Activity | None = None,
    left_out: Collection[str] = (),
) -> AsyncIterator[System]:
    """Run the actors in their own nursery, with or without a server.

    On exit, children are cancelled first, then the pool and its models. The store ends after it has stored
    their results. Threads are joined within the rest of `settings.shutdown_timeout`, even if some hang. The
    body's exception leaves as it is, without the groups of the nurseries around it; only several exceptions
    at once, such as those of the body and of a child, leave as a group.

    Args:
        database: Open database to use instead of the settings' `db`, created with `check_same_thread=False`
            and used by nothing else meanwhile; it stays open. Without both, responses are kept in memory:
            only a command writes into the user's data folder.
        engines: Access to models; replaced only in tests of failures.
        hang_timeout: Time in seconds without a heartbeat after which an active thread counts as hung; by
            default it follows the device.
        activity: Record of the models that load or compute, and of imports.
        left_out: Names of models that are not loaded at the start, since a process died over them.

    Raises:
        ValueError: A setting names a model's folder that does not exist, or a database that cannot be used.
    """
    _check_places(settings if database is None else attrs.evolve(settings, db=None))
    follow_program(content=settings.trace_content)
    workers = Workers(hang_timeout, activity)
    actors = _create_actors(settings, workers, database, engines, left_out)
    watch_imports(activity.set_importing if activity is not None else None)
    log.info("started", actor="system")
    system: System | None = None
    of_body: BaseException | None = None
    try:
        async with _running(actors, settings, workers) as system:
            try:
                yield system
            except BaseException as error:
                of_body = error
                raise
    except BaseExceptionGroup as group:
        single = _single(group, of_body)
        context = single.__context__
        try:
            raise single
        finally:
            single.__context__ = context  # not the groups that it has left
    finally:
        ended = await workers.close(max(_seconds_left(system, settings), 0.5))
        if system is not None:
            system.hung = not ended
        log.info("stopped", actor="system", hung=not ended)


def _check_places(settings: Settings) -> None:
    """Refuse folders of models that do not exist, and unusable databases.

    The default database may be unusable: the server then runs without one.

    Raises:
        ValueError: Names the setting and the reason.
    """
    from greenroom.engine.catalog.folders import resolve_folder, why_no_model

    for model in settings.models:
        folder = resolve_folder(model)
        if folder is not None and not folder.is_dir():
            raise ValueError(f"models = {model!r}: {why_no_model(model)}")
    if settings.db not in (None, MEMORY, str(default_path())):
        try:
            check_database(settings.db)
        except UnusableDatabase as error:
            raise ValueError(f"db = {settings.db!r}: {error}") from error


@asynccontextmanager
async def _running(actors: _Actors, settings: Settings, workers: Workers) -> AsyncIterator[System]:
    """Run actors in nurseries that end one after another, the store's as the last."""
    system: System | None = None
    async with trio.open_nursery() as outermost:
        outermost.start_soon(workers.watch)
        outermost.start_soon(actors.store.run)
        try:
            async with trio.open_nursery() as models:
                if actors.audit is not None:
                    models.start_soon(actors.audit.run)
                models.start_soon(actors.pool.run)
                models.start_soon(actors.downloads.run)
                models.start_soon(actors.tools.run)
                models.start_soon(watch_remotes, actors.remotes)
                async with trio.open_nursery() as runs:
                    runs.start_soon(actors.responses.run)
                    async with trio.open_nursery() as children:
                        system = System(settings, actors, children, workers)
                        models.start_soon(system.tell_loss)
                        yield system
                        children.cancel_scope.cancel("the system closes")
                    # Running responses end and are stored while the models and the store still exist.
                    runs.cancel_scope.cancel("the system closes")
                models.cancel_scope.cancel("the system closes")
        finally:
            actors.store.hurry(_seconds_left(system, settings) * STORE_SHARE)
            if actors.audit is not None:
                await actors.audit.finish(max(_seconds_left(system, settings) * STORE_SHARE, 0.5))
            # The store stops last, since the others may store results at their end.
            await actors.store.stop(max(_seconds_left(system, settings) * STORE_SHARE, 0.5))
        outermost.cancel_scope.cancel("the system closes")


def _seconds_left(system: System | None, settings: Settings) -> float:
    """Return the seconds left for the shutdown, also of a system that has not begun."""
    return settings.shutdown_timeout if system is None else system.remaining()


def _single(group: BaseExceptionGroup[BaseException], of_body: BaseException | None) -> BaseException:
    """Return the only exception in nested groups, or the innermost group of several."""
    # A group that the body raised has been taken apart and put together on its way.
    if of_body is not None and _leaves(group) == _leaves(of_body):
        return of_body
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]
