"""The events that change the pool's state, and their effect, without any use of Trio."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import attrs

from greenroom.actors.pool.eviction_policy import Plan
from greenroom.actors.pool.pool_state import ModelUse, PoolState, Residency
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.model_protocol import (
    Crashed,
    HungWorkerReturned,
    LoadFailed,
    LoadRefused,
    ModelReport,
    Sized,
    StateChanged,
    Unloaded,
    WorkerHung,
)

RETRY_SECONDS = 0.5
"""Seconds before a load that the memory account refused is tried again."""


@attrs.frozen
class RequestQueued:
    """A request that begins to wait for a model."""

    key: ModelKey
    now: float


@attrs.frozen
class RequestsLeft:
    """Waiting requests that left or were refused."""

    key: ModelKey
    count: int = 1


@attrs.frozen
class LeaseGranted:
    """A lease for the first waiting request of a model."""

    key: ModelKey
    now: float


@attrs.frozen
class LeaseReleased:
    """The end of a lease."""

    key: ModelKey
    now: float


@attrs.frozen
class ModelStarted:
    """The start of an actor that takes room if the last one took none, or the other way round."""

    key: ModelKey
    takes_room: bool


@attrs.frozen
class Reported:
    """A report of a model."""

    key: ModelKey
    report: ModelReport
    now: float


@attrs.frozen
class ActorCrashed:
    """The crash of a model's actor.

    Args:
        holds_memory: True if its worker has not released the memory yet.
    """

    key: ModelKey
    holds_memory: bool


@attrs.frozen
class ActorEnded:
    """The complete end of a model's actor and its worker."""

    key: ModelKey


@attrs.frozen
class ActorStopped:
    """The end of an actor that no request needed any more."""

    key: ModelKey


@attrs.frozen
class RequestsFailed:
    """The failure of all requests that wait for a model, those with leases included."""

    key: ModelKey


@attrs.frozen
class MemoryRead:
    """The bytes that other programs leave, read before a decision; None if unknown."""

    available: int | None
    now: float


@attrs.frozen
class Decided:
    """A plan whose decisions take effect."""

    plan: Plan


ModelEvent = (
    RequestQueued
    | RequestsLeft
    | LeaseGranted
    | LeaseReleased
    | ModelStarted
    | Reported
    | ActorCrashed
    | ActorEnded
    | ActorStopped
    | RequestsFailed
)
PoolEvent = ModelEvent | MemoryRead | Decided


def apply(state: PoolState, event: PoolEvent) -> PoolState:
    """Return the state after an event."""
    match event:
        case MemoryRead(available, now):
            return attrs.evolve(state, available=available, now=now)
        case Decided(plan):
            return _carry_out(state, plan)
    model = state.models.get(event.key) or ModelUse(event.key)
    changed = attrs.evolve(state, models={**state.models, event.key: _changed(model, event)})
    match event:
        case Reported(report=Sized(limit=limit)):
            return attrs.evolve(changed, limit=limit, now=event.now)
        case RequestQueued() | LeaseGranted() | LeaseReleased() | Reported():
            return attrs.evolve(changed, now=event.now)
    return changed


def _changed(model: ModelUse, event: ModelEvent) -> ModelUse:
    match event:
        case RequestQueued(now=now):
            since = model.waiting_since if model.tickets else now
            return attrs.evolve(model, tickets=model.tickets + 1, waiting_since=since)
        case RequestsLeft(count=count):
            left = attrs.evolve(model, tickets=model.tickets - count)
            return left if left.tickets else _without_shortage(left)
        case LeaseGranted(now=now):
            return attrs.evolve(model, tickets=model.tickets - 1, leases=model.leases + 1, last_used=now)
        case LeaseReleased(now=now):
            return attrs.evolve(model, leases=model.leases - 1, last_used=now)
        case ModelStarted(takes_room=takes_room):
            return attrs.evolve(model, takes_room=takes_room)
        case Reported(report=report, now=now):
            return _reported(model, report, now)
        case ActorCrashed(holds_memory=True):
            return attrs.evolve(
                model, remnant=True, residency=Residency.GRANTED if model.hung else Residency.RECLAIMED
            )
        case ActorEnded():
            return attrs.evolve(model, remnant=False, hung=False, residency=Residency.NONE)
        case ActorStopped():
            # Its files may change before they are opened again.
            state = ModelState.IDLE if model.state is ModelState.WAITING else model.state
            return attrs.evolve(_without_shortage(model), state=state, need=None)
        case RequestsFailed():
            return _without_shortage(attrs.evolve(model, tickets=0, suspended=False))
    return model


