"""The state from which the pool decides, and its decisions: frozen data, which only events change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import Enum

import attrs

from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState

NO_LIMIT = 1 << 62  # Bytes of a limit that nothing reaches

MAX_TIME_SLICE = 30.0  # Maximum time slice in seconds, for models that take longer to load


class Residency(Enum):
    """The pool's grant of memory for a loaded model; only the pool decides about it."""

    NONE = "none"
    OPENING = "opening"
    """The model's files are read for its size; no memory is granted yet."""
    GRANTED = "granted"
    RECLAIMED = "reclaimed"
    """The model has been told to unload, and has not reported its end yet."""


@attrs.frozen
class ModelUse:
    """The state of a model as far as the pool decides on it. Times are in seconds, by any clock.

    Args:
        suspendable: True if it can be unloaded while leases are open.
        suspended: True if it was unloaded or crashed; requests with open leases then wait for its next load.
        paused: True if it admits no new requests because another model waits for its memory.
        last_used: Time at which a lease was last granted or released.
        waiting_since: Time at which its first waiting request arrived, put off by that request's priority.
        hung: True if its worker cannot be ended, so that its memory is not released.
        remnant: True if a crashed actor's worker still holds the memory.
        pinned: True if it is never unloaded for others, or for being idle.
        ttl: Seconds without a request after which it is unloaded; None for never.
        usual_ttl: The same as the operator has set it; requests change `ttl` until the next unload.
        preload: True if it is to be loaded without a request, into free memory.
        leaving: Reason for which an operator has asked to unload it, which its leases delay; empty without.
        takes_room: False if it needs no memory here, and no place among the loaded models.
        need: Bytes that it needs in memory; None until its files have been read.
        estimated: Bytes of `need` that are only estimated.
        granted: Bytes that it was granted for its load; None for `need`.
        shortfall: Bytes that the memory account lacked for it, summed over the load attempts.
        left: Bytes that the account had left for it at the last of these attempts.
        retry_at: Time before which its load is not attempted again.
        short_since: Time since which memory is missing that no model can free; None if none is missing.
        freed: Bytes that other models have freed for its waiting requests.
    """

    key: ModelKey
    residency: Residency = Residency.NONE
    state: ModelState = ModelState.IDLE
    changed: float = 0.0
    tickets: int = 0
    leases: int = 0
    suspendable: bool = False
    suspended: bool = False
    paused: bool = False
    last_used: float = 0.0
    waiting_since: float = 0.0
    load_seconds: float = 0.0
    hung: bool = False
    remnant: bool = False
    pinned: bool = False
    ttl: float | None = None
    usual_ttl: float | None = None
    preload: bool = False
    leaving: str = ""
    takes_room: bool = True
    need: int | None = None
    estimated: int = 0
    granted: int | None = None
    shortfall: int = 0
    left: int = 0
    attempts: int = 0
    retry_at: float = -math.inf
    short_since: float | None = None
    freed: int = 0
    frees_for: ModelKey | None = None

    @property
    def ready(self) -> bool:
        """True if the model can generate and is not to be unloaded."""
        return self.residency is Residency.GRANTED and self.state is ModelState.READY

    @property
    def loads(self) -> bool:
        """True if its weights are being read, so that it does not use all of its memory yet."""
        return self.residency is Residency.GRANTED and self.state is not ModelState.READY and not self.hung

    @property
    def resident(self) -> bool:
        """True if it occupies a place among the loaded models."""
        return self.takes_room and self.residency is not Residency.NONE

    @property
    def is_unknown(self) -> bool:
        """True while its files are read for its size, after which it may have to wait or be refused."""
        return self.residency is Residency.OPENING and self.need is None

    @property
    def nbytes(self) -> int:
        """Bytes of memory granted to it."""
        if self.residency not in (Residency.GRANTED, Residency.RECLAIMED):
            return 0
        return (self.need or 0) if self.granted is None else self.granted

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a lease, or hold one and wait for the next load."""
        without_room = self.residency in (Residency.NONE, Residency.OPENING)
        return self.tickets + (self.leases if self.suspended and without_room else 0)

    @property
    def waits_for_memory(self) -> bool:
        """True if requests wait for its load, and the pool can decide on it."""
        decidable = self.residency is Residency.NONE or (
            self.residency is Residency.OPENING and self.need is not None
        )
        return decidable and self.waiting > 0

    @property
    def undecided(self) -> bool:
        """True if the pool may have to decide on it: it waits for memory, comes or goes, or is paused."""
        comes = self.preload or self.residency is Residency.OPENING
        return self.waits_for_memory or self.paused or bool(self.leaving) or comes

    @property
    def idle(self) -> bool:
        """True if it can be unloaded: no lease is open, and no request waits for its load."""
        if (
            self.residency not in (Residency.GRANTED, Residency.OPENING)
            or self.hung
            or self.pinned
            or self.leases
        ):
            return False
        return self.ready or not self.waiting

    @property
    def leaves_now(self) -> bool:
        """True if an operator has asked to unload it and nothing delays that: no lease, no awaited load.

        Requests that waited for its load when the operator asked are served before.
        """
        present = self.residency in (Residency.GRANTED, Residency.OPENING) and not self.hung
        return bool(self.leaving) and present and not self.leases and (self.paused or not self.waiting)

    @property
    def expires_at(self) -> float | None:
        """Time at which it is unloaded for being idle; None if it is used, pinned or has no time to live."""
        may_expire = self.ready and self.takes_room and not self.pinned
        if self.ttl is None or not may_expire or self.leases or self.tickets:
            return None
        return max(self.last_used, self.changed) + self.ttl

    def slice_left(self, now: float) -> float:
        """Return the rest of its time slice in seconds, before it may be paused for another model."""
        return self.changed + min(self.load_seconds, MAX_TIME_SLICE) - now


@attrs.frozen
class PoolState:
    """All models that the pool knows, and the limits of memory.

    Args:
        now: Time of the last event in seconds, by the clock of the models' times.
        limit: Bytes for all models together; None if unknown, as before the first model has been opened.
        max_loaded_models: Maximum number of models in memory; None for no limit but that of bytes.
        available: Bytes that other programs leave to new loads; None if unknown.
        held: Bytes that unloaded models have left in main memory, outside of the limit: any need takes them.
        releasing: True while all of them are being released.
    """

    models: Mapping[ModelKey, ModelUse] = attrs.field(factory=dict)
    now: float = 0.0
    limit: int | None = None
    max_loaded_models: int | None = None
    available: int | None = None
    held: int = 0
    releasing: bool = False

    def need_of(self, model: ModelUse) -> int:
        """Return the bytes to grant for a load; no model is refused for an estimate beside pinned ones."""
        need = model.need or 0
        return min(need, max(need - model.estimated, self.reach_of(model)))

    def reach_of(self, model: ModelUse) -> int:
        """Return the bytes left for a model once every other model that may be unloaded is gone."""
        return self.left_by(other for other in self.fixed if other.key != model.key)

    def lacks_memory(self, model: ModelUse, granted: int = 0) -> bool:
        """Return whether other programs leave too little memory for a load, whatever the limit is. `granted`:
        bytes of loads that are about to begin.
        """
        if self.available is None or model.need is None:
            return False
        loading = sum(other.nbytes for other in self.models.values() if other.resident and other.loads)
        return self.need_of(model) > self.available - loading - granted

    @property
    def fixed(self) -> list[ModelUse]:
        """Models that keep their memory: pinned ones, and those whose worker hangs."""
        return [model for model in self.models.values() if model.resident and (model.hung or model.pinned)]

    def left_by(self, models: Iterable[ModelUse]) -> int:
        """Return the bytes of the limit that these models leave free."""
        return (NO_LIMIT if self.limit is None else self.limit) - sum(model.nbytes for model in models)


class Reason(Enum):
    """The reason to refuse a model's requests."""

    TOO_LARGE = "too large"
    """It does not fit into memory beside pinned models, or at all."""
    HUNG = "hung"
    """Models that hang hold the memory."""
    OTHERS = "others"
    """Other programs use the memory."""


