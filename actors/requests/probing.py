"""Probes of models: a client of the pool that asks a model what it can do, and stores the findings."""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import attrs
import structlog.contextvars
import trio

from greenroom.actors.core.ref import ActorStopped, Ref, ask_actor
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.actors.core.worker_thread import Heartbeat
from greenroom.actors.engines.engines import Engines
from greenroom.actors.pool.lease_queue import Granted
from greenroom.actors.requests.generation import Generation
from greenroom.actors.store.tables import StoreMessage, ask_store
from greenroom.engine.probe.probe import Answer, Question
from greenroom.schemas.events.events import Failed, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import PROBE, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, ProblemError, draining, internal_error, tokenizer_hung
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    DescribeModel,
    DescribePool,
    ModelDescriptions,
    ModelStatus,
    ModelUnloaded,
    PoolMessage,
    PoolStatus,
    Probed,
    ProbeModel,
    ProbeProgress,
    UnloadModel,
)

log = get_logger()


class Probing:
    """Runs probes, one at a time.

    Each question is a request of its own, of the lowest priority: it holds a lease while it is answered, and
    between two questions users' requests go first, also those for other models.

    Args:
        workers: Threads on which the questions are made and the answers judged.
    """

    def __init__(self, engines: Engines, workers: Workers, store: Ref[StoreMessage]) -> None:
        self._engines = engines
        self._workers = workers
        self._store = store
        self._turn = trio.Lock()

    async def run(self, pool: Ref[PoolMessage], message: ProbeModel, reply: Reply) -> None:
        """Run a probe until its end, or until the reply closes; every error goes to the reply."""
        scope = trio.CancelScope()
        reply.watch(scope.cancel)
        with scope:
            try:
                async with self._turn:
                    record = await self._probe(pool, message, reply)
                reply.send(Probed(record))
                reply.end()
            except ProblemError as error:
                log.warning("probe failed", actor="pool", model=message.name, reason=error.problem.detail)
                reply.fail(error.problem)
            except Exception:
                log.exception("probe failed", actor="pool", model=message.name)
                reply.fail(internal_error())
            finally:
                reply.fail(draining())  # unless it has ended

    async def _probe(self, pool: Ref[PoolMessage], message: ProbeModel, reply: Reply) -> ProbedCapabilities:
        [known] = (await ask_actor(pool, DescribeModel(message.name), ModelDescriptions)).models
        key = ModelKey(known.model)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="greenroom-probe-", ignore_cleanup_errors=True) as scratch:
            self._engines.probed.note_use(known.model)  # nobody need be told to probe it
            async with ResidencyGuard(pool, key):
                fetching = partial(self._engines.fetch, known.model)
                files = await call_on_worker(self._workers, fetching, known.model, waits=True)
                opening = partial(self._engines.open_probe, files, Path(scratch), message.max_tokens)
                probe = await call_on_worker(self._workers, opening, known.model)
                answers: list[Answer] = []
                for question in probe.questions:
                    reply.send(ProbeProgress(len(answers), len(probe.questions)))
                    answers.append(Answer(question, await _answer(pool, key, question)))
                judging = partial(probe.judge, tuple(answers))
                judged = await call_on_worker(self._workers, judging, known.model)
                record = attrs.evolve(judged, probed_at=time.time())
                await ask_store(self._store, lambda tables: tables.capabilities.save(record), writes=True)
                self._engines.probed.record(record)
        seconds = round(time.monotonic() - started, 3)
        log.info("model probed", actor="pool", model=known.model, seconds=seconds, questions=len(answers))
        return record


async def _answer(pool: Ref[PoolMessage], key: ModelKey, question: Question) -> tuple[InferenceEvent, ...]:
    """Return the events of the answer to a question. Raises ProblemError: the model did not answer."""
    ident = f"probe-{uuid.uuid4().hex}"
    request = InferenceRequest(ident, key, question.input, question.overrides, priority=PROBE)
    with Generation(pool, request) as generation:
        events = tuple([event async for event in generation])
    match events:
        case (*_, Failed(problem)):
            raise ProblemError(problem)
    return events


_SECONDS = 10.0  # Longest wait for the unload when the block was cancelled or has failed


class ResidencyGuard:
    """Restores, at the end of a block, the models that were loaded at its start.

    Unless others use it by then, the block's model is unloaded, also one that was there before: it is opened
    anew, so that it follows what the block has found. Then models that were there before are loaded again,
    unless other requests have changed the models meanwhile. A block that fails leaves its model there.
    """

    def __init__(self, pool: Ref[PoolMessage], key: ModelKey) -> None:
        self._pool = pool
        self._key = key
        self._before: frozenset[ModelKey] = frozenset()

    async def __aenter__(self) -> None:
        self._before = await self._ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProblemError, ActorStopped):
            if error is None or self._key not in self._before:
                with trio.move_on_after(_SECONDS, shield=True):
                    await self._unload_own()
            if error is None:
                await self._reload()

    async def _unload_own(self) -> None:
        own = [status for status in await self._statuses() if status.key == self._key]
        if not any(status.running or status.waiting for status in own):
            await ask_actor(
                self._pool, UnloadModel(self._key, keeps_prefixes=True, reason="probed"), ModelUnloaded
            )

    async def _reload(self) -> None:
        ready = await self._ready()
        if not ready <= self._before:
            return
        for key in sorted(self._before - ready, key=str):
            granted = await ask_actor(self._pool, Acquire(key, priority=PROBE), Granted)
            granted.close()

    async def _ready(self) -> frozenset[ModelKey]:
        statuses = await self._statuses()
        return frozenset(status.key for status in statuses if status.state is ModelState.READY)

    async def _statuses(self) -> tuple[ModelStatus, ...]:
        return (await ask_actor(self._pool, DescribePool(), PoolStatus)).models


T = TypeVar("T")


async def call_on_worker(workers: Workers, call: Callable[[], T], model: str, *, waits: bool = False) -> T:
    """Return the result of a call on a tokenizer thread; if this is cancelled, the call's result is dropped.

    Args:
        call: Function that may import model libraries and read a model's files.
        waits: True if it may wait for a download, however long that takes.

    Raises:
        ProblemError: The call raised it, crashed, or hangs.
    """
    returned = trio.Event()
    results: list[T | Problem | JobCrashed | WorkerSilent] = []

    def job(heartbeat: Heartbeat) -> T | Problem:
        if waits:
            heartbeat.pause()
        try:
            with structlog.contextvars.bound_contextvars(actor="model", model=model):
                return call()
        except ProblemError as error:
            return error.problem

    def report(result: T | Problem | JobCrashed | WorkerSilent) -> None:
        results.append(result)
        returned.set()

    workers.lend("tokenizer", job, report, model)
    await returned.wait()
    match results[0]:
        case Problem() as problem:
            raise ProblemError(problem)
        case JobCrashed():
            raise ProblemError(internal_error())
        case WorkerSilent(seconds):
            raise ProblemError(tokenizer_hung(model, seconds))
        case result:
            return result
