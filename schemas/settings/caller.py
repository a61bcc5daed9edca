"""The caller of a request: whose objects it may see, and what its key allows."""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import attrs

from greenroom.schemas.stored import EVERYBODY, STRANGERS


@attrs.frozen
class Caller:
    """The caller of a request, known by its key before a body is read.

    Args:
        owner: The key's id, which owns what the caller stores; `EVERYBODY` where no key was needed,
            `STRANGERS` where others need one.
        admin: True if it may use the routes for operators and the objects of all owners.
        models: Names and patterns of the models that it may use; empty for all.
        tools: Names and patterns of the tools that its requests may declare; empty for all.
        requests_per_minute: Limit on its requests; None for none.
        tokens_per_minute: Limit on its tokens, of prompts and answers; None for none.
        concurrent: Limit on its requests that wait or run at once; None for none.
        priority: Priority of its requests: above 0 they wait behind others, below 0 they go before others.
        expires: Unix time in seconds at which the key expires; None for never.
        metrics: True if it opens nothing but `/metrics`.
        name: The key's name for people; empty without a key.
        downloads: True if its requests may bring models of the hub, where the settings allow that.
        mcp: Names of the MCP servers that its chats use if they name none; empty for those of every chat.
        local_only: True if its requests never leave this machine for models elsewhere.
    """

    owner: str = EVERYBODY
    admin: bool = True
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    priority: int = 0
    expires: float | None = None
    metrics: bool = False
    name: str = attrs.field(default="", eq=False)
    downloads: bool = False
    mcp: tuple[str, ...] = ()
    local_only: bool = False

    @property
    def may_download(self) -> bool:
        """True if requests may bring models of the hub."""
        return self.admin or self.downloads

    @property
    def has_key(self) -> bool:
        return self.owner not in (EVERYBODY, STRANGERS)


ANYBODY = Caller()
"""The caller of every request while no API keys exist, with all rights."""
STRANGER = Caller(owner=STRANGERS, admin=False)
"""The caller of a request without a key that is answered although keys exist."""


def is_allowed(patterns: Sequence[str], name: str) -> bool:
    """Return whether names and patterns allow a name; an empty list allows every name."""
    return not patterns or any(fnmatchcase(name, each) for each in patterns)


SECRET_BYTES = 32
"""Random bytes of a key; nobody guesses so many, so its digest needs no slow hash."""
KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,63}")
"""Pattern of the names of keys."""


@attrs.frozen
class KeyRecord:
    """An API key without its secret.

    Args:
        name: Its name for people, unique among the valid keys.
        digest: SHA-256 of its secret.
        caller: Rights of the requests that use it; the owner is the key's id.
        created: Unix time in seconds.
        revoked: Unix time in seconds at which it was revoked; None if it was not.
        is_off: True if keys were switched off after it was made, so that it no longer locks the server.
    """

    name: str
    digest: bytes = attrs.field(repr=False)
    caller: Caller
    created: float
    revoked: float | None = None
    is_off: bool = False

    @property
    def id(self) -> str:
        return self.caller.owner

    def opens(self, now: float) -> bool:
        """Return whether the key is valid at a Unix time, in seconds."""
        expires = self.caller.expires
        return self.revoked is None and not self.is_off and (expires is None or now < expires)


LONGEST_KEY = 4_096  # Length limit of a key in characters; it has to fit into a header


def checked_key(place: str, secret: str) -> str:
    """Return a key that was found at a place. Raises ValueError: It cannot be sent in a header; the message
    names the place, but no key.
    """
    if not secret:
        raise ValueError(f"{place}: the key is empty")
    if len(secret) > LONGEST_KEY or not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ValueError(f"{place}: a key is one line of up to {LONGEST_KEY} printable ASCII characters")
    return secret


def key_in_file(place: str, path: str) -> str:
    """Return the key in a file. Raises ValueError: as `checked_key`, or the file cannot be read."""
    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            text = file.read(2 * LONGEST_KEY)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{place}: {getattr(error, 'strerror', None) or error}") from error
    return checked_key(place, text.strip())


def digest_of(secret: str) -> bytes:
    """Return the digest by which a key is known."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def new_key_id() -> str:
    return f"key_{uuid.uuid4().hex}"


@attrs.frozen
class KeyList:
    """The keys, the oldest first.

    Args:
        stamp: Version of the database, by which a change of another process is seen; a change of the store's
            own leaves it.
        records: The keys; None if the stamp is the known one.
    """

    stamp: str
    records: tuple[KeyRecord, ...] | None = None
