"""Chat requests with constrained answers or tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai

MESSAGES: list[Any] = [{"role": "user", "content": "Tell me about Rome."}]
PLAIN: dict[str, Any] = {"model": "qwen3", "messages": MESSAGES, "max_tokens": 400}
WITHOUT_REASONING: dict[str, Any] = {**PLAIN, "reasoning_effort": "none"}

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["short", "a longer value"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    PERSON,
    {"type": "array", "items": PERSON, "minItems": 2, "maxItems": 3},
    {"type": "string", "pattern": "^[a-f]{3}-[0-9]{2}$"},
    {"type": "number", "minimum": -5, "maximum": 5, "multipleOf": 0.25},
    {"anyOf": [{"type": "null"}, {"const": {"deep": [1, "é", True]}}]},
    {
        "$ref": "#/$defs/one",
        "$defs": {"one": {"type": "array", "prefixItems": [{"type": "boolean"}], "items": False}},
    },
    {"type": "string", "format": "date"},
    {
        "type": "object",
        "properties": {"to": {"type": "string", "maxLength": 4}},
        "additionalProperties": False,
    },
]


def tool(name: str, *, strict: bool = False, parameters: Any = None) -> Any:
    function = {"name": name, "description": "", "parameters": parameters or PERSON, "strict": strict}
    return {"type": "function", "function": function}


CLOCK = {"type": "object", "properties": {"utc": {"type": "boolean"}}, "additionalProperties": False}
TOOLS: list[Any] = [tool("greet"), tool("look_up", parameters=CLOCK)]


def formatted(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


NAMED = {"type": "function", "function": {"name": "greet"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


def chat(**fields: Any) -> Callable[[openai.OpenAI], Any]:
    return lambda client: client.chat.completions.create(**{**WITHOUT_REASONING, **fields})
