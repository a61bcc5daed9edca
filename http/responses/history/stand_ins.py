"""Items that stand for others: references to what is stored, and conversations that were compacted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.sealing.seal import Seal
from greenroom.http.responses.history.compaction import Compaction
from greenroom.http.responses.items.conversation import Conversation
from greenroom.schemas.protocols.store_protocol import FindItems, ItemPage, StoreMessage
from greenroom.schemas.responses.items import (
    CompactionItem,
    Item,
    ReferenceItem,
    StandInItem,
    kept_items,
)
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
    mentions = Counter(item.param.id for item in items if isinstance(item.param, ReferenceItem))
    asked = {ident: times for ident, times in mentions.items() if is_id(ident)}
    if not asked:
        return {}
    found = await ask_actor(store, FindItems(asked, owner), ItemPage)
    return {item.id: item for item in found.items}


def check_items(
    items: Sequence[Item], referred: Mapping[str, StoredItem], seal: Seal, proceed: Callable[[], None]
) -> tuple[Item, ...]:
    """Return the items of a conversation's request with what they refer to.

    Args:
        proceed: Called between any two items; raises where nobody waits for them any more.

    Raises:
        ProblemError: 400 that names what no model could read, 404 for an item that is not kept here.
    """
    found = resolve_references(items, frozenset(), referred, proceed)
    opened = opened_items(found, [f"items[{index}]" for index in range(len(found))], seal)
    Conversation(whole=False, proceed=proceed).read(opened, "items")
    return opened


def resolve_references(
    items: Sequence[Item], said: Set[str], stored: Mapping[str, StoredItem], proceed: Callable[[], None]
) -> list[Item]:
    """Return items with those in the place of references that they refer to.

    What several refer to is decoded once, and is one item. What is in the history already is not repeated.

    Args:
        said: Ids of the history's items.
        stored: What is referred to, by id.
        proceed: See `check_items`.
    """
    decoded: dict[str, Item] = {}
    resolved = []
    for item in items:
        match item.param:
            case ReferenceItem(ident) if ident in said:
                item = Item(StandInItem(()), item.raw)
            case ReferenceItem(ident) if ident in stored:
                if ident not in decoded:
                    proceed()
                    decoded[ident] = decode_item(stored[ident].body)
                item = decoded[ident]
        resolved.append(item)
    return resolved


def decode_item(body: str) -> Item:
    """Return an item that was stored as JSON."""
    [item] = kept_items([json.loads(body)])
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
