"""The messages that the pool accepts, and its answers.

All of them are plain data, except the handles that answer `Acquire` (`greenroom.actors.pool.lease_queue`).
"""

from __future__ import annotations

from typing import Literal

import attrs

from greenroom.schemas.events.statistics import EngineSnapshot, ModelTotals, RemoteStatus
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.requests import AppliedAdapter, KeepAlive
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.models.lifecycle import DOCUMENTED_NAMES, ModelState
from greenroom.schemas.models.model_description import MemoryNeed, ModelDescription
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.download_protocol import DownloadProgress

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
        pause: Models that would finish their running requests and then be unloaded for it.
        required: Bytes that it needs, with those that are only estimated; None if unknown.
        least: Bytes of these that are certain: for an estimate alone no request is refused.
        limit: Bytes that all models may have together; None before any model has been opened.
        available: Bytes that other programs leave; None if unknown.
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
    """Follow the models' states. Replies: one ModelNews for each known model, then one for each change.

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


@attrs.frozen
class ProbeModel:
    """Probe a model, behind the requests of users.

    The findings are stored, and followed from the model's next load on. Afterwards the models in memory are
    those from before, unless other requests have changed that meanwhile; the model itself is loaded anew.

    Reply: any number of ProbeProgress, then Probed; or Failed at any point. Closing it ends the probe.

    Args:
        max_tokens: Longest answer to a question in tokens; None for the probe's own limit.
    """

    name: str
    max_tokens: int | None = None


@attrs.frozen
class ProbeProgress:
    """The progress of a probe."""

    answered: int
    questions: int


@attrs.frozen
class Probed:
    """The findings of a probe, which are stored."""

    record: ProbedCapabilities


@attrs.frozen
class LastError:
    """The last error of a model, kept after its recovery. `time`: Unix time in seconds."""

    time: float
    code: str
    detail: str


@attrs.frozen
class ModelStatus:
    """The status of a model, for operators.

    Args:
        running: Number of requests that hold slots, and do not wait for its next load.
        slots: Number of the slots that they hold, one for each answer generated at once.
        waiting: Number of requests that wait, for a slot or for its load.
        problem: Reason for the state ERROR; None in other states.
        load_progress: Fraction of the weights that is loaded, 0 to 1.
        hung: True if its worker has hung, which only a new process can repair.
        prepares: True if a tokenizer thread prepares its prompts, or will start with its first request.
        hung_threads: Number of its hung threads that have not ended.
        since: Unix time in seconds at which it entered the state; 0 if it was never requested.
        nbytes: Bytes of memory that the pool has granted to it.
        leases: Number of requests that hold slots.
        queue: Number of requests that wait for slots.
        restarts: Number of loads that followed an error.
        last_error: Its last error; None if it had none.
        snapshot: Latest figures of its engine; None if it is not loaded.
        expires_at: Unix time in seconds at which it is unloaded if no further request comes; None for never.
        totals: Its figures since the server's start; None while only a request has named it, and no catalog.
        pinned: True if it is never unloaded for others, or for being idle.
        download: Progress of the download of its files, in the state DOWNLOADING; else None.
    """

    key: ModelKey
    state: ModelState
    running: int = 0
    slots: int = 0
    waiting: int = 0
    problem: str | None = None
    load_progress: float = 0.0
    hung: bool = False
    prepares: bool = True
    hung_threads: int = 0
    since: float = 0.0
    nbytes: int = 0
    leases: int = 0
    queue: int = 0
    restarts: int = 0
    last_error: LastError | None = None
    snapshot: EngineSnapshot | None = None
    expires_at: float | None = None
    totals: ModelTotals | None = attrs.field(default=None, repr=False)
    pinned: bool = False
    download: DownloadProgress | None = None

    @property
    def documented_state(self) -> str:
        """Name of the state for clients."""
        return DOCUMENTED_NAMES[self.state]

    @property
    def adapters(self) -> tuple[tuple[str, int], ...]:
        """Names of its LoRA adapters in memory, with their bytes."""
        return () if self.snapshot is None else self.snapshot.adapters

    @property
    def responds(self) -> bool:
        """True if the model will answer requests sooner or later."""
        return self.prepares and not self.hung


@attrs.frozen
class Acquire:
    """Acquire slots in a model, which is loaded if necessary.

    Reply: Found, any number of QueueStatus, then Granted; or Failed at any point.

    Args:
        key: The base model; requests with different adapters share it.
        choices: Number of requested answers; each takes a slot, up to the model's number of slots.
        adapter: Name of the LoRA adapter that the request applies; None for that of the model's name, or for
            none. The pool tells its files in `NameFound`.
        adapter_scale: Factor of the adapter's effect.
        keep_alive: Wish for how long the model stays in memory afterwards; None for the operator's setting,
            or that of an earlier request.
        priority: Priority: each step above 0 puts it further behind other requests
            (`greenroom.schemas.messages.requests`).
        limited: True if it fails after the setting `queue_timeout`.
        without: Models of the list `default` that were tried in vain for this request, by their own ids.
        allowed: Names and patterns of the models that the caller may use; empty for all.
        client: Name of the client, for its share of slots and queue (`InferenceRequest.client`).
        tokens: Most tokens of an answer that the request asks for, which tells how long it may take; None if
            it sets no limit.
        may_download: True if it may bring a model of the hub that no operator has named.
        stays: Reason why it must not leave this machine; empty if it may.
    """

    key: ModelKey
    request_id: str = ""
    choices: int = 1
    adapter: str | None = None
    keep_alive: KeepAlive | None = None
    priority: int = 0
    limited: bool = False
    without: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    client: str = ""
    tokens: int | None = None
    may_download: bool = True
    adapter_scale: float = 1.0
    stays: str = ""


@attrs.frozen
class QueryPrompt:
    """Find a model that can prepare requests, without slots in it, for work that needs no weights.

    Reply: Found, or Failed. The model's actor stays alive until the reply closes.

    Args:
        adapter: As for `Acquire`; likewise `without`, `allowed`, `client` and `may_download`.
    """

    key: ModelKey
    request_id: str = ""
    adapter: str | None = None
    without: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    client: str = ""
    may_download: bool = True


@attrs.frozen
class UnloadModel:
    """Unload a model once its leases have ended; new requests wait and then load it again.

    Reply: Unloading, then ModelUnloaded; or Failed at any point.

    Args:
        spares_pinned: True to refuse if the operator has pinned the model.
        now: True to fail its requests instead of waiting for their ends.
        keeps_prefixes: True if its prefixes may stay in main memory for its next load.
        reopens: True if its settings have changed: it is opened anew, at once if it is not loaded yet and
            requests wait for it.
        client: Client that wishes it, and is refused while others keep the model; None for an operator.
        reason: Cause of the unload, for the log.
    """

    key: ModelKey
    spares_pinned: bool = False
    now: bool = False
    keeps_prefixes: bool = False
    reopens: bool = False
    client: str | None = None
    reason: str = "unloaded by an operator"


@attrs.frozen
class Unloading:
    """Confirmation that a model exists and will be unloaded, if it is in memory."""

    key: ModelKey


@attrs.frozen
class ModelUnloaded:
    """The end of an unload. `freed`: bytes that it was measured to have freed; 0 if it was not in memory."""

    key: ModelKey
    freed: int


@attrs.frozen
class ModelName:
    """The meaning of a requested name.

    Args:
        profile: Name of the profile, or of the adapter, through which the model was found.
        defaults: Generation parameters of that profile.
        listed: False if only a request has named it so far, as a model of the hub.
        replaceable: True if the list `default` has another model for this name, should this one not load.
        adapter: LoRA adapter that requests by this name apply; None for none.
        route: Name of the route through which it was found; None for none.
        candidates: Models of that route, by their own ids.
        chosen: Reasons for which the route's model was chosen; empty without a route.
    """

    model: str
    profile: str | None = None
    defaults: Overrides = attrs.field(factory=dict)
    listed: bool = True
    replaceable: bool = False
    adapter: AppliedAdapter | None = None
    route: str | None = None
    candidates: tuple[str, ...] = ()
    chosen: str = ""


@attrs.frozen
class ChangeAdapter:
    """Let requests apply an adapter, whose folder may be new, or withdraw it; rows that run finish on it.
    Reply: AdapterChanged, or Failed.

    Args:
        name: Name of the adapter: its own, or its base's with a colon and the last part of its own.
    """

    name: str
    available: bool


@attrs.frozen
class AdapterChanged:
    name: str
    base: ModelKey


@attrs.frozen
class DescribeModel:
    """Describe a model from its files. Reply: ModelDescriptions.

    Args:
        name: Name of the model: its own, an alias, a profile, or one that fits a pattern; None for every
            model.
    """

    name: str | None = None


@attrs.frozen
class ModelDescriptions:
    """The requested descriptions, in the order of the models: those of the command line first, then aliases.

    While no file has changed, an answer holds the same objects as the one before.
    """

    models: tuple[ModelDescription, ...]


@attrs.frozen
class DescribePool:
    """Request the pool's status. Reply: PoolStatus."""


