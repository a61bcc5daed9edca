"""Requests that a model prepares but does not generate for yet."""

from __future__ import annotations

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.messages.prepared_input import PreparedInput
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.protocols.model_protocol import Generate, PromptContents

AdapterResult = PreparedInput | PromptContents
"""The result of an adapter: a prepared input, or a prompt to show."""


@attrs.define(eq=False)
class Preparation:
    """A request before generation.

    Args:
        prepared: Prepared input from the adapter; None until then.
        charged: Tokens that were charged to its client.
        generate: Message to process as soon as the request is prepared.
        rendering: True to show the prompt instead of generating.
    """

    request: InferenceRequest
    reply: Reply
    prepared: PreparedInput | None = None
    charged: int = attrs.field(default=0, kw_only=True)
    generate: Generate | None = None
    rendering: bool = attrs.field(default=False, kw_only=True)


class Preparations:
    """All preparations of a model.

    Their keys are replies: each request has its own reply, even if clients repeat ids, and every reply
    closes.
    """

    def __init__(self) -> None:
        self._by_reply: dict[Reply, Preparation] = {}

    def __contains__(self, preparation: Preparation) -> bool:
        return self._by_reply.get(preparation.reply) is preparation

    def __len__(self) -> int:
        return len(self._by_reply)

    def add(self, preparation: Preparation) -> None:
        """Add a preparation, replacing an earlier one of the same reply."""
        self._by_reply[preparation.reply] = preparation

    def get(self, reply: Reply) -> Preparation | None:
        """Return the preparation with this reply; None if there is none."""
        return self._by_reply.get(reply)

    def remove(self, preparation: Preparation) -> None:
        """Remove a preparation, if it is still present."""
        if preparation in self:
            del self._by_reply[preparation.reply]

    def remove_pending(self) -> list[Preparation]:
        """Remove and return the preparations that are not prepared yet."""
        return self._remove([each for each in self._by_reply.values() if each.prepared is None])

    def remove_generating(self) -> list[Preparation]:
        """Remove and return the preparations that wait to generate as soon as they are prepared."""
        return self._remove([each for each in self._by_reply.values() if each.generate is not None])

    def _remove(self, preparations: list[Preparation]) -> list[Preparation]:
        for preparation in preparations:
            del self._by_reply[preparation.reply]
        return preparations
