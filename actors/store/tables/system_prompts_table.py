"""The table of the operator's system prompts that conversations began with, for their later turns."""

from __future__ import annotations

from greenroom.actors.store.database.connection import Connection


class SystemPromptsTable:
    """System prompts, each stored with its first response or its conversation, and deleted with that.

    An empty prompt means that the conversation began without one, and continues so.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keep(self, text: str, *, response: int, conversation: int | None) -> None:
        """Store a turn's system prompt, inside a transaction; a conversation keeps its first one."""
        if conversation is not None and self.of_conversation(conversation) is not None:
            return
        owner = {"response": response} if conversation is None else {"conversation": conversation}
        self._connection.insert("greenroom_system_prompts", {**owner, "text": text})

    def of_conversation(self, conversation: int) -> str | None:
        """Return a conversation's system prompt; None if it is unknown."""
        row = self._connection.first(
            "select text from greenroom_system_prompts where conversation = ?", (conversation,)
        )
        return None if row is None else str(row["text"])

    def of_response(self, response: int) -> str:
        """Return the system prompt stored with a response."""
        row = self._connection.first(
            "select text from greenroom_system_prompts where response = ?", (response,)
        )
        assert row is not None
        return str(row["text"])
