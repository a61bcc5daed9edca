"""Tools that a system message adds or removes in the middle of a conversation."""

from __future__ import annotations

from typing import Any

from greenroom.http.anthropic.conversation.content_text import tool_definition
from greenroom.http.anthropic.conversation.tools import ToolShelf, parse_tool
from greenroom.schemas.anthropic.converter import ANTHROPIC
from greenroom.schemas.anthropic.messages import BlockParam, ToolParam
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.wire import structure


def apply_tool_change(block: BlockParam, shelf: ToolShelf, field: str) -> str:
    """Add or remove a tool, and return the text that tells the model.

    Raises:
        ProblemError: 400 that names the field.
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
