"""Requests that a model has been asked to prepare and that it does not generate for yet."""

from __future__ import annotations

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.model_protocol import Generate, PromptContents
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.requests import InferenceRequest

AdapterResult = PreparedInput | PromptContents
"""What an adapter makes of a request: ready to be generated for, or to be looked at."""


@attrs.define(eq=False)
class Preparation:
    """One request until it is generated for, or its reply closes.

    Args:
        prepared: What the adapter has made of it; None until then.
        generate: The message to be carried out as soon as it is prepared.
        inspected: Its prompt is to be shown, and nothing generated.
    """

    request: InferenceRequest
    reply: Reply
    prepared: PreparedInput | None = None
    generate: Generate | None = None
    inspected: bool = attrs.field(default=False, kw_only=True)


class Preparations:
    """All preparations of one model.

    They are kept by reply: each request has one of its own, whatever ids its client repeats, and every
    reply closes.
    """

    def __init__(self) -> None:
        self._by_reply: dict[Reply, Preparation] = {}

    def __contains__(self, preparation: Preparation) -> bool:
        return self._by_reply.get(preparation.reply) is preparation

    def __len__(self) -> int:
        return len(self._by_reply)

    def add(self, preparation: Preparation) -> None:
        """Keep a preparation, in place of an earlier one of the same reply."""
        self._by_reply[preparation.reply] = preparation

    def get(self, reply: Reply) -> Preparation | None:
        """Return what is kept of the request whose answers go to `reply`."""
        return self._by_reply.get(reply)

    def remove(self, preparation: Preparation) -> None:
        """Remove a preparation, if it is still kept."""
        if preparation in self:
            del self._by_reply[preparation.reply]

    def remove_pending(self) -> list[Preparation]:
        """Remove and return those that still have to be prepared."""
        return self._remove([each for each in self._by_reply.values() if each.prepared is None])

    def remove_generating(self) -> list[Preparation]:
        """Remove and return those that are to be generated for as soon as they are prepared."""
        return self._remove([each for each in self._by_reply.values() if each.generate is not None])

    def _remove(self, preparations: list[Preparation]) -> list[Preparation]:
        for preparation in preparations:
            del self._by_reply[preparation.reply]
        return preparations
