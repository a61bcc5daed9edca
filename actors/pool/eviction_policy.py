"""The eviction policy for models in memory: least recently used first, with a time slice for each.

A model with waiting requests is loaded if fewer than `max_loaded_models` are in memory. Otherwise places are
freed for the models with waiting requests, longest wait first:

1. A model without leases is unloaded at once, least recently used first; so is a model that is still loading
   although all its waiting requests have left.
2. If all models have leases, the least recently used one whose time slice is over is paused: it finishes its
   running requests and is then unloaded. A model that can suspend its requests is unloaded at once, and they
   wait for its next load. A time slice lasts as long as the model's load, so two models that alternate spend
   at most about half of the time on loading, and neither starves.

A model that hangs keeps its place. If such models hold all places, no other model waits, since none will
become free.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import attrs

from greenroom.schemas.model_key import ModelKey

MAX_TIME_SLICE = 30.0
"""Maximum time slice in seconds, for models that take longer to load."""


class Room(Enum):
    """The pool's grant of a place for a loaded model; only the pool decides about it."""

    NONE = "none"
    GRANTED = "granted"
    RECLAIMED = "reclaimed"
    """The model has been told to unload, and has not reported its end yet."""


@attrs.frozen
class ModelUse:
    """The state of a model on which the policy decides.

    Args:
        ready: True if the model has reported that it can generate.
        leases: Number of open leases.
        suspendable: True if it can be unloaded while leases are open.
        waiting: Number of waiting requests.
        last_used: Time of its last lease, by any clock.
        waiting_since: Time at which its oldest waiting request arrived, by any clock.
        slice_left: Rest of its time slice in seconds, before it may be paused for another model.
        hung: True if its worker cannot be ended, so that its memory is not released.
    """

    key: ModelKey
    room: Room = Room.NONE
    ready: bool = False
    leases: int = 0
    suspendable: bool = False
    waiting: int = 0
    last_used: float = 0.0
    waiting_since: float = 0.0
    slice_left: float = 0.0
    hung: bool = False


@attrs.frozen
class Plan:
    """The policy's decisions.

    Args:
        load: Models to load.
        wait: Models that must wait for a place.
        unload: Models to unload for others: without leases, or suspendable.
        paused: Models that admit no new requests while listed.
        refused: Models whose requests fail, since no place will become free.
    """

    load: tuple[ModelKey, ...] = ()
    wait: tuple[ModelKey, ...] = ()
    unload: tuple[ModelKey, ...] = ()
    paused: frozenset[ModelKey] = frozenset()
    refused: tuple[ModelKey, ...] = ()


def plan(models: Iterable[ModelUse], max_loaded_models: int) -> Plan:
    """Return the decisions for all models; call it again after every change."""
    everyone = list(models)
    resident = [model for model in everyone if model.room is not Room.NONE]
    wanted = sorted(
        (model for model in everyone if model.waiting and model.room is Room.NONE),
        key=lambda model: model.waiting_since,
    )
    free = max(0, max_loaded_models - len(resident))
    load, wait = wanted[:free], wanted[free:]
    if no_room_will_come(everyone, max_loaded_models):
        return Plan(refused=tuple(model.key for model in wait))
    leaving = sum(model.room is Room.RECLAIMED for model in resident)
    missing = max(0, len(wait) - leaving)
    unload = sorted(filter(_is_idle, resident), key=lambda model: model.last_used)[:missing]
    held = (model for model in resident if _is_held(model) and model.slice_left <= 0)
    leaving_next = sorted(held, key=lambda model: model.last_used)[: missing - len(unload)]
    unload += [model for model in leaving_next if model.suspendable]
    return Plan(
        load=tuple(model.key for model in load),
        wait=tuple(model.key for model in wait),
        unload=tuple(model.key for model in unload),
        paused=frozenset(model.key for model in leaving_next if not model.suspendable),
    )


def no_room_will_come(models: Iterable[ModelUse], max_loaded_models: int) -> bool:
    """Return whether hung models occupy all places."""
    return sum(model.hung and model.room is not Room.NONE for model in models) >= max_loaded_models


def _is_idle(model: ModelUse) -> bool:
    """Return whether the model can be unloaded: no lease is open, and no request waits for its load."""
    if model.room is not Room.GRANTED or model.hung or model.leases:
        return False
    return model.ready or not model.waiting


def _is_held(model: ModelUse) -> bool:
    return model.room is Room.GRANTED and model.ready and bool(model.leases) and not model.hung
