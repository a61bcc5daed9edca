"""Probes of models: a client of the pool that asks a model what it can do, and stores the findings."""

from __future__ import annotations

import tempfile
import time
import uuid
from functools import partial
from pathlib import Path

import attrs
import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines.engines import Engines
from greenroom.actors.requests.generation import Generation
from greenroom.actors.requests.residency import ResidencyGuard
from greenroom.actors.requests.worker_calls import call_on_worker
from greenroom.actors.store.answers import StoreMessage, ask_store
from greenroom.engine.probe.questions import Answer, Question
from greenroom.schemas.events.events import Failed, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.priority import PROBE
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import ProblemError, draining, internal_error
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel, ProbeProgress

log = get_logger()


class Probing:
    """Runs probes, one at a time.

    Each question is a request of its own, of the lowest priority: it holds a lease while it is answered, and
    between two questions users' requests go first, also those for other models.

    Args:
        workers: Threads on which the questions are made and the answers judged.
        store: Store of the findings.
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
        with tempfile.TemporaryDirectory(prefix="greenroom-probe-") as scratch:
            self._engines.probed.note_use(known.model)  # nobody need be told to probe it
            async with ResidencyGuard(pool, key):
                opening = partial(self._engines.open_probe, known.model, Path(scratch), message.max_tokens)
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
    """Return the events of the answer to a question.

    Raises:
        ProblemError: The model did not answer.
    """
    ident = f"probe-{uuid.uuid4().hex}"
    request = InferenceRequest(ident, key, question.input, question.overrides, priority=PROBE)
    with Generation(pool, request) as generation:
        events = tuple([event async for event in generation])
    match events:
        case (*_, Failed(problem)):
            raise ProblemError(problem)
    return events
