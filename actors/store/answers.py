"""Execution of the store's messages on the database."""

from __future__ import annotations

import math
import time

from greenroom.actors.store.database.capacity import Capacity
from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.database.problems import storing_disabled
from greenroom.actors.store.tables.audit_table import AuditTable
from greenroom.actors.store.tables.capabilities_table import CapabilitiesTable
from greenroom.actors.store.tables.completions_table import CompletionsTable
from greenroom.actors.store.tables.conversations_table import ConversationsTable
from greenroom.actors.store.tables.history import MAX_HISTORY, Histories
from greenroom.actors.store.tables.items_table import ItemsTable
from greenroom.actors.store.tables.keys_table import KeysTable
from greenroom.actors.store.tables.responses_table import ResponsesTable
from greenroom.actors.store.tables.retention import Retention
from greenroom.actors.store.tables.secrets_table import SecretsTable
from greenroom.actors.store.tables.working_space_table import WorkingSpaceTable
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.audit_store_protocol import (
    AuditPage,
    ListAudit,
    ListUsage,
    SaveAudit,
    UsageList,
)
from greenroom.schemas.protocols.capability_store_protocol import (
    CapabilityList,
    ListCapabilities,
    SaveCapabilities,
    SaveWorkingSpace,
)
from greenroom.schemas.protocols.completion_store_protocol import (
    CompletionPage,
    DeleteCompletion,
    FindCompletion,
    ListCompletions,
    SaveCompletion,
    UpdateCompletion,
)
from greenroom.schemas.protocols.conversation_store_protocol import (
    AddItems,
    ConversationPage,
    CreateConversation,
    DeleteConversation,
    DeleteItem,
    FindConversation,
    FindItem,
    ListConversations,
    ListItems,
    UpdateConversation,
)
from greenroom.schemas.protocols.key_store_protocol import (
    AddKey,
    KeyChange,
    KeyList,
    ListKeys,
    RevokeKey,
    SwitchKeysOff,
)
from greenroom.schemas.protocols.store_protocol import (
    BeginResponse,
    CheckStoring,
    CommitResponse,
    Committed,
    Deleted,
    DeleteResponse,
    FindItems,
    FindResponse,
    FindSecret,
    History,
    ItemPage,
    ListInput,
    Secret,
    StoreMessage,
    Turns,
)
from greenroom.schemas.settings.key_record import KeyRecord
from greenroom.schemas.stored import StoredCompletion, StoredConversation, StoredItem, StoredResponse

DAY = 86_400.0

Answer = (
    Committed
    | Deleted
    | StoredResponse
    | StoredConversation
    | StoredCompletion
    | StoredItem
    | ItemPage
    | ConversationPage
    | CompletionPage
    | CapabilityList
    | Turns
    | Secret
    | AuditPage
    | UsageList
    | KeyRecord
    | KeyList
)
Adding = BeginResponse | CheckStoring | CommitResponse | CreateConversation | AddItems | SaveCompletion
"""The messages that add what clients have sent, or ask whether it could be added."""
Writing = (
    Adding
    | DeleteResponse
    | UpdateConversation
    | DeleteConversation
    | DeleteItem
    | UpdateCompletion
    | DeleteCompletion
    | FindSecret
    | SaveCapabilities
    | SaveWorkingSpace
    | SaveAudit
    | KeyChange
)
"""The messages that change the database, each in its own transaction."""


