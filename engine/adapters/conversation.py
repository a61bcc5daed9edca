"""A conversation rewritten so that a template can take it, losing nothing (document 000, section 6.4)."""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.engine.adapters import turns
from greenroom.engine.adapters.chat_template import TemplateMessage, TemplateTraits, as_parts
from greenroom.engine.adapters.tool_prompt import write_call
from greenroom.engine.parsers.contract import ToolCallParser
from greenroom.engine.tokenizer.control_tokens import Marker
from greenroom.schemas.messages import Message, TextPart, ToolCall

_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_DIGITS = string.digits + string.ascii_letters


class ConversationWriter:
    """Writes messages in the shape that one template takes. Stateless between conversations.

    Args:
        parser: Format of calls, for templates that cannot show them.
        marker: Marks control tokens in what users wrote.
    """

    def __init__(self, traits: TemplateTraits, parser: ToolCallParser, marker: Marker) -> None:
        self._traits = traits
        self._parser = parser
        self._marker = marker

    def write(self, messages: Sequence[Message], instructions: str = "") -> list[TemplateMessage]:
        """The conversation for the template.

        Args:
            instructions: The server's own text for the system message; it is not marked.

        Raises:
            ProblemError: 400 for a tool's result that answers no call.
        """
        traits = self._traits
        marked = [self._marked(message) for message in turns.name_results(messages)]
        placed = turns.place_systems(marked, traits, instructions)
        if not traits.repeated_roles and traits.tool_calls:
            placed = turns.merge_repeated(placed)
        said = turns.speak(placed, traits, self._written_call)
        if not traits.repeated_roles:
            said = turns.merge_repeated(said)
        if not traits.parallel_calls:
            said = turns.one_call_a_turn(said)
        if not traits.text_beside_calls:
            said = turns.split_calls(said)
        if not traits.assistant_first:
            said = turns.open_with_user(said)
        written = [self._written(turn) for turn in said]
        return [as_parts(turn) for turn in written] if traits.parts else written

    def _marked(self, message: Message) -> Message:
        """The message with its text marked; calls are marked where they are written, once decoded."""
        mark = self._marker.text
        return attrs.evolve(
            message,
            content=(TextPart(mark(message.text)),) if message.content else (),
            reasoning=mark(message.reasoning) if message.reasoning else None,
            name=mark(message.name) if message.name else None,
        )

    def _written(self, turn: Message) -> TemplateMessage:
        written: TemplateMessage = {"role": turn.role, "content": turn.text}
        if turn.name:
            written["name"] = turn.name
        if turn.reasoning:
            written["reasoning_content"] = turn.reasoning
        if turn.tool_call_id is not None:
            written["tool_call_id"] = self._call_id(turn.tool_call_id)
        if turn.tool_calls:
            written["tool_calls"] = [self._call(call) for call in turn.tool_calls]
            if not turn.text and self._traits.calls_without_content:
                written["content"] = None
        return written

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": self._marker.text(call.name), "arguments": self._arguments(call.arguments)}
        return {"id": self._call_id(call.id), "type": "function", "function": function}

    def _arguments(self, text: str) -> Any:
        """What the template needs: an object where it walks through it, else JSON text."""
        decoded = self._decoded(text)
        if not self._traits.arguments_as_text:
            return decoded if isinstance(decoded, dict) else {"arguments": decoded}
        return (
            json.dumps(decoded, ensure_ascii=False) if isinstance(decoded, dict) else self._marker.text(text)
        )

    def _decoded(self, text: str) -> Any:
        """Arguments as JSON, marked inside; text that is no JSON stays text, marked."""
        try:
            return self._marker.value(json.loads(text)) if text.strip() else {}
        except (ValueError, RecursionError):
            return self._marker.text(text)

    def _written_call(self, call: ToolCall) -> str:
        decoded = self._decoded(call.arguments)
        arguments = json.dumps(decoded, ensure_ascii=False) if isinstance(decoded, dict) else None
        return write_call(
            self._parser, self._marker.text(call.name), arguments or self._marker.text(call.arguments)
        )

    def _call_id(self, call_id: str) -> str:
        return short_call_id(call_id) if self._traits.short_call_ids else self._marker.text(call_id)


def short_call_id(call_id: str) -> str:
    """Nine letters or digits for any id, always the same for the same id (Mistral's templates demand it)."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:16], "big")
    digits = []
    for _ in range(9):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
