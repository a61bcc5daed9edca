"""A conversation rewritten so that a template can take it, losing nothing (document 000, section 6.4)."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import string
from collections.abc import Sequence
from typing import Any

from greenroom.engine.adapters.tool_prompt import write_call
from greenroom.engine.chat_template import TemplateMessage, TemplateTraits, as_parts
from greenroom.engine.control_tokens import Marker
from greenroom.engine.parsers.contract import ToolCallParser
from greenroom.schemas.messages import Message
from greenroom.schemas.problems import invalid

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
        called = match_results(messages)
        broken_off = self._broken_off(messages)
        spoken_calls = broken_off or not self._traits.tool_calls
        spoken_results = broken_off or not self._traits.tool_results
        turns = [
            self._result(message, called, spoken_results)
            if message.role == "tool"
            else self._turn(message, spoken_calls)
            for message in messages
        ]
        turns = self._place_systems(turns, instructions)
        if not self._traits.repeated_roles:
            turns = _merge_repeated(turns)
        if not self._traits.assistant_first:
            turns = _open_with_user(turns)
        return [as_parts(turn) for turn in turns] if self._traits.parts else turns

    def _broken_off(self, messages: Sequence[Message]) -> bool:
        """A user speaks right after a tool's result, and the template would refuse that."""
        if self._traits.user_after_tool:
            return False
        return ("tool", "user") in itertools.pairwise(message.role for message in messages)

    def _result(self, message: Message, called: dict[str, str], spoken: bool) -> TemplateMessage:
        text = self._marker.text(message.text)
        call_id = message.tool_call_id or ""
        name = self._marker.text(called[call_id])
        if spoken:
            return {"role": "user", "content": f"Result of {name}:\n{text}"}
        return {"role": "tool", "content": text, "tool_call_id": self._call_id(call_id), "name": name}

    def _turn(self, message: Message, spoken: bool) -> TemplateMessage:
        text = self._marker.text(message.text)
        turn: TemplateMessage = {"role": message.role, "content": text}
        if message.name:
            turn["name"] = self._marker.text(message.name)
        if message.reasoning:
            turn["reasoning_content"] = self._marker.text(message.reasoning)
        if message.tool_calls and spoken:
            turn["content"] = "\n".join(filter(None, [text, *self._written_calls(message)]))
        elif message.tool_calls:
            turn["tool_calls"] = self._calls(message)
            if not text and self._traits.calls_without_content:
                turn["content"] = None
        return turn

    def _written_calls(self, message: Message) -> list[str]:
        return [
            write_call(self._parser, self._marker.text(call.name), self._marker.text(call.arguments))
            for call in message.tool_calls
        ]

    def _calls(self, message: Message) -> list[dict[str, Any]]:
        return [
            {
                "id": self._call_id(call.id),
                "type": "function",
                "function": {
                    "name": self._marker.text(call.name),
                    "arguments": self._arguments(call.arguments),
                },
            }
            for call in message.tool_calls
        ]

    def _arguments(self, text: str) -> Any:
        """What the template needs: an object where it walks through it, else the text as it stands."""
        if self._traits.arguments_as_text:
            return self._marker.text(text or "{}")
        try:
            value = json.loads(text) if text.strip() else {}
            return self._marker.value(value if isinstance(value, dict) else {"arguments": value})
        except (ValueError, RecursionError):
            return {"arguments": self._marker.text(text)}

    def _call_id(self, call_id: str) -> str:
        if not self._traits.short_call_ids:
            return self._marker.text(call_id)
        return short_call_id(call_id)

    def _place_systems(self, turns: list[TemplateMessage], instructions: str) -> list[TemplateMessage]:
        """System messages where the template shows them."""
        head = 0
        while head < len(turns) and turns[head]["role"] == "system":
            head += 1
        systems, rest = turns[:head], turns[head:]
        if instructions:
            systems = (
                [{"role": "system", "content": instructions}]
                if not systems
                else [
                    {**systems[0], "content": _join(systems[0]["content"], instructions)},
                    *systems[1:],
                ]
            )
        if not self._traits.several_systems and len(systems) > 1:
            systems = [{"role": "system", "content": _join(*(turn["content"] for turn in systems))}]
        if not self._traits.late_system:
            rest = [_as_user(turn) if turn["role"] == "system" else turn for turn in rest]
        if systems and not rest and not self._traits.system_alone:
            *systems, last = systems
            rest = [{"role": "user", "content": last["content"]}]
        if systems and not self._traits.system:
            return _into_first_user(_join(*(turn["content"] for turn in systems)), rest)
        return [*systems, *rest]


def match_results(messages: Sequence[Message]) -> dict[str, str]:
    """The name of the function that each call id stands for.

    Raises:
        ProblemError: 400 that names the first result without a call before it.
    """
    called: dict[str, str] = {}
    for index, message in enumerate(messages):
        called.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in called:
            field = f"messages[{index}].tool_call_id"
            if message.tool_call_id is None:
                raise invalid(f"`{field}` is missing: a tool message must name the call it answers.", field)
            detail = f"`{field}` is '{message.tool_call_id[:80]}', but no earlier call has that id."
            raise invalid(detail, field)
    return called


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


def _merge_repeated(turns: list[TemplateMessage]) -> list[TemplateMessage]:
    """One turn for each run of user or assistant turns; results of tools stay apart."""
    merged: list[TemplateMessage] = []
    for turn in turns:
        if merged and turn["role"] == merged[-1]["role"] and turn["role"] in ("user", "assistant"):
            merged[-1] = _merge(merged[-1], turn)
        else:
            merged.append(turn)
    return merged


def _merge(first: TemplateMessage, second: TemplateMessage) -> TemplateMessage:
    merged = {**first, **second, "content": _join(first["content"], second["content"])}
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    if calls:
        merged["tool_calls"] = calls
        merged["content"] = merged["content"] or second["content"]
    reasoning = _join(first.get("reasoning_content"), second.get("reasoning_content"))
    return {**merged, "reasoning_content": reasoning} if reasoning else merged


def _open_with_user(turns: list[TemplateMessage]) -> list[TemplateMessage]:
    for index, turn in enumerate(turns):
        if turn["role"] == "assistant":
            return [*turns[:index], {"role": "user", "content": ""}, *turns[index:]]
        if turn["role"] != "system":
            break
    return turns


def _into_first_user(text: str, turns: list[TemplateMessage]) -> list[TemplateMessage]:
    if turns and turns[0]["role"] == "user":
        return [{**turns[0], "content": _join(text, turns[0]["content"])}, *turns[1:]]
    return [{"role": "user", "content": text}, *turns]


def _as_user(turn: TemplateMessage) -> TemplateMessage:
    return {"role": "user", "content": f"[System message]\n{turn['content']}"}


def _join(*texts: str | None) -> str:
    return "\n\n".join(text for text in texts if text)
