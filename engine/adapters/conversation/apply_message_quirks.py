"""Rewriting of past turns into the forms found by `greenroom.engine.adapters.templates.message_quirks`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from greenroom.engine.adapters.conversation.message_normalization import join_paragraphs
from greenroom.engine.adapters.templates.chat_template import TemplateMessage
from greenroom.engine.adapters.templates.message_quirks import MessageQuirks
from greenroom.engine.tokenizer.control_tokens import TEXT_BESIDE_CALL
from greenroom.schemas.messages.messages import Message, TextPart, ToolCall
from greenroom.schemas.problems import ProblemError


def drop_past_reasoning(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without the reasoning of turns before the last user message."""
    last_user = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    return [
        attrs.evolve(message, reasoning=None) if at < last_user and message.reasoning else message
        for at, message in enumerate(messages)
    ]


def number_calls(turns: Sequence[Message], *, by_turn: bool) -> list[Message]:
    """Return the turns with call ids of the form `functions.NAME:INDEX`, in calls and results.

    Args:
        by_turn: True if the index restarts in each turn instead of each conversation.
    """
    numbered: list[Message] = []
    ids: dict[str | None, str] = {}
    count = 0
    for turn in turns:
        if turn.role == "tool":
            numbered.append(attrs.evolve(turn, tool_call_id=ids.get(turn.tool_call_id, turn.tool_call_id)))
            continue
        count = 0 if by_turn else count
        calls: list[ToolCall] = []
        for call in turn.tool_calls:
            ids[call.id] = f"functions.{call.name}:{count}"
            calls.append(attrs.evolve(call, id=ids[call.id]))
            count += 1
        numbered.append(attrs.evolve(turn, tool_calls=tuple(calls)) if calls else turn)
    return numbered


def move_system_message(turns: Sequence[Message]) -> list[Message]:
    """Merge the system message into the last user message, unless that message is the last of all."""
    if not turns or turns[0].role != "system" or turns[-1].role == "user":
        return list(turns)
    system, *rest = turns
    for at in reversed(range(len(rest))):
        if rest[at].role == "user":
            text = join_paragraphs(system.text, rest[at].text)
            rest[at] = attrs.evolve(rest[at], content=(TextPart(text),))
            return rest
    return list(turns)


def content_with_reasoning(turn: Message, forms: MessageQuirks) -> Any:
    """Return a turn's content including its reasoning, as text or as a part before the text."""
    reasoning, text = turn.reasoning or "", turn.text
    if forms.reasoning_form == "parts":
        spoken = [{"type": "text", "text": text}] if text else []
        return [{"type": "thinking", "thinking": reasoning}, *spoken]
    start, end = forms.reasoning_markers
    line, lines = ("\n", "\n\n") if start == "<think>" else ("", "")
    return f"{start}{line}{reasoning}{line}{end}{lines}{text}"


def render_turns(
    convert: Callable[[MessageQuirks], list[TemplateMessage]],
    render: Callable[[list[TemplateMessage]], str],
    forms: MessageQuirks,
    *,
    without_content: bool,
) -> str:
    """Return a conversation as rendered text, with text beside calls in the model's form.

    Args:
        convert: Function that converts the conversation for the template.
        render: Function that renders the converted conversation.
        forms: Forms of past turns.
        without_content: True if a turn of calls must not have any content.
    """
    messages = convert(forms)
    texts = _take_texts(messages, None if without_content else "") if forms.call_head else []
    if not texts:
        return render(messages)
    try:
        rendered = _insert_texts(render(messages), texts, forms)
    except ProblemError:  # A template may look up a tool by the name that is marked here.
        rendered = None
    return render(convert(attrs.evolve(forms, call_head=""))) if rendered is None else rendered


def _take_texts(messages: list[TemplateMessage], empty: str | None) -> list[str]:
    """Remove and return the texts of messages with tool calls; mark the first call of each by its name."""
    texts = []
    for message in messages:
        text = message["content"]
        if message.get("tool_calls") and text and isinstance(text, str):
            function = message["tool_calls"][0]["function"]
            function["name"] = TEXT_BESIDE_CALL + function["name"]
            message["content"] = empty
            texts.append(text)
    return texts


def _insert_texts(rendered: str, texts: Sequence[str], forms: MessageQuirks) -> str | None:
    """Return a rendered conversation with the texts before their calls; None if a call is missing."""
    marked = forms.call_head + TEXT_BESIDE_CALL
    before, behind = forms.text_frame
    pieces, position = [], 0
    for text in texts:
        at = rendered.find(marked, position)
        if at < 0:
            return None
        pieces += [rendered[position:at], before, text, behind, forms.call_head]
        position = at + len(marked)
    return "".join([*pieces, rendered[position:]]).replace(TEXT_BESIDE_CALL, "")
