"""Parsing of a request's tools, and of its choice of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from greenroom.http.answering import tools as tool_choice
from greenroom.http.answering.tools import (
    TOOL_CHOICE,
    definition_of,
    log_left_out,
    none_left,
    parse_allowed,
    parse_custom_tool,
)
from greenroom.schemas.messages.messages import JsonObject, Tool, ToolChoice
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.wire.responses_items import CustomTool, FunctionTool, HostedTool, McpTool, ToolParam


def parse_tools(tools: Sequence[ToolParam], field: str = "tools") -> tuple[Tool, ...]:
    """Return the tools that the model may call.

    Tools that run on OpenAI's server, and deferred ones, are left out: agents always offer them.

    Raises:
        ProblemError: 400 that names the field.
    """
    parsed: dict[str, Tool] = {}
    for index, wire in enumerate(tools):
        name = f"{field}[{index}]"
        tool = _tool(wire, name)
        if tool is None:
            continue
        if tool.name in parsed:
            raise invalid(
                f"`{name}.name` is {tool.name[:80]!r}, which another tool already has.", f"{name}.name"
            )
        parsed[tool.name] = tool
    log_left_out(tool.param.type for tool in tools if isinstance(tool.param, HostedTool))
    return tuple(parsed.values())


def _tool(wire: ToolParam, field: str) -> Tool | None:
    match wire.param:
        case HostedTool() | McpTool():
            return None
        case CustomTool(defer_loading=deferred):
            return None if deferred else parse_custom_tool(wire.raw, field)
        case FunctionTool(name=""):
            raise invalid(f"`{field}.name` is empty.", f"{field}.name")
        case FunctionTool(name, description, parameters, strict, deferred):
            if deferred:
                return None
            param = f"{field}.parameters"
            return Tool(name, description or "", parameters or {}, strict or False, param=param)


def check_tools(tools: Sequence[ToolParam]) -> None:
    """Make sure that a request does not offer hosted tools alone. Raises ProblemError: 400 that names the
    first of them.
    """
    kinds = [tool.param.type for tool in tools if isinstance(tool.param, HostedTool)]
    if kinds and len(kinds) == len(tools):
        raise none_left(kinds[0])


def tool_echoes(tools: Sequence[ToolParam]) -> list[JsonObject]:
    """Return the tools as a response repeats them, with all members of functions filled in."""
    return [_echo(tool) for tool in tools]


def _echo(tool: ToolParam) -> JsonObject:
    match tool.param:
        case FunctionTool(name, description, parameters, strict):
            own: dict[str, Any] = {
                "type": "function",
                "name": name,
                "description": description,
                "parameters": parameters,
                "strict": strict or False,
            }
            return {**tool.raw, **own}
        case McpTool():
            return {**tool.raw, **dict.fromkeys(tool.raw.keys() & {"headers", "authorization"})}
        case _:
            return tool.raw


def definitions(tools: Sequence[Tool]) -> str:
    """Return the text that introduces tools added in the middle of a conversation."""
    return "\n".join(("These tools can be called from now on:", *map(definition_of, tools)))


CALLABLE = ("function", "custom")


def parse_tool_choice(value: Any) -> ToolChoice:
    """Return the tool choice of a request. Raises ProblemError (400) that names the field."""
    if _is_mcp(value):
        return ToolChoice()
    return tool_choice.parse_tool_choice(
        value, _name, _allowed, "which nothing here can run: name a function"
    )


def parse_chosen_mcp(value: Any) -> frozenset[tuple[str, str | None]]:
    """Return the MCP tools that a tool choice names: see `ToolLoop.chosen`. Raises as `parse_tool_choice`."""
    is_list = isinstance(value, dict) and value.get("type") == "allowed_tools"
    entries = value["tools"] if is_list else (value,)
    chosen = set()
    for index, entry in enumerate(entries):
        if _is_mcp(entry):
            field = f"{TOOL_CHOICE}.tools[{index}]" if is_list else TOOL_CHOICE
            if not isinstance(entry.get("server_label"), str):
                raise missing(f"{field}.server_label")
            name = None if entry.get("name") is None else _name(entry, field)
            chosen.add((str(entry["server_label"]), name))
    return frozenset(chosen)


def _is_mcp(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("type") == "mcp"


def _allowed(value: JsonObject) -> ToolChoice:
    """Return the choice among some tools, without those that only OpenAI's server can run."""
    choice, tools = parse_allowed(value, TOOL_CHOICE)
    allowed = []
    for index, tool in enumerate(tools):
        field = f"{TOOL_CHOICE}.tools[{index}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise missing(f"{field}.type")
        if tool["type"] in CALLABLE:
            allowed.append(_name(tool, field))
    if allowed or any(map(_is_mcp, tools)):
        return attrs.evolve(choice, allowed=tuple(allowed))
    if choice.mode == "required":
        detail = f"`{TOOL_CHOICE}.tools` holds none that could be called here: name a function."
        raise invalid(detail, f"{TOOL_CHOICE}.tools", "unsupported_parameter")
    return ToolChoice("none")


def _name(value: JsonObject, field: str) -> str:
    name = value.get("name")
    if name is None and isinstance(value.get("function"), dict):
        # The chat API nests the name, and clients send that form here too.
        name = value["function"].get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{field}.name")
    return name
