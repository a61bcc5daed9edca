"""Answers from the store about responses that this server is not generating."""

from __future__ import annotations

import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.responses.event_encoding import decode_events
from greenroom.actors.responses.event_log import EventLog
from greenroom.actors.responses.handles import Subscribed, Subscription
from greenroom.actors.store.answers import StoreMessage, ask_store
from greenroom.actors.store.database.problems import end_not_stored
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.responses_protocol import (
    AboutOne,
    CancelRun,
    Deleted,
    DeleteRun,
    Retrieve,
    RunEnded,
    Subscribe,
)
from greenroom.schemas.stored import UNFINISHED, StoredResponse

_SHORT = 65_536
"""Maximum length, in characters, of events decoded on the event loop; longer text is decoded on a thread."""


async def answer_from_store(
    store: Ref[StoreMessage], message: AboutOne
) -> StoredResponse | Subscribed | Deleted:
    """Return a stored response or a subscription to its events, or delete it.

    Raises:
        ProblemError: The response is unknown, cannot do what the message requests, or cannot be read now.
    """
    if isinstance(message, DeleteRun):
        await ask_store(store, lambda tables: tables.responses.delete(message.id, message.owner), writes=True)
        return Deleted()
    response = await ask_store(store, lambda tables: tables.responses.find(message.id, message.owner))
    match message:
        case Retrieve():
            return response
        case _ if not response.background:
            raise ProblemError(not_in_background(message))
        case _ if response.status in UNFINISHED:
            raise ProblemError(end_not_stored(message.id))
        case CancelRun():
            return response
        case Subscribe():
            return Subscribed(Subscription(await _read_log(response)), response)


def not_in_background(message: AboutOne) -> Problem:
    """Return the 400 for streaming or cancelling a response that is not a background one."""
    asked = "cancelled" if isinstance(message, CancelRun) else "streamed again"
    detail = (
        f"The response '{message.id}' cannot be {asked}: only responses that were created with "
        "`background: true` can."
    )
    return Problem(400, "not_in_background", detail, "response_id")


async def _read_log(response: StoredResponse) -> EventLog:
    text = response.events or "[]"
    entries = (
        decode_events(text) if len(text) <= _SHORT else await trio.to_thread.run_sync(decode_events, text)
    )
    log = EventLog(entries, response.model)
    log.end(RunEnded(response))
    return log
