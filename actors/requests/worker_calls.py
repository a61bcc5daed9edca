"""Calls of blocking code on a worker thread of the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog.contextvars
import trio

from greenroom.actors.core.heartbeat import Heartbeat
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.schemas.problems import Problem, ProblemError, internal_error, tokenizer_hung

T = TypeVar("T")


async def call_on_worker(workers: Workers, call: Callable[[], T], model: str) -> T:
    """Return the result of a call on a tokenizer thread; if this is cancelled, the call's result is dropped.

    Args:
        call: Function that may import model libraries and read a model's files.
        model: Name of the model, for the log.

    Raises:
        ProblemError: The call raised it, crashed, or hangs.
    """
    returned = trio.Event()
    results: list[T | Problem | JobCrashed | WorkerSilent] = []

    def job(_heartbeat: Heartbeat) -> T | Problem:
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
