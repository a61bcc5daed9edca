"""The commands to models that carry out a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from greenroom.actors.pool.planning.decisions import Plan
from greenroom.actors.pool.planning.pool_state import ModelUse
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.model_protocol import (
    Load,
    ModelCommand,
    Open,
    Trim,
    Unload,
    WaitForMemory,
)


def commands_of(plan: Plan, models: Mapping[ModelKey, ModelUse]) -> Iterator[tuple[ModelKey, ModelCommand]]:
    """Yield the commands for a plan, in the order in which to send them, with the models that receive them.

    Args:
        models: Models as the plan has left them.
    """
    yield from ((key, Unload(models[key].leaving or "ttl")) for key in plan.expired)
    for key, cause in zip(plan.unload, plan.beneficiaries, strict=True):
        yield key, Unload("load given up") if cause is None else Unload("evicted", cause)
    yield from ((key, Trim()) for key in plan.trim)
    yield from ((key, Open()) for key in plan.open)
    yield from ((key, Load()) for key in plan.load)
    for key in plan.wait:
        if models[key].state is not ModelState.WAITING:
            yield key, WaitForMemory()
