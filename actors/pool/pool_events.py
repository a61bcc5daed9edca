"""The events that change the pool's state, as data, and the function that applies one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import attrs

from greenroom.actors.pool.pool_state import ModelUse, Plan, PoolState, Residency
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
    Trimmed,
    Unloaded,
    WorkerHung,
)


@attrs.frozen
class RequestQueued:
    """A request that begins to wait for a model. `turn`: time by which the queue is sorted (`turn_of`); None
    for its arrival, `now`.
    """

    key: ModelKey
    now: float
    turn: float | None = None


@attrs.frozen
class RequestsLeft:
    """Waiting requests that left or were refused. `turn`: earliest turn of those that still wait; None if it
    has not changed.
    """

    key: ModelKey
    count: int = 1
    turn: float | None = None


@attrs.frozen
class LeaseGranted:
    """A lease for the first waiting request of a model."""

    key: ModelKey
    now: float


@attrs.frozen
class LeaseReleased:
    key: ModelKey
    now: float


@attrs.frozen
class Configured:
    """The operator's settings of a model, before its first event. `ttl`: seconds without a request after
    which it is unloaded; None for never.
    """

    key: ModelKey
    pinned: bool = False
    ttl: float | None = None


@attrs.frozen
class PinSet:
    """The operator's decision to pin a model, which is then never unloaded for others, or to unpin it."""

    key: ModelKey
    pinned: bool


@attrs.frozen
class PreloadAsked:
    """The operator's wish, at the start, to load a model without a request."""

    key: ModelKey


@attrs.frozen
class KeepAliveSet:
    """A request's wish for the model's time to live, in seconds; None for no limit."""

    key: ModelKey
    ttl: float | None


@attrs.frozen
class UnloadAsked:
    """An operator's wish to unload a model once its leases have ended, with its reason for the log."""

    key: ModelKey
    reason: str = "unloaded by an operator"


@attrs.frozen
class ModelStarted:
    """The start of an actor, which records whether the model needs memory of this machine (`takes_room`)."""

    key: ModelKey
    takes_room: bool


@attrs.frozen
class Reported:
    key: ModelKey
    report: ModelReport
    now: float


@attrs.frozen
class ActorCrashed:
    """The crash of a model's actor. `holds_memory`: True if its worker has not released the memory yet."""

    key: ModelKey
    holds_memory: bool


@attrs.frozen
class ActorEnded:
    """The complete end of a model's actor and its worker."""

    key: ModelKey


@attrs.frozen
class ActorStopped:
    key: ModelKey


@attrs.frozen
class ReopenAsked:
    """A change of a model's settings before its load: its files are read again, which tells its size."""

    key: ModelKey


@attrs.frozen
class ModelForgotten:
    """The removal of the pool's record of a model that no request uses and no catalog lists."""

    key: ModelKey


@attrs.frozen
class RequestsFailed:
    """The failure of all requests that wait for a model, those with leases included."""

    key: ModelKey


@attrs.frozen
class HeldReleased:
    """The release of the prefixes that unloaded models left in memory, in favor of a load. `nbytes`: freed
    memory in bytes.
    """

    key: ModelKey
    nbytes: int


@attrs.frozen
class MemoryRead:
    """The state of memory, read before a decision. `available`: bytes that other programs leave; None if
    unknown; `held`: bytes that unloaded models have left for their next loads.
    """

    available: int | None
    now: float
    held: int = 0


@attrs.frozen
class Decided:
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
    | ModelForgotten
    | ReopenAsked
    | RequestsFailed
    | Configured
    | PinSet
    | PreloadAsked
    | KeepAliveSet
    | UnloadAsked
    | HeldReleased
)
PoolEvent = ModelEvent | MemoryRead | Decided


RETRY_SECONDS = 0.5
"""Seconds before a load that the memory account refused is tried again; doubled with each attempt."""

MAX_RETRY_SECONDS = 8.0  # Maximum of these seconds


