"""Tools that take one text, such as a patch or a query, told to models as functions with one argument.

OpenAI calls them custom tools.
"""

from __future__ import annotations

import json

from greenroom.schemas.messages import TextInput, Tool

ARGUMENT = "input"
"""What the text is called among a call's arguments."""

_KINDS = {"regex": "regular expression (syntax of Rust)", "lark": "Lark grammar"}


def text_tool(name: str, description: str, takes: TextInput, param: str) -> Tool:
    """Return the tool; its description tells the model what the text has to match.

    Args:
        param: What the client calls the definition of its input, for errors.
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
    """Return the arguments of a call to such a tool, as JSON text."""
    return json.dumps({ARGUMENT: text}, ensure_ascii=False)
