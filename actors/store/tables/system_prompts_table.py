"""The operator's system prompts, as conversations began with them: later turns keep them."""

from __future__ import annotations

from greenroom.actors.store.database.connection import Connection


class SystemPromptsTable:
    """Each stands once, with the response or the conversation that began with it, and is deleted with that.

    An empty one tells that there was none: a conversation that began so goes on so.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keep(self, text: str, *, response: int, conversation: int | None) -> None:
        """Keep what a turn was told, inside a transaction; a conversation keeps what its first one was."""
        if conversation is not None and self.of_conversation(conversation) is not None:
            return
        owner = {"response": response} if conversation is None else {"conversation": conversation}
        self._connection.insert("greenroom_system_prompts", {**owner, "text": text})

    def of_conversation(self, conversation: int) -> str | None:
        """Return a conversation's; None if none is known."""
        row = self._connection.first(
            "select text from greenroom_system_prompts where conversation = ?", (conversation,)
        )
        return None if row is None else str(row["text"])

    def of_response(self, response: int) -> str:
        """Return the one that a response keeps."""
        row = self._connection.first(
            "select text from greenroom_system_prompts where response = ?", (response,)
        )
        assert row is not None
        return str(row["text"])
