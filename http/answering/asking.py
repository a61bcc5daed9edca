"""Asking an actor from a route."""

from __future__ import annotations

from typing import TypeVar

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.schemas.events import Failed
from greenroom.schemas.problems import ProblemError, draining

M = TypeVar("M")
R = TypeVar("R")


async def ask(ref: Ref[M], message: M, answer: type[R]) -> R:
    """The actor's answer.

    Raises:
        ProblemError: It failed, or the actor has stopped.
    """
    try:
        answered = await ref.ask(message, answer)
    except ActorStopped:
        raise ProblemError(draining()) from None
    if isinstance(answered, Failed):
        raise ProblemError(answered.problem)
    return answered
