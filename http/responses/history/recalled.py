"""A request with its history."""

from __future__ import annotations

import attrs

from greenroom.http.responses.history.compaction import is_instruction
from greenroom.http.responses.items.item_bodies import stored_items
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.responses.items import Item, StandInItem
from greenroom.schemas.stored import StoredItem


@attrs.frozen
class Recalled:
    """A request with its whole conversation.

    Args:
        request: Protocol-independent request.
        items: The request's own items, with references resolved.
        history: Items of earlier turns.
        left_out: Number of turns dropped because the history is too long; turns dropped after it was read
            from the store count as one.
        system_prompt: The operator's system prompt at the conversation's start, empty for none; None if
            unknown.
    """

    request: InferenceRequest
    items: tuple[Item, ...]
    history: tuple[Item, ...] = ()
    left_out: int = 0
    system_prompt: str | None = None

    @property
    def conversation(self) -> list[JsonObject]:
        """All items as the model reads them, with compactions expanded."""
        read: list[JsonObject] = []
        for item in (*self.history, *self.items):
            match item.param:
                case StandInItem(others, replaces):
                    read = [other for other in read if is_instruction(other)] if replaces else read
                    # The instructions before the compaction may be among those that it holds.
                    read += [other.raw for other in others if other.raw not in read]
                case _:
                    read.append(item.raw)
        return read

    def stored_input(self, response_id: str) -> tuple[StoredItem, ...]:
        """Return the request's own items in their stored form. May take long if they are large.

        Args:
            response_id: The response's id, from which the items' ids are derived.
        """
        stem = response_id.removeprefix("resp_")
        kept = [item.raw for item in self.items if _is_kept(item)]
        return stored_items(kept, lambda prefix, index: f"{prefix}_{stem}_in{index}")


def _is_kept(item: Item) -> bool:
    """Return whether an item is stored with its request: it is not if the history already has it."""
    return item.param != StandInItem(())
