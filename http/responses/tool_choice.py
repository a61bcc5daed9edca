"""How clients of responses say whether and which tools are to be called."""

from __future__ import annotations

from typing import Any

from greenroom.schemas.messages import JsonObject, ToolChoice
from greenroom.schemas.problems import invalid, missing

FIELD = "tool_choice"
CALLABLE = ("function", "custom")


def parse_tool_choice(value: Any) -> ToolChoice:
    """Return the choice that a request makes.

    Raises:
        ProblemError: 400 that names the field.
    """
    match value:
        case None | "auto":
            return ToolChoice("auto")
        case "none":
            return ToolChoice("none")
        case "required":
            return ToolChoice("required")
        case {"type": "function" | "custom"}:
            return ToolChoice("named", _name(value, FIELD))
        case {"type": "allowed_tools"}:
            return _allowed(value)
        case {"type": str(kind)}:
            field = f"{FIELD}.type"
            detail = f"`{field}` is {kind[:40]!r}, which nothing here can run: name a function."
            raise invalid(detail, field, "unsupported_parameter")
        case _:
            raise invalid(f"`{FIELD}` must be 'none', 'auto', 'required', or an object with a type.", FIELD)


def _allowed(value: JsonObject) -> ToolChoice:
    """Return the choice among some tools, without those that only OpenAI's server can run."""
    mode = value.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid(f"`{FIELD}.mode` must be 'auto' or 'required'.", f"{FIELD}.mode")
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise missing(f"{FIELD}.tools")
    allowed = []
    for index, tool in enumerate(tools):
        field = f"{FIELD}.tools[{index}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise missing(f"{field}.type")
        if tool["type"] in CALLABLE:
            allowed.append(_name(tool, field))
    if allowed:
        return ToolChoice("required" if mode == "required" else "auto", allowed=tuple(allowed))
    if mode == "required":
        detail = f"`{FIELD}.tools` holds none that could be called here: name a function."
        raise invalid(detail, f"{FIELD}.tools", "unsupported_parameter")
    return ToolChoice("none")


def _name(value: JsonObject, field: str) -> str:
    name = value.get("name")
    if name is None and isinstance(value.get("function"), dict):
        # Chats wrap what responses have flat, and their clients forget that.
        name = value["function"].get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{field}.name")
    return name
