"""The downloads actor: fetches and deletes models; all clients that want a model share one transfer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import ActorStopped, Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.downloads.pull_table import Pull, PullTable
from greenroom.actors.downloads.upkeep import PulledProbes, delete_model
from greenroom.actors.engines.engines import Engines
from greenroom.actors.transfers.fetch_model import DiskRoom, Wish, fetch_model
from greenroom.engine.catalog.hub.repository import SEARCH_SECONDS, search_hub, split_name
from greenroom.engine.catalog.hub.snapshot import being_deleted, being_fetched
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.model_description import Download
from greenroom.schemas.problems import Problem, ProblemError, draining, internal_error
from greenroom.schemas.protocols.download_protocol import (
    CancelPull,
    DeleteModel,
    DownloadMessage,
    DownloadProgress,
    FoundModel,
    FoundModels,
    ListPulls,
    ModelDeleted,
    Pulled,
    PullModel,
    PullStatus,
    SearchHub,
    WatchPulls,
    download_abandoned,
)
from greenroom.schemas.protocols.pool_protocol import PoolMessage

_AT_ONCE = 2  # Number of models that are fetched at the same time; others wait for their turn


class Downloads:
    """The actor that fetches and deletes models. `pool`: pool that unloads a model before it is deleted, and
    probes one that was pulled.
    """

    def __init__(self, pool: Ref[PoolMessage], engines: Engines) -> None:
        self._inbox: Inbox[DownloadMessage] = Inbox()
        self.ref: Ref[DownloadMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._token = trio.lowlevel.current_trio_token()
        self._pool = pool
        self._engines = engines
        self._pulls = PullTable()
        self._deleting: set[str] = set()
        self._attached: dict[str, trio.CancelScope] = {}
        self._lanes: dict[str, trio.Lock] = {}
        self._probes = PulledProbes(pool)
        self._turns, self._room = trio.CapacityLimiter(_AT_ONCE), DiskRoom()
        self._log = get_logger().bind(actor="downloads")
        self._nursery: trio.Nursery

    def fetch_from_thread(self, wish: Wish, report: Callable[[DownloadProgress], None] | None = None) -> Path:
        """Fetch a model, or join its fetch, on behalf of a thread, which waits.

        Args:
            report: Callback for the progress, on the Trio thread.

        Raises:
            ProblemError: The model cannot be fetched, or the server shuts down.
        """
        try:
            return trio.from_thread.run(self._fetch, wish, report, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled, ActorStopped):
            raise ProblemError(draining()) from None

    def abandon(self, hub_id: str) -> None:
        """Let go of the fetch of a model that no request waits for any longer, if its wish was `attached`."""
        if (waiting := self._attached.get(hub_id)) is not None:
            waiting.cancel("no client waits")

    def drain(self) -> None:
        """Tell who follows a fetch that the server ends, since fetches may last longer than a shutdown."""
        self._pulls.fail_all(draining())

    async def run(self) -> None:
        """Receive messages until cancelled; this ends running fetches, which a later process can resume."""
        self._log.debug("started")
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._inbox.forward, self._control)
                nursery.start_soon(self._probes.follow_first_loads)
                while True:
                    self._receive(await self._control.receive())
        finally:
            self._pulls.fail_all(draining())
            self._control.close(draining())
            self._inbox.fail_unanswered(draining())
            self._log.debug("stopped")

    def _receive(self, received: Envelope[DownloadMessage] | Callable[[], None]) -> None:
        """Carry out a message, or the change that a fetch or its reader reports."""
        if isinstance(received, Envelope):
            self._receive_message(received.message, received.reply or Reply())
        else:
            received()

    def _end(self, pull: Pull, result: Path | Problem | None) -> None:
        """Record the end of a fetch. `result`: folder of the model; None if it was cancelled."""
        self._pulls.end(pull, result)
        self._engines.names.rescan()
        if isinstance(result, Path) and pull.probes:
            self._nursery.start_soon(self._probes.probe_pulled, pull.wish.hub_id)

    def _receive_message(self, message: DownloadMessage, reply: Reply) -> None:
        match message:
            case PullModel():
                self._pull(message, reply)
            case ListPulls():
                reply.send(self._pulls.listing())
                reply.end()
            case CancelPull(ident):
                self._cancel(ident, reply)
            case WatchPulls():
                self._pulls.watch(reply)
            case SearchHub():
                self._nursery.start_soon(answer_search, message, reply)
            case DeleteModel(name):
                self._delete(name, reply)

    def _pull(self, message: PullModel, reply: Reply) -> None:
        try:
            hub_id, revision = split_name(message.name)
        except ProblemError as error:
            reply.fail(error.problem)
            return
        if hub_id in self._deleting:
            reply.fail(being_deleted(hub_id))
            return
        wish = Wish(hub_id, revision, message.trust_remote_code, client=message.client)
        pull = self._pulls.join(wish, reply, attached=message.attached, probes=message.probes)
        if isinstance(pull, Problem):
            reply.fail(pull)
            return
        if not pull.begun:
            pull.begun = True
            self._nursery.start_soon(self._run_pull, pull)
        reply.watch(partial(self._control.send, partial(self._pulls.leave, pull, reply)))

    def _cancel(self, ident: str, reply: Reply) -> None:
        pull = self._pulls.find(ident)
        if pull is None or pull.state != "running":
            why = "has ended already" if pull is not None else "does not exist"
            status = 409 if pull is not None else 404
            reply.fail(Problem(status, "pull_not_running", f"The pull '{ident[:100]}' {why}.", "id"))
            return
        pull.cancellers.append(reply)
        pull.stop()

    def _delete(self, name: str, reply: Reply) -> None:
        model = name.partition("@")[0]
        if self._pulls.is_running(model):
            reply.fail(being_fetched(model))
        elif model in self._deleting:
            reply.fail(being_deleted(model))
        else:
            self._deleting.add(model)
            self._nursery.start_soon(self._answer, partial(self._run_deletion, name), reply)

    async def _run_pull(self, pull: Pull) -> None:
        wish = pull.wish
        log = self._log.bind(model=wish.hub_id, revision=wish.revision)
        result: Path | Problem | None = None

        def report(progress: DownloadProgress) -> None:
            self._control.send(partial(self._pulls.note, pull, progress))

        def tell(size: Download) -> None:
            log.info(
                "downloading", files=size.files, bytes=size.nbytes, source=size.source, folder=size.folder
            )

        with trio.CancelScope() as scope:
            pull.cancel = scope.cancel
            if pull.cancelled:
                scope.cancel()
            began = trio.current_time()
            try:
                async with self._turn(wish.client):
                    folder = await fetch_model(wish, report, tell, room=self._room)
                    missing = partial(self._engines.names.missing_base, wish.hub_id)
                    if (base := await trio.to_thread.run_sync(missing)) is not None:
                        of_base = attrs.evolve(wish, hub_id=base, revision="main")
                        await fetch_model(of_base, report, tell, room=self._room)
                    result = folder
                log.info("downloaded", seconds=round(trio.current_time() - began, 1))
            except ProblemError as error:
                result = error.problem
                log.warning("download failed", detail=error.problem.detail)
            except Exception:
                result = internal_error()
                log.exception("download failed")
        if scope.cancelled_caught:
            log.info("download cancelled")
        self._control.send(partial(self._end, pull, result))

    @asynccontextmanager
    async def _turn(self, client: str | None) -> AsyncIterator[None]:
        """Hold a turn to fetch; the requests of a client have one at a time, lest another waits for all."""
        if client is None:
            async with self._turns:
                yield
            return
        address = client.partition("#")[0]
        lane = self._lanes.setdefault(address, trio.Lock())
        try:
            async with lane, self._turns:
                yield
        finally:
            if not lane.locked():
                self._lanes.pop(address, None)

    async def _run_deletion(self, name: str) -> ModelDeleted:
        try:
            return await delete_model(name, self._pool, self._engines, self._probes)
        finally:
            self._deleting.discard(name.partition("@")[0])

    async def _answer(self, work: Callable[[], Awaitable[object]], reply: Reply) -> None:
        try:
            reply.send(await work())
            reply.end()
        except ProblemError as error:
            reply.fail(error.problem)
        except Exception:
            self._log.exception("work failed")
            reply.fail(internal_error())

    async def _fetch(self, wish: Wish, report: Callable[[DownloadProgress], None] | None) -> Path:
        with trio.CancelScope() as scope:
            if not wish.attached:
                return await self._join(wish, report)
            self._attached[wish.hub_id] = scope
            try:
                return await self._join(wish, report)
            finally:
                self._attached.pop(wish.hub_id, None)  # two threads may have asked
        raise ProblemError(download_abandoned(wish.hub_id))

    async def _join(self, wish: Wish, report: Callable[[DownloadProgress], None] | None) -> Path:
        name, trusts = f"{wish.hub_id}@{wish.revision}", wish.trust_remote_code
        message = PullModel(name, False, trusts, wish.attached, wish.client)
        with await self.ref.stream(message) as replies:
            async for event in replies:
                match event:
                    case PullStatus(progress=progress) if report is not None:
                        report(progress)
                    case Pulled(folder=folder):
                        return Path(folder)
                    case Failed(problem):
                        raise ProblemError(problem)
        raise ActorStopped("the downloads ended")


def search(words: str, limit: int) -> tuple[FoundModel, ...]:
    """Return models of the hub that match words, the most downloaded first; blocks. Raises ProblemError: the
    hub does not answer.
    """
    return search_hub(words, limit)


async def answer_search(message: SearchHub, reply: Reply) -> None:
    """Answer a search on a thread, which is abandoned if its client leaves."""
    scope = trio.CancelScope()
    reply.watch(scope.cancel)
    with scope:
        with trio.move_on_after(SEARCH_SECONDS):
            searching = partial(search, message.words, message.limit)
            try:
                reply.send(FoundModels(await trio.to_thread.run_sync(searching, abandon_on_cancel=True)))
                reply.end()
            except ProblemError as error:
                reply.fail(error.problem)
        detail = f"The hub did not answer within {SEARCH_SECONDS:g} seconds."
        reply.fail(Problem(504, "search_failed", detail))  # unless it has been answered
