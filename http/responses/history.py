"""What was said before a request: read from the store, and put in the place of what stands for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set

import attrs
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.problems import not_found, previous_not_found
from greenroom.http.answering.ask_actor import ask_actor
from greenroom.http.answering.sealing.seal import Seal
from greenroom.http.answering.sealing.server_seal import server_seal
from greenroom.http.responses.compaction import Compaction, is_instruction
from greenroom.http.responses.conversation import Conversation
from greenroom.http.responses.item_bodies import stored_items
from greenroom.http.responses.problems import history_too_long
from greenroom.http.responses.response_request import AskedResponse
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.requests import InferenceRequest
from greenroom.schemas.responses.items import (
    MAX_ITEMS,
    CompactionItem,
    Item,
    ReferenceItem,
    StandInItem,
    kept_items,
)
from greenroom.schemas.store_protocol import FindItems, History, ItemPage, StoreMessage, Turns
from greenroom.schemas.stored import StoredItem

LONGEST_ID = 256
"""Characters; nothing that is stored has a longer one."""
UNREAD_AT_ONCE = MAX_ITEMS // 4
"""Items that are left out at the beginning of a history that is too long to be read."""

_READING = trio.CapacityLimiter(2)
"""A history may be 64 MB, which take several times that while they are decoded; more at once would only
compete for the GIL."""


@attrs.frozen
class Recalled:
    """A request with the whole of its conversation.

    Args:
        request: In neutral words.
        items: What it brought itself, without references.
        history: What was said before.
        left_out: Turns that are too long ago to be read.
    """

    request: InferenceRequest
    items: tuple[Item, ...]
    history: tuple[Item, ...] = ()
    left_out: int = 0

    @property
    def conversation(self) -> list[JsonObject]:
        """All of it as the model reads it, item by item."""
        read: list[JsonObject] = []
        for item in (*self.history, *self.items):
            match item.param:
                case StandInItem(others, replaces):
                    read = [other for other in read if is_instruction(other)] if replaces else read
                    # Instructions may have been repeated behind what was compacted.
                    read += [other.raw for other in others if other.raw not in read]
                case _:
                    read.append(item.raw)
        return read

    def stored_input(self, response_id: str) -> tuple[StoredItem, ...]:
        """Return what it brought as it is stored. May take long if that is much.

        Args:
            response_id: The ids of items are made from it.
        """
        stem = response_id.removeprefix("resp_")
        kept = [item.raw for item in self.items if _is_kept(item)]
        return stored_items(kept, lambda prefix, index: f"{prefix}_{stem}_in{index}")


def recall_nothing(asked: AskedResponse) -> Recalled:
    """Return a request that stands alone.

    Raises:
        ProblemError: 400 that names the field.
    """
    return Recalled(asked.request(), asked.items)


async def recall(store: Ref[StoreMessage], asked: AskedResponse, owner: str) -> Recalled:
    """Return a request with what the store has of its conversation.

    Raises:
        ProblemError: 404 that names what is not stored here; 400 that names the field: a compaction that
            cannot be opened, or a history that may not be cut and is too long to be read.
    """
    async with _READING:
        turns = await _turns(store, asked, owner)
        referred = await find_references(store, asked.items, owner)
        return await trio.to_thread.run_sync(_recalled, asked, turns, referred, await server_seal(store))


async def _turns(store: Ref[StoreMessage], asked: AskedResponse, owner: str) -> Turns:
    if asked.previous is not None:
        if not _is_id(asked.previous):
            raise ProblemError(previous_not_found(asked.previous))
        return await ask_actor(store, History(owner, response=asked.previous), Turns)
    if asked.conversation is not None:
        if not _is_id(asked.conversation):
            raise ProblemError(not_found("conversation", asked.conversation, "conversation"))
        return await ask_actor(store, History(owner, conversation=asked.conversation), Turns)
    return Turns(())


def _is_id(text: str) -> bool:
    """Whether something stored can be called so; a lone surrogate could not even be asked for."""
    return text.isascii() and len(text) <= LONGEST_ID


async def find_references(
    store: Ref[StoreMessage], items: Sequence[Item], owner: str
) -> dict[str, StoredItem]:
    """Return what items refer to, as far as it is stored, by id.

    Raises:
        ProblemError: 413: that is too much.
    """
    references = {item.param.id: None for item in items if isinstance(item.param, ReferenceItem)}
    asked = tuple(reference for reference in references if _is_id(reference))
    if not asked:
        return {}
    found = await ask_actor(store, FindItems(asked, owner), ItemPage)
    return {item.id: item for item in found.items}


def _recalled(asked: AskedResponse, turns: Turns, referred: Mapping[str, StoredItem], seal: Seal) -> Recalled:
    texts = [item.body for turn in turns.turns for item in turn.items]
    # Many at once, so that the next turns begin as this one does and are found in the cache.
    unread = max(0, -(-(len(texts) - MAX_ITEMS) // UNREAD_AT_ONCE)) * UNREAD_AT_ONCE
    left_out = turns.left_out + (unread > 0)
    if left_out and not asked.may_be_cut:
        raise ProblemError(history_too_long())
    bodies: list[JsonObject] = [json.loads(text) for text in texts[unread:]]
    said = {str(body["id"]) for body in bodies}
    items = [_referred(item, said, referred) for item in asked.items]
    fields = [asked.history_field] * len(bodies)
    fields += (f"{asked.field}[{index}]" for index in range(len(items)))
    opened = _opened([*kept_items(bodies), *items], fields, seal)
    history, own = opened[: len(bodies)], opened[len(bodies) :]
    readable = tuple(_without_orphans(history))
    return Recalled(asked.request(readable, own), own, readable, left_out)


def _without_orphans(history: Sequence[Item]) -> list[Item]:
    """Return a history without results whose calls are gone: deleted, or too long ago to be read."""
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


def _referred(item: Item, said: Set[str], stored: Mapping[str, StoredItem]) -> Item:
    """Return what an item refers to, which is nothing if that is in the history."""
    match item.param:
        case ReferenceItem(ident) if ident in said:
            return Item(StandInItem(()), item.raw)
        case ReferenceItem(ident) if ident in stored:
            [item] = kept_items([json.loads(stored[ident].body)])
    return item


def _opened(items: Sequence[Item], fields: Sequence[str], seal: Seal) -> tuple[Item, ...]:
    """Return items of which the last compaction is opened; those before it stand for nothing any more.

    Args:
        fields: What the client calls each of them, for errors.
    """
    opened = list(items)
    places = [index for index, item in enumerate(items) if isinstance(item.param, CompactionItem)]
    for index in places:
        param = items[index].param
        stands_for: tuple[Item, ...] = ()
        if index == places[-1] and isinstance(param, CompactionItem):
            field = f"{fields[index]}.encrypted_content"
            compaction = Compaction.open(seal, param.encrypted_content, field)
            stands_for = kept_items([*compaction.stands_for()])
        opened[index] = Item(StandInItem(stands_for, replaces=True), items[index].raw)
    return tuple(opened)


def _is_kept(item: Item) -> bool:
    """Whether an item is stored with its request, and not because it is in the history already."""
    return item.param != StandInItem(())


def check_items(items: Sequence[Item], referred: Mapping[str, StoredItem], seal: Seal) -> tuple[Item, ...]:
    """Return the items of a conversation's request with what they refer to.

    Raises:
        ProblemError: 400 that names what no model could read, 404 for an item that is not kept here.
    """
    found = [_referred(item, frozenset(), referred) for item in items]
    opened = _opened(found, [f"items[{index}]" for index in range(len(found))], seal)
    Conversation(whole=False).read(opened, "items")
    return opened
