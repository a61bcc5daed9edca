"""A request with what was said before it."""

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
    """A request with the whole of its conversation.

    Args:
        request: In neutral words.
        items: What it brought itself, without references.
        history: What was said before.
        left_out: Turns that are too long ago to be read.
        system_prompt: The operator's that the conversation began with, empty for none; None if none is known.
    """

    request: InferenceRequest
    items: tuple[Item, ...]
    history: tuple[Item, ...] = ()
    left_out: int = 0
    system_prompt: str | None = None

    @property
    def conversation(self) -> list[JsonObject]:
        """All of it as the model reads it, item by item."""
        read: list[JsonObject] = []
        for item in (*self.history, *self.items):
            match item.param:
                case StandInItem(others, replaces):
                    read = [other for other in read if is_instruction(other)] if replaces else read
                    # Instructions may have been repeated behind what was compacted.
                    read += [other.raw for other in others if other.raw not in read]
                case _:
                    read.append(item.raw)
        return read

    def stored_input(self, response_id: str) -> tuple[StoredItem, ...]:
        """Return what it brought as it is stored. May take long if that is much.

        Args:
            response_id: The ids of items are made from it.
        """
        stem = response_id.removeprefix("resp_")
        kept = [item.raw for item in self.items if _is_kept(item)]
        return stored_items(kept, lambda prefix, index: f"{prefix}_{stem}_in{index}")


def _is_kept(item: Item) -> bool:
    """Whether an item is stored with its request, and not because it is in the history already."""
    return item.param != StandInItem(())
