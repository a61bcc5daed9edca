"""Parsing of a response's text format."""

from __future__ import annotations

from typing import Any

from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.response_format import JsonObjectFormat, JsonSchemaFormat, ResponseFormat
from greenroom.schemas.problems import invalid, missing
from greenroom.schemas.responses.requests import PromptRequest
from greenroom.schemas.wire import json_type

TEXT: JsonObject = {"type": "text"}


def parse_text_format(wire: PromptRequest) -> tuple[ResponseFormat | None, JsonObject]:
    """Return the requested format, and the form in which the response repeats it.

    Raises:
        ProblemError: 400 that names the field: it is invalid, or was sent under two names.
    """
    named = wire.text.format if wire.text else None
    if named is not None and wire.response_format is not None:
        raise invalid("`text.format` and `response_format` are the same field: send one.", "response_format")
    if named is not None:
        return _format(named, "text.format")
    if wire.response_format is None:
        return None, TEXT
    wrapped = wire.response_format.get("json_schema")
    if isinstance(wrapped, dict):
        # The chat API nests these members one level deeper.
        return _format({**wrapped, "type": wire.response_format.get("type")}, "response_format.json_schema")
    return _format(wire.response_format, "response_format")


def _format(value: JsonObject, field: str) -> tuple[ResponseFormat | None, JsonObject]:
    match value.get("type"):
        case "text":
            return None, TEXT
        case "json_object":
            return JsonObjectFormat(field), {"type": "json_object"}
        case "json_schema":
            return _json_schema(value, field)
        case _:
            name = f"{field}.type"
            raise invalid(f"`{name}` must be 'text', 'json_object' or 'json_schema'.", name)


def _json_schema(value: JsonObject, field: str) -> tuple[ResponseFormat, JsonObject]:
    schema = value.get("schema")
    if schema is None:
        raise missing(f"{field}.schema")
    name = _optional(value, "name", str, "a string", field)
    description = _optional(value, "description", str, "a string", field)
    strict = bool(_optional(value, "strict", bool, "a boolean", field))
    echo = {
        "type": "json_schema",
        "name": name or "",
        **({} if description is None else {"description": description}),
        "schema": schema,
        "strict": strict,
    }
    return JsonSchemaFormat(schema, name or "", strict, f"{field}.schema"), echo


def _optional(value: JsonObject, name: str, kind: type[Any], expected: str, field: str) -> Any:
    member = value.get(name)
    if member is not None and not isinstance(member, kind):
        detail = f"`{field}.{name}` must be {expected}, but is {json_type(member)}."
        raise invalid(detail, f"{field}.{name}")
    return member
