"""Which models are in memory: least recently used first out, and everybody's turn comes.

While there is room, whoever is waited for is loaded. When there is none, room is made for the models that
wait, longest wait first:

1. A model that nobody holds is unloaded at once, least recently used first; so is one that is still
   loading though everybody who waited for it has left.
2. If all are held, the least recently used one whose turn is over takes no new requests: it finishes what
   it has begun, and is then unloaded. A turn lasts as long as the model took to load, so two models
   that take turns spend at most about half of the time on loading, and neither starves.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey

LONGEST_TURN = 30.0
"""Seconds; a model that took longer to load gets no longer turn."""

_IN_MEMORY = frozenset({ModelState.LOADING, ModelState.READY, ModelState.UNLOADING})
_LOADABLE = frozenset({ModelState.IDLE, ModelState.WAITING, ModelState.ERROR})


@attrs.frozen
class Resident:
    """What the policy looks at.

    Args:
        leases: Requests that hold the model.
        waiting: Requests that wait for it.
        last_used: When a request last got it; any clock.
        waiting_since: When its oldest waiting request began to wait; any clock.
        turn_left: Seconds until it may be closed for another model's sake.
        hung: Its worker cannot be ended, so its memory is not coming back.
    """

    key: ModelKey
    state: ModelState
    leases: int = 0
    waiting: int = 0
    last_used: float = 0.0
    waiting_since: float = 0.0
    turn_left: float = 0.0
    hung: bool = False


@attrs.frozen
class Plan:
    """What to do now.

    Args:
        load: There is room for these.
        wait: There is none for these yet.
        unload: Nobody holds these, and others wait.
        closed: These take no new requests for as long as they are listed.
    """

    load: tuple[ModelKey, ...] = ()
    wait: tuple[ModelKey, ...] = ()
    unload: tuple[ModelKey, ...] = ()
    closed: frozenset[ModelKey] = frozenset()


def plan(residents: Iterable[Resident], max_models: int) -> Plan:
    """Decide for all models at once; calling again after every change is the caller's duty."""
    everyone = list(residents)
    resident = [model for model in everyone if model.hung or model.state in _IN_MEMORY]
    wanted = sorted(
        (model for model in everyone if not model.hung and model.waiting and model.state in _LOADABLE),
        key=lambda model: model.waiting_since,
    )
    room = max(0, max_models - len(resident))
    load, wait = wanted[:room], wanted[room:]
    leaving = sum(model.state is ModelState.UNLOADING for model in resident)
    missing = max(0, len(wait) - leaving)
    unload = sorted(filter(_is_idle, resident), key=lambda model: model.last_used)[:missing]
    held = (
        model
        for model in resident
        if model.state is ModelState.READY and model.leases and model.turn_left <= 0 and not model.hung
    )
    closed = sorted(held, key=lambda model: model.last_used)[: missing - len(unload)]
    return Plan(
        load=tuple(model.key for model in load),
        wait=tuple(model.key for model in wait),
        unload=tuple(model.key for model in unload),
        closed=frozenset(model.key for model in closed),
    )


def _is_idle(model: Resident) -> bool:
    if model.hung or model.leases:
        return False
    loads_for_nobody = model.state is ModelState.LOADING and not model.waiting
    return model.state is ModelState.READY or loads_for_nobody