def apply(state: PoolState, event: PoolEvent) -> PoolState:
    match event:
        case MemoryRead(available, now, held):
            return attrs.evolve(state, available=available, now=now, held=held)
        case Decided(plan):
            return _carry_out(state, plan)
        case ModelForgotten(key):
            return attrs.evolve(
                state, models={each: use for each, use in state.models.items() if each != key}
            )
    model = state.models.get(event.key) or ModelUse(event.key)
    changed = _with_freed(state, model, event)
    changed = attrs.evolve(changed, models={**changed.models, event.key: _changed(model, event)})
    match event:
        case HeldReleased():
            return attrs.evolve(changed, held=0, releasing=False)
        case Reported(report=Sized(limit=limit)):
            return attrs.evolve(changed, limit=limit, now=event.now)
        case RequestQueued() | LeaseGranted() | LeaseReleased() | Reported():
            return attrs.evolve(changed, now=event.now)
    return changed


def _changed(model: ModelUse, event: ModelEvent) -> ModelUse:
    match event:
        case RequestQueued(now=now, turn=turn):
            own = now if turn is None else turn
            since = min(model.waiting_since, own) if model.tickets else own
            return attrs.evolve(model, tickets=model.tickets + 1, waiting_since=since)
        case RequestsLeft(count=count, turn=turn):
            since = model.waiting_since if turn is None else turn
            left = attrs.evolve(model, tickets=model.tickets - count, waiting_since=since)
            if left.tickets:
                return left
            # What those requests wished for its residence has left with them.
            ttl = left.ttl if left.leases or left.resident else left.usual_ttl
            return attrs.evolve(_without_shortage(left), ttl=ttl)
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
            return attrs.evolve(_gone(model), remnant=False, hung=False, residency=Residency.NONE)
        case ActorStopped():
            # Its files may change before they are opened again. That it waits may not have been reported yet.
            waits = model.state in (ModelState.WAITING, ModelState.LOADING)
            state = ModelState.IDLE if waits else model.state
            return attrs.evolve(_without_shortage(model), state=state, need=None)
        case ReopenAsked():
            return attrs.evolve(_without_shortage(model), need=None)
        case Configured(pinned=pinned, ttl=ttl):
            return attrs.evolve(model, pinned=pinned, ttl=ttl, usual_ttl=ttl)
        case PinSet(pinned=pinned):
            return attrs.evolve(model, pinned=pinned)
        case PreloadAsked():
            return attrs.evolve(model, preload=True)
        case KeepAliveSet(ttl=ttl):
            return attrs.evolve(model, ttl=ttl)
        case UnloadAsked(reason=reason) if model.resident and not model.hung:
            return attrs.evolve(model, leaving=reason, paused=model.ready)
        case HeldReleased(nbytes=nbytes) if model.waits_for_memory:
            return attrs.evolve(model, freed=model.freed + nbytes)
        case RequestsFailed():
            return _without_shortage(attrs.evolve(model, tickets=0, suspended=False))
    return model


def _with_freed(state: PoolState, model: ModelUse, event: ModelEvent) -> PoolState:
    """Return the state with what a model has freed counted for the model that needs it."""
    if not isinstance(event, Reported) or not isinstance(event.report, Unloaded | Trimmed):
        return state
    freed = event.report.freed
    models = dict(state.models)
    for key, other in models.items():
        if other.waiting and other.retry_at > event.now:  # there may be room now
            models[key] = attrs.evolve(other, retry_at=event.now)
    waiter = None if model.frees_for is None else models.get(model.frees_for)
    if waiter is not None and waiter.waits_for_memory:
        nbytes = model.nbytes if freed is None else freed
        models[waiter.key] = attrs.evolve(waiter, freed=waiter.freed + nbytes)
    return attrs.evolve(state, models=models)


