"""The buffer of a reply's events, which merges them to stay no larger than the answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.schemas.events.events import (
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
    """Events in order that wait for their receiver.

    A delta is merged into the last delta of the same choice if no other event of that choice follows it. A
    newer QueueStatus or PromptProgress replaces an older one. A slow receiver therefore costs no more memory
    than the text of its answer.
    """

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, event: Any) -> None:
        """Add an event: append it, merge it into an earlier one, or replace an earlier one."""
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
