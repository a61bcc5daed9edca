"""What can go wrong with the database, in the words that clients are told."""

from __future__ import annotations

import errno
import sqlite3

from greenroom.actors.store.database_file import UnusableDatabase
from greenroom.schemas.problems import Problem

MAX_RECORD = 256 << 20
"""Characters of one turn or completion at most: several times the largest request body."""

_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def store_unavailable(reason: str) -> Problem:
    """Return the problem of a database that cannot be opened."""
    return Problem(
        503,
        "store_unavailable",
        f"Nothing can be stored or read now: {reason}. Requests with `store: false` are answered.",
        retry_after=30,
    )


def store_hung(seconds: float) -> Problem:
    """Return the problem of a message whose thread fell silent over it."""
    detail = f"The database gave no sign of life for {seconds:g} seconds; the disk may not respond."
    return Problem(503, "store_hung", detail, retry_after=30)


def store_given_up(threads: int) -> Problem:
    """Return the problem of a store that has cost too many threads that cannot be ended."""
    detail = f"Nothing is stored or read any more: {threads} threads hang over the database, or its disk."
    return Problem(503, "store_hung", detail, retry_after=30)


def store_overloaded(waiting: int) -> Problem:
    """Return the problem of a message that would be one too many to wait for the database."""
    detail = f"{waiting} requests are already waiting for the database."
    return Problem(503, "store_busy", detail, retry_after=2)


def storing_disabled() -> Problem:
    """Return the problem of something that is to be kept where nothing is."""
    detail = "This server stores nothing (its setting `store_responses` is off); send `store: false`."
    return Problem(400, "storing_disabled", detail, "store")


def too_large_to_store(size: int) -> Problem:
    """Return the problem of text that is too long."""
    detail = f"{size} characters are too many to be stored; {MAX_RECORD} is the most."
    return Problem(413, "too_large_to_store", detail)


def too_much_referred_to(most: int) -> Problem:
    """Return the problem of references to more than any model reads."""
    detail = f"The items that are referred to have more than {most} characters together."
    return Problem(413, "request_too_large", detail, "input")


def unfinished(response: str) -> Problem:
    """Return the problem of continuing a response that is still being generated."""
    detail = f"The response '{response}' is not finished; wait for its end, or cancel it, before continuing."
    return Problem(409, "response_not_finished", detail, "previous_response_id", retry_after=1)


def not_found(kind: str, name: str, param: str | None = None) -> Problem:
    """Return the problem of something that is not there, or is somebody else's.

    Args:
        kind: `response`, `conversation`, `item` or `chat completion`.
    """
    code = f"{kind.replace(' ', '_')}_not_found"
    return Problem(404, code, f"The {kind} '{name}' does not exist here.", param)


def previous_not_found(response: str) -> Problem:
    """Return the problem of a response that is to be continued and is not there."""
    detail = f"Previous response with id '{response}' not found."
    return Problem(404, "previous_response_not_found", detail, "previous_response_id")


def unwritable_text() -> Problem:
    """Return the problem of text that no file can hold."""
    return Problem(400, "invalid_value", "Text with half of a surrogate pair cannot be stored.")


def find_problem(error: sqlite3.Error | UnusableDatabase | OSError) -> Problem:
    """Return what to tell a client of an error of the database."""
    code = getattr(error, "sqlite_errorcode", None)
    if code in _FULL or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        detail = (
            "The database has no room left on its disk, or in memory if it is there; nothing was changed. "
            "Deleting needs some, too: make room on the disk first."
        )
        return Problem(507, "storage_full", detail)
    if code is not None and code & 0xFF in _LOCKED:
        detail = "Another process holds the database; nothing was changed."
        return Problem(503, "store_busy", detail, retry_after=2)
    if code is not None and code & 0xFF == sqlite3.SQLITE_CONSTRAINT:
        return Problem(409, "already_stored", "Something with this id is stored already.")
    reason = error.strerror if isinstance(error, OSError) else None
    return store_unavailable((reason or str(error)).rstrip("."))
