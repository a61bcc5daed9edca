"""Reading of histories, and of items that requests reference, from the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager, closing
from uuid import uuid4

import trio

from greenroom.actors.core.ref import Ref, ask_actor
from greenroom.actors.responses.event_log import ConversationLock
from greenroom.actors.store.problems import not_found, previous_not_found
from greenroom.actors.store.tables import StoreMessage, ask_store
from greenroom.http.guard.byte_account import ClientLanes
from greenroom.http.responses.compaction import Compaction, ContentCipher, ServerCipher
from greenroom.http.responses.conversation import Conversation
from greenroom.http.responses.item_bodies import answered_call, stored_items
from greenroom.http.responses.request_parser import ParsedResponseRequest, RequestWithHistory
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.responses_protocol import LockConversation, ResponsesMessage
from greenroom.schemas.stored import StoredItem, Turns
from greenroom.schemas.wire.responses_items import (
    MAX_ITEMS,
    CompactionItem,
    Item,
    ItemReference,
    ResolvedItem,
    structure_items,
)

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
        """Return a client's items in their stored form, after checking that a model could read them. Raises
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
    """Return the history without results and approvals whose calls were deleted or dropped."""
    called: set[object] = set()
    readable = []
    for item in history:
        answered = answered_call(item.raw)
        if answered is not None and answered not in called:
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


LONGEST_ID = 256  # Length limit of ids in characters; nothing stored has a longer one


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a stored object; the store cannot look up a lone surrogate."""
    return text.isascii() and len(text) <= LONGEST_ID


async def find_references(
    store: Ref[StoreMessage], items: Sequence[Item], owner: str
) -> dict[str, StoredItem]:
    """Return the stored items that references name, by id. Raises ProblemError: 413 if the items are too
    large together.
    """
    mentions = Counter(item.param.id for item in items if isinstance(item.param, ItemReference))
    mentioned = {ident: times for ident, times in mentions.items() if is_id(ident)}
    if not mentioned:
        return {}
    found = await ask_store(store, lambda tables: tables.items.find_many(mentioned, owner))
    return {item.id: item for item in found.items}


def check_items(
    items: Sequence[Item],
    referred: Mapping[str, StoredItem],
    cipher: ContentCipher,
    proceed: Callable[[], None],
) -> tuple[Item, ...]:
    """Return items to add to a conversation, with references resolved.

    Args:
        proceed: Callback between items; raises once the request is cancelled.

    Raises:
        ProblemError: 400 that names an item no model could read, 404 for an item that is not stored here.
    """
    found = resolve_references(items, frozenset(), referred, proceed)
    expanded = expand_compactions(found, [f"items[{index}]" for index in range(len(found))], cipher)
    Conversation(whole=False, proceed=proceed).read(expanded, "items")
    return expanded


def resolve_references(
    items: Sequence[Item], known: Set[str], stored: Mapping[str, StoredItem], proceed: Callable[[], None]
) -> list[Item]:
    """Return items with references replaced by the stored items.

    An item referenced repeatedly is decoded once. Items already in the history are not repeated.
    """
    decoded: dict[str, Item] = {}
    resolved = []
    for item in items:
        match item.param:
            case ItemReference(ident) if ident in known:
                item = Item(ResolvedItem(()), item.raw)
            case ItemReference(ident) if ident in stored:
                if ident not in decoded:
                    proceed()
                    decoded[ident] = decode_item(stored[ident].body)
                item = decoded[ident]
        resolved.append(item)
    return resolved


def decode_item(body: str) -> Item:
    [item] = structure_items([json.loads(body)])
    return item


def expand_compactions(
    items: Sequence[Item], fields: Sequence[str], cipher: ContentCipher
) -> tuple[Item, ...]:
    """Return items with the last compaction decrypted and expanded; earlier ones become empty."""
    expanded = list(items)
    places = [index for index, item in enumerate(items) if isinstance(item.param, CompactionItem)]
    for index in places:
        param = items[index].param
        stands_for: tuple[Item, ...] = ()
        if index == places[-1] and isinstance(param, CompactionItem):
            field = f"{fields[index]}.encrypted_content"
            compaction = Compaction.decrypt(cipher, param.encrypted_content, field)
            stands_for = structure_items([*compaction.stands_for()])
        expanded[index] = Item(ResolvedItem(stands_for, replaces=True), items[index].raw)
    return tuple(expanded)


@asynccontextmanager
async def locked_conversation(
    responses: Ref[ResponsesMessage], conversation: str | None, owner: str
) -> AsyncIterator[ConversationLock | None]:
    """Lock a conversation within a block, or until the end of a run that takes the lock over; None without a
    conversation. Whoever is answered may go on with it at once. Raises ProblemError: 409 if another turn
    holds the lock.
    """
    if not conversation:
        yield None
        return
    with closing(await ask_actor(responses, LockConversation(owner, conversation), ConversationLock)) as lock:
        yield lock
