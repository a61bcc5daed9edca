"""Tool descriptions in the prompt, for templates that cannot describe tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from greenroom.engine.formats.registry import make_tool_parser
from greenroom.engine.parsers.parsed_call import ParsedCall
from greenroom.engine.parsers.tool_call_parser import ToolCallParser
from greenroom.schemas.messages.messages import JsonObject, Tool

FALLBACK_FORMAT = "hermes_json"
"""Call format for models without their own: the one most models are trained on."""

_NO_PARAMETERS = {"type": "object", "properties": {}}
_DEFINITIONS = ("$defs", "definitions")
_LONGEST = 50_000
"""Limit on the text that references add to a tool, in characters: they may multiply."""
_DEEPEST = 60
"""Limit on the levels of lists and objects at which a reference is replaced."""
_MOST_TOOLS = 1_000
_DATA = frozenset({"const", "default", "enum", "example", "examples", "required"})
_KEYWORDS = frozenset(
    (
        *("type", "description", "properties", "required", "enum", "items", "name", "title", "default"),
        *("nullable", "format", "anyOf", "oneOf", "allOf", "not", "const", "pattern", "minimum", "maximum"),
        *("minLength", "maxLength", "minItems", "maxItems", "additionalProperties", "parameters", "function"),
        *("strict", "examples", "example", "key", "value", "keys", "values", "arguments", "$ref", "$defs"),
        *("response", "return", "returns", "deprecated", "propertyOrdering", "prefixItems", "uniqueItems"),
    )
)
"""Names that a template may take for something else than a parameter."""


def as_openai_tool(tool: Tool) -> dict[str, Any]:
    """Return the tool in the shape of OpenAI's API, which templates read; few of them resolve `$ref`."""
    parameters = inlined(tool.parameters) or _NO_PARAMETERS
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def inlined(schema: JsonObject) -> JsonObject:
    """Return a JSON Schema with its local references replaced by the subschemas they point to.

    A reference to what surrounds it stays, as do all beyond a limit of length or depth, with their
    definitions.
    """
    left = _LONGEST

    def copy(part: Any, within: tuple[str, ...], depth: int) -> Any:
        nonlocal left
        texts = [part] if isinstance(part, str) else part if isinstance(part, dict) else ()
        left -= 1 + sum(map(len, texts)) if within else 0
        if isinstance(part, list):
            return [copy(each, within, depth + 1) for each in part]
        if not isinstance(part, dict):
            return part
        place = part.get("$ref")
        if not isinstance(place, str) or place in within or depth > _DEEPEST or left < 0:
            return {name: copy(each, within, depth + 1) for name, each in part.items()}
        target = _at(schema, place)
        if not isinstance(target, dict):
            return part
        beside = {name: copy(each, within, depth + 1) for name, each in part.items() if name != "$ref"}
        return {**copy(target, (*within, place), depth + 1), **beside}

    whole: dict[str, Any] = copy({name: schema[name] for name in schema if name not in _DEFINITIONS}, (), 0)
    if "$ref" in str(whole):
        whole |= {name: schema[name] for name in _DEFINITIONS if name in schema}
    return whole


def _at(schema: JsonObject, place: str) -> Any:
    """Return the subschema at a local reference, `#/…`; None if there is none, or it is the whole schema."""
    found: Any = schema if place.startswith("#/") else None
    for part in unquote(place).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found


class UnshownParameters:
    """Finds the parameters that a chat template keeps from the model, by rendering each tool once.

    Some templates take names such as `type` for keywords of the schema, or leave out what lies in arrays.

    Args:
        render: Function that renders tools, in the shape of OpenAI's API; None if the template refuses.
    """

    def __init__(self, render: Callable[[list[dict[str, Any]]], str | None]) -> None:
        self._render = render
        self._found: dict[str, tuple[str, ...]] = {}

    def of(self, tool: Tool) -> tuple[str, ...]:
        """Return the names of parameters, at any depth, that the rendered tool does not show."""
        function = as_openai_tool(tool)["function"]
        key = json.dumps(function["parameters"])
        if key not in self._found:
            if len(self._found) >= _MOST_TOOLS:
                self._found.clear()
            names: list[str] = []
            marked = {**function, "parameters": _with_marks(function["parameters"], names)}
            text = self._render([{"type": "function", "function": marked}])
            unshown = [] if text is None else [name for i, name in enumerate(names) if _mark(i) not in text]
            self._found[key] = tuple(dict.fromkeys(unshown))
        return self._found[key]


def _mark(number: int) -> str:
    return f"zq{number}qz"


def _with_marks(schema: Any, names: list[str]) -> Any:
    """Return a schema whose properties bear marks, and append their names.

    A mark takes the place of the name, or that of the description if the name is a keyword.
    """
    if not isinstance(schema, dict):
        return [_with_marks(each, names) for each in schema] if isinstance(schema, list) else schema
    marked = {
        keyword: value if keyword in _DATA else _with_marks(value, names)
        for keyword, value in schema.items()
        if keyword != "properties"
    }
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return marked
    renamed, called = dict[str, Any](), dict[str, str]()
    for name, value in properties.items():
        mark = _mark(len(names))
        names.append(name)
        inner = _with_marks(value, names)
        if name in _KEYWORDS and isinstance(inner, dict):
            renamed[name] = {**inner, "description": mark}
        else:
            renamed[mark], called[name] = inner, mark
    required = schema.get("required")
    if isinstance(required, list):
        marked["required"] = [called.get(name, name) if isinstance(name, str) else name for name in required]
    return {**marked, "properties": renamed}


def full_descriptions(tools: Sequence[Tool]) -> str:
    """Return system message text that describes tools of which the template shows a part."""
    described = "\n".join(json.dumps(as_openai_tool(tool)["function"], ensure_ascii=False) for tool in tools)
    return f"These functions have more parameters than the list of tools shows. In full:\n\n{described}"


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
