"""Messages to the store about conversations and their items (see `store_protocol`)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.stored import Order, StoredConversation, StoredItem


@attrs.frozen
class CreateConversation:
    """Create a conversation. Reply: Committed."""

    conversation: StoredConversation
    items: tuple[StoredItem, ...] = ()


@attrs.frozen
class FindConversation:
    """Find a conversation. Reply: StoredConversation."""

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
    """Delete a conversation and the items added to it. Reply: Deleted.

    Args:
        responses: True to delete its ended responses too; else they can still be read, without history.
    """

    id: str
    owner: str
    responses: bool = False


@attrs.frozen
class AddItems:
    """Append items to a conversation. Reply: Committed."""

    conversation: str
    owner: str
    items: tuple[StoredItem, ...]


@attrs.frozen
class ListConversations:
    """List an owner's conversations, the newest first. Reply: ConversationPage, or a 404 for `after`.

    Args:
        after: Id of the conversation that precedes the page; None for the beginning.
        query: Text that `metadata.title` must contain, in any case of its ASCII letters; empty for all.
    """

    owner: str
    after: str | None = None
    limit: int = 20
    query: str = ""


@attrs.frozen
class ConversationPage:
    """A page of conversations, the newest first."""

    conversations: tuple[StoredConversation, ...]
    has_more: bool


@attrs.frozen
class ListItems:
    """List the items of a conversation. Reply: ItemPage, or a 404 if `after` is not among them."""

    conversation: str
    owner: str
    after: str | None = None
    limit: int = 20
    order: Order = "desc"


@attrs.frozen
class FindItem:
    """Find an item of a conversation. Reply: StoredItem."""

    conversation: str
    owner: str
    id: str


@attrs.frozen
class DeleteItem:
    """Remove an item from a conversation. Reply: StoredConversation."""

    conversation: str
    owner: str
    id: str
