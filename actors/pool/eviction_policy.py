"""Which models are in memory: least recently used first out, and everybody gets a time slice.

While there is room, whoever is waited for is loaded. When there is none, room is made for the models that
wait, longest wait first:

1. A model that nobody holds is unloaded at once, least recently used first; so is one that is still
   loading though everybody who waited for it has left.
2. If all are held, the least recently used one whose time slice is over is paused: it finishes what it has
   begun, and is then unloaded. One whose requests can go on after another load is unloaded under them, and
   they wait for that. A time slice lasts as long as the model took to load, so two models that take
   turns spend at most about half of the time on loading, and neither starves.

A model that hangs keeps its room. When such models have all of it, nobody else waits: no room will come.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import attrs

from greenroom.schemas.model_key import ModelKey

MAX_TIME_SLICE = 30.0
"""Seconds; a model that took longer to load gets no longer one."""


class Room(Enum):
    """What a model has been given of the places for loaded models: decided here, and nowhere else."""

    NONE = "none"
    GRANTED = "granted"
    RECLAIMED = "reclaimed"
    """The model has been told to unload, and has not reported that it has."""


@attrs.frozen
class ModelUse:
    """What the policy looks at.

    Args:
        ready: The model has reported that it can generate.
        leases: Requests that hold it.
        suspendable: It can be unloaded under them.
        waiting: Requests that wait for it.
        last_used: When a request last got it; any clock.
        waiting_since: When its oldest waiting request began to wait; any clock.
        slice_left: Seconds until it may be paused for another model's sake.
        hung: Its worker cannot be ended, so its memory is not coming back.
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
    """What to do now.

    Args:
        load: There is room for these.
        wait: There is none for these yet.
        unload: Others wait, and nobody holds these, or whoever does can wait as well.
        paused: These take no new requests for as long as they are listed.
        refused: There is none for these, and none will come.
    """

    load: tuple[ModelKey, ...] = ()
    wait: tuple[ModelKey, ...] = ()
    unload: tuple[ModelKey, ...] = ()
    paused: frozenset[ModelKey] = frozenset()
    refused: tuple[ModelKey, ...] = ()


def plan(models: Iterable[ModelUse], max_loaded_models: int) -> Plan:
    """Decide for all models at once; to be called again after every change."""
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
    """Return whether models that hang have all the room there is."""
    return sum(model.hung and model.room is not Room.NONE for model in models) >= max_loaded_models


def _is_idle(model: ModelUse) -> bool:
    """Return whether the model can be unloaded: no lease is open, and none is due."""
    if model.room is not Room.GRANTED or model.hung or model.leases:
        return False
    return model.ready or not model.waiting


def _is_held(model: ModelUse) -> bool:
    return model.room is Room.GRANTED and model.ready and bool(model.leases) and not model.hung
