"""Conversion of messages into a template's form without loss."""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from greenroom.engine.adapters.conversation import message_normalization as normalization
from greenroom.engine.adapters.conversation.apply_message_quirks import (
    content_with_reasoning,
    drop_past_reasoning,
    move_system_message,
    number_calls,
)
from greenroom.engine.adapters.conversation.rendered_images import NO_MEDIA, marked_text, with_image_parts
from greenroom.engine.adapters.conversation.tool_prompt import render_calls
from greenroom.engine.adapters.reasoning.switches import NO_CHANGES, PromptChanges
from greenroom.engine.adapters.reasoning.words import add_prompt_changes
from greenroom.engine.adapters.templates.chat_template import TemplateMessage, as_parts
from greenroom.engine.adapters.templates.message_quirks import PLAIN_FORMS, MessageQuirks
from greenroom.engine.adapters.templates.template_probe import TemplateTraits
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.engine.tokenizer.control_tokens import ControlTokenMarker
from greenroom.schemas.messages.messages import Message, TextPart, ToolCall

_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_DIGITS = string.digits + string.ascii_letters


class MessageConverter:
    """Converts messages into the form that one template takes. Stateless between conversations.

    Args:
        traits: Traits of the template.
        parser: Parser of the model's calls, to render calls that the template cannot show.
        marker: Marker of control tokens in user text.
        forms: Forms of turns that the template does not take unchanged.
        media: Media allowed as content parts, by role; others become numbered placeholders in text.
    """

    def __init__(
        self,
        traits: TemplateTraits,
        parser: ToolCallParser,
        marker: ControlTokenMarker,
        forms: MessageQuirks = PLAIN_FORMS,
        media: Mapping[str, Collection[str]] = NO_MEDIA,
    ) -> None:
        beside = forms.text_beside_calls or bool(forms.call_head)
        self._traits = attrs.evolve(traits, text_beside_calls=beside)
        self._parser = parser
        self._marker = marker
        self._forms = forms
        self._media = media

    def convert(
        self,
        messages: Sequence[Message],
        instructions: str = "",
        changes: PromptChanges = NO_CHANGES,
    ) -> list[TemplateMessage]:
        """Return the conversation for the template.

        Args:
            messages: Messages of the conversation.
            instructions: The server's own text for the system message; it is not marked.
            changes: Changes to the messages that switch the model's reasoning.

        Raises:
            ProblemError: 400 for a tool result without a call.
        """
        traits, forms = self._traits, self._forms
        if forms.reasoning_form == "text":
            messages = drop_past_reasoning(messages)
        messages = normalization.tell_calls_apart(messages)
        named = normalization.add_tool_names(messages)
        if not forms.late_results:
            named = normalization.place_results_first(named)
        if not forms.empty_answers:
            named = normalization.drop_empty_answers(named)
        marked = [self._mark(message) for message in named]
        marked = add_prompt_changes(marked, changes)
        turns = normalization.arrange_system_messages(marked, traits, instructions)
        if not traits.repeated_roles and traits.tool_calls:
            turns = normalization.merge_repeated_roles(turns)
        turns = normalization.render_calls_as_text(turns, traits, self._render_calls)
        if not traits.repeated_roles:
            turns = normalization.merge_repeated_roles(turns)
        if not traits.parallel_calls:
            turns = normalization.split_parallel_calls(turns)
        if not traits.text_beside_calls:
            turns = normalization.split_text_from_calls(turns)
        if not traits.assistant_first:
            turns = normalization.insert_first_user_turn(turns)
        if not forms.system_with_result:
            turns = move_system_message(turns)
        if forms.call_ids != "any":
            turns = number_calls(turns, by_turn=forms.call_ids == "turn")
        converted = [self._convert_turn(turn) for turn in turns]
        if not forms.empty_beginning and converted and converted[0]["content"] == "":
            converted[0]["content"] = " "  # Hunyuan A13B's template fails on an empty first message.
        shaped = [as_parts(turn) for turn in converted] if traits.parts else converted
        return [self._with_image_parts(turn) for turn in shaped]

    def _mark(self, message: Message) -> Message:
        """Return the message with its text marked; calls are marked at conversion."""
        mark = self._marker.text
        return attrs.evolve(
            message,
            content=(TextPart(marked_text(message.content, self._marker)),) if message.content else (),
            reasoning=mark(message.reasoning) if message.reasoning else None,
            name=mark(message.name) if message.name else None,
        )

    def _convert_turn(self, turn: Message) -> TemplateMessage:
        converted: TemplateMessage = {"role": turn.role, "content": turn.text}
        if turn.name:
            converted["name"] = turn.name
        if turn.reasoning and self._forms.reasoning_form == "field":
            converted[self._forms.reasoning_field] = turn.reasoning
        elif turn.reasoning:
            converted["content"] = content_with_reasoning(turn, self._forms)
        if turn.tool_call_id is not None:
            converted["tool_call_id"] = self._call_id(turn.tool_call_id)
        if turn.tool_calls:
            converted["tool_calls"] = [self._call(call) for call in turn.tool_calls]
            if not converted["content"] and self._traits.calls_without_content:
                converted["content"] = None
        return converted

    def _with_image_parts(self, turn: TemplateMessage) -> TemplateMessage:
        media = () if turn.get("tool_calls") else self._media.get(turn["role"], ())
        return with_image_parts(turn, media) if media else turn

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": self._marker.text(call.name), "arguments": self._arguments(call.arguments)}
        return {"id": self._call_id(call.id), "type": "function", "function": function}

    def _arguments(self, text: str) -> Any:
        """Return arguments as the template needs them: an object if it iterates over it, else JSON text."""
        decoded = self._decode(text)
        if not self._traits.arguments_as_text:
            return decoded if isinstance(decoded, dict) else {"arguments": decoded}
        return (
            json.dumps(decoded, ensure_ascii=False) if isinstance(decoded, dict) else self._marker.text(text)
        )

    def _decode(self, text: str) -> Any:
        """Return arguments as decoded JSON with marked strings; invalid JSON stays marked text."""
        try:
            return self._marker.value(json.loads(text)) if text.strip() else {}
        except (ValueError, RecursionError):
            return self._marker.text(text)

    def _render_calls(self, calls: Sequence[ToolCall]) -> str:
        return render_calls(self._parser, [self._marked_call(call) for call in calls])

    def _marked_call(self, call: ToolCall) -> ParsedCall:
        decoded = self._decode(call.arguments)
        arguments = json.dumps(decoded, ensure_ascii=False) if isinstance(decoded, dict) else None
        return ParsedCall(self._marker.text(call.name), arguments or self._marker.text(call.arguments))

    def _call_id(self, call_id: str) -> str:
        return short_call_id(call_id) if self._traits.short_call_ids else self._marker.text(call_id)


def short_call_id(call_id: str) -> str:
    """Return a stable id of nine letters or digits for any call id, as Mistral's templates require."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:16], "big")
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
