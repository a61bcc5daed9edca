"""Reading of histories, and of items that requests reference, from the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.answers import StoreMessage, ask_store
from greenroom.actors.store.database.problems import not_found, previous_not_found
from greenroom.http.guard.client_lanes import ClientLanes
from greenroom.http.responses.history.encrypted_content import ContentCipher, ServerCipher
from greenroom.http.responses.history.item_references import (
    check_items,
    decode_item,
    expand_compactions,
    find_references,
    is_id,
    resolve_references,
)
from greenroom.http.responses.items.item_bodies import stored_items
from greenroom.http.responses.requests.response_request import ParsedResponseRequest, RequestWithHistory
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.responses.items import MAX_ITEMS, Item, ResolvedItem
from greenroom.schemas.stored import StoredItem, Turns

UNREAD_AT_ONCE = MAX_ITEMS // 4
"""Number of items dropped at once from the beginning of a history that is too long."""

_READERS = 2
"""Number of concurrent reads of histories.

A history may be 64 MB, and several times that while it is decoded; more readers would only compete for the
GIL.
"""


class HistoryReader:
    """Reads from the store what requests refer to, for few clients at once.

    Reading stops with the request: a client that disconnects keeps no thread busy.

    Attributes:
        cipher: The server's cipher, which decrypts compactions.
    """

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self.cipher = ServerCipher(store)
        self._store = store
        self._lanes = ClientLanes(_READERS)

    async def complete(
        self, request: ParsedResponseRequest, owner: str, client: str, known: Turns | None = None
    ) -> RequestWithHistory:
        """Return a request with its history.

        Args:
            client: The client's name, as `request_client` returns it.
            known: Turns up to the previous response, if that is not stored.

        Raises:
            ProblemError: 404 that names the response or conversation not stored here; 400 that names the
                field: a compaction that cannot be decrypted, or a history that is too long and must not be
                truncated.
        """
        if request.self_contained is not None:
            return request.self_contained
        async with self._lanes.lane(client):
            turns = known or await self._turns(request, owner)
            referred = await find_references(self._store, request.items, owner)
            cipher = await self.cipher.load(owner)
            return await trio.to_thread.run_sync(
                _with_history, request, turns, referred, cipher, trio.from_thread.check_cancelled
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
            cipher = await self.cipher.load(owner)

            def checked() -> tuple[StoredItem, ...]:
                found = check_items(items, referred, cipher, trio.from_thread.check_cancelled)
                return stored_items([item.raw for item in found], lambda prefix, _: f"{prefix}_{uuid4().hex}")

            return await trio.to_thread.run_sync(checked)

    async def _turns(self, request: ParsedResponseRequest, owner: str) -> Turns:
        if not request.has_history:
            return Turns(())
        previous, conversation = request.previous, request.conversation
        if previous is not None and not is_id(previous):
            raise ProblemError(previous_not_found(previous))
        if conversation is not None and not is_id(conversation):
            raise ProblemError(not_found("conversation", conversation, "conversation"))
        return await ask_store(
            self._store, lambda tables: tables.histories.before(owner, previous, conversation)
        )


def _with_history(
    request: ParsedResponseRequest,
    turns: Turns,
    referred: Mapping[str, StoredItem],
    cipher: ContentCipher,
    proceed: Callable[[], None],
) -> RequestWithHistory:
    """Return the request with its conversation; `proceed` raises once the request is cancelled."""
    texts = [item.body for turn in turns.turns for item in turn.items]
    # Dropping many at once keeps the prefix of the next turns stable for the prefix cache.
    unread = max(0, -(-(len(texts) - MAX_ITEMS) // UNREAD_AT_ONCE)) * UNREAD_AT_ONCE
    if (turns.left_out or unread) and not request.may_be_cut:
        raise _too_long()
    decoded = []
    for text in texts[unread:]:
        proceed()
        decoded.append(decode_item(text))
    known = {str(item.raw["id"]) for item in decoded}
    items = resolve_references(request.items, known, referred, proceed)
    fields = [request.history_field] * len(decoded)
    fields += (f"{request.field}[{index}]" for index in range(len(items)))
    expanded = expand_compactions([*decoded, *items], fields, cipher)
    history, own = expanded[: len(decoded)], expanded[len(decoded) :]
    return request.with_history(own, turns, _without_orphans(history), proceed)


def _without_orphans(history: Sequence[Item]) -> list[Item]:
    """Return the history without results whose calls were deleted or dropped."""
    called: set[object] = set()
    readable = []
    for item in history:
        is_result = str(item.raw.get("type")).endswith("_output")
        if is_result and item.raw.get("call_id") not in called:
            continue
        inner = item.param.items if isinstance(item.param, ResolvedItem) else (item,)
        called.update(other.raw.get("call_id") for other in inner)
        readable.append(item)
    return readable


def _too_long() -> ProblemError:
    detail = (
        "What was said before is longer than any model's maximum context length; without "
        "`truncation: disabled` the oldest turns would be left out."
    )
    return ProblemError(Problem(400, "context_length_exceeded", detail, "truncation"))
