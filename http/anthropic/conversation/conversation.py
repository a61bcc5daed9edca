"""Messages of a request as protocol-independent ones: roles, reasoning, tool calls and results."""

from __future__ import annotations

import json
from collections.abc import Sequence

from greenroom.http.answering.reasoning_signature import LEFT_OUT, signed_reasoning
from greenroom.http.answering.requests.current_request import add_notice
from greenroom.http.anthropic.conversation.content_parts import block_parts, join_parts
from greenroom.http.anthropic.conversation.content_text import (
    block_text,
    blocks_of,
    join_blocks,
    server_result_text,
    tool_definition,
)
from greenroom.http.anthropic.conversation.system_prompt import without_billing_header
from greenroom.http.anthropic.conversation.tool_changes import apply_tool_change
from greenroom.http.anthropic.conversation.tools import ToolShelf
from greenroom.http.media.media_reader import MediaReader
from greenroom.schemas.anthropic.messages import BlockParam, Content, MessageParam
from greenroom.schemas.messages.messages import ContentPart, Message, TextPart, ToolCall
from greenroom.schemas.problems import invalid, missing

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Conversation:
    """Parses one request's messages, and tracks the tools they load and the calls they contain.

    Args:
        shelf: Tools of the request; those that the messages reference are loaded.
    """

    def __init__(self, shelf: ToolShelf) -> None:
        self._shelf = shelf
        self._called: set[str] = set()
        self._media = MediaReader()

    def parse(self, messages: Sequence[MessageParam]) -> tuple[Message, ...]:
        """Return the protocol-independent messages.

        Raises:
            ProblemError: 400 that names the field.
        """
        parsed: list[Message] = []
        last_user = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
        for index, message in enumerate(messages):
            field = f"messages[{index}].content"
            match message.role:
                case "user":
                    parsed += self._user(message.content, field)
                case "assistant":
                    parsed += self._assistant(message.content, field)
                case _:
                    parsed += self._system(message, f"messages[{index}]", is_past=index < last_user)
        return tuple(parsed)

    def _user(self, content: Content, field: str) -> list[Message]:
        """Return tool results first, since templates expect them right after the calls, then the rest."""
        results: list[Message] = []
        said: list[Sequence[ContentPart]] = []
        for index, block in enumerate(blocks_of(content, field)):
            name = f"{field}[{index}]"
            if block.type == "tool_result":
                results.append(self._result(block, name))
            else:
                said.append(block_parts(block, name, self._media))
        if said or not results:
            return [*results, Message("user", join_parts(said) or (TextPart(""),))]
        return results

    def _result(self, block: BlockParam, field: str) -> Message:
        parts = join_parts(
            self._result_parts(inner, f"{field}.content[{i}]")
            for i, inner in enumerate(blocks_of(block.content, f"{field}.content"))
        )
        first = parts[0].text if parts and isinstance(parts[0], TextPart) else None
        if block.is_error:
            parts = (TextPart(f"Error: {first or ''}"), *(parts if first is None else parts[1:]))
        return self._answer_to(block, parts or (TextPart(""),), field)

    def _result_parts(self, block: BlockParam, field: str) -> Sequence[ContentPart]:
        if block.type != "tool_reference":
            return block_parts(block, field, self._media)
        if not block.tool_name:
            raise missing(f"{field}.tool_name")
        return (TextPart(self._referred_tool(block.tool_name)),)

    def _referred_tool(self, name: str) -> str:
        try:
            tool = self._shelf.load(name)
        except KeyError:
            return f"The tool {name!r} is not on offer."
        return f"The tool {name!r} can be called." if tool is None else tool_definition(tool)

    def _assistant(self, content: Content, field: str) -> list[Message]:
        """Return one message, or several if results of server tools split the turn."""
        turns: list[Message] = []
        turn: list[tuple[BlockParam, str]] = []
        for index, block in enumerate(blocks_of(content, field)):
            name = f"{field}[{index}]"
            if block.type.endswith("_tool_result"):
                turns += [self._turn(turn)] if turn else []
                text = server_result_text(block.content)
                turns.append(self._answer_to(block, (TextPart(text),), name))
                turn = []
            else:
                turn.append((block, name))
        return [*turns, self._turn(turn)] if turn or not turns else turns

    def _turn(self, blocks: Sequence[tuple[BlockParam, str]]) -> Message:
        reasoning: list[str] = []
        texts: list[str] = []
        calls: list[ToolCall] = []
        for block, field in blocks:
            if block.type in CALLS:
                calls.append(self._call(block, field))
            elif block.type in ("thinking", "redacted_thinking"):
                reasoning.append(_reasoning(block, field))
            else:
                texts.append(block_text(block, field))
        text = "".join(texts)
        return Message(
            "assistant",
            (TextPart(text),) if text else (),
            reasoning="\n\n".join(filter(None, reasoning)) or None,
            tool_calls=tuple(calls),
        )

    def _call(self, block: BlockParam, field: str) -> ToolCall:
        for name, value in (("id", block.id), ("name", block.name)):
            if not value:
                raise missing(f"{field}.{name}")
        assert block.id
        assert block.name
        self._called.add(block.id)
        return ToolCall(block.id, block.name, json.dumps(block.input or {}, ensure_ascii=False))

    def _answer_to(self, block: BlockParam, parts: tuple[ContentPart, ...], field: str) -> Message:
        if not block.tool_use_id:
            raise missing(f"{field}.tool_use_id")
        if block.tool_use_id not in self._called:
            name = f"{field}.tool_use_id"
            detail = f"`{name}` is {block.tool_use_id[:80]!r}, but no earlier `tool_use` block has that id."
            raise invalid(detail, name)
        return Message("tool", parts, tool_call_id=block.tool_use_id)

    def _system(self, message: MessageParam, field: str, *, is_past: bool) -> list[Message]:
        if message.output_config:
            name = f"{field}.output_config"
            detail = f"`{name}` is not supported: set it for the whole request."
            raise invalid(detail, name, "unsupported_parameter")
        if message.clear_at not in (None, "never", "next_user_message"):
            name = f"{field}.clear_at"
            raise invalid(f"`{name}` must be 'never' or 'next_user_message'.", name)
        texts, changes = [], []
        for index, block in enumerate(blocks_of(message.content, f"{field}.content")):
            name = f"{field}.content[{index}]"
            if block.type in ("tool_addition", "tool_removal"):
                changes.append(apply_tool_change(block, self._shelf, name))
            else:
                texts.append(without_billing_header(block_text(block, name)))
        if is_past and message.clear_at == "next_user_message":
            texts = []
        text = join_blocks([*texts, *changes])
        return [Message("system", (TextPart(text),), is_note=not any(texts))] if text else []


def _reasoning(block: BlockParam, field: str) -> str:
    """Return the reasoning that this server has signed; empty for any other, of which the client is told."""
    if block.type == "thinking" and block.thinking is None:
        raise missing(f"{field}.thinking")
    reasoning = signed_reasoning(block.thinking or "", block.signature or "")
    if reasoning is None and (block.thinking or block.signature or block.type == "redacted_thinking"):
        add_notice(LEFT_OUT)
    return reasoning or ""
