"""Requests to an actor that may fail or has stopped."""

from __future__ import annotations

from typing import TypeVar

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import ProblemError, draining

M = TypeVar("M")
R = TypeVar("R")


async def ask_actor(ref: Ref[M], message: M, answer_type: type[R]) -> R:
    """Return an actor's answer to a message.

    Raises:
        ProblemError: The actor answers `Failed`, or has stopped.
    """
    answer = await answer_or_failed(ref, message, answer_type)
    if isinstance(answer, Failed):
        raise ProblemError(answer.problem)
    return answer


async def answer_or_failed(ref: Ref[M], message: M, answer_type: type[R]) -> R | Failed:
    """Return an actor's answer to a message; a stopped actor counts as a server that shuts down."""
    try:
        return await ref.ask(message, answer_type)
    except ActorStopped:
        return Failed(draining())
