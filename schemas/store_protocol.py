"""What can be asked of the store, and what it answers: plain data, all of it.

Any message may be answered with `Failed`: with a 404 that names what is unknown (what belongs to another
owner is unknown, too), a 503 if the database cannot be used now, a 507 if its disk is full. What fails has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.claim_protocol import ClaimConversation, ReleaseConversation
from greenroom.schemas.completion_store_protocol import (
    DeleteCompletion,
    FindCompletion,
    ListCompletions,
    SaveCompletion,
    UpdateCompletion,
)
from greenroom.schemas.store_upkeep_protocol import DescribeStore, Prune
from greenroom.schemas.stored import Order, StoredConversation, StoredItem, StoredResponse, StoredTurn


@attrs.frozen
class Committed:
    """What was asked is stored, and outlives the process."""


@attrs.frozen
class Deleted:
    """What was asked is gone."""


# Responses


@attrs.frozen
class BeginResponse:
    """Store a response that is still unfinished, so that it can be found. Reply: Committed.

    If its server dies, it is found as `failed`. Its items join its conversation when it is committed.
    """

    response: StoredResponse


@attrs.frozen
class CommitResponse:
    """Store a response that has ended, in place of the one that was begun, and append its items.

    Reply: Committed. Fails with a 404 if its parent or conversation is gone, or if it was begun and has been
    deleted since.

    Args:
        begun: It was stored by BeginResponse.
    """

    response: StoredResponse
    begun: bool = False


@attrs.frozen
class FindResponse:
    """Reply: StoredResponse."""

    id: str
    owner: str


@attrs.frozen
class DeleteResponse:
    """Reply: Deleted; 409 while another server generates it. A conversation keeps its items, a branch not."""

    id: str
    owner: str


@attrs.frozen
class ListInput:
    """Ask for the items that a response's request brought. Reply: ItemPage, 404 if `after` is none of them.

    Args:
        after: Id of the item behind which the page begins, in its order.
        limit: 1 to `MAX_PAGE`.
    """

    id: str
    owner: str
    after: str | None = None
    limit: int = 20
    order: Order = "desc"


@attrs.frozen
class ItemPage:
    """Items in the order that was asked for. A page of large items is shorter than its limit."""

    items: tuple[StoredItem, ...]
    has_more: bool


@attrs.frozen
class History:
    """Ask what came before a new turn: of a response to be continued, or of a conversation. Reply: Turns.

    A response of a conversation can be continued apart from it: its history is the conversation's up to it.
    Fails with a 400 if both are given and the response is no turn of the conversation.

    Args:
        response: Its own turn is the last one, with what was added by itself to `conversation` behind it.
        conversation: Read to its end, if there is no `response`.
    """

    owner: str
    response: str | None = None
    conversation: str | None = None


@attrs.frozen
class Turns:
    """A history, oldest turn first.

    Args:
        left_out: Turns before these that are left out because the history is too large to be read whole.
        system_prompt: The operator's that it began with, empty for none; None if that is not known.
    """

    turns: tuple[StoredTurn, ...]
    left_out: int = 0
    system_prompt: str | None = None


# Conversations


@attrs.frozen
class CreateConversation:
    """Reply: Committed."""

    conversation: StoredConversation
    items: tuple[StoredItem, ...] = ()


@attrs.frozen
class FindConversation:
    """Reply: StoredConversation."""

    id: str
    owner: str


@attrs.frozen
class UpdateConversation:
    """Replace a conversation's metadata. Reply: StoredConversation."""

    id: str
    owner: str
    metadata: Mapping[str, str]


@attrs.frozen
class DeleteConversation:
    """Reply: Deleted. The items that were added to it go with it; its responses can still be read, but have
    no history any more.
    """

    id: str
    owner: str


@attrs.frozen
class AddItems:
    """Append items to a conversation. Reply: Committed."""

    conversation: str
    owner: str
    items: tuple[StoredItem, ...]


@attrs.frozen
class ListItems:
    """Ask for items of a conversation. Reply: ItemPage, 404 if `after` is none of them."""

    conversation: str
    owner: str
    after: str | None = None
    limit: int = 20
    order: Order = "desc"


@attrs.frozen
class FindItem:
    """Reply: StoredItem."""

    conversation: str
    owner: str
    id: str


@attrs.frozen
class CheckStoring:
    """Ask, before something is generated, whether it could be stored. Reply: Committed."""


@attrs.frozen
class FindItems:
    """Ask for items by id, with how often each is named. Reply: ItemPage, the last one of each id, once."""

    mentions: Mapping[str, int]
    owner: str


@attrs.frozen
class DeleteItem:
    """Take an item out of a conversation. Reply: StoredConversation."""

    conversation: str
    owner: str
    id: str


# The store itself


@attrs.frozen
class FindSecret:
    """Ask for random bytes that are made when they are first asked for, and kept. Reply: Secret."""

    name: str


@attrs.frozen
class Secret:
    """32 bytes that nobody else knows."""

    value: bytes


StoreMessage = (
    BeginResponse
    | CommitResponse
    | FindResponse
    | DeleteResponse
    | ListInput
    | History
    | CreateConversation
    | FindConversation
    | UpdateConversation
    | DeleteConversation
    | AddItems
    | ListItems
    | FindItem
    | FindItems
    | CheckStoring
    | DeleteItem
    | ClaimConversation
    | ReleaseConversation
    | SaveCompletion
    | FindCompletion
    | ListCompletions
    | UpdateCompletion
    | DeleteCompletion
    | FindSecret
    | Prune
    | DescribeStore
)
