"""Messages of a request as protocol-independent ones: roles, reasoning, tool calls and results."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.http.answering.current_request import add_notice
from greenroom.http.answering.explanation_body import LEFT_OUT, signed_reasoning
from greenroom.http.answering.tools import log_left_out, none_left
from greenroom.http.anthropic.content import (
    block_parts,
    block_text,
    blocks_of,
    join_blocks,
    join_parts,
    server_result_text,
    tool_definition,
)
from greenroom.http.media.media_reader import MediaReader
from greenroom.schemas.messages.messages import ContentPart, Message, TextPart, Tool, ToolCall, ToolChoice
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.wire.anthropic import (
    ANTHROPIC,
    BlockParam,
    Content,
    MessageParam,
    ToolChoiceParam,
    ToolParam,
)
from greenroom.schemas.wire.wire import structure

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Conversation:
    """Parses one request's messages, and tracks the tools they load and the calls they contain."""

    def __init__(self, shelf: ToolShelf) -> None:
        self._shelf = shelf
        self._called: set[str] = set()
        self._media = MediaReader()

    def parse(self, messages: Sequence[MessageParam]) -> tuple[Message, ...]:
        """Return the protocol-independent messages. Raises ProblemError (400) that names the field."""
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


TOOLSET = "mcp_toolset"  # Type of the tools of an MCP server
_OWN_TYPES = (None, "custom")  # Types of tools that a client defines


@attrs.define
class ToolShelf:
    """Callable tools of a request, which its conversation may change.

    Args:
        deferred: Tools by name that are callable only once the conversation references them.
        ignored: Names of tools that only Anthropic's server can run; they are never callable.
        has_servers: True if there are tools of MCP servers, whose names are not known yet.
    """

    offered: dict[str, Tool] = attrs.field(factory=dict)
    deferred: dict[str, Tool] = attrs.field(factory=dict)
    ignored: set[str | None] = attrs.field(factory=set)
    has_servers: bool = False
    _loaded: dict[str, Tool] = attrs.field(init=False, factory=dict)
    _withdrawn: set[str] = attrs.field(init=False, factory=set)

    def load(self, name: str) -> Tool | None:
        """Make a tool callable that the conversation references.

        Returns:
            The tool if its definition is not in the prompt yet.

        Raises:
            KeyError: There is no tool of that name.
        """
        self._withdrawn.discard(name)
        if name in self.offered or name in self._loaded:
            return None
        return self.add(self.deferred[name])

    def add(self, tool: Tool) -> Tool:
        """Make a tool callable that the conversation defines."""
        self._withdrawn.discard(tool.name)
        self._loaded[tool.name] = attrs.evolve(tool, described=False)
        return tool

    def withdraw(self, name: str) -> None:
        """Make a tool uncallable. Raises KeyError: there is no tool of that name."""
        if name in self.ignored:
            return
        if not any(name in tools for tools in (self.offered, self.deferred, self._loaded)):
            raise KeyError(name)
        self._withdrawn.add(name)

    def tools(self) -> tuple[Tool, ...]:
        return (*self.offered.values(), *self._loaded.values())

    def choice(self, choice: ToolChoice) -> ToolChoice:
        if not self._withdrawn:
            return choice
        names = tuple(tool.name for tool in self.tools() if tool.name not in self._withdrawn)
        return attrs.evolve(choice, allowed=names) if names else ToolChoice("none")

    def can_call(self, name: str | None) -> bool:
        return name not in self._withdrawn and any(tool.name == name for tool in self.tools())


def parse_tools(tools: Sequence[ToolParam]) -> ToolShelf:
    """Return the tools of a request, without those that only Anthropic's server can run or describe. Raises
    ProblemError: 400 that names the field.
    """
    shelf, left_out = ToolShelf(), list[str]()
    for index, wire in enumerate(tools):
        field = f"tools[{index}]"
        tool = parse_tool(wire, field)
        if wire.type == TOOLSET:
            shelf.has_servers = True
            continue
        if tool is None:
            left_out.append(wire.type or "")
            shelf.ignored.add(wire.name)
            continue
        if tool.name in shelf.offered or tool.name in shelf.deferred:
            detail = f"`{field}.name` is {tool.name[:80]!r}, which another tool already has."
            raise invalid(detail, f"{field}.name")
        (shelf.deferred if wire.defer_loading else shelf.offered)[tool.name] = tool
    log_left_out(left_out)
    return shelf


def check_tools(tools: Sequence[ToolParam], choice: ToolChoiceParam | None) -> None:
    """Make sure that a request does not offer server tools alone. Raises ProblemError: 400 that names the
    first of them.
    """
    if choice is not None and choice.type == "none":
        return
    if tools and all(wire.type not in (*_OWN_TYPES, TOOLSET) for wire in tools):
        raise none_left(tools[0].type or "")


