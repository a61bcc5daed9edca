"""Bodies of the routes that make, list and revoke API keys."""

from __future__ import annotations

import math

import attrs

from greenroom.schemas.messages.priority import MAX_PRIORITY
from greenroom.schemas.problems import invalid
from greenroom.schemas.settings.caller import Caller
from greenroom.schemas.settings.key_record import KEY_NAME, KeyRecord, digest_of, new_key_id, new_secret

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
    caller = Caller(
        owner=new_key_id(),
        admin=body.admin,
        models=body.models,
        tools=body.tools,
        requests_per_minute=body.requests_per_minute,
        tokens_per_minute=body.tokens_per_minute,
        concurrent=body.concurrent,
        priority=body.priority,
        expires=body.expires,
        metrics=body.metrics,
        name=body.name,
        downloads=body.downloads,
    )
    return KeyRecord(body.name, digest_of(secret), caller, now), secret


def key_report(record: KeyRecord, *, of_server: bool = False) -> KeyReport:
    """Return a key as operators see it."""
    caller = record.caller
    return KeyReport(
        record.id,
        record.name,
        caller.admin,
        caller.models,
        caller.tools,
        caller.requests_per_minute,
        caller.tokens_per_minute,
        caller.concurrent,
        caller.priority,
        record.created,
        caller.expires,
        record.revoked,
        caller.metrics,
        caller.downloads,
        of_server,
    )


def _check(body: KeyBody, now: float) -> None:
    if KEY_NAME.fullmatch(body.name) is None:
        detail = (
            "`name` must have 1 to 64 ASCII letters, digits, spaces, or `.`, `_`, `@`, `-`, and begin with a "
            "letter or digit."
        )
        raise invalid(detail, "name")
    for name, patterns in (("models", body.models), ("tools", body.tools)):
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
