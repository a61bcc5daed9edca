"""An answer that is sent when it is complete, put together from its events."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.events import (
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)


@attrs.define
class Choice:
    """The pieces of one choice, put together as they come."""

    texts: list[str] = attrs.field(factory=list)
    thoughts: list[str] = attrs.field(factory=list)
    calls: list[dict[str, Any]] = attrs.field(factory=list)
    scores: list[TokenLogprob] = attrs.field(factory=list)
    finished: Finished | None = None

    def add(self, event: InferenceEvent) -> None:
        """Take the next event."""
        match event:
            case TextDelta(text, _, scores):
                self.texts.append(text)
                self.scores += scores
            case ReasoningDelta(text):
                self.thoughts.append(text)
            case ToolCallDelta(call, call_id, name, arguments):
                if call == len(self.calls):
                    function = {"name": name, "arguments": ""}
                    self.calls.append({"id": call_id, "type": "function", "function": function})
                self.calls[call]["function"]["arguments"] += arguments
            case Finished():
                self.finished = event