@attrs.frozen
class PoolStatus:
    """The status of the pool, for operators: its known models, and whether it accepts requests.

    Args:
        remotes: Servers elsewhere.
        draining: Reason why a draining pool accepts no requests; None if it does not drain.
        limit: Bytes that models may have together; None if unknown, as before the first one is opened.
    """

    models: tuple[ModelStatus, ...]
    draining: Problem | None = None
    limit: int | None = None
    remotes: tuple[RemoteStatus, ...] = ()

    @property
    def ready(self) -> bool:
        """True if new requests should be sent to this server.

        Only a new process repairs a model that hangs on the device. A model that fails because of its files
        does not affect the others.
        """
        if self.draining is not None or any(model.hung for model in self.models):
            return False
        return not self.models or any(model.responds for model in self.models)


@attrs.frozen
class Drain:
    """Reject new requests and finish the accepted ones. Reply, if one is given: Drained."""


@attrs.frozen
class Drained:
    """Confirmation that no request is left."""


NamedMessage = Acquire | QueryPrompt | UnloadModel | PinModel | PlanLoad
"""Messages about a model, whose name may be an alias."""

PoolMessage = (
    NamedMessage | OperatorMessage | ProbeModel | ChangeAdapter | DescribeModel | DescribePool | Drain
)
