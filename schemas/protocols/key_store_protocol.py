"""Messages to the store about API keys."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.key_record import KeyRecord


@attrs.frozen
class AddKey:
    """Store a new key, after which every request needs one. Reply: KeyRecord, or a 409 for a name in use."""

    record: KeyRecord


@attrs.frozen
class RevokeKey:
    """Revoke a key. Reply: KeyRecord, or a 404.

    Args:
        key: Its id, or the name of a key that is not revoked.
        now: Unix time in seconds.
    """

    key: str
    now: float


@attrs.frozen
class SwitchKeysOff:
    """Revoke all keys, and let requests in without one. Reply: KeyList.

    Args:
        now: Unix time in seconds.
    """

    now: float


KeyChange = AddKey | RevokeKey | SwitchKeysOff


@attrs.frozen
class ListKeys:
    """List the keys, revoked ones too. Reply: KeyList.

    Args:
        known: Stamp of the last list; None for none.
    """

    known: str | None = None


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
