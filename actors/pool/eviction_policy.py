"""The pool's decisions: the models to load and to unload, as a function of its state alone.

Models with waiting requests get memory in the order of their oldest requests. One whose bytes fit is loaded;
a later one overtakes an earlier one only if it takes nothing that the earlier one waits for. Otherwise
memory is freed for it:

1. Models without leases are unloaded at once, and so is a model that is still loading although all its
   waiting requests have left. The longer a model has been idle, and the fewer bytes a reload would read, the
   sooner it goes. A model far larger than the new one stays if smaller ones free enough.
2. If that is not enough, the least recently used model with leases whose time slice is over is paused: it
   finishes its running requests and is then unloaded. A model that can suspend its requests is unloaded at
   once, and they wait for its next load. A time slice lasts as long as the model's load, so two models that
   alternate spend at most about half of the time on loading, and neither starves. Requests of low priority
   have no model paused before they have waited for some time.

The files of a model are opened before any room is made for it, so nothing is unloaded for one that cannot be
loaded. Pinned models and models that hang keep their memory. Nothing is unloaded for a model that would not
fit beside these either, and its requests are refused. A model that needs no memory here is loaded at once,
and stays.

Memory that the pool counts as free, but cannot be had, is waited for: meanwhile prefixes of unloaded models
are dropped, idle models unloaded and caches released, in this order.

Besides, a model is unloaded when it has been idle for its time to live, or when an operator asks for it and
its last lease has ended. A model to preload is loaded if there is free memory, one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from greenroom.actors.pool.pool_events import MemoryRead, Reported, RequestQueued, apply
from greenroom.actors.pool.pool_state import ModelUse, Plan, PoolState, Reason, Refusal, Residency
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import MemoryNeed
from greenroom.schemas.protocols.model_protocol import (
    Load,
    ModelCommand,
    Open,
    Sized,
    Trim,
    Unload,
    WaitForMemory,
)
from greenroom.schemas.protocols.pool_protocol import LoadOutcome, LoadPlan

LARGE = 8  # Factor: idle models larger than this times the needed bytes stay if smaller ones free enough

MAX_ATTEMPTS = 12  # Load attempts that the memory account refuses, after which the requests are refused

MEMORY_TIMEOUT = 30.0  # Time in seconds that a load waits for memory that other programs use


def plan(state: PoolState) -> Plan:
    """Return the decisions for all models; call it again after every event."""
    waiting = [model for model in state.models.values() if model.waits_for_memory]
    planner, refused = _Planner(state), list[Refusal]()
    planner.decide_leaving()
    for model in sorted(waiting, key=lambda model: model.waiting_since):
        refusal = refusal_of(state, model)
        if refusal is None:
            planner.decide(model)
        else:
            refused.append(refusal)
    for model in state.models.values():
        opened = model.residency is Residency.OPENING and model.need is not None
        given_up = model.key in (*planner.decided.expired, *planner.decided.unload)
        if opened and not (given_up or model.waiting or model.leases):
            planner.decide_unwanted(model)
    planner.open_preload()
    return attrs.evolve(planner.decided, refused=tuple(refused))


def refusal_of(state: PoolState, model: ModelUse) -> Refusal | None:
    """Return the reason why a model will get no memory, however long it waits; None if there is none."""
    if not model.takes_room:
        return None
    fixed = [other for other in state.fixed if other.key != model.key]
    hung = [other for other in fixed if other.hung]
    need, available = model.need or 0, state.left_by(fixed)
    if _lacks_place(state, fixed) or state.need_of(model) > available:
        can_have = state.need_of(model) <= state.left_by(other for other in fixed if not other.hung)
        reason = Reason.HUNG if hung and can_have else Reason.TOO_LARGE
        return Refusal(model.key, reason, need, max(0, available), model.freed)
    if model.short_since is None or state.held or state.releasing:
        return None
    waited = state.now - model.short_since >= MEMORY_TIMEOUT
    if model.shortfall and (waited or model.attempts >= MAX_ATTEMPTS):
        return Refusal(model.key, Reason.TOO_LARGE, need, model.left, model.freed)
    if waited and not model.shortfall and state.lacks_memory(model):
        return Refusal(model.key, Reason.OTHERS, need, state.available or 0, model.freed)
    return None


def _lacks_place(state: PoolState, models: Sequence[ModelUse]) -> bool:
    """Return whether these models are as many as may be loaded at once (`max_loaded_models`)."""
    return state.max_loaded_models is not None and len(models) >= state.max_loaded_models


def next_expiry(state: PoolState) -> float | None:
    times = (model.expires_at for model in state.models.values())
    return min((time for time in times if time is not None), default=None)


class _Planner:
    """Decides on waiting models one after another, in the order of their oldest requests."""

    def __init__(self, state: PoolState) -> None:
        self._state = state
        # A model that is only being opened may prove to be unusable, so it takes no place yet.
        self._resident = [each for each in state.models.values() if each.resident and not each.is_unknown]
        # The models that will be in memory once all decisions are carried out.
        self._staying = [model for model in self._resident if model.residency is not Residency.RECLAIMED]
        self._reserved = self._places = 0  # for all models decided on so far
        self._granted = self._new = 0  # for those of them that are loaded now
        self.decided = Plan()

    def decide_leaving(self) -> None:
        """Unload models whose time to live is over, or which an operator has asked to unload."""
        for model in self._state.models.values():
            if not model.resident:
                continue
            if model.leaves_now or (model.expires_at is not None and model.expires_at <= self._state.now):
                self.decided = attrs.evolve(self.decided, expired=(*self.decided.expired, model.key))
            elif not model.leaving or model.residency is Residency.RECLAIMED or model.hung:
                continue
            elif model.paused or model.leases:  # else it has yet to serve those that wait for its load
                self._pause(model)
            self._drop(model)

    def open_preload(self) -> None:
        """Open the next model to preload, unless another one is being opened."""
        preloads = [model for model in self._state.models.values() if model.preload]
        if any(model.residency is Residency.OPENING for model in preloads):
            return
        for model in preloads:
            if model.residency is Residency.NONE and model.takes_room and not model.waiting:
                self.decided = attrs.evolve(self.decided, open=(*self.decided.open, model.key))
                return

    def decide(self, model: ModelUse) -> None:
        """Load a model, or free memory for it and let it wait."""
        if not model.takes_room:
            self.decided = attrs.evolve(self.decided, load=(*self.decided.load, model.key))
            return
        if model.need is None:
            self.decided = attrs.evolve(self.decided, open=(*self.decided.open, model.key))
            return
        self._drop(model)
        need = self._needed(model)
        if self._missing(need) > 0 or self._lacks_place():
            self._make_room(model, need)
            self._wait(model, need)
        elif not self._is_free(model, need):
            self._wait(model, need)
        elif self._lacks_memory(model):
            self._release_memory(model)
            self._wait(model, need)
        else:
            self._grant(model)

    def decide_unwanted(self, model: ModelUse) -> None:
        """Load an opened model without requests if it fits into free memory; else give up its load."""
        self._drop(model)
        need = self._needed(model)
        if self._missing(need) > 0 or not self._is_free(model, need):
            self._remove((model,), None)
        elif not self._lacks_memory(model):
            self._grant(model)
        elif not self._release_held(model):
            self._remove((model,), None)

    def _needed(self, model: ModelUse) -> int:
        """Return the bytes to free for a load; more after a refused load, up to all that can be freed."""
        need = self._state.need_of(model)
        if not model.shortfall:
            return need
        fixed = [other for other in self._staying if other.hung or other.pinned]
        return max(need, min(need + model.shortfall, self._state.left_by(fixed)))

    def _missing(self, need: int) -> int:
        """Return the bytes missing beside the models that stay and those decided on before; <= 0 if none."""
        return need + self._reserved - self._state.left_by(self._staying)

    def _lacks_place(self) -> bool:
        most = self._state.max_loaded_models
        return most is not None and len(self._staying) + self._places >= most

    def _is_free(self, model: ModelUse, need: int) -> bool:
        """Return whether the memory is free now, rather than only after other models are unloaded."""
        most, others = self._state.max_loaded_models, [each for each in self._resident if each is not model]
        if most is not None and len(others) + self._new >= most:
            return False
        return need <= self._state.left_by(others) - self._granted

    def _lacks_memory(self, model: ModelUse) -> bool:
        """Return whether the system lacks memory although the pool's limit leaves enough."""
        return self._state.now < model.retry_at or self._state.lacks_memory(model, self._granted)

    def _make_room(self, model: ModelUse, need: int) -> None:
        """Choose models to unload: idle ones first, then others, paused until their requests have ended."""
        self._remove(self._choose_idle(model, need), model)
        if model.waiting_since > self._state.now:
            return  # A request of low priority interrupts no others before its turn.
        for held in sorted(filter(self._may_pause, self._staying), key=lambda other: other.last_used):
            if self._missing(need) <= 0 and not self._lacks_place():
                return
            if held.suspendable:
                self._remove((held,), model)
            else:
                self._drop(held)
                self._pause(held)

    def _release_held(self, model: ModelUse) -> bool:
        """Release held memory for a model; return whether there is any, or some is being released."""
        if self._state.held and not self._state.releasing:
            self.decided = attrs.evolve(self.decided, held_for=self.decided.held_for or model.key)
        return self._state.held > 0 or self._state.releasing

    def _release_memory(self, model: ModelUse) -> None:
        """Release held memory, or unload an idle model; without any, mark the waiting model as short."""
        leaving = self.decided.unload or self.decided.expired
        if (
            self._release_held(model)
            or leaving
            or any(other.residency is Residency.RECLAIMED for other in self._resident)
        ):
            if model.short_since is not None:  # its wait for memory goes on
                self.decided = attrs.evolve(self.decided, short=self.decided.short | {model.key})
            return
        idle = sorted((other for other in self._staying if other.idle), key=self._score)
        if idle:
            self._remove(idle[-1:], model)
            return
        self.decided = attrs.evolve(self.decided, short=self.decided.short | {model.key})
        if model.short_since is None and not self.decided.trim:
            trim = tuple(other.key for other in self._resident if other.ready and not other.hung)
            self.decided = attrs.evolve(self.decided, trim=trim, trimmed_for=model.key)

    def _choose_idle(self, model: ModelUse, need: int) -> list[ModelUse]:
        idle = sorted((other for other in self._staying if other.idle), key=self._score, reverse=True)
        small = [other for other in idle if other.nbytes <= LARGE * need]
        chosen = small if self._suffices(small, need) else idle
        for other in reversed(chosen):
            fewer = [each for each in chosen if each is not other]
            if self._suffices(fewer, need):
                chosen = fewer
        return chosen

    def _suffices(self, leaving: Sequence[ModelUse], need: int) -> bool:
        most, stay = self._state.max_loaded_models, len(self._staying) - len(leaving)
        if most is not None and stay + self._places >= most:
            return False
        return self._missing(need) <= sum(other.nbytes for other in leaving)

    def _score(self, model: ModelUse) -> tuple[float, float]:
        """Return the idle time per byte to reload; the model with the highest score is unloaded first."""
        idle = max(0.0, self._state.now - model.last_used)
        return idle / max(1, model.nbytes), -model.last_used

    def _may_pause(self, model: ModelUse) -> bool:
        if not (model.ready and model.leases) or model.hung or model.pinned:
            return False
        return model.slice_left(self._state.now) <= 0

    def _remove(self, leaving: Iterable[ModelUse], beneficiary: ModelUse | None) -> None:
        for model in leaving:
            self._drop(model)
            self.decided = attrs.evolve(
                self.decided,
                unload=(*self.decided.unload, model.key),
                beneficiaries=(*self.decided.beneficiaries, None if beneficiary is None else beneficiary.key),
            )

    def _drop(self, model: ModelUse) -> None:
        self._staying = [other for other in self._staying if other is not model]

    def _pause(self, model: ModelUse) -> None:
        self.decided = attrs.evolve(self.decided, paused=self.decided.paused | {model.key})

    def _wait(self, model: ModelUse, need: int) -> None:
        self._reserve(need)
        self.decided = attrs.evolve(self.decided, wait=(*self.decided.wait, model.key))

    def _grant(self, model: ModelUse) -> None:
        need = self._state.need_of(model)
        self._reserve(need)
        self._granted += need
        self._new += 1
        self.decided = attrs.evolve(self.decided, load=(*self.decided.load, model.key))

    def _reserve(self, need: int) -> None:
        self._reserved += need
        self._places += 1


def commands_of(plan: Plan, models: Mapping[ModelKey, ModelUse]) -> Iterator[tuple[ModelKey, ModelCommand]]:
    """Yield the commands for a plan, in the order to send them, with their receivers."""
    yield from ((key, Unload(models[key].leaving or "ttl")) for key in plan.expired)
    for key, cause in zip(plan.unload, plan.beneficiaries, strict=True):
        yield key, Unload("load given up") if cause is None else Unload("evicted", cause)
    yield from ((key, Trim()) for key in plan.trim)
    yield from ((key, Open()) for key in plan.open)
    yield from ((key, Load()) for key in plan.load)
    for key in plan.wait:
        if models[key].state is not ModelState.WAITING:
            yield key, WaitForMemory()


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
