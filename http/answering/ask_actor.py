"""Asking an actor a question from a route."""

from __future__ import annotations

from typing import TypeVar

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.schemas.events import Failed
from greenroom.schemas.problems import ProblemError, draining

M = TypeVar("M")
R = TypeVar("R")


async def ask_actor(ref: Ref[M], message: M, answer_type: type[R]) -> R:
    """Return an actor's answer to a message.

    Raises:
        ProblemError: The actor answers `Failed`, or has stopped.
    """
    try:
        answer = await ref.ask(message, answer_type)
    except ActorStopped:
        raise ProblemError(draining()) from None
    if isinstance(answer, Failed):
        raise ProblemError(answer.problem)
    return answer
