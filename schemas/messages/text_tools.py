"""Tools that take one text, such as a patch or a query, presented to models as one-argument functions.

OpenAI calls them custom tools.
"""

from __future__ import annotations

import json

from greenroom.schemas.messages.messages import TextInput, Tool

ARGUMENT = "input"
"""The name of the argument that holds the text."""

_KINDS = {"regex": "regular expression (syntax of Rust)", "lark": "Lark grammar"}


def text_tool(name: str, description: str, takes: TextInput, param: str) -> Tool:
    """Return a tool with one text argument; its description states the text's required format.

    Args:
        param: Request field of the input's definition, for errors.
    """
    text = {"type": "string", "description": "The whole input, as it is: no JSON, no quotes around it."}
    parameters = {
        "type": "object",
        "properties": {ARGUMENT: text},
        "required": [ARGUMENT],
        "additionalProperties": False,
    }
    if kind := _KINDS.get(takes.syntax):
        rule = f"`{ARGUMENT}` has to match this {kind}:\n{takes.definition}"
        description = f"{description}\n\n{rule}" if description else rule
    return Tool(name, description, parameters, strict=bool(kind), input=takes, param=param)


def arguments_of(text: str) -> str:
    return json.dumps({ARGUMENT: text}, ensure_ascii=False)