def parse_tool(wire: ToolParam, field: str) -> Tool | None:
    """Return one tool; None for a type to ignore, since agents always send tools of such types. Raises
    ProblemError: 400 that names the field.
    """
    if wire.type not in _OWN_TYPES:
        return None
    if wire.name is None or wire.input_schema is None:
        raise missing(f"{field}.{'name' if wire.name is None else 'input_schema'}")
    if not wire.name:
        raise invalid(f"`{field}.name` is empty.", f"{field}.name")
    if wire.allowed_callers is not None and "direct" not in wire.allowed_callers:
        name = f"{field}.allowed_callers"
        detail = f"`{name}` must include 'direct': only the model itself calls tools here."
        raise invalid(detail, name, "unsupported_parameter")
    param = f"{field}.input_schema"
    return Tool(wire.name, _description(wire), wire.input_schema, wire.strict or False, param=param)


def parse_tool_choice(wire: ToolChoiceParam | None, shelf: ToolShelf) -> ToolChoice:
    """Return the tool choice of a request, limited to the tools that its conversation leaves callable. Raises
    ProblemError: 400 that names the field.
    """
    match wire.type if wire else "auto":
        case "auto":
            return shelf.choice(ToolChoice())
        case "none":
            return ToolChoice("none")
        case "any":
            if not shelf.has_servers and not any(shelf.can_call(tool.name) for tool in shelf.tools()):
                detail = "`tool_choice` is 'any', but there is no tool that could be called."
                raise invalid(detail, "tool_choice")
            return shelf.choice(ToolChoice("required"))
        case "tool":
            return _named(wire.name if wire else None, shelf)
    detail = "`tool_choice.type` must be 'auto', 'any', 'tool' or 'none'."
    raise invalid(detail, "tool_choice.type")


def _named(name: str | None, shelf: ToolShelf) -> ToolChoice:
    if not name:
        raise missing("tool_choice.name")
    if not shelf.has_servers and not shelf.can_call(name):
        detail = f"`tool_choice.name` is {name[:80]!r}, which is not among the tools on offer."
        raise invalid(detail, "tool_choice.name")
    return ToolChoice("named", name)


def _description(wire: ToolParam) -> str:
    description = wire.description or ""
    if not wire.input_examples:
        return description
    examples = "\n".join(json.dumps(example, ensure_ascii=False) for example in wire.input_examples)
    return f"{description}\n\nExamples of input:\n{examples}".strip()


def apply_tool_change(block: BlockParam, shelf: ToolShelf, field: str) -> str:
    """Add or remove a tool, and return the text that tells the model. Raises ProblemError: 400 that names the
    field.
    """
    field = f"{field}.tool"
    match block.tool:
        case {"type": "tool_reference", "name": str(name)} if name:
            return (
                _withdraw(name, shelf, field) if block.type == "tool_removal" else _load(name, shelf, field)
            )
        case {"type": "tool_definition", **rest} if block.type == "tool_addition":
            return _define(rest.get("definition"), shelf, f"{field}.definition")
        case {"type": "tool_reference" | "tool_definition"}:
            raise missing(f"{field}.name")
        case None:
            raise missing(field)
    detail = f"`{field}.type` must be 'tool_reference' or, for an addition, 'tool_definition'."
    raise invalid(detail, f"{field}.type", "unsupported_parameter")


def _withdraw(name: str, shelf: ToolShelf, field: str) -> str:
    try:
        shelf.withdraw(name)
    except KeyError:
        raise _unknown(name, field) from None
    return f"The tool {name!r} can no longer be called."


def _load(name: str, shelf: ToolShelf, field: str) -> str:
    try:
        tool = shelf.load(name)
    except KeyError:
        raise _unknown(name, field) from None
    return f"The tool {name!r} can be called." if tool is None else tool_definition(tool)


def _unknown(name: str, field: str) -> ProblemError:
    return invalid(f"`{field}.name` is {name[:80]!r}, which no tool has.", f"{field}.name")


def _define(definition: Any, shelf: ToolShelf, field: str) -> str:
    if definition is None:
        raise missing(field)
    try:
        wire = structure(definition, ToolParam, ANTHROPIC)
    except ProblemError as error:
        name = f"{field}.{error.problem.param}" if error.problem.param else field
        raise invalid(f"`{name}` is not valid in a tool definition.", name) from None
    tool = parse_tool(wire, field)
    return "" if tool is None else tool_definition(shelf.add(tool))


_BILLING_HEADER = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE)


def parse_system(system: Content | None) -> tuple[Message, ...]:
    """Return the system message at the start of a request, if it has one. Raises ProblemError: 400 that names
    a block that is not text.
    """
    text = join_blocks(
        without_billing_header(block_text(block, f"system[{i}]"))
        for i, block in enumerate(blocks_of(system, "system"))
    )
    return (Message("system", (TextPart(text),)),) if text else ()


def without_billing_header(text: str) -> str:
    """Return a system prompt without its billing header.

    The header differs between sessions, and would keep their prompts from sharing a cached prefix.
    """
    return _BILLING_HEADER.sub("", text, count=1)
