"""How clients of OpenAI's chat API say whether and which tools are to be called."""

from __future__ import annotations

from typing import Any

from greenroom.schemas.messages import JsonObject, ToolChoice
from greenroom.schemas.problems import invalid, missing

FIELD = "tool_choice"


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
            return ToolChoice("named", _tool_name(value, FIELD))
        case {"type": "allowed_tools"}:
            return _allowed(value)
        case {"type": str(kind)}:
            field = f"{FIELD}.type"
            detail = f"`{field}` is {kind[:40]!r}, but must be 'function', 'custom' or 'allowed_tools'."
            raise invalid(detail, field, "unsupported_parameter")
        case _:
            raise invalid(f"`{FIELD}` must be 'none', 'auto', 'required', or an object with a type.", FIELD)


def _allowed(value: JsonObject) -> ToolChoice:
    field = f"{FIELD}.allowed_tools"
    allowed = value.get("allowed_tools")
    if not isinstance(allowed, dict):
        raise missing(field)
    mode = allowed.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid(f"`{field}.mode` must be 'auto' or 'required'.", f"{field}.mode")
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not tools:
        raise missing(f"{field}.tools")
    names = tuple(_tool_name(tool, f"{field}.tools[{i}]") for i, tool in enumerate(tools))
    return ToolChoice("required" if mode == "required" else "auto", allowed=names)


def _tool_name(value: Any, field: str) -> str:
    kind = "custom" if isinstance(value, dict) and value.get("type") == "custom" else "function"
    wrapped = value.get(kind) if isinstance(value, dict) else None
    # The Responses API leaves the wrapping out, and its clients forget that this one does not.
    name = wrapped.get("name") if isinstance(wrapped, dict) else None
    if name is None and isinstance(value, dict):
        name = value.get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{field}.{kind}.name")
    return name
