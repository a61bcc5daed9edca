"""From events to the wire: an answer that is sent when it is complete."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.http.chat_stream import finish_reason
from greenroom.http.sse_text import system_fingerprint
from greenroom.schemas.events import (
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.openai_responses import (
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    Completion,
    CompletionChoice,
    body,
    usage_body,
)


@attrs.define
class Choice:
    """The pieces of one choice, put together as they come."""

    texts: list[str] = attrs.field(factory=list)
    thoughts: list[str] = attrs.field(factory=list)
    calls: list[dict[str, Any]] = attrs.field(factory=list)
    finished: Finished | None = None

    def add(self, event: GenerationEvent) -> None:
        """Take the next event."""
        match event:
            case TextDelta(text):
                self.texts.append(text)
            case ReasoningDelta(text):
                self.thoughts.append(text)
            case ToolCallDelta(call, call_id, name, arguments):
                if call == len(self.calls):
                    function = {"name": name, "arguments": ""}
                    self.calls.append({"id": call_id, "type": "function", "function": function})
                self.calls[call]["function"]["arguments"] += arguments
            case Finished():
                self.finished = event


def chat_completion(answer_id: str, model: str, created: int, choice: Choice) -> dict[str, Any]:
    """A finished chat as `chat.completion`."""
    assert choice.finished is not None
    thought = "".join(choice.thoughts) or None
    text = "".join(choice.texts)
    message = ChatMessage(
        content=None if choice.calls and not text else text,
        reasoning_content=thought,
        reasoning=thought,
        tool_calls=tuple(choice.calls) or None,
    )
    answered = ChatChoice(0, message, finish_reason(choice.finished))
    usage = usage_body([choice.finished.usage])
    return body(ChatCompletion(answer_id, created, model, (answered,), usage, system_fingerprint()))


def completion(
    answer_id: str, model: str, created: int, echoes: tuple[str, ...], choices: list[Choice]
) -> dict[str, Any]:
    """Finished continuations as `text_completion`."""
    ends = [choice.finished for choice in choices if choice.finished is not None]
    answered = tuple(
        CompletionChoice(i, echo + "".join(choice.texts), finish_reason(end))
        for i, (echo, choice, end) in enumerate(zip(echoes, choices, ends, strict=True))
    )
    usage = usage_body([end.usage for end in ends])
    return body(Completion(answer_id, created, model, answered, usage, system_fingerprint()))
