"""Loading of a request's history from the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.store.database.problems import not_found, previous_not_found
from greenroom.http.answering.sealing.seal import Seal
from greenroom.http.answering.sealing.server_seal import ServerSeal
from greenroom.http.guard.client_lanes import ClientLanes
from greenroom.http.responses.history.recalled import Recalled
from greenroom.http.responses.history.stand_ins import (
    check_items,
    decode_item,
    find_references,
    is_id,
    opened_items,
    resolve_references,
)
from greenroom.http.responses.items.item_bodies import stored_items
from greenroom.http.responses.requests.response_request import AskedResponse
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.store_protocol import History, StoreMessage, Turns
from greenroom.schemas.responses.items import MAX_ITEMS, Item, StandInItem
from greenroom.schemas.stored import StoredItem

UNREAD_AT_ONCE = MAX_ITEMS // 4
"""Number of items dropped at once from the beginning of a history that is too long."""

_READERS = 2
"""Number of concurrent reads of histories.

A history may be 64 MB, and several times that while it is decoded; more readers would only compete for the
GIL.
"""


def recall_nothing(asked: AskedResponse) -> Recalled:
    """Return a self-contained request without reading the store.

    Raises:
        ProblemError: 400 that names the field.
    """
    return Recalled(asked.request(), asked.items)


class HistoryReader:
    """Reads from the store what requests refer to, for few clients at once.

    Reading stops with the request: a client that disconnects keeps no thread busy.

    Attributes:
        seal: The server's seal, which opens compactions.
    """

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self.seal = ServerSeal(store)
        self._store = store
        self._lanes = ClientLanes(_READERS)

    async def recall(
        self, asked: AskedResponse, owner: str, client: str, known: Turns | None = None
    ) -> Recalled:
        """Return a request with its history.

        Args:
            client: The client's name, as `request_client` returns it.
            known: Turns up to the previous response, if that is not stored.

        Raises:
            ProblemError: 404 that names the response or conversation not stored here; 400 that names the
                field: a compaction that cannot be decrypted, or a history that is too long and must not be
                truncated.
        """
        async with self._lanes.lane(client):
            turns = known or await self._turns(asked, owner)
            referred = await find_references(self._store, asked.items, owner)
            seal = await self.seal.load()
            return await trio.to_thread.run_sync(
                _recalled, asked, turns, referred, seal, trio.from_thread.check_cancelled
            )

    async def stored_form(self, items: Sequence[Item], owner: str, client: str) -> tuple[StoredItem, ...]:
        """Return a client's items in their stored form, after checking that a model could read them.

        Raises:
            ProblemError: 400 that names an item no model could read, 404 for an item that is not stored here.
        """
        if not items:
            return ()
        async with self._lanes.lane(client):
            referred = await find_references(self._store, items, owner)
            seal = await self.seal.load()

            def checked() -> tuple[StoredItem, ...]:
                found = check_items(items, referred, seal, trio.from_thread.check_cancelled)
                return stored_items([item.raw for item in found], lambda prefix, _: f"{prefix}_{uuid4().hex}")

            return await trio.to_thread.run_sync(checked)

    async def _turns(self, asked: AskedResponse, owner: str) -> Turns:
        if not asked.has_history:
            return Turns(())
        previous, conversation = asked.previous, asked.conversation
        if previous is not None and not is_id(previous):
            raise ProblemError(previous_not_found(previous))
        if conversation is not None and not is_id(conversation):
            raise ProblemError(not_found("conversation", conversation, "conversation"))
        return await ask_actor(self._store, History(owner, previous, conversation), Turns)


def _recalled(
    asked: AskedResponse,
    turns: Turns,
    referred: Mapping[str, StoredItem],
    seal: Seal,
    proceed: Callable[[], None],
) -> Recalled:
    """Return the request with its conversation; `proceed` raises once the request is cancelled."""
    texts = [item.body for turn in turns.turns for item in turn.items]
    # Dropping many at once keeps the prefix of the next turns stable for the prefix cache.
    unread = max(0, -(-(len(texts) - MAX_ITEMS) // UNREAD_AT_ONCE)) * UNREAD_AT_ONCE
    left_out = turns.left_out + (unread > 0)
    if left_out and not asked.may_be_cut:
        raise _too_long()
    kept = []
    for text in texts[unread:]:
        proceed()
        kept.append(decode_item(text))
    said = {str(item.raw["id"]) for item in kept}
    items = resolve_references(asked.items, said, referred, proceed)
    fields = [asked.history_field] * len(kept)
    fields += (f"{asked.field}[{index}]" for index in range(len(items)))
    opened = opened_items([*kept, *items], fields, seal)
    history, own = opened[: len(kept)], opened[len(kept) :]
    readable = tuple(_without_orphans(history))
    request = asked.request(readable, own, proceed, turns.system_prompt)
    return Recalled(request, own, readable, left_out, turns.system_prompt)


def _without_orphans(history: Sequence[Item]) -> list[Item]:
    """Return the history without results whose calls were deleted or dropped."""
    called: set[object] = set()
    readable = []
    for item in history:
        is_result = str(item.raw.get("type")).endswith("_output")
        if is_result and item.raw.get("call_id") not in called:
            continue
        inner = item.param.items if isinstance(item.param, StandInItem) else (item,)
        called.update(other.raw.get("call_id") for other in inner)
        readable.append(item)
    return readable


def _too_long() -> ProblemError:
    detail = (
        "What was said before is longer than any model's maximum context length; without "
        "`truncation: disabled` the oldest turns would be left out."
    )
    return ProblemError(Problem(400, "context_length_exceeded", detail, "truncation"))
