"""The messages that operators send to the pool, and its answers."""

from __future__ import annotations

from typing import Literal

import attrs

from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.memory_need import MemoryNeed
from greenroom.schemas.problems import Problem

LoadOutcome = Literal["ready", "loading", "loads", "evicts", "waits", "refused"]
"""The effect of a request for a model: it is there, it comes, it would be loaded at once, after others are
unloaded, or after a wait; or the request is refused."""

RequestState = Literal["preparing", "waiting", "running"]

NewsKind = Literal["load", "unload", "eviction", "crash"]


@attrs.frozen
class PinModel:
    """Pin a model until the process ends, or no longer. Reply: ModelPinned, or Failed.

    A pinned model is never unloaded for others or for being idle. This overrides the operator's setting.
    """

    key: ModelKey
    pinned: bool


@attrs.frozen
class ModelPinned:
    """Confirmation that a model is pinned, or is not."""

    key: ModelKey
    pinned: bool


@attrs.frozen
class PlanLoad:
    """Ask what a request for a model would load and unload, and load nothing. Reply: LoadPlan, or Failed.

    Args:
        need: Memory that a load needs, for a model whose files the pool has not opened yet; None if unknown.
        problem: Reason why its files cannot be loaded; None if there is none.
    """

    key: ModelKey
    need: MemoryNeed | None = None
    problem: Problem | None = None


@attrs.frozen
class LoadPlan:
    """The effect of a request for a model at present.

    Args:
        unload: Models that would be unloaded for it at once.
        pause: Models that would finish their running requests and then be unloaded for it.
        required: Bytes that it needs, with those that are only estimated; None if unknown.
        least: Bytes of these that are certain: for an estimate alone no request is refused.
        limit: Bytes that all models may have together; None before any model has been opened.
        available: Bytes that other programs leave; None if unknown.
        problem: Reason of a refusal.
    """

    key: ModelKey
    outcome: LoadOutcome
    unload: tuple[ModelKey, ...] = ()
    pause: tuple[ModelKey, ...] = ()
    required: int | None = None
    least: int | None = None
    limit: int | None = None
    available: int | None = None
    problem: Problem | None = None


@attrs.frozen
class ListRequests:
    """List the requests that wait for a model or use one. Reply: RequestStatuses."""


@attrs.frozen
class RequestStatus:
    """A request in the pool.

    Args:
        state: `preparing` uses a model without its weights, `waiting` waits for slots, `running` has them.
        slots: Number of answers that it generates at once.
        priority: Priority: each step above 0 puts it further behind other requests.
        seconds: Seconds since its arrival.
    """

    id: str
    key: ModelKey
    state: RequestState
    slots: int
    priority: int
    seconds: float


@attrs.frozen
class RequestStatuses:
    """The requests in the pool, those of each model in the order in which they are served."""

    requests: tuple[RequestStatus, ...]


@attrs.frozen
class CancelRequest:
    """Fail a request for the operator, whether it waits or runs. Reply: RequestCancelled, or Failed.

    Args:
        problem: The problem that its reader gets; None for the operator's cancellation.
    """

    id: str
    problem: Problem | None = None


@attrs.frozen
class RequestCancelled:
    """Confirmation that a request has been failed.

    Args:
        count: Number of its parts: a request of several prompts has one for each.
    """

    id: str
    count: int


@attrs.frozen
class WatchModels:
    """Follow the models. Reply: ModelNews for each model that is known, then for each change, without end.

    A reader that is too slow gets Failed.
    """


@attrs.frozen
class ModelNews:
    """A change of a model.

    Args:
        kind: Kind of change; a `crash` is one of a loaded model, others end a `load` with the stage `failed`.
        stage: Stage of that change, such as `loading` or `ready`.
        fraction: Completed fraction, 0 to 1; None if it has none.
        nbytes: Bytes that were freed; None if none were, or none measured.
        detail: Sentence about an error; None without one.
        cause: Model for which an eviction makes room; None without one.
        since: Time of the change, by `time.monotonic()`; None if it has just happened.
    """

    key: ModelKey
    kind: NewsKind
    stage: str
    fraction: float | None = None
    nbytes: int | None = None
    detail: str | None = None
    cause: ModelKey | None = None
    since: float | None = None


OperatorMessage = PinModel | PlanLoad | ListRequests | CancelRequest | WatchModels
