"""The tools that a request offers, and the value types in their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from greenroom.engine.parsers.json_values import refuse_constant, value_at, without_repeats
from greenroom.engine.parsers.parser import WHITESPACE, Malformed, ParsedCall
from greenroom.engine.parsers.python_values import read_literal
from greenroom.schemas.messages.messages import Tool

_TYPES: dict[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}
_PYTHON_NAMES = {"True": True, "False": False, "None": None}
_UNDECODED = object()
_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,2})?")
_MAX_ALTERNATIVES = 1_000  # Limit on the alternatives and targets of references that are looked at
_EXACT = 2**53
"""Limit below which every integer is exactly a float; strict clients refuse the integer 5 as `5.0`."""
_MAX_DIGITS = 300
"""Limit on the digits of a number that is not valid JSON; a longer one exceeds the range of floats."""


class OfferedTools:
    """The tools that may be called, and their arguments. `tools`: offered tools; None accepts every name."""

    def __init__(self, tools: Sequence[Tool] | None) -> None:
        self._any = tools is None
        self._tools = {tool.name: tool for tool in tools or ()}

    def accepts(self, name: str) -> bool:
        return self._any or name in self._tools

    def meant(self, dotted: str) -> str:
        """Return the tool meant by a dotted Python name: `module.method`, `module.call` or the last part."""
        module, _, method = dotted.rpartition(".")
        candidates = [dotted, *([module] if method == "call" else []), method]
        return next((name for name in candidates if self.accepts(name)), dotted)

    def may_begin(self, text: str) -> bool:
        return self._any or any(name.startswith(text) for name in self._tools)

    def has_required_arguments(self, call: ParsedCall) -> bool:
        tool = self._tools.get(call.name)
        required = tool.parameters.get("required") if tool is not None else None
        if not isinstance(required, Sequence):
            return True
        return {name for name in required if isinstance(name, str)}.issubset(json.loads(call.arguments))

    def argument_names(self, name: str) -> list[str]:
        return list(self._properties(name))

    def takes_text(self, name: str, argument: str) -> bool:
        """Return whether the schema admits only strings for an argument."""
        return self._types(name, argument) == {"string"}

    def may_be_text(self, name: str, argument: str) -> bool:
        """Return whether the schema admits strings for an argument."""
        types = self._types(name, argument)
        return not types or "string" in types

    def parse_value(self, name: str, argument: str, text: str) -> Any:
        """Return the value of an argument in formats that do not quote strings.

        Text stays a string if the schema admits strings only. Other text is decoded as JSON if possible; if
        the schema also admits strings, only to one of its other types.
        """
        types = self._types(name, argument)
        if types == {"string"}:
            return text
        value = _decode(text, types)
        if value is _UNDECODED:
            return text
        if "string" in types and not (_TYPES[type(value)] & types):
            return text
        if isinstance(value, float) and "integer" in types and "number" not in types:
            return int(value) if value.is_integer() and abs(value) < _EXACT else value
        return value

    def _types(self, name: str, argument: str) -> set[str]:
        tool = self._tools.get(name)
        return schema_types(self._properties(name).get(argument), tool.parameters if tool else {})

    def _properties(self, name: str) -> Mapping[str, Any]:
        tool = self._tools.get(name)
        properties = tool.parameters.get("properties") if tool is not None else None
        return properties if isinstance(properties, Mapping) else {}


def schema_types(schema: Any, root: Any) -> set[str]:
    """Return the JSON types that a schema states; empty if it states none."""
    types, seen, waiting = set[str](), set[int](), [schema]
    while waiting and len(seen) < _MAX_ALTERNATIVES:
        schema = waiting.pop()
        if not isinstance(schema, Mapping) or id(schema) in seen:
            continue
        seen.add(id(schema))
        named = schema.get("type")
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(named, str):
            types.add(named)
        elif isinstance(named, Sequence):
            types.update(item for item in named if isinstance(item, str))
        elif isinstance(values, Sequence):
            types.update(name for value in values for name in _TYPES.get(type(value), ()))
        elif isinstance(branches, Sequence):
            waiting += branches
        elif isinstance(reference := schema.get("$ref"), str):
            waiting.append(value_at(root, reference))
    return types


def _decode(text: str, types: set[str]) -> Any:
    stripped = text.strip(WHITESPACE)
    try:
        return json.loads(stripped, parse_constant=refuse_constant, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError):
        pass
    if stripped in _PYTHON_NAMES:
        return _PYTHON_NAMES[stripped]
    if stripped[:1] in ("[", "{"):  # Models write Python lists and dicts for JSON.
        try:
            value, end = read_literal(stripped, 0)
        except Malformed:
            return _UNDECODED
        return value if end == len(stripped) and isinstance(value, list | dict) else _UNDECODED
    return _decode_loosely(stripped, types)


def _decode_loosely(text: str, types: set[str]) -> Any:
    """Return the value of text such as `FALSE`, `NULL` or `007`, if the schema makes it unambiguous."""
    word = text.lower()
    only_others = bool(types) and "string" not in types
    if word in ("true", "false") and "boolean" in types:
        return word == "true"
    if word in ("null", "none") and ("null" in types or only_others):
        return None
    if only_others and len(text) <= _MAX_DIGITS:
        if types & _TYPES[int] and _INTEGER.fullmatch(text):
            return int(text)
        if "number" in types and _NUMBER.fullmatch(text):
            return float(text)
    return _UNDECODED
