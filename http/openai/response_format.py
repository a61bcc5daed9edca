"""Parsing of OpenAI's `response_format` and of vLLM's equivalent extensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from greenroom.http.guard.request_body import decode_json
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import (
    ChoiceFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    LarkFormat,
    RegexFormat,
    ResponseFormat,
)
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.wire.wire import json_type


def parse_response_format(body: JsonObject) -> ResponseFormat | None:
    """Return the format that a request demands; None for free text. Raises ProblemError: 400 that names the
    field: it is invalid, or there are two formats.
    """
    found: dict[str, ResponseFormat] = {}
    if (named := _response_format(body.get("response_format"))) is not None:
        found["response_format"] = named
    for kind, parse in _KINDS.items():
        field = f"guided_{kind}"
        if (value := body.get(field)) is not None:
            found[field] = parse(value, field)
    for field, format_ in _structured_outputs(body.get("structured_outputs")):
        found[field] = format_
    if (schema := body.get("json_schema")) is not None:
        found["json_schema"] = JsonSchemaFormat(schema, param="json_schema")
    _refuse_gbnf(body.get("grammar"))
    if len(found) > 1:
        first, second, *_ = found
        raise invalid(f"`{first}` and `{second}` cannot be combined.", second)
    return next(iter(found.values()), None)


def _refuse_gbnf(grammar: Any) -> None:
    """Refuse a GBNF grammar: ignoring it would look like obeying it."""
    if grammar not in (None, ""):
        detail = (
            "`grammar` is in llama.cpp's GBNF, which is not read here: send `guided_grammar` (Lark), "
            "or a schema in `response_format`."
        )
        raise invalid(detail, "grammar", "unsupported_parameter")


def _response_format(value: Any) -> ResponseFormat | None:
    if value is None:
        return None
    field = "response_format"
    kind = _object(value, field).get("type")
    match kind:
        case "text":
            return None
        case "json_object":
            schema = value.get("schema")
            return JsonObjectFormat() if schema is None else JsonSchemaFormat(schema, param=f"{field}.schema")
        case "json_schema":
            return _json_schema(value, field)
        case _:
            name = f"{field}.type"
            raise invalid(f"`{name}` must be 'text', 'json_object' or 'json_schema'.", name)


def _json_schema(value: JsonObject, field: str) -> JsonSchemaFormat:
    # llama.cpp's clients omit the wrapping object.
    if value.get("json_schema") is None and value.get("schema") is not None:
        return JsonSchemaFormat(value["schema"], param=f"{field}.schema")
    field = f"{field}.json_schema"
    wrapped = value.get("json_schema")
    if wrapped is None:
        raise missing(field)
    wrapped = _object(wrapped, field)
    param = f"{field}.schema"
    if wrapped.get("schema") is None:
        raise missing(param)
    name, strict = wrapped.get("name"), wrapped.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{field}.strict", "a boolean", strict)
    return JsonSchemaFormat(wrapped["schema"], name if isinstance(name, str) else "", bool(strict), param)


def _structured_outputs(options: Any) -> list[tuple[str, ResponseFormat]]:
    """Return the formats of vLLM's newer extension, an object with one key per kind."""
    found: list[tuple[str, ResponseFormat]] = []
    if options is None:
        return found
    for key, value in _object(options, "structured_outputs").items():
        field = f"structured_outputs.{key}"
        if value is None or value is False:
            continue
        if key == "json_object":
            found.append((field, JsonObjectFormat(field)))
        elif key in _KINDS:
            found.append((field, _KINDS[key](value, field)))
        else:
            raise invalid(f"`{field}` is not supported.", field, "unsupported_parameter")
    return found


def _schema(value: Any, field: str) -> ResponseFormat:
    if isinstance(value, str):
        try:
            value = decode_json(value.encode("utf-8", "surrogatepass"))
        except ProblemError as error:
            raise invalid(
                f"`{field}` is text that is not valid JSON. {error.problem.detail}", field
            ) from None
    return JsonSchemaFormat(value, param=field)


def _regex(value: Any, field: str) -> ResponseFormat:
    return RegexFormat(_text(value, field), field)


def _choice(value: Any, field: str) -> ResponseFormat:
    if not isinstance(value, list):
        raise _wrong(field, "an array of strings", value)
    return ChoiceFormat(tuple(_text(choice, f"{field}[{i}]") for i, choice in enumerate(value)), field)


def _grammar(value: Any, field: str) -> ResponseFormat:
    return LarkFormat(_text(value, field), field)


_KINDS: Mapping[str, Callable[[Any, str], ResponseFormat]] = {
    "json": _schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}


def _object(value: Any, field: str) -> JsonObject:
    if not isinstance(value, dict):
        raise _wrong(field, "an object", value)
    return value


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise _wrong(field, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        detail = f"`{field}` contains half of a surrogate pair, which is not valid text."
        raise invalid(detail, field) from None
    return value


def _wrong(field: str, expected: str, value: Any) -> ProblemError:
    return invalid(f"`{field}` must be {expected}, but is {json_type(value)}.", field)
