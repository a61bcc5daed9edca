"""The effect that a request for a model would have, computed without any."""

from __future__ import annotations

import attrs

from greenroom.actors.pool.planning.apply_event import apply
from greenroom.actors.pool.planning.decisions import Plan
from greenroom.actors.pool.planning.eviction_policy import plan
from greenroom.actors.pool.planning.pool_events import MemoryRead, RequestQueued
from greenroom.actors.pool.planning.pool_state import ModelUse, PoolState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.protocols.operator_protocol import LoadOutcome, LoadPlan


def plan_load(
    state: PoolState, key: ModelKey, needed: int | None, memory: MemoryRead
) -> tuple[LoadPlan, Plan]:
    """Return the effect of a request for a model, and the decisions behind it.

    The request is one of usual priority that arrives now, behind those that wait already.

    Args:
        needed: Bytes that a load needs, used if the pool has not opened the model's files.
        memory: Memory that other programs leave, at the present time.
    """
    use = state.models.get(key) or ModelUse(key)
    if use.need is None and needed is not None:
        use = attrs.evolve(use, need=needed)
    asked = apply(attrs.evolve(state, models={**state.models, key: use}), RequestQueued(key, memory.now))
    asked = apply(asked, memory)
    decided = plan(asked)
    unload = tuple(
        other for other, cause in zip(decided.unload, decided.beneficiaries, strict=True) if cause == key
    )
    before = {model.key for model in state.models.values() if model.paused}
    pause = tuple(sorted(decided.paused - before - {key}, key=str))
    found = LoadPlan(
        key,
        _outcome(use, decided, unload),
        unload,
        pause,
        None if use.need is None else asked.need_of(use),
        state.limit,
        memory.available,
    )
    return found, decided


def _outcome(use: ModelUse, decided: Plan, unload: tuple[ModelKey, ...]) -> LoadOutcome:
    if use.ready and not use.paused:
        return "ready"
    if use.loads:
        return "loading"
    if any(refusal.key == use.key for refusal in decided.refused):
        return "refused"
    if use.key in (*decided.load, *decided.open):
        return "loads"
    return "evicts" if unload and not decided.paused and use.key not in decided.short else "waits"
