"""Problems for the requests that the pool refuses."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.actors.pool.planning.decisions import Reason, Refusal
from greenroom.actors.pool.planning.eviction_policy import MEMORY_TIMEOUT
from greenroom.actors.pool.planning.pool_state import ModelUse
from greenroom.schemas.problems import Problem, insufficient_memory, memory_in_use, no_room


def refusal_problem(refusal: Refusal, models: Iterable[ModelUse]) -> Problem:
    """Return the problem for the requests of a refused model.

    Args:
        models: All models that the pool knows.
    """
    model, required, available = refusal.key.model, refusal.required, refusal.available
    match refusal.reason:
        case Reason.HUNG:
            return no_room(model, tuple(str(use.key) for use in models if use.hung))
        case Reason.TOO_LARGE:
            return insufficient_memory(model, required, available, refusal.freed)
        case Reason.OTHERS:
            return memory_in_use(model, required, available, refusal.freed, MEMORY_TIMEOUT)