class Answers:
    """The tables of a connection, which execute messages.

    Args:
        boot: Unique id of this server process.
        storing: True if clients' content may be added.
        retention_days: Days without use after which data is deleted; inf keeps everything.
        max_bytes: Maximum size of the database in bytes; None for no limit.
        audit_days: Days after which a row of the audit is deleted.
        audit_rows: Maximum number of rows of the audit.
        keys: Connection to the database of the keys; None for the same one.
    """

    def __init__(
        self,
        connection: Connection,
        boot: str,
        *,
        storing: bool = True,
        retention_days: float = math.inf,
        max_bytes: int | None = None,
        audit_days: float = math.inf,
        audit_rows: int = 1_000_000,
        keys: Connection | None = None,
    ) -> None:
        self._connection = connection
        self._capacity = Capacity(connection, max_bytes)
        self._storing = storing
        self._retention_days = retention_days
        self._items = ItemsTable(connection)
        self._conversations = ConversationsTable(connection, self._items)
        self.responses = ResponsesTable(connection, self._items, self._conversations, boot)
        self._histories = Histories(connection, self._items, self._conversations)
        self._completions = CompletionsTable(connection)
        self._secrets = SecretsTable(connection)
        self._capabilities = CapabilitiesTable(connection)
        self._working_space = WorkingSpaceTable(connection)
        self.audit = AuditTable(connection, audit_days, audit_rows)
        self._keys = KeysTable(keys or connection)

    def answer(self, message: StoreMessage) -> Answer:
        """Execute a message and return its answer.

        Raises:
            ProblemError: The message cannot be executed; nothing has been changed.
            sqlite3.Error: The database failed; nothing has been changed.
        """
        if isinstance(message, Writing):
            return self._write(message)
        with self._connection.snapshot():
            return self._read(message)

    def retention(self) -> Retention:
        """Return a retention pass, which deletes data unused for too long."""
        cutoff = time.time() - self._retention_days * DAY
        return Retention(self._connection, self.responses, self._conversations, cutoff)

    def _read(self, message: StoreMessage) -> Answer:
        match message:
            case FindResponse(name, owner):
                return self.responses.find(name, owner)
            case ListInput(name, owner, after, limit, order):
                return self.responses.list_input(name, owner, after, limit, order)
            case History(owner, str(response), str(conversation)):
                return self._histories.of_turn(response, conversation, owner)
            case History(owner, conversation=str(conversation)):
                return self._histories.of_conversation(conversation, owner)
            case History(owner, response=str(response)):
                return self._histories.of_response(response, owner)
            case FindConversation(name, owner):
                return self._conversations.find(name, owner)
            case ListConversations():
                return self._conversations.list(message)
            case ListItems(name, owner, after, limit, order):
                return self._conversations.list_items(name, owner, after, limit, order)
            case FindItem(name, owner, item):
                return self._conversations.find_item(name, owner, item)
            case FindItems(mentions, owner):
                return self._items.find_many(mentions, owner, MAX_HISTORY)
            case FindCompletion(name, owner):
                return self._completions.find(name, owner)
            case ListCompletions():
                return self._completions.list(message)
            case ListCapabilities():
                return CapabilityList(self._capabilities.list())
            case ListAudit():
                return self.audit.list(message)
            case ListUsage():
                return UsageList(self.audit.usage(message))
            case ListKeys(known):
                return self._keys.list(known)
        raise TypeError(f"the store knows no {message}")

    def _write(self, message: Writing) -> Answer:
        match message:
            case UpdateConversation(name, owner, metadata):
                return self._conversations.update(name, owner, metadata)
            case DeleteItem(name, owner, item):
                return self._conversations.remove_item(name, owner, item)
            case UpdateCompletion(name, owner, metadata):
                return self._completions.update(name, owner, metadata)
            case FindSecret(name):
                return Secret(self._secrets.find(name))
            case SaveCapabilities(record):
                self._capabilities.save(record)
                return Committed()
            case SaveWorkingSpace(measured):
                self._working_space.save(measured)
                return Committed()
            case SaveAudit(rows):
                self._capacity.check()
                self.audit.save(rows)
                return Committed()
            case AddKey() | RevokeKey() | SwitchKeysOff():
                return self._keys.change(message)
            case DeleteResponse() | DeleteConversation() | DeleteCompletion():
                self._delete(message)
                return Deleted()
            case _:
                if not self._storing:
                    raise ProblemError(storing_disabled())
                # A response that was begun is always committed; only new data is rejected for lack of space.
                if not (isinstance(message, CommitResponse) and message.begun):
                    self._capacity.check(*_addition(message))
                self._add(message)
                return Committed()

    def _delete(self, message: DeleteResponse | DeleteConversation | DeleteCompletion) -> None:
        match message:
            case DeleteResponse(name, owner):
                self.responses.delete(name, owner)
            case DeleteConversation(name, owner, responses):
                self.responses.delete_conversation(name, owner, responses=responses)
            case DeleteCompletion(name, owner):
                self._completions.delete(name, owner)

    def _add(self, message: Adding) -> None:
        match message:
            case CheckStoring():
                with self._connection.transaction():
                    pass
            case BeginResponse(response):
                self.responses.begin(response)
            case CommitResponse(response, begun):
                self.responses.commit(response, begun)
            case CreateConversation(conversation, items):
                self._conversations.create(conversation, items)
            case AddItems(name, owner, items):
                self._conversations.add_items(name, owner, items)
            case SaveCompletion(completion):
                self._completions.save(completion)


def _addition(message: Adding) -> tuple[str, int]:
    """Return the owner of what a message adds, and its size in characters."""
    items: tuple[StoredItem, ...] = ()
    size = 0
    match message:
        case CheckStoring(owner):
            pass
        case BeginResponse(response) | CommitResponse(response):
            owner, items = response.owner, (*response.input, *response.output)
            size = len(response.body) + len(response.raw) + len(response.events or "")
        case CreateConversation(conversation, items):
            owner = conversation.owner
        case AddItems(_, owner, items):
            pass
        case SaveCompletion(completion):
            owner, size = completion.owner, len(completion.body) + len(completion.messages)
    return owner, size + sum(len(item.body) for item in items)