def _reported(model: ModelUse, report: ModelReport, now: float) -> ModelUse:
    match report:
        case StateChanged(ModelState.READY as state, admits_all):
            suspendable = model.suspendable or admits_all
            ready = attrs.evolve(
                model, load_seconds=now - model.changed, suspendable=suspendable, preload=False
            )
            return attrs.evolve(_without_shortage(ready), state=state, changed=now)
        case StateChanged(state):
            return attrs.evolve(model, state=state, changed=now)
        case Sized(need=need, estimated=estimated):
            return attrs.evolve(model, need=need, estimated=estimated)
        case Unloaded():
            # Requests with leases queue behind those of other models.
            free = attrs.evolve(_gone(model), residency=Residency.NONE, suspended=True, waiting_since=now)
            return attrs.evolve(free, state=ModelState.IDLE, changed=now)
        case Trimmed():
            return attrs.evolve(model, frees_for=None)
        case LoadRefused(required=required, available=available):
            shortfall = model.shortfall + max(1, required - available)
            pause = min(RETRY_SECONDS * 2**model.attempts, MAX_RETRY_SECONDS)
            short = attrs.evolve(model, shortfall=shortfall, left=available, retry_at=now + pause)
            return attrs.evolve(
                _gone(short),
                attempts=model.attempts + 1,
                residency=_residency_left(model),
                state=ModelState.WAITING,
                changed=now,
            )
        case LoadFailed() | Crashed():
            suspended = model.suspendable and isinstance(report, Crashed)
            failed = attrs.evolve(_gone(model), state=ModelState.ERROR, changed=now)
            return attrs.evolve(failed, residency=_residency_left(model), suspended=suspended)
        case WorkerHung():
            failed = attrs.evolve(_gone(model), state=ModelState.ERROR, changed=now)
            return attrs.evolve(failed, hung=True, residency=Residency.GRANTED, suspended=False)
        case HungWorkerReturned():
            return attrs.evolve(model, hung=False, residency=Residency.NONE)
    return model


def _without_shortage(model: ModelUse) -> ModelUse:
    never = -math.inf
    return attrs.evolve(model, shortfall=0, left=0, attempts=0, retry_at=never, short_since=None, freed=0)


def _gone(model: ModelUse) -> ModelUse:
    """Return the state of a model that was unloaded or failed to load; requests to load or unload it are
    done.

    A time to live that a request has set stays while requests wait for the model.
    """
    ttl = model.ttl if model.waiting or model.leases else model.usual_ttl
    return attrs.evolve(model, ttl=ttl, preload=False, leaving="", frees_for=None)


def _residency_left(model: ModelUse) -> Residency:
    """Return the residency of a failed model; it stays while a crashed actor's worker holds memory."""
    return model.residency if model.remnant else Residency.NONE


def _carry_out(state: PoolState, plan: Plan) -> PoolState:
    models = dict(state.models)

    def change(keys: Iterable[ModelKey], how: Callable[[ModelUse], ModelUse]) -> None:
        for key in keys:
            models[key] = how(models[key])

    leaving = {*plan.paused, *plan.unload, *plan.expired}
    change(list(models), lambda model: attrs.evolve(model, paused=model.key in leaving))
    change((*plan.unload, *plan.expired), lambda model: attrs.evolve(model, residency=Residency.RECLAIMED))
    change(plan.open, lambda model: attrs.evolve(model, residency=Residency.OPENING, granted=0))
    change(plan.load, lambda model: _granted(state, model))
    change(plan.wait, lambda model: _waiting(state, plan, model))
    change(plan.trim, lambda model: attrs.evolve(model, frees_for=plan.trimmed_for))
    for key, beneficiary in zip(plan.unload, plan.beneficiaries, strict=True):
        models[key] = attrs.evolve(models[key], frees_for=beneficiary)
    releasing = state.releasing or plan.held_for is not None
    return attrs.evolve(state, models=models, releasing=releasing)


def _granted(state: PoolState, model: ModelUse) -> ModelUse:
    nbytes = None if model.need is None else state.need_of(model)
    return attrs.evolve(model, residency=Residency.GRANTED, granted=nbytes)


def _waiting(state: PoolState, plan: Plan, model: ModelUse) -> ModelUse:
    """Return a model that waits for memory, with the time since which the memory is short."""
    since = None
    if model.key in plan.short:
        since = state.now if model.short_since is None else model.short_since
    return attrs.evolve(model, residency=Residency.NONE, short_since=since, leaving="")
