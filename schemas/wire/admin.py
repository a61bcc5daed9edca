"""Request and answer bodies of the operators' routes (`/admin`), and the converter that reads them."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.events.statistics import RankFigures, RemoteStatus
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.schemas.protocols.pool_protocol import LoadOutcome, RequestState
from greenroom.schemas.protocols.tools_protocol import SessionStatus
from greenroom.schemas.wire.wire import StrictConverter, make_wire_converter


@attrs.frozen
class ServerStatus:
    """The response body of `GET /admin/status`.

    Args:
        status: `draining` while the server takes no new requests, `degraded` if a model, a thread or the
            database does not work; else `ok`.
        problems: Sentences that say what does not work.
        pid: Id of the process.
        started_at: Unix time in seconds.
        uptime: Seconds since then.
        models: Numbers of the models that were requested, by state.
        running: Number of requests that are being answered.
        waiting: Number of requests that wait for a model or for a slot in it.
        model_bytes: Bytes of memory that are granted to models.
        memory_limit: Bytes that models may have together, as set, else as the device allows; null if that is
            not known, as before the first model is opened.
        database: Path of the database; null if nothing outlives the server.
        audit: True if requests are audited.
        inspector: True if the last requests are kept whole.
        mcp: MCP servers of the settings, and those that requests named.
    """

    status: Literal["ok", "degraded", "draining"]
    problems: tuple[str, ...]
    version: str
    pid: int
    started_at: float
    uptime: float
    models: dict[str, int]
    running: int
    waiting: int
    model_bytes: int
    memory_limit: int | None
    database: str | None
    audit: bool
    inspector: bool
    mcp: tuple[SessionStatus, ...] = ()
    remotes: tuple[RemoteStatus, ...] = ()


@attrs.frozen
class AnswerRow:
    """An answer that a model is computing: a row of its running batch, or one that waits to become one.

    Args:
        request_id: Id of its request.
        index: Index of the choice within the request.
        stage: `waiting` until its prompt is begun, `prefill` while that is computed, then `decode`.
        prompt_tokens: Length of the prompt in tokens.
        cached_tokens: Tokens of the prompt that were restored from the prefix cache.
        generated_tokens: Tokens of the answer so far.
        explanation: Its cost so far and the reasons, as in `usage.greenroom`; null until its prompt is begun.
            Waits count from the request's submission to the loaded model.
    """

    request_id: str
    index: int
    stage: Literal["waiting", "prefill", "decode"]
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    explanation: dict[str, Any] | None


@attrs.frozen
class UsedModel:
    """A model that was requested since the start of the server.

    Args:
        state: See notes/actors.md.
        status: State in the words for clients: Idle, Ready, Switching, Loading or Error.
        since: Unix time in seconds at which it entered the state.
        pinned: True if it is never unloaded for others, or for being idle.
        expires_at: Unix time in seconds at which it is unloaded if no further request comes; null for never.
        load_progress: Fraction of the weights that is loaded, 0 to 1.
        download: Progress of the download of its files in the state `downloading`; null in others.
        bytes: Bytes of memory that are granted to it.
        running: Number of its requests that are being answered.
        waiting: Number of its requests that wait for it or for a slot.
        leases: Number of requests that hold slots, which keep it loaded.
        restarts: Number of loads that followed an error.
        problem: Reason of the state `error`; null in others.
        last_error: Its last error, kept after recovery; null if it had none.
        last_error_at: Unix time in seconds of the last error; null if it had none.
        prefill_seconds: Seconds of its steps that computed prompts, since the start of the server.
        decode_seconds: Seconds of its steps that computed answers, likewise.
        rows: Answers that it computes, as of at most a second ago.
        adapters: Names of its LoRA adapters in memory, likewise.
        ranks: Its ranks, the first first; empty for a model in one process.
    """

    id: str
    state: str
    status: str
    since: float
    pinned: bool
    expires_at: float | None
    load_progress: float
    download: DownloadProgress | None
    bytes: int
    running: int
    waiting: int
    leases: int
    restarts: int
    problem: str | None
    last_error: str | None
    last_error_at: float | None
    prefill_seconds: float
    decode_seconds: float
    rows: tuple[AnswerRow, ...]
    adapters: tuple[str, ...] = ()
    ranks: tuple[RankFigures, ...] = ()


@attrs.frozen
class UsedModels:
    """The response body of `GET /admin/models`: the models that were requested since the start.

    Args:
        memory_limit: See `ServerStatus`.
    """

    models: tuple[UsedModel, ...]
    memory_limit: int | None


@attrs.frozen
class LoadedModel:
    """The response body of `POST /admin/models/load`.

    Args:
        id: The model's own id.
        seconds: Seconds until it was ready.
    """

    id: str
    seconds: float


@attrs.frozen
class UnloadedModel:
    """The response body of `POST /admin/models/unload`.

    Args:
        id: The model's own id.
        freed_bytes: Bytes that it was measured to have freed; 0 if it was not in memory.
    """

    id: str
    freed_bytes: int


@attrs.frozen
class PinnedModel:
    """The response body of `POST /admin/models/pin`.

    Args:
        id: The model's own id.
    """

    id: str
    pinned: bool


@attrs.frozen
class PlannedLoad:
    """The response body of `POST /admin/models/plan`: the effect of a request for a model at present.

    Args:
        id: The model's own id.
        folder: Folder with its files; null if they are not on this machine.
        outcome: `ready` if it is in memory, `loading`, `loads` if it would be loaded at once, `evicts` after
            others are unloaded, `waits` until requests end or memory is free, or `refused`.
        unload: Models that would be unloaded for it at once.
        pause: Models that would finish their requests first and then be unloaded for it.
        required_bytes: Bytes that it needs, with those that are only estimated; null if unknown.
        least_bytes: Bytes of these that are certain: for an estimate alone no request is refused.
        limit_bytes: Bytes that models may have together; null before any model has been opened.
        available_bytes: Bytes that other programs leave; null if unknown.
        reason: Reason of a refusal.
        notices: Warnings about the model, as sentences without a full stop.
    """

    id: str
    folder: str | None
    outcome: LoadOutcome
    unload: tuple[str, ...]
    pause: tuple[str, ...]
    required_bytes: int | None
    least_bytes: int | None
    limit_bytes: int | None
    available_bytes: int | None
    reason: str | None
    notices: tuple[str, ...] = ()


@attrs.frozen
class RequestInFlight:
    """A request that waits for a model or uses one.

    Args:
        state: `preparing` uses a model without its weights, `waiting` waits for it, `running` is answered.
        choices: Number of answers that it generates at once.
        priority: Priority: each step above 0 puts it further behind other requests.
        seconds: Seconds since its arrival.
        rows: Answers that are being computed for it, as of at most a second ago.
    """

    id: str
    model: str
    state: RequestState
    choices: int
    priority: int
    seconds: float
    rows: tuple[AnswerRow, ...]


@attrs.frozen
class RequestsInFlight:
    """The response body of `GET /admin/requests`."""

    requests: tuple[RequestInFlight, ...]


@attrs.frozen
class CancelledRequest:
    """The response body of `POST /admin/requests/{id}/cancel`.

    Args:
        cancelled: Number of its parts: a request of several prompts has one for each.
    """

    id: str
    cancelled: int


SettingSource = Literal["default", "file", "environment", "flag"]


@attrs.frozen
class EffectiveSetting:
    """A setting as it holds.

    Args:
        value: Its value; null for a secret, or if it is not set.
        source: Kind of source that set it.
        secret: True if its value is not shown.
        set: True if it has a value.
    """

    name: str
    value: Any
    source: SettingSource
    secret: bool
    set: bool


@attrs.frozen
class EffectiveSettings:
    """The response body of `GET /admin/settings`."""

    settings: tuple[EffectiveSetting, ...]


@attrs.frozen
class Reloaded:
    """The response body of `POST /admin/reload`.

    Args:
        applied: Names of the changed settings that are now in force.
        needs_restart: Names of the changed settings that need a new process.
        reopened: Models that leave the memory after their running requests, and are opened anew for the next.
    """

    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]
    reopened: tuple[str, ...]


@attrs.frozen
class AdapterRequest:
    """The body of a request to load an adapter.

    Args:
        name: Name of an adapter: its own, its base's with a colon, or a hub id; never a path.
    """

    name: str


@attrs.frozen
class ChangedAdapter:
    """An adapter that requests may name now, or no longer.

    Args:
        base_model: Name of its base.
    """

    id: str
    base_model: str


@attrs.frozen
class ListedAdapter:
    """An adapter of the operator's folders.

    Args:
        base_model: Name of its base; null if that is not here.
        bytes: Bytes in memory; 0 if it is not loaded.
        problem: Reason why it is refused; null if it is not.
    """

    id: str
    base_model: str | None
    bytes: int
    problem: str | None


@attrs.frozen
class ListedAdapters:
    adapters: tuple[ListedAdapter, ...]


@attrs.frozen
class ModelRequest:
    """The body of a request about a model.

    Args:
        model: Name of the model: its own, an alias, or a profile.
    """

    model: str


@attrs.frozen
class UnloadRequest:
    """The body of `POST /admin/models/unload`.

    Args:
        model: Name of the model.
        mode: `drain` waits for the end of its requests; `now` fails them.
    """

    model: str
    mode: Literal["drain", "now"] = "drain"


@attrs.frozen
class PinRequest:
    """The body of `POST /admin/models/pin`.

    Args:
        model: Name of the model.
        pinned: False to let it be unloaded again for other models.
    """

    model: str
    pinned: bool = True


@attrs.frozen
class ProbeRequest:
    """The body of `POST /admin/models/probe`.

    Args:
        model: Name of the model.
        max_tokens: Longest answer to a question, in tokens; null for the probe's own limit.
        stream: True for events of its progress before the findings.
    """

    model: str
    max_tokens: int | None = None
    stream: bool = False


@attrs.frozen
class LogQuery:
    """The query of `GET /admin/logs`.

    Args:
        lines: Number of earlier lines to begin with, at most 1,000.
        follow: `false` to end after these.
    """

    lines: int = 1_000
    follow: bool = True


ADMIN = make_wire_converter(StrictConverter)