@attrs.frozen
class Refusal:
    """A refusal of all requests that wait for a model.

    Args:
        required: Bytes that it needs.
        available: Bytes that it could have.
        freed: Bytes of models that were unloaded for it.
    """

    key: ModelKey
    reason: Reason
    required: int = 0
    available: int = 0
    freed: int = 0


@attrs.frozen
class Plan:
    """The policy's decisions.

    Args:
        open: Models whose files are read, since their sizes are unknown.
        wait: Models that must wait for memory, longest wait first.
        unload: Models to unload for others: without leases, or suspendable.
        beneficiaries: For each model in `unload`, in the same order, the waiting model that needs its memory;
            None if the unloaded model's own load is given up.
        expired: Models to unload because their time to live is over, or an operator has asked for it.
        paused: Models that admit no new requests while listed.
        short: Models that wait for memory which no model of the pool can free.
        trim: Loaded models that release their caches, before such a wait ends in a refusal.
        trimmed_for: Model for which `trim` releases caches.
        held_for: Model that needs the held memory, which is released; None if none does.
    """

    open: tuple[ModelKey, ...] = ()
    load: tuple[ModelKey, ...] = ()
    wait: tuple[ModelKey, ...] = ()
    unload: tuple[ModelKey, ...] = ()
    beneficiaries: tuple[ModelKey | None, ...] = ()
    expired: tuple[ModelKey, ...] = ()
    paused: frozenset[ModelKey] = frozenset()
    short: frozenset[ModelKey] = frozenset()
    trim: tuple[ModelKey, ...] = ()
    trimmed_for: ModelKey | None = None
    held_for: ModelKey | None = None
    refused: tuple[Refusal, ...] = ()
