"""From events to the wire: an answer that is sent when it is complete."""

from __future__ import annotations

import json
from typing import Any

from greenroom.http.answering.collected_answer import Choice
from greenroom.http.openai.logprobs import CompletionLogprobs, chat_logprobs
from greenroom.http.openai.stream import finish_reason, system_fingerprint
from greenroom.schemas.events import Finished
from greenroom.schemas.openai.answers import (
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    Completion,
    CompletionChoice,
    body,
    usage_body,
)


def chat_completion(answer_id: str, model: str, created: int, choices: list[Choice]) -> dict[str, Any]:
    """A finished chat as `chat.completion`."""
    ends = [choice.finished for choice in choices if choice.finished is not None]
    answered = tuple(_chat_choice(i, *both) for i, both in enumerate(zip(choices, ends, strict=True)))
    usage = usage_body(ends, len(choices))
    return body(ChatCompletion(answer_id, created, model, answered, usage, system_fingerprint()))


def _chat_choice(index: int, choice: Choice, finished: Finished) -> ChatChoice:
    thought = "".join(choice.thoughts) or None
    text = "".join(choice.texts)
    message = ChatMessage(
        content=None if choice.calls and not text else text,
        reasoning_content=thought,
        reasoning=thought,
        tool_calls=tuple(choice.calls) or None,
    )
    return ChatChoice(index, message, finish_reason(finished), json.loads(chat_logprobs(choice.scores)))


def completion(
    answer_id: str,
    model: str,
    created: int,
    echoes: tuple[str, ...],
    choices: list[Choice],
    per_prompt: int = 1,
) -> dict[str, Any]:
    """Finished continuations as `text_completion`, so many of each prompt."""
    ends = [choice.finished for choice in choices if choice.finished is not None]
    answered = tuple(
        CompletionChoice(
            i,
            echo + "".join(choice.texts),
            finish_reason(end),
            CompletionLogprobs(len(echo)).add(choice.scores),
        )
        for i, (echo, choice, end) in enumerate(zip(echoes, choices, ends, strict=True))
    )
    usage = usage_body(ends, per_prompt)
    return body(Completion(answer_id, created, model, answered, usage, system_fingerprint()))
