"""Tool descriptions in the prompt, for templates that cannot describe tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.schemas.messages.messages import Tool

FALLBACK_FORMAT = "hermes_json"
"""Call format for models without their own: the one most models are trained on."""

_NO_PARAMETERS = {"type": "object", "properties": {}}


def as_openai_tool(tool: Tool) -> dict[str, Any]:
    """Return the tool in the shape of OpenAI's API, which templates read."""
    parameters = dict(tool.parameters) or _NO_PARAMETERS
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def tool_prompt(tools: Sequence[Tool], parser: ToolCallParser) -> str:
    """Return system message text that describes the tools and the call format that `parser` reads."""
    described = "\n".join(json.dumps(as_openai_tool(tool)["function"], ensure_ascii=False) for tool in tools)
    example = render_calls(parser, [ParsedCall("function_name", '{"parameter": "value"}')])
    return (
        "# Tools\n\n"
        "You can call these functions, each described by a JSON object with the JSON Schema of its "
        f"parameters:\n\n{described}\n\n"
        f"To call a function, write exactly in this form, once for each call, and then stop:\n\n{example}\n\n"
        "The result comes in the next message. If no function is needed, answer without calling one."
    )


def render_calls(parser: ToolCallParser, calls: Sequence[ParsedCall]) -> str:
    """Return the calls of one turn as the model would have written them."""
    rendered = parser.render_all(calls)
    if rendered is not None:
        return rendered
    fallback = make_tool_parser(FALLBACK_FORMAT).render_all(calls)
    assert fallback is not None
    return fallback
