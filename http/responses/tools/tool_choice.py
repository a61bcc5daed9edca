"""Parsing of a response request's tool choice."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.http.answering.tools import tool_choice
from greenroom.http.answering.tools.tool_choice import TOOL_CHOICE, parse_allowed
from greenroom.schemas.messages.messages import JsonObject, ToolChoice
from greenroom.schemas.problems import invalid, missing

CALLABLE = ("function", "custom")


def parse_tool_choice(value: Any) -> ToolChoice:
    """Return the tool choice of a request.

    Raises:
        ProblemError: 400 that names the field.
    """
    return tool_choice.parse_tool_choice(
        value, _name, _allowed, "which nothing here can run: name a function"
    )


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
    if allowed:
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
