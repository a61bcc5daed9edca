"""Parsing of `tool_choice` as far as OpenAI's APIs agree on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.schemas.messages.messages import JsonObject, ToolChoice
from greenroom.schemas.problems import invalid, missing

TOOL_CHOICE = "tool_choice"


def parse_tool_choice(
    value: Any,
    name_of: Callable[[JsonObject, str], str],
    allowed: Callable[[JsonObject], ToolChoice],
    remedy: str,
) -> ToolChoice:
    """Return the tool choice of a request.

    Args:
        name_of: Returns the name of the chosen tool, given its entry and the entry's path.
        allowed: Returns the choice among a subset of the tools.
        remedy: Advice about an unknown type, for errors.

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
            return ToolChoice("named", name_of(value, TOOL_CHOICE))
        case {"type": "allowed_tools"}:
            return allowed(value)
        case {"type": str(kind)}:
            field = f"{TOOL_CHOICE}.type"
            raise invalid(f"`{field}` is {kind[:40]!r}, {remedy}.", field, "unsupported_parameter")
        case _:
            detail = f"`{TOOL_CHOICE}` must be 'none', 'auto', 'required', or an object with a type."
            raise invalid(detail, TOOL_CHOICE)


def allows_parallel_calls(wanted: bool | None, choice: ToolChoice) -> bool:
    """Return whether a response may contain several calls.

    A named function is called exactly once (OpenAI's guide to function calling): clients that execute a
    command would execute it again for each further call. Required calls may be several only if the client
    says so: small models seldom choose the end, and would repeat a call up to the limit.
    """
    if choice.mode == "required":
        return wanted is True
    return wanted is not False and choice.mode != "named"


def parse_allowed(value: JsonObject, path: str) -> tuple[ToolChoice, list[Any]]:
    """Return the mode of an `allowed_tools` choice, and the entries of its tools.

    Args:
        path: Path of `value`, for errors.

    Raises:
        ProblemError: 400 that names the field.
    """
    mode = value.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid(f"`{path}.mode` must be 'auto' or 'required'.", f"{path}.mode")
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise missing(f"{path}.tools")
    return ToolChoice("required" if mode == "required" else "auto"), tools
