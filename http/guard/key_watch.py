"""Watch over the API keys in the database: changes take effect within a second."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import trio

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import ask_actor
from greenroom.actors.store.database_file import MEMORY
from greenroom.actors.store.read_only import read_keys
from greenroom.actors.store.tables import ask_store
from greenroom.http.guard.keys import REVOKED, KeyRing
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import CancelRequest, RequestCancelled
from greenroom.schemas.settings.caller import KeyList

log = get_logger(actor="http")

INTERVAL = 0.5
"""Seconds between two checks for changes by other processes."""


class KeyWatch:
    """Updates the valid keys in memory after each change of the database.

    Args:
        database: The setting `db`.
    """

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
