"""Bodies of the routes for operators about the audit, API keys and downloads."""

from __future__ import annotations

import math

import attrs

from greenroom.schemas.messages.requests import MAX_PRIORITY
from greenroom.schemas.problems import invalid
from greenroom.schemas.protocols.download_protocol import DownloadStage, PullState, PullStatus
from greenroom.schemas.settings.caller import KEY_NAME, Caller, KeyRecord, digest_of, new_key_id, new_secret
from greenroom.schemas.stored import Ending


@attrs.frozen
class AuditQuery:
    """The query of `GET /admin/audit`; a row must match every filter.

    Args:
        since: Unix time in seconds, or an ISO 8601 time; earlier rows are left out.
        until: Time likewise; rows of that time and later are left out.
        key: Id or name of a key.
        model: Public id of a model.
        status: HTTP status.
        ending: `answered`, `refused`, `cancelled`, `timed_out` or `failed`.
        limit: Maximum number of rows, at most 1,000.
        after: `number` of the last row of the page before.
        follow: `true` for server-sent events of the requests that end from now on.
    """

    since: str | None = None
    until: str | None = None
    key: str | None = None
    model: str | None = None
    status: int | None = None
    ending: Ending | None = None
    limit: int = 100
    after: int | None = None
    follow: bool = False


@attrs.frozen
class UsageQuery:
    """The query of `GET /admin/usage`.

    Args:
        since: First day in UTC, as `2026-11-24`.
        key: Id or name of a key.
    """

    since: str | None = None
    key: str | None = None


@attrs.frozen
class AuditEntry:
    """The row of an ended request.

    Args:
        number: Position in the database; null in events, which come before it is stored.
        id: Id of the request.
        time: Unix time of its arrival, in seconds.
        key: Id of the caller's key; empty if the request was refused before that was known.
        key_name: Name of that key; empty without one.
        protocol: `openai`, `responses`, `anthropic`, `ollama` or `rerank`; empty for other paths.
        route: Method and route; `WS` for a message on a WebSocket.
        chosen: Reasons for which its model was chosen among those of a route; empty without one.
        status: HTTP status; null if the client left before it was known.
        seconds: Seconds from its arrival to its end.
        queue: Seconds that it waited for the model.
        prefill: Seconds of its prompt.
        decode: Seconds of its answer.
        prompt_tokens: Tokens of the prompt; null if no model has computed anything.
        error: Code of its problem; empty for none.
        background: True if it went on after its response.
        body: Beginning of its body; null unless the audit keeps content.
        answer: Beginning of the raw answer; likewise.
    """

    number: int | None
    id: str
    time: float
    key: str
    key_name: str
    protocol: str
    route: str
    model: str
    backend: str
    chosen: str
    status: int | None
    ending: Ending
    seconds: float
    queue: float
    prefill: float
    decode: float
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None
    error: str
    background: bool
    body: str | None
    answer: str | None


@attrs.frozen
class AuditList:
    """The response body of `GET /admin/audit`.

    Args:
        requests: Rows, the newest first.
        has_more: True if older rows match.
        waiting: Number of ended requests that are not written yet.
        lost: Number of rows that could not be kept since the start.
    """

    requests: tuple[AuditEntry, ...]
    has_more: bool
    waiting: int
    lost: int


@attrs.frozen
class UsageEntry:
    """The usage of a key on a day.

    Args:
        day: Date in UTC.
        key: Id of the key; empty for requests that were refused before it was known.
        key_name: Its name.
        requests: Number of requests, refused and failed ones among them.
        refused: Number of refused requests.
        failed: Number of those that failed or timed out.
        seconds: Seconds of prefill and decoding.
    """

    day: str
    key: str
    key_name: str
    requests: int
    refused: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seconds: float


@attrs.frozen
class Usages:
    """The response body of `GET /admin/usage`.

    Args:
        usage: Entries, the latest day first.
    """

    usage: tuple[UsageEntry, ...]


MOST_PER_MINUTE = 1_000_000_000
"""Largest limit of requests or tokens a minute, or of requests at once."""
MOST_PATTERNS = 100
LONGEST_PATTERN = 512
LATEST = 253_402_300_799.0
"""Unix time of the end of the year 9999, the last that dates can tell."""


@attrs.frozen
class KeyBody:
    """The request body of `POST /admin/keys`.

    Args:
        name: Name for people, such as that of a person or a program.
        models: Names and patterns of the models that it may use; empty for all.
        tools: Names and patterns of the tools that its requests may declare; empty for all.
        requests_per_minute: Limit on its requests; null for none.
        tokens_per_minute: Limit on its tokens, of prompts and answers; null for none.
        concurrent: Limit on its requests that wait or run at once; null for none.
        priority: Priority of its requests: above 0 they wait behind others, below 0 they go before others.
        admin: True if it opens the routes for operators.
        expires: Unix time in seconds from which on it opens nothing; null for never.
        metrics: True if it opens `/metrics` and nothing else.
        downloads: True if its requests may bring models of the hub, where `allow_downloads` is on.
        mcp: Names of the MCP servers that its chats use if they name none; empty for those of every chat.
        local_only: True if its requests never leave this machine for models elsewhere.
    """

    name: str
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    priority: int = 0
    admin: bool = False
    expires: float | None = None
    metrics: bool = False
    downloads: bool = False
    mcp: tuple[str, ...] = ()
    local_only: bool = False


@attrs.frozen
class KeyReport:
    """An API key without its secret; the times are Unix times in seconds, or null.

    Args:
        metrics: True if it opens `/metrics` and nothing else.
        of_server: True if the server was started with the same key, which thus stays open when it is revoked.
    """

    id: str
    name: str
    admin: bool
    models: tuple[str, ...]
    tools: tuple[str, ...]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent: int | None
    priority: int
    created: float
    expires: float | None
    revoked: float | None
    metrics: bool
    downloads: bool
    mcp: tuple[str, ...]
    local_only: bool
    of_server: bool = False