def _reported(model: ModelUse, report: ModelReport, now: float) -> ModelUse:
    match report:
        case StateChanged(ModelState.READY as state, admits_all):
            suspendable = model.suspendable or admits_all
            ready = attrs.evolve(model, load_seconds=now - model.changed, suspendable=suspendable)
            return attrs.evolve(_without_shortage(ready), state=state, changed=now)
        case StateChanged(state):
            return attrs.evolve(model, state=state, changed=now)
        case Sized(need):
            return attrs.evolve(model, need=need)
        case Unloaded():
            # Requests with leases queue behind those of other models.
            free = attrs.evolve(model, residency=Residency.NONE, suspended=True, waiting_since=now)
            return attrs.evolve(free, state=ModelState.IDLE, changed=now)
        case LoadRefused(required=required, available=available):
            shortfall = model.shortfall + max(1, required - available)
            short = attrs.evolve(model, shortfall=shortfall, left=available, retry_at=now + RETRY_SECONDS)
            return attrs.evolve(
                short, residency=_residency_left(model), state=ModelState.WAITING, changed=now
            )
        case LoadFailed() | Crashed():
            suspended = model.suspendable and isinstance(report, Crashed)
            failed = attrs.evolve(model, state=ModelState.ERROR, changed=now)
            return attrs.evolve(failed, residency=_residency_left(model), suspended=suspended)
        case WorkerHung():
            failed = attrs.evolve(model, state=ModelState.ERROR, changed=now)
            return attrs.evolve(failed, hung=True, residency=Residency.GRANTED, suspended=False)
        case HungWorkerReturned():
            return attrs.evolve(model, hung=False, residency=Residency.NONE)
    return model


def _without_shortage(model: ModelUse) -> ModelUse:
    return attrs.evolve(model, shortfall=0, left=0, retry_at=-math.inf, short_since=None, freed=0)


def _residency_left(model: ModelUse) -> Residency:
    """Return the residency of a failed model; it stays while a crashed actor's worker holds memory."""
    return model.residency if model.remnant else Residency.NONE


def _carry_out(state: PoolState, plan: Plan) -> PoolState:
    models = dict(state.models)

    def change(keys: Iterable[ModelKey], how: Callable[[ModelUse], ModelUse]) -> None:
        for key in keys:
            models[key] = how(models[key])

    leaving = {*plan.paused, *plan.unload}
    freed = sum(models[key].nbytes for key in plan.unload)
    change(list(models), lambda model: attrs.evolve(model, paused=model.key in leaving))
    change(plan.unload, lambda model: attrs.evolve(model, residency=Residency.RECLAIMED))
    change(plan.open, lambda model: attrs.evolve(model, residency=Residency.OPENING, granted=0))
    change(plan.load, lambda model: attrs.evolve(model, residency=Residency.GRANTED, granted=model.need))
    change(plan.wait, lambda model: _waiting(state, plan, model))
    change(plan.wait[:1], lambda model: attrs.evolve(model, freed=model.freed + freed))
    return attrs.evolve(state, models=models)


def _waiting(state: PoolState, plan: Plan, model: ModelUse) -> ModelUse:
    """Return a model that waits for memory, with the time since which the memory is short."""
    since = None
    if model.key in plan.short:
        since = state.now if model.short_since is None else model.short_since
    return attrs.evolve(model, residency=Residency.NONE, short_since=since)
