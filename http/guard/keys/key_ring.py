"""The valid API keys, in memory, so that no request waits for the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hmac import compare_digest

from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.caller import Caller
from greenroom.schemas.settings.key_record import KeyRecord, digest_of

log = get_logger(actor="http")

_INDEXED = 8
"""Bytes of a digest by which it is found; the whole is compared in constant time."""

REVOKED = Problem(401, "invalid_api_key", "This API key was revoked, or has expired.")
"""The problem that ends a request whose key opens nothing any more."""


class KeyRing:
    """The keys of the settings and of the database, by digest.

    Once a key was made, the server refuses requests without a valid key, until keys are switched off.

    Args:
        own: Keys of the settings.
    """

    def __init__(self, own: Iterable[KeyRecord] = ()) -> None:
        self._own = tuple(own)
        self._stays_locked = False
        self._stored: tuple[KeyRecord, ...] = ()
        self._unreadable = self._has_read = False
        self._session: bytes | None = None
        self._by_start: dict[bytes, list[KeyRecord]] = {}
        self._running: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        self._revoked: set[str] = set()
        self._index()

    @property
    def is_locked(self) -> bool:
        """True if a request needs a key."""
        made = any(not record.is_off for record in self._stored)
        return bool(self._own) or made or self._unreadable or self._stays_locked

    @property
    def has_admin_key(self) -> bool:
        return any(record.caller.admin for record in (*self._own, *self._stored) if not record.is_off)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the settings that hold the server's own keys, which stay open until it ends."""
        return tuple(record.name for record in self._own)

    def is_own(self, record: KeyRecord) -> bool:
        """Return whether the server was started with the same key."""
        return any(record.digest == own.digest for own in self._own)

    @property
    def names(self) -> dict[str, str]:
        """The names of all keys by id, of revoked ones too."""
        return {record.id: record.name for record in (*self._own, *self._stored)}

    def find(self, secret: str, now: float) -> Caller | None:
        """Return the caller whose key this is; None if the key is not valid.

        Args:
            now: Unix time in seconds.
        """
        digest = digest_of(secret)
        for record in self._by_start.get(digest[:_INDEXED], ()):
            if compare_digest(record.digest, digest) and record.opens(now):
                return record.caller
        return None

    def take_session_key(self, secret: str) -> None:
        """Admit processes of the server's own user by a key that is valid until the server ends."""
        self._session = digest_of(secret)

    def is_session_key(self, secret: str) -> bool:
        """Return whether this is the key of the server's own user."""
        return self._session is not None and compare_digest(self._session, digest_of(secret))

    def replace(self, records: Iterable[KeyRecord], now: float) -> None:
        """Use the keys of the database from now on, and end the requests of keys that are no longer valid.

        A database that has lost all its keys is another one: what was locked stays locked. It logs changes.
        """
        found, was_locked = tuple(records), self.is_locked
        if self._stored and not found:
            found = self._stored
        before, self._stored, self._unreadable = self._stored, found, False
        self._index()
        if self._has_read:
            _log_changes({record.id: record for record in before}, found)
        self._has_read = True
        if self.is_locked != was_locked:
            log.info("requests need a key" if self.is_locked else "requests need no key")
        self.end_expired(now)

    def stay_locked(self) -> None:
        """Refuse requests without a key from now on, even if no key exists: other machines can reach the
        server."""
        self._stays_locked = True

    def lose_sight(self) -> None:
        """Refuse requests without a key, since the database cannot be read and keys may exist."""
        self._unreadable = True

    def attend(self, caller: Caller, end: Callable[[], None]) -> Callable[[], None]:
        """Call `end`, which must not block, if a caller's key is revoked or expires.

        Returns:
            Function to call when the request has ended.
        """
        if not caller.has_key:
            return _nothing
        self._running[caller.owner].add(end)

        def leave() -> None:
            running = self._running.get(caller.owner)
            if running is not None:
                running.discard(end)
                if not running:
                    del self._running[caller.owner]

        return leave

    def end_expired(self, now: float) -> None:
        """End the running requests of keys that are no longer valid at this Unix time, in seconds."""
        if not self._running:
            return
        open_now = {record.id for record in (*self._own, *self._stored) if record.opens(now)}
        for owner in self._running.keys() - open_now:
            for end in self._running.pop(owner):
                end()

    @property
    def revoked_requests(self) -> tuple[str, ...]:
        """The ids of the running requests whose keys were revoked or have expired."""
        return tuple(self._revoked)

    def attend_request(self, caller: Caller, request_id: str) -> Callable[[], None]:
        """List a request in `revoked_requests` from the end of its key's validity until its own end.

        Returns:
            Function to call when the request has ended.
        """
        leave_key = self.attend(caller, partial(self._revoked.add, request_id))

        def leave() -> None:
            leave_key()
            self._revoked.discard(request_id)

        return leave

    def _index(self) -> None:
        self._by_start = {}
        for record in (*self._own, *self._stored):
            self._by_start.setdefault(record.digest[:_INDEXED], []).append(record)


def _log_changes(before: Mapping[str, KeyRecord], found: Iterable[KeyRecord]) -> None:
    for record in found:
        known = before.get(record.id)
        if known is None:
            log.info("key made", key=record.name, key_id=record.id, admin=record.caller.admin)
        elif record.revoked is not None and known.revoked is None:
            log.info("key revoked", key=record.name, key_id=record.id)


def _nothing() -> None:
    """Leave a request without a key alone."""
