"""What a reply holds until its receiver takes it, kept no larger than the answer itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.schemas.events import (
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)

_LATEST = (QueueStatus, PromptProgress)
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


@attrs.define(eq=False)
class _Item:
    event: Any
    pieces: list[str]
    logprobs: list[TokenLogprob] = attrs.field(factory=list)

    def accepts(self, event: TextDelta | ReasoningDelta | ToolCallDelta) -> bool:
        if isinstance(event, ToolCallDelta):
            same = isinstance(self.event, ToolCallDelta) and self.event.call == event.call
            return same and event.id is None
        return type(self.event) is type(event)

    def add(self, event: TextDelta | ReasoningDelta | ToolCallDelta) -> None:
        self.pieces.append(event.arguments if isinstance(event, ToolCallDelta) else event.text)
        if isinstance(event, TextDelta):
            self.logprobs += event.logprobs

    def result(self) -> Any:
        if not self.pieces:
            return self.event
        if isinstance(self.event, ToolCallDelta):
            return attrs.evolve(self.event, arguments=self.event.arguments + "".join(self.pieces))
        text = self.event.text + "".join(self.pieces)
        if self.logprobs:
            return attrs.evolve(self.event, text=text, logprobs=(*self.event.logprobs, *self.logprobs))
        return attrs.evolve(self.event, text=text)


class ReplyBuffer:
    """Events in order, not yet taken.

    A delta joins the last delta of the same choice if nothing else of that choice came in between; a newer
    QueueStatus or PromptProgress takes the place of an older one. So a receiver that stalls costs the
    sender no more than the text of its own answer.
    """

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, event: Any) -> None:
        """Append an event, merge it into one, or let it replace one."""
        if self._items:
            if isinstance(event, _LATEST):
                for item in self._items:
                    if type(item.event) is type(event):
                        item.event = event
                        return
            elif isinstance(event, _DELTAS):
                last = self._last_of_choice(event.index)
                if last is not None and last.accepts(event):
                    last.add(event)
                    return
        self._items.append(_Item(event, []))

    def pop(self) -> Any:
        """Remove and return the oldest event."""
        return self._items.popleft().result()

    def drain(self) -> Iterator[Any]:
        """Remove and yield all events, oldest first."""
        while self._items:
            yield self.pop()

    def _last_of_choice(self, index: int) -> _Item | None:
        for item in reversed(self._items):
            if getattr(item.event, "index", None) == index:
                return item
        return None
