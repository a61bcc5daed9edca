"""Items that stand for others: references to what is stored, and conversations that were compacted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.sealing.seal import Seal
from greenroom.http.responses.history.compaction import Compaction
from greenroom.http.responses.items.conversation import Conversation
from greenroom.schemas.responses.items import (
    CompactionItem,
    Item,
    ReferenceItem,
    StandInItem,
    kept_items,
)
from greenroom.schemas.store_protocol import FindItems, ItemPage, StoreMessage
from greenroom.schemas.stored import StoredItem

LONGEST_ID = 256
"""Characters; nothing that is stored has a longer one."""


def is_id(text: str) -> bool:
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
    asked = tuple(reference for reference in references if is_id(reference))
    if not asked:
        return {}
    found = await ask_actor(store, FindItems(asked, owner), ItemPage)
    return {item.id: item for item in found.items}


def check_items(items: Sequence[Item], referred: Mapping[str, StoredItem], seal: Seal) -> tuple[Item, ...]:
    """Return the items of a conversation's request with what they refer to.

    Raises:
        ProblemError: 400 that names what no model could read, 404 for an item that is not kept here.
    """
    found = [referred_item(item, frozenset(), referred) for item in items]
    opened = opened_items(found, [f"items[{index}]" for index in range(len(found))], seal)
    Conversation(whole=False).read(opened, "items")
    return opened


def referred_item(item: Item, said: Set[str], stored: Mapping[str, StoredItem]) -> Item:
    """Return what an item refers to, which is nothing if that is in the history."""
    match item.param:
        case ReferenceItem(ident) if ident in said:
            return Item(StandInItem(()), item.raw)
        case ReferenceItem(ident) if ident in stored:
            [item] = kept_items([json.loads(stored[ident].body)])
    return item


def opened_items(items: Sequence[Item], fields: Sequence[str], seal: Seal) -> tuple[Item, ...]:
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
