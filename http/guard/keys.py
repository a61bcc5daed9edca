"""Admission of requests by API key, from their heads alone, and news of keys made by other processes."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hmac import compare_digest
from pathlib import Path

import attrs
import trio
from werkzeug.datastructures import Headers

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import ask_actor
from greenroom.actors.store.database_file import MEMORY
from greenroom.actors.store.read_only import read_keys
from greenroom.actors.store.tables import ask_store
from greenroom.http.guard.host_guard import find_loopback_problem, network_of, presented_keys
from greenroom.http.guard.rate_limits import RateLimits
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.pool_protocol import CancelRequest, RequestCancelled
from greenroom.schemas.settings.caller import (
    ANYBODY,
    STRANGER,
    Caller,
    KeyList,
    KeyRecord,
    checked_key,
    digest_of,
    key_in_file,
)
from greenroom.schemas.settings.listen_address import listen_addresses
from greenroom.schemas.settings.settings import Settings

EXEMPT_PATHS = frozenset({"/", "/health", "/livez", "/readyz", "/api/hello", "/api/version"})
"""Paths that answer GET and HEAD without a key: probes, some of which clients send before they send keys."""
METRICS_PATH = "/metrics"  # Path that keys for metrics open
PAGES_PREFIX = "/pages/"  # Beginning of the paths of the pages' files, which are the same for everybody
SLOW_SECONDS = 1.0  # Seconds by which the answer to a wrong key is late, after too many of them
MOST_SLOWED = 16  # Answers that are late at once; more are refused without a delay
_NO_KEY = (
    "This server needs an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`. "
    "`greenroom keys add NAME` makes one."
)


@attrs.frozen
class Head:
    """The request line, the headers and both addresses of a request, by which it is admitted."""

    method: str
    path: str
    headers: Headers
    address: str | None
    http_version: str = "1.1"
    own_address: str | None = None


class Door:
    """Admits requests by API key: identifies their callers, and refuses strangers while keys are needed.

    Args:
        open_loopback: True if programs of this machine need no key, except for operators' routes.
        lets_networks_in: False to refuse requests without a key on addresses that other machines reach, even
            while there is no key; the addresses of another program's server are known by requests alone.
    """

    def __init__(self, ring: KeyRing, *, open_loopback: bool = False, lets_networks_in: bool = True) -> None:
        self.ring = ring
        self._lets_networks_in = lets_networks_in
        self.limits = RateLimits()
        self._open_loopback = open_loopback
        self._wrong = WrongKeys()
        self._slowed = 0

    async def admit(self, head: Head) -> Caller:
        """Return the caller of a request. Raises ProblemError: 401 for a request without a valid key, 403 for
        a path that a key for metrics does not open, 429 after many wrong keys.
        """
        is_open = self._lets_networks_in or not is_reachable(head.own_address)
        if not self.ring.is_locked and is_open:
            return ANYBODY
        given = presented_keys(head.headers)
        now = time.time()
        for secret in given:
            if (caller := self.ring.find(secret, now)) is not None:
                if caller.metrics and head.path != METRICS_PATH and not _is_exempt(head):
                    raise ProblemError(Problem(403, "metrics_key", "This API key opens /metrics only."))
                return caller
        is_local = head.http_version != "1.0" and find_loopback_problem(head.headers, head.address) is None
        if is_local and any(map(self.ring.is_session_key, given)):
            return STRANGER if self.ring.has_admin_key else ANYBODY
        if (is_local and self._open_loopback) or _is_exempt(head):
            return STRANGER
        if not given:
            raise ProblemError(Problem(401, "invalid_api_key", _NO_KEY))
        wait = self._wrong.record(network_of(head.address or ""), trio.current_time())
        if wait is not None:
            if self._slowed < MOST_SLOWED:  # Slowed answers hold connections that others need.
                self._slowed += 1
                try:
                    await trio.sleep(SLOW_SECONDS)
                finally:
                    self._slowed -= 1
            detail = "Too many wrong API keys came from this address. Wait a minute."
            raise ProblemError(Problem(429, "too_many_wrong_keys", detail, retry_after=wait))
        detail = "This API key opens nothing here: it is wrong, was revoked, or has expired."
        raise ProblemError(Problem(401, "invalid_api_key", detail))


def _is_exempt(head: Head) -> bool:
    is_public = head.path in EXEMPT_PATHS or head.path.startswith(PAGES_PREFIX)
    return is_public and head.method in ("GET", "HEAD")


log = get_logger(actor="http")

_INDEXED = 8  # Bytes of a digest by which it is found; the whole is compared in constant time

REVOKED = Problem(401, "invalid_api_key", "This API key was revoked, or has expired.")
"""The problem that ends a request whose key opens nothing any more."""


class KeyRing:
    """The keys of the settings and of the database, by digest.

    Once a key was made, the server refuses requests without a valid key, until keys are switched off.
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
        """Return the caller whose key this is; None if the key is not valid. `now`: Unix time in seconds."""
        digest = digest_of(secret)
        for record in self._by_start.get(digest[:_INDEXED], ()):
            if compare_digest(record.digest, digest) and record.opens(now):
                return record.caller
        return None

    def take_session_key(self, secret: str) -> None:
        """Admit processes of the server's own user by a key that is valid until the server ends."""
        self._session = digest_of(secret)

    def is_session_key(self, secret: str) -> bool:
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
            return lambda: None
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


