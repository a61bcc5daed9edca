"""The events that change the pool's state, as data."""

from __future__ import annotations

import attrs

from greenroom.actors.pool.planning.decisions import Plan
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.protocols.model_protocol import ModelReport


@attrs.frozen
class RequestQueued:
    """A request that begins to wait for a model.

    Args:
        turn: Time by which the queue is sorted (`turn_of`); None for its arrival, `now`.
    """

    key: ModelKey
    now: float
    turn: float | None = None


@attrs.frozen
class RequestsLeft:
    """Waiting requests that left or were refused.

    Args:
        turn: Earliest turn of those that still wait; None if it has not changed.
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
    """The end of a lease."""

    key: ModelKey
    now: float


@attrs.frozen
class Configured:
    """The operator's settings of a model, before its first event.

    Args:
        ttl: Seconds without a request after which it is unloaded; None for never.
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
    """The release of the prefixes that unloaded models left in memory, in favor of a load.

    Args:
        nbytes: Freed memory in bytes.
    """

    key: ModelKey
    nbytes: int


@attrs.frozen
class MemoryRead:
    """The state of memory, read before a decision.

    Args:
        available: Bytes that other programs leave; None if unknown.
        held: Bytes that unloaded models have left for their next loads.
    """

    available: int | None
    now: float
    held: int = 0


@attrs.frozen
class Decided:
    """A plan that the pool carries out."""

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
