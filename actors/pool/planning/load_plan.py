"""Prediction of the loads and unloads that a request for a model would cause, without causing them."""

from __future__ import annotations

from greenroom.actors.pool.planning.apply_event import apply
from greenroom.actors.pool.planning.decisions import Plan
from greenroom.actors.pool.planning.eviction_policy import plan
from greenroom.actors.pool.planning.pool_events import MemoryRead, Reported, RequestQueued
from greenroom.actors.pool.planning.pool_state import ModelUse, PoolState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.memory_need import MemoryNeed
from greenroom.schemas.protocols.model_protocol import Sized
from greenroom.schemas.protocols.operator_protocol import LoadOutcome, LoadPlan


def plan_load(
    state: PoolState, key: ModelKey, need: MemoryNeed | None, memory: MemoryRead
) -> tuple[LoadPlan, Plan]:
    """Return the loads and unloads that a request for a model would cause, and the decisions behind them.

    The request is one of usual priority that arrives now, behind those that wait already.

    Args:
        need: Memory that a load needs, on which the decision rests if the pool has not opened its files.
        memory: Memory that other programs leave, at the present time.
    """
    sized = _sized(state, key, need, memory.now)
    use = sized.models.get(key) or ModelUse(key)
    asked = apply(apply(sized, RequestQueued(key, memory.now)), memory)
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
        use.need if need is None else need.total,
        _least(use) if need is None else need.least,
        sized.limit,
        memory.available,
    )
    return found, decided


def _sized(state: PoolState, key: ModelKey, need: MemoryNeed | None, now: float) -> PoolState:
    """Return the state as it is once the model's files were opened."""
    use = state.models.get(key) or ModelUse(key)
    if use.need is not None or need is None:
        return state
    limit = need.limit if state.limit is None else state.limit
    return apply(state, Reported(key, Sized(need.granted, limit, need.estimated), now))


def _least(use: ModelUse) -> int | None:
    return None if use.need is None else max(0, use.need - use.estimated)


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