def settings_keys(settings: Settings) -> tuple[KeyRecord, ...]:
    """Return the keys in the settings `api_key` and `api_key_file`, with an operator's rights.

    Raises:
        ValueError: The file cannot be read, or a key cannot be sent in a header; the message names the
            setting, but no key.
    """
    found = []
    if settings.api_key is not None:
        found.append(_record("api_key", checked_key("api_key", settings.api_key)))
    if settings.api_key_file is not None:
        place = f"api_key_file = {settings.api_key_file!r}"
        found.append(_record("api_key_file", key_in_file(place, settings.api_key_file)))
    return tuple(found)


def _record(name: str, secret: str) -> KeyRecord:
    return KeyRecord(name, digest_of(secret), Caller(owner=f"key_of_{name}", name=name), created=0.0)


MOST_A_MINUTE = 20  # Wrong keys of an address in a minute, after which its wrong keys are answered late
_MINUTE = 60.0
_ADDRESSES = 4_096  # Addresses that are remembered; the one that was first seen is forgotten first


class WrongKeys:
    """Counts wrong keys by address, in windows of a minute."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def record(self, address: str, now: float) -> int | None:
        """Record a wrong key.

        Args:
            now: Seconds, by any clock.

        Returns:
            Seconds until the address may try again, if it has sent too many; else None.
        """
        began, count = self._counts.get(address, (now, 0))
        if now >= began + _MINUTE:
            began, count = now, 0
            self._counts.pop(address, None)
        if address not in self._counts and len(self._counts) >= _ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (began, count + 1)
        return math.ceil(began + _MINUTE - now) if count >= MOST_A_MINUTE else None


def find_reachable(settings: Settings) -> str | None:
    return next((address.host for address in listen_addresses(settings) if is_reachable(address.host)), None)


def is_reachable(host: object) -> bool:
    """Return whether other machines may reach a host name or address; a name may mean any address.

    Args:
        host: A name or an address. What is no text, such as the name of a Unix socket in the abstract
            namespace, belongs to this machine.
    """
    if not isinstance(host, str) or host.startswith("/") or host.lower().rstrip(".") == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


INTERVAL = 0.5  # Seconds between two checks for changes by other processes


class KeyWatch:
    """Updates the valid keys in memory after each change of the database. `database`: the setting `db`."""

    def __init__(self, ring: KeyRing, refs: ActorRefs, database: str | None) -> None:
        self._ring = ring
        self._store = refs.store
        self._pool = refs.pool
        self._path = None if database in (None, MEMORY) else Path(database or "")
        self._known: str | None = None

    async def begin(self) -> None:
        """Read the keys before the server listens; if they cannot be read, require a key of every request."""
        try:
            await self.look(anew=True)
        except ProblemError as failed:
            if self._path is None:
                return
            try:
                self._ring.replace(await trio.to_thread.run_sync(read_keys, self._path), time.time())
            except (sqlite3.Error, OSError, ValueError, TypeError) as error:
                log.error(
                    "keys unreadable", db=str(self._path), reason=str(error), store=failed.problem.detail
                )
                self._ring.lose_sight()

    async def run(self) -> None:
        """Look for changes and for keys that expire until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_database)
            while True:  # It does not wait for the store, which may be silent.
                await trio.sleep(INTERVAL)
                self._ring.end_expired(time.time())
                await self._end_revoked()

    async def _follow_database(self) -> None:
        while True:
            await trio.sleep(INTERVAL)
            with contextlib.suppress(ProblemError):  # the keys stay as they were last read
                await self.look()

    async def _end_revoked(self) -> None:
        """Fail the running requests of keys that were revoked or expired, until they have ended."""
        for request_id in self._ring.revoked_requests:
            with contextlib.suppress(ProblemError):  # no model works for it at this moment
                await ask_actor(self._pool, CancelRequest(request_id, REVOKED), RequestCancelled)

    async def look(self, *, anew: bool = False) -> None:
        """Read the keys again if another process has written to the database, or if `anew` is True.

        Args:
            anew: True to read them in any case, after a change by this server.

        Raises:
            ProblemError: The database cannot be read now.
        """
        known = None if anew else self._known
        found = await ask_store(self._store, lambda tables: tables.keys.list(known), unused=KeyList("", ()))
        self._known = found.stamp
        if found.records is not None:
            self._ring.replace(found.records, time.time())
