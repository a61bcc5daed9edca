"""The items of an answer: messages, thoughts and calls, each with the id that every reader of it sees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

from greenroom.http.answering.collecting.collected_answer import (
    AnswerPart,
    CollectedChoice,
    Thought,
    worded_parts,
)
from greenroom.http.answering.sealing.thought_signature import sign
from greenroom.http.answering.tools.text_input import text_of
from greenroom.http.encoding.token_logprobs import token_logprobs
from greenroom.schemas.events.events import TokenLogprob
from greenroom.schemas.messages.messages import JsonObject, TextPart, ToolCall

ItemStatus = Literal["in_progress", "completed", "incomplete"]


@attrs.frozen
class CallKinds:
    """Which tools of a request are called in which words.

    Args:
        custom: Names of those whose input is text and no JSON.
    """

    custom: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: Sequence[JsonObject]) -> CallKinds:
        """Return those of a request's tools, as a response repeats them."""
        return cls(frozenset(str(tool["name"]) for tool in tools if tool["type"] == "custom"))


def output_items(
    choice: CollectedChoice, response_id: str, calls: CallKinds, *, seals_thoughts: bool
) -> list[dict[str, Any]]:
    """Return the items of a complete answer, at least one.

    Text that is nothing but white space is left out, between other items.

    Args:
        response_id: The ids of items are made from it and their index.
    """
    parts: Sequence[AnswerPart] = worded_parts(choice.parts) or (TextPart(""),)
    is_cut = choice.finished.reason in ("length", "cancelled")
    items: list[dict[str, Any]] = []
    logprobs = _logprobs_of_texts(choice)
    for index, part in enumerate(parts):
        status: ItemStatus = "incomplete" if is_cut and index == len(parts) - 1 else "completed"
        match part:
            case TextPart(text):
                ident = item_id("msg", response_id, index)
                items.append(message_item(ident, text, status, next(logprobs, ())))
            case Thought(text):
                sealed = sign(text, hidden=True) if seals_thoughts else None
                items.append(reasoning_item(item_id("rs", response_id, index), text, status, sealed))
            case ToolCall(name=name, arguments=arguments):
                if name in calls.custom:
                    part = attrs.evolve(part, arguments=text_of(arguments))
                items.append(call_item(part, response_id, index, status, calls))
    return items


def item_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of an item: the same whoever formats the response, and whenever."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def message_item(
    ident: str, text: str, status: ItemStatus, logprobs: Sequence[TokenLogprob] = ()
) -> dict[str, Any]:
    """Return a message of the assistant."""
    content = [output_text(text, logprobs)]
    return {"id": ident, "type": "message", "status": status, "role": "assistant", "content": content}


def output_text(text: str, logprobs: Sequence[TokenLogprob] = ()) -> dict[str, Any]:
    """Return the part of a message that holds its text."""
    listed = json.loads(token_logprobs(logprobs)) if logprobs else []
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": listed}


def reasoning_item(ident: str, thought: str, status: ItemStatus, sealed: str | None) -> dict[str, Any]:
    """Return a thought.

    It stands in the summary: that is what most clients show of a thought.

    Args:
        sealed: What a client gives back in its stead, if it has asked for that.
    """
    item: dict[str, Any] = {
        "id": ident,
        "type": "reasoning",
        "status": status,
        "summary": [summary_text(thought)],
    }
    return item if sealed is None else {**item, "encrypted_content": sealed}


def summary_text(thought: str) -> dict[str, str]:
    """Return the part of a thought that holds its text."""
    return {"type": "summary_text", "text": thought}


def call_item(
    call: ToolCall, response_id: str, index: int, status: ItemStatus, calls: CallKinds
) -> dict[str, Any]:
    """Return the call of a function, or of a custom tool, whose arguments are the text that it is given."""
    common = {"status": status, "call_id": call.id, "name": call.name}
    if call.name in calls.custom:
        ident = item_id("ctc", response_id, index)
        return {"id": ident, "type": "custom_tool_call", **common, "input": call.arguments}
    ident = item_id("fc", response_id, index)
    return {"id": ident, "type": "function_call", **common, "arguments": call.arguments}


def _logprobs_of_texts(choice: CollectedChoice) -> Iterator[Sequence[TokenLogprob]]:
    """Return the tokens of each text that has words, in their order."""
    texts = [part.text for part in choice.parts if isinstance(part, TextPart)]
    unwritten: Sequence[TokenLogprob] = choice.logprobs
    for place, text in enumerate(texts):
        count = _tokens_of(text, unwritten) if place < len(texts) - 1 else len(unwritten)
        if text.strip():
            yield unwritten[:count]
        unwritten = unwritten[count:]


def _tokens_of(text: str, logprobs: Sequence[TokenLogprob]) -> int:
    """Return how many of the tokens wrote a text."""
    room, count = len(text.encode("utf-8", "replace")), 0
    while room > 0 and count < len(logprobs):
        room -= len(logprobs[count].token.bytes)
        count += 1
    return count