@attrs.frozen
class NewKey:
    """The response body of `POST /admin/keys`: the only one that ever has the secret.

    Args:
        secret: The key itself, which clients send; the server keeps a digest of it only.
    """

    key: KeyReport
    secret: str


@attrs.frozen
class KeyReports:
    """The keys, the oldest first, revoked ones too.

    Args:
        of_server: Settings that gave the server keys of its own, which stay open until it ends.
    """

    keys: tuple[KeyReport, ...]
    of_server: tuple[str, ...] = ()


def new_key(body: KeyBody, now: float) -> tuple[KeyRecord, str]:
    """Return a new key as it is kept, and its secret.

    Args:
        now: Unix time in seconds.

    Raises:
        ProblemError: 400 that names the field that is wrong.
    """
    _check(body, now)
    secret = new_secret()
    caller = Caller(owner=new_key_id(), **attrs.asdict(body, recurse=False))
    return KeyRecord(body.name, digest_of(secret), caller, now), secret


def key_report(record: KeyRecord, *, of_server: bool = False) -> KeyReport:
    """Return a key as operators see it."""
    rights = {each.name: getattr(record.caller, each.name) for each in attrs.fields(KeyBody)}
    told = rights | {"id": record.id, "name": record.name, "created": record.created}
    return KeyReport(**told, revoked=record.revoked, of_server=of_server)


def _check(body: KeyBody, now: float) -> None:
    if KEY_NAME.fullmatch(body.name) is None:
        detail = (
            "`name` must have 1 to 64 ASCII letters, digits, spaces, or `.`, `_`, `@`, `-`, and begin with a "
            "letter or digit."
        )
        raise invalid(detail, "name")
    for name, patterns in (("models", body.models), ("tools", body.tools), ("mcp", body.mcp)):
        if len(patterns) > MOST_PATTERNS:
            raise invalid(f"`{name}` may have at most {MOST_PATTERNS} entries.", name)
        if not all(each.strip() and each.isprintable() and len(each) <= LONGEST_PATTERN for each in patterns):
            raise invalid(f"`{name}` must hold names of up to {LONGEST_PATTERN} characters.", name)
    for name, limit in (
        ("requests_per_minute", body.requests_per_minute),
        ("tokens_per_minute", body.tokens_per_minute),
        ("concurrent", body.concurrent),
    ):
        if limit is not None and not 1 <= limit <= MOST_PER_MINUTE:
            raise invalid(f"`{name}` must be from 1 to {MOST_PER_MINUTE}.", name)
    if not -MAX_PRIORITY <= body.priority <= MAX_PRIORITY:
        raise invalid(f"`priority` must be from -{MAX_PRIORITY} to {MAX_PRIORITY}.", "priority")
    if body.metrics and (body.admin or body.models or body.tools or body.downloads):
        raise invalid(
            "`metrics` opens /metrics alone: leave out `admin`, `models`, `tools`, `downloads`.", "metrics"
        )
    if body.expires is not None and not (math.isfinite(body.expires) and now < body.expires <= LATEST):
        raise invalid("`expires` must be a Unix time in seconds that is still to come.", "expires")


@attrs.frozen
class PullBody:
    """The request body of `POST /admin/pull`.

    Args:
        model: `OWNER/NAME` or `OWNER/NAME@REVISION`.
        probe: False to leave out the probe that follows if the model fits beside the loaded ones.
    """

    model: str
    probe: bool = True


@attrs.frozen
class PullReport:
    """The state of a fetch, as an event of `POST /admin/pull` and in `GET /admin/pulls`.

    Args:
        files: Number of files that the model needs; 0 until it is known.
        bytes: Size of these files.
        received: Bytes of them that are on this machine.
        bytes_per_second: Rate at which they arrive.
        eta_ms: Estimated milliseconds until the end; null if unknown.
        started_at: Unix time in seconds.
        ended_at: Unix time in seconds; null while it runs.
        problem: Sentence that says why it failed.
    """

    id: str
    model: str
    revision: str
    state: PullState
    stage: DownloadStage
    files: int
    bytes: int
    received: int
    bytes_per_second: int
    eta_ms: int | None
    started_at: float
    ended_at: float | None
    problem: str | None


def pull_report(status: PullStatus) -> PullReport:
    """Return a fetch as operators see it."""
    progress, running = status.progress, status.state == "running"
    return PullReport(
        status.id,
        status.model,
        status.revision,
        status.state,
        progress.stage,
        progress.files,
        progress.nbytes,
        progress.received,
        round(progress.rate) if running else 0,
        progress.eta_ms if running else None,
        round(status.started, 3),
        None if status.ended is None else round(status.ended, 3),
        None if status.problem is None else status.problem.detail,
    )


@attrs.frozen
class PullReports:
    """The answer of `GET /admin/pulls`, the newest last."""

    pulls: tuple[PullReport, ...]


@attrs.frozen
class SearchQuery:
    """The query of `GET /admin/search`.

    Args:
        q: Words of the models' names.
        limit: Maximum number of models, 1 to 100.
    """

    q: str
    limit: int = 20


@attrs.frozen
class DeleteBody:
    """The request body of `POST /admin/models/delete`.

    Args:
        model: The model's own id; with `@REVISION`, only that revision of a model of the hub.
    """

    model: str


@attrs.frozen
class DeletedModel:
    """The answer of `POST /admin/models/delete`.

    Args:
        freed_bytes: Bytes of disk that are free again.
    """

    model: str
    freed_bytes: int
