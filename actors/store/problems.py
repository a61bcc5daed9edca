"""Problems of the database, as reported to clients."""

from __future__ import annotations

import errno
import sqlite3

from greenroom.actors.store.database_file import UnusableDatabase
from greenroom.schemas.problems import Problem

MAX_RECORD = 256 << 20
"""Maximum size of a turn or completion, in characters: several times the largest request body."""

_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def store_unavailable(reason: str) -> Problem:
    return Problem(
        503,
        "store_unavailable",
        f"Nothing can be stored or read now: {reason}. Requests with `store: false` are answered.",
        retry_after=30,
    )


def store_hung(seconds: float) -> Problem:
    detail = f"The database gave no sign of life for {seconds:g} seconds; the disk may not respond."
    return Problem(503, "store_hung", detail, retry_after=30)


def store_given_up(threads: int) -> Problem:
    detail = f"Nothing can be stored or read any more: {threads} threads hang on the database or its disk."
    return Problem(503, "store_hung", detail, retry_after=30)


def store_overloaded(waiting: int) -> Problem:
    detail = f"{waiting} requests are already waiting for the database."
    return Problem(503, "store_busy", detail, retry_after=2)


def store_slow() -> Problem:
    return Problem(503, "store_busy", "The database took too long; nothing was stored.", retry_after=2)


def disk_reserved(reserved: int) -> Problem:
    """Return the problem of a disk whose free space has reached the reserve."""
    detail = (
        f"The database's disk has less than the {reserved >> 20} MB that must stay free. Nothing was stored."
    )
    return Problem(507, "storage_full", detail)


def store_limit_reached(most: int) -> Problem:
    """Return the problem of a database at its maximum size."""
    detail = (
        f"The database has reached the {most} bytes of the setting `store_max_bytes`; nothing was stored. "
        "Delete responses or conversations, or send `store: false`."
    )
    return Problem(507, "storage_full", detail)


def store_share_reached(own: int, most: int) -> Problem:
    """Return the problem of an owner who holds its share of the database."""
    detail = (
        f"Your responses and conversations hold {own:,} of the {most:,} bytes of the setting "
        "`store_max_bytes`. Nobody may hold more than is left for others, at most half; nothing was stored. "
        "Delete responses or conversations, or send `store: false`."
    )
    return Problem(507, "storage_full", detail)


def storing_disabled() -> Problem:
    detail = "This server stores nothing (its setting `store_responses` is off); send `store: false`."
    return Problem(400, "storing_disabled", detail, "store")


def too_large_to_store(size: int) -> Problem:
    detail = f"{size} characters are too many to store; the limit is {MAX_RECORD}."
    return Problem(413, "too_large_to_store", detail)


def too_much_referred_to(most: int) -> Problem:
    """Return the problem of item references whose total text exceeds the limit."""
    detail = (
        f"The items that are referred to have more than {most} characters, counted once for each reference."
    )
    return Problem(413, "request_too_large", detail, "input")


def unfinished(response: str) -> Problem:
    detail = f"The response '{response}' is not finished; wait for its end, or cancel it, before continuing."
    return Problem(409, "response_not_finished", detail, "previous_response_id", retry_after=1)


def end_not_stored(response: str) -> Problem:
    detail = f"The response '{response}' has ended, but its end could not be stored: delete it, ask again."
    return Problem(409, "response_not_running", detail, "response_id")


def not_found(kind: str, name: str, param: str | None = None) -> Problem:
    """Return the 404 for an object that does not exist, or belongs to another owner. `kind`: name of the
    object's type: `response`, `conversation`, `item` or `chat completion`.
    """
    code = f"{kind.replace(' ', '_')}_not_found"
    return Problem(404, code, f"The {kind} {name[:80]!r} does not exist here.", param)


def previous_not_found(response: str) -> Problem:
    detail = f"Previous response with id {response[:80]!r} not found."
    return Problem(404, "previous_response_not_found", detail, "previous_response_id")


def other_conversation(response: str, conversation: str) -> Problem:
    """Return the problem of continuing, in a conversation, a response that is not one of its turns."""
    detail = (
        f"The response {response[:80]!r} is not part of the conversation {conversation[:80]!r}; "
        "leave one of them out, or name a response of this conversation."
    )
    return Problem(400, "conversation_mismatch", detail, "previous_response_id")


def unwritable_text() -> Problem:
    return Problem(400, "invalid_value", "Text with half of a surrogate pair cannot be stored.")


def find_problem(error: sqlite3.Error | UnusableDatabase | OSError) -> Problem:
    """Return the problem to report to a client for a database error."""
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
