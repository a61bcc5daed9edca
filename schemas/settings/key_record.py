"""API keys, as they are kept: by digest, so that nobody can read a key from the database."""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid

import attrs

from greenroom.schemas.settings.caller import Caller

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
