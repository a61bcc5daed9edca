"""The items of an answer: messages, reasoning and calls, with ids that are stable for all readers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

from greenroom.http.answering.collecting.collected_answer import (
    AnswerPart,
    CollectedChoice,
    Reasoning,
    worded_parts,
)
from greenroom.http.answering.reasoning_signature import sign
from greenroom.http.answering.tools.text_input import text_of
from greenroom.http.encoding.token_logprobs import token_logprobs
from greenroom.schemas.events.events import TokenLogprob
from greenroom.schemas.messages.messages import JsonObject, TextPart, ToolCall

ItemStatus = Literal["in_progress", "completed", "incomplete"]


@attrs.frozen
class CallKinds:
    """The kinds of a request's tools: functions or custom tools.

    Args:
        custom: Names of custom tools, whose input is text instead of JSON.
    """

    custom: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: Sequence[JsonObject]) -> CallKinds:
        return cls(frozenset(str(tool["name"]) for tool in tools if tool["type"] == "custom"))


def output_items(
    choice: CollectedChoice, response_id: str, calls: CallKinds, *, encrypts_reasoning: bool
) -> list[dict[str, Any]]:
    """Return the items of a complete answer, at least one.

    White space between other items is dropped.

    Args:
        response_id: The response's id, from which the items' ids are derived.
        encrypts_reasoning: True to add encrypted content to reasoning items.
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
            case Reasoning(text):
                encrypted = sign(text, hidden=True) if encrypts_reasoning else None
                items.append(reasoning_item(item_id("rs", response_id, index), text, status, encrypted))
            case ToolCall(name=name, arguments=arguments):
                if name in calls.custom:
                    part = attrs.evolve(part, arguments=text_of(arguments))
                items.append(call_item(part, response_id, index, status, calls))
    return items


def item_id(prefix: str, response_id: str, index: int) -> str:
    """Return an item's id, which depends only on the response's id and the item's index."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


def message_item(
    ident: str, text: str, status: ItemStatus, logprobs: Sequence[TokenLogprob] = ()
) -> dict[str, Any]:
    content = [output_text(text, logprobs)]
    return {"id": ident, "type": "message", "status": status, "role": "assistant", "content": content}


def output_text(text: str, logprobs: Sequence[TokenLogprob] = ()) -> dict[str, Any]:
    listed = json.loads(token_logprobs(logprobs)) if logprobs else []
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": listed}


def reasoning_item(ident: str, reasoning: str, status: ItemStatus, encrypted: str | None) -> dict[str, Any]:
    """Return a reasoning item.

    Its text is in the summary, since that is the part most clients show.

    Args:
        encrypted: Encrypted content that the client can send back, if requested.
    """
    item: dict[str, Any] = {
        "id": ident,
        "type": "reasoning",
        "status": status,
        "summary": [summary_text(reasoning)],
    }
    return item if encrypted is None else {**item, "encrypted_content": encrypted}


def summary_text(reasoning: str) -> dict[str, str]:
    return {"type": "summary_text", "text": reasoning}


def call_item(
    call: ToolCall, response_id: str, index: int, status: ItemStatus, calls: CallKinds
) -> dict[str, Any]:
    """Return the call item of a function, or of a custom tool, whose arguments are its text input."""
    common = {"status": status, "call_id": call.id, "name": call.name}
    if call.name in calls.custom:
        ident = item_id("ctc", response_id, index)
        return {"id": ident, "type": "custom_tool_call", **common, "input": call.arguments}
    ident = item_id("fc", response_id, index)
    return {"id": ident, "type": "function_call", **common, "arguments": call.arguments}


def _logprobs_of_texts(choice: CollectedChoice) -> Iterator[Sequence[TokenLogprob]]:
    """Yield the tokens' logprobs of each text that is not blank, in order."""
    texts = [part.text for part in choice.parts if isinstance(part, TextPart)]
    unwritten: Sequence[TokenLogprob] = choice.logprobs
    for place, text in enumerate(texts):
        count = _tokens_of(text, unwritten) if place < len(texts) - 1 else len(unwritten)
        if text.strip():
            yield unwritten[:count]
        unwritten = unwritten[count:]


def _tokens_of(text: str, logprobs: Sequence[TokenLogprob]) -> int:
    """Return the number of tokens that make up a text."""
    room, count = len(text.encode("utf-8", "replace")), 0
    while room > 0 and count < len(logprobs):
        room -= len(logprobs[count].token.bytes)
        count += 1
    return count
