"""Problems for the requests that the pool refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.actors.pool.planning.decisions import Reason, Refusal
from greenroom.actors.pool.planning.eviction_policy import MEMORY_TIMEOUT
from greenroom.actors.pool.planning.pool_state import ModelUse
from greenroom.schemas.problems import Problem, insufficient_memory, memory_in_use, no_room
from greenroom.schemas.settings.caller import is_allowed


def refusal_problem(refusal: Refusal, models: Iterable[ModelUse], allowed: Sequence[str] = ()) -> Problem:
    """Return the problem for the requests of a refused model.

    Args:
        models: All models that the pool knows.
        allowed: Names and patterns of the models that the client may know of; empty for all.
    """
    model, required, available = refusal.key.model, refusal.required, refusal.available
    match refusal.reason:
        case Reason.HUNG:
            hung = (use.key for use in models if use.hung and is_allowed(allowed, use.key.model))
            return no_room(model, tuple(map(str, hung)))
        case Reason.TOO_LARGE:
            return insufficient_memory(model, required, available, refusal.freed)
        case Reason.OTHERS:
            return memory_in_use(model, required, available, refusal.freed, MEMORY_TIMEOUT)
