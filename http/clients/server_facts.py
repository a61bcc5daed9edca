"""Facts of a server that a client's settings are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

NO_KEY = "none"
"""Key for clients that insist on one while the server needs none."""


@attrs.frozen
class ServerFacts:
    """A server and the model that a client uses there.

    Args:
        url: Base URL without `/v1`.
        model: Id of the model.
        key: API key.
        context: Context length of the model in tokens; None if unknown.
        takes_tools: True if the model calls tools.
        thinks: True if it reasons before it answers.
        sees: True if it takes images.
    """

    url: str
    model: str
    key: str = attrs.field(default=NO_KEY, repr=False)
    context: int | None = None
    takes_tools: bool = True
    thinks: bool = False
    sees: bool = False

    @property
    def base(self) -> str:
        """Base URL for clients of OpenAI's API."""
        return f"{self.url}/v1"

    @property
    def tokens(self) -> int:
        """The context length, or a small one if it is unknown."""
        return self.context or 8_192

    @property
    def longest_answer(self) -> int:
        """Tokens of an answer that leave three quarters of the context to the conversation."""
        return max(256, self.tokens // 4)

    def advice_for(self, title: str, needed: int) -> str | None:
        """Return a sentence on a model whose context is too short for a client; None if it is known to do."""
        if self.context is None or self.context >= needed:
            return None
        return (
            f"{self.model} has a context of {self.context:,} tokens, and {title} needs about {needed:,}: "
            "name another model with --model"
        )


def facts_of(url: str, key: str, listed: Mapping[str, Any]) -> ServerFacts:
    """Return the facts in a model's description, as `GET /v1/models/{id}` answers it."""
    inputs, context = listed.get("capabilities", {}).get("inputs", ()), listed.get("context_length")
    return ServerFacts(
        url,
        str(listed["id"]),
        key,
        context if isinstance(context, int) else None,
        takes_tools=listed.get("tools") is not False,
        thinks=bool(listed.get("thinking")),
        sees="image" in inputs,
    )
