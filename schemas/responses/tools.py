"""Tools of a response (OpenAI's API reference); functions are flat, without the nesting of chat requests."""

from __future__ import annotations

from typing import Annotated, Any

import attrs

from greenroom.schemas.messages.messages import MAX_TOOLS, JsonObject
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.wire import AtMost, wrong_type


@attrs.frozen
class FunctionTool:
    """The definition of a callable function."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


@attrs.frozen
class CustomTool:
    """The definition of a tool whose input is text, free or in a given format."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None
    defer_loading: bool | None = None


@attrs.frozen
class HostedTool:
    """A tool hosted by OpenAI, which this server cannot run."""

    type: str


@attrs.frozen
class ToolParam:
    """The definition of a tool.

    Args:
        raw: JSON object as received.
    """

    param: FunctionTool | CustomTool | HostedTool
    raw: JsonObject = attrs.field(eq=False, repr=False)


ToolParams = Annotated[tuple[ToolParam, ...], AtMost(MAX_TOOLS)]

_TOOL_TYPES: dict[str, type[FunctionTool | CustomTool]] = {"function": FunctionTool, "custom": CustomTool}


@attrs.frozen
class _Typed:
    type: str


def _tool(value: Any, _: Any) -> ToolParam:
    if not isinstance(value, dict):
        raise wrong_type("an object", value)
    kind = RESPONSES.structure(value, _Typed).type
    if kind not in _TOOL_TYPES:
        return ToolParam(HostedTool(kind), value)
    param: FunctionTool | CustomTool = RESPONSES.structure(value, _TOOL_TYPES[kind])
    return ToolParam(param, value)


RESPONSES.register_structure_hook(ToolParam, _tool)
