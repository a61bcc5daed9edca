"""The messages that the store accepts, and its answers, all of them plain data.

Any message may be answered with `Failed`: a 404 that names the unknown object (another owner's objects count
as unknown), a 503 if the database cannot be used now, or a 507 if its disk is full. A failed message has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.protocols.audit_store_protocol import ListAudit, ListUsage, SaveAudit
from greenroom.schemas.protocols.capability_store_protocol import (
    ListCapabilities,
    SaveCapabilities,
    SaveWorkingSpace,
)
from greenroom.schemas.protocols.completion_store_protocol import (
    DeleteCompletion,
    FindCompletion,
    ListCompletions,
    SaveCompletion,
    UpdateCompletion,
)
from greenroom.schemas.protocols.conversation_store_protocol import (
    AddItems,
    CreateConversation,
    DeleteConversation,
    DeleteItem,
    FindConversation,
    FindItem,
    ListConversations,
    ListItems,
    UpdateConversation,
)
from greenroom.schemas.protocols.key_store_protocol import AddKey, ListKeys, RevokeKey, SwitchKeysOff
from greenroom.schemas.protocols.store_upkeep_protocol import DescribeStore, Prune
from greenroom.schemas.stored import EVERYBODY, Order, StoredItem, StoredResponse, StoredTurn


@attrs.frozen
class Committed:
    """Confirmation that the change is stored durably."""


@attrs.frozen
class Deleted:
    """Confirmation that the object is deleted."""


# Responses


@attrs.frozen
class BeginResponse:
    """Store an unfinished response, so that it can be found. Reply: Committed.

    If its server dies, it is found as `failed`. Its items join its conversation only when it is committed.
    """

    response: StoredResponse


@attrs.frozen
class CommitResponse:
    """Store a finished response, in place of its unfinished row if there is one, and append its items.

    Reply: Committed. Fails with a 404 if the response's parent or conversation is gone, or if a client has
    deleted the unfinished row.

    Args:
        begun: True if `BeginResponse` has stored an unfinished row of the response.
    """

    response: StoredResponse
    begun: bool = False


@attrs.frozen
class FindResponse:
    """Find a stored response. Reply: StoredResponse."""

    id: str
    owner: str


@attrs.frozen
class DeleteResponse:
    """Delete a response. Reply: Deleted.

    Its items stay if they belong to a conversation; without a conversation they are deleted.
    """

    id: str
    owner: str


@attrs.frozen
class ListInput:
    """List the input items of a response's request. Reply: ItemPage, or a 404 if `after` is not among them.

    Args:
        after: Id of the item after which the page begins, in its order.
        limit: Maximum number of items, 1 to `MAX_PAGE`.
    """

    id: str
    owner: str
    after: str | None = None
    limit: int = 20
    order: Order = "desc"


@attrs.frozen
class ItemPage:
    """A page of items in the requested order. Large items make it shorter than its limit."""

    items: tuple[StoredItem, ...]
    has_more: bool


@attrs.frozen
class History:
    """Read the history before a new turn, of a response to continue or of a conversation. Reply: Turns.

    A response in a conversation can be continued outside of it; its history is then the conversation's up to
    that response. Fails with a 400 if both are given and the response is no turn of the conversation.

    Args:
        response: Id of the response whose turn comes last, followed by items added to `conversation` on their
            own.
        conversation: Id of the conversation, read to its end if there is no `response`.
    """

    owner: str
    response: str | None = None
    conversation: str | None = None


@attrs.frozen
class Turns:
    """A history, oldest turn first.

    Args:
        left_out: Number of earlier turns omitted because the history is too large to be read whole.
        system_prompt: The operator's system prompt at its start, empty if there was none; None if unknown.
    """

    turns: tuple[StoredTurn, ...]
    left_out: int = 0
    system_prompt: str | None = None


# Conversations


@attrs.frozen
class CheckStoring:
    """Check, before anything is generated, that its owner could store the result. Reply: Committed."""

    owner: str = EVERYBODY


@attrs.frozen
class FindItems:
    """Find items by id, given the mentions of each. Reply: ItemPage with the last item of each id.

    Args:
        mentions: Number of mentions of each id.
    """

    mentions: Mapping[str, int]
    owner: str


# Secrets of the server


@attrs.frozen
class FindSecret:
    """Find a secret, which is generated on first use and then stored. Reply: Secret."""

    name: str


@attrs.frozen
class Secret:
    """A secret of 32 random bytes."""

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
    | ListConversations
    | ListItems
    | FindItem
    | FindItems
    | CheckStoring
    | DeleteItem
    | SaveCompletion
    | FindCompletion
    | ListCompletions
    | UpdateCompletion
    | DeleteCompletion
    | FindSecret
    | SaveCapabilities
    | SaveWorkingSpace
    | ListCapabilities
    | AddKey
    | RevokeKey
    | SwitchKeysOff
    | ListKeys
    | Prune
    | DescribeStore
    | SaveAudit
    | ListAudit
    | ListUsage
)
