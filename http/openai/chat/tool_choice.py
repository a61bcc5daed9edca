"""Parsing of `tool_choice` in OpenAI's chat API."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.http.answering.tools import tool_choice
from greenroom.http.answering.tools.tool_choice import TOOL_CHOICE, parse_allowed
from greenroom.schemas.messages.messages import JsonObject, ToolChoice
from greenroom.schemas.problems import missing


def parse_tool_choice(value: Any) -> ToolChoice:
    """Return the tool choice of a request.

    Raises:
        ProblemError: 400 that names the field.
    """
    return tool_choice.parse_tool_choice(
        value, _tool_name, _allowed, "but must be 'function', 'custom' or 'allowed_tools'"
    )


def _allowed(value: JsonObject) -> ToolChoice:
    field = f"{TOOL_CHOICE}.allowed_tools"
    wrapped = value.get("allowed_tools")
    if not isinstance(wrapped, dict):
        raise missing(field)
    choice, tools = parse_allowed(wrapped, field)
    names = tuple(_tool_name(tool, f"{field}.tools[{index}]") for index, tool in enumerate(tools))
    return attrs.evolve(choice, allowed=names)


def _tool_name(value: Any, field: str) -> str:
    kind = "custom" if isinstance(value, dict) and value.get("type") == "custom" else "function"
    wrapped = value.get(kind) if isinstance(value, dict) else None
    # Clients of the Responses API, which has no wrapping object, omit it here too.
    name = wrapped.get("name") if isinstance(wrapped, dict) else None
    if name is None and isinstance(value, dict):
        name = value.get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{field}.{kind}.name")
    return name
