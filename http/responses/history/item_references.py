"""Items that are resolved to others: references to stored items, and compactions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from greenroom.actors.core.ref import Ref
from greenroom.actors.store.answers import StoreMessage, ask_store
from greenroom.http.responses.history.compaction import Compaction
from greenroom.http.responses.history.encrypted_content import ContentCipher
from greenroom.http.responses.items.conversation import Conversation
from greenroom.schemas.responses.items import (
    CompactionItem,
    Item,
    ItemReference,
    ResolvedItem,
    structure_items,
)
from greenroom.schemas.stored import StoredItem

LONGEST_ID = 256
"""Length limit of ids in characters; nothing stored has a longer one."""


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a stored object; the store cannot look up a lone surrogate."""
    return text.isascii() and len(text) <= LONGEST_ID


async def find_references(
    store: Ref[StoreMessage], items: Sequence[Item], owner: str
) -> dict[str, StoredItem]:
    """Return the stored items that references name, by id.

    Raises:
        ProblemError: 413 if the items are too large together.
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

    Args:
        known: Ids of the history's items.
        stored: Referenced items by id.
        proceed: See `check_items`.
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
    """Return items with the last compaction decrypted and expanded; earlier ones become empty.

    Args:
        fields: Parameter name of each item, for errors.
    """
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
