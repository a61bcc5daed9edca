"""Model names and generation parameters, parsed alike for every protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from werkzeug.datastructures import MultiDict

from greenroom.schemas.messages.generation import check
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import (
    FLEX,
    MAX_PRIORITY,
    VERBOSITIES,
    EmbeddingInput,
    Overflow,
    Verbosity,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.stored import MAX_PAGE, Order
from greenroom.schemas.wire.wire import json_type

ParameterTable = Mapping[str, str]
"""Path of a field on the wire (`thinking.budget_tokens`) -> field of `GenerationParameters`."""

NeutralValues = Mapping[str, tuple[Any, ...]]
"""Path of an unsupported official parameter -> values that have no effect, which are accepted."""

MAX_MODEL_NAME = 4_096
"""Longest model name, in characters; it may be a path."""


def parse_model_key(model: str, field: str = "model") -> ModelKey:
    """Return a client's model name as a key. Raises ProblemError: 400 if it is empty, or longer than any name
    of a model.
    """
    if len(model) > MAX_MODEL_NAME:
        detail = f"`{field}` has {len(model)} characters, but no name has more than {MAX_MODEL_NAME}."
        raise invalid(detail, field)
    if not model.strip():
        names = "a model, or 'default' for the first" if field == "model" else "an adapter"
        raise invalid(f"`{field}` is empty: name {names}.", field)
    return ModelKey(model)


def parse_truncation(value: Any, field: str = "truncation") -> Overflow:
    """Return the overflow policy of a too long conversation from OpenAI's `truncation`; null is `disabled`.
    Raises ProblemError: 400 that names the field.
    """
    match value:
        case None | "disabled":
            return "refuse"
        case "auto":
            return "drop_oldest"
        case _:
            raise invalid(f"`{field}` must be 'auto' or 'disabled'.", field)


def parse_verbosity(value: Any, field: str = "verbosity") -> Verbosity:
    """Return the verbosity from OpenAI's parameter; null is `medium`. Raises ProblemError: 400 that names the
    field.
    """
    if value is None:
        return "medium"
    found = next((verbosity for verbosity in VERBOSITIES if verbosity == value), None)
    if found is None:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, VERBOSITIES))}.", field)
    return found


def parse_priority(body: JsonObject) -> int:
    """Return the priority of a request: vLLM's `priority`, and OpenAI's `service_tier: "flex"`. Raises
    ProblemError: 400 that names `priority` if it is no integer, or would put the request before others.
    """
    flex = FLEX if body.get("service_tier") == "flex" else 0
    value = body.get("priority")
    if value is None:
        return flex
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(f"`priority` must be an integer from 0 to {MAX_PRIORITY}.", "priority")
    if value < 0:
        detail = "`priority` must be at least 0: a request may wait behind others, but not pass them."
        raise invalid(detail, "priority")
    if value > MAX_PRIORITY:
        raise invalid(f"`priority` must be at most {MAX_PRIORITY}.", "priority")
    return max(value, flex)


_MAX_SCALE = 100.0


def parse_extensions(body: JsonObject) -> dict[str, Any]:
    """Return the fields of a request that are read alike in every protocol: priority, explanation and
    adapter. Raises ProblemError: 400 that names the field.
    """
    return {"priority": parse_priority(body), "explained": parse_explained(body), **parse_adapter(body)}


_EXPLAINS = "include_explain"


def parse_explained(body: JsonObject) -> bool:
    """Return whether the client asks for an explanation, in `stream_options` or at the top level. Raises
    ProblemError: 400 that names the field.
    """
    options = body.get("stream_options")
    found = [(_EXPLAINS, body.get(_EXPLAINS))]
    if isinstance(options, dict):
        found.append((f"stream_options.{_EXPLAINS}", options.get(_EXPLAINS)))
    for field, value in found:
        if value is not None and not isinstance(value, bool):
            raise invalid(f"`{field}` must be a boolean.", field)
    return any(value for _, value in found)


def parse_adapter(body: JsonObject) -> dict[str, Any]:
    """Return the adapter and its scale from llama-server's `lora`, as fields of a request; empty if not set.

    Raises:
        ProblemError: 400 that names the field: more than one adapter has an effect, or a value is invalid.
    """
    value = body.get("lora")
    if value is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise invalid("`lora` must be an array of objects with `id` and `scale`.", "lora", "invalid_type")
    found: list[tuple[str, float]] = []
    for index, each in enumerate(value):
        name, scale, field = each.get("id"), each.get("scale", 1.0), f"lora[{index}]"
        if isinstance(name, bool) or not isinstance(name, int | str) or name == "":
            detail = "must be the name of an adapter, or its number among those of the model."
            raise invalid(f"`{field}.id` {detail}", f"{field}.id")
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) <= _MAX_SCALE:
            detail = f"must be a number from -{_MAX_SCALE:g} to {_MAX_SCALE:g}."
            raise invalid(f"`{field}.scale` {detail}", f"{field}.scale")
        found.append((str(name), float(scale)))
    chosen = [each for each in found if each[1]] or found[:1]
    if len(chosen) > 1:
        raise invalid(f"`lora` names {len(chosen)} adapters; a request may apply one.", "lora")
    return {"adapter": chosen[0][0], "adapter_scale": chosen[0][1]} if chosen else {}


def parse_parameters(body: JsonObject, table: ParameterTable) -> dict[str, Any]:
    """Return the generation parameters that a client has set, by our names; null is not set.

    Args:
        table: Names of the parameters on the wire; if two name the same parameter, the later one wins.

    Raises:
        ProblemError: 400 that names the first field of the table whose value is out of range.
    """
    parameters = {}
    for path, name in table.items():
        value = _value_at(body, path)
        if value is not None:
            parameters[name] = check(name, value, path)
    return parameters


def refuse_unsupported(body: Any, table: NeutralValues) -> None:
    """Refuse a request that sets an unsupported official parameter to a value with an effect. Raises
    ProblemError (400 `unsupported_parameter`) that names the parameter.
    """
    for name, neutral in table.items():
        value = _value_at(body, name)
        if value is not None and not any(_same(value, allowed) for allowed in neutral):
            raise _unsupported(name, neutral)


def _value_at(body: Any, path: str) -> Any:
    for key in path.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _same(value: Any, allowed: Any) -> bool:
    # Python's `True == 1` does not hold in JSON.
    return json_type(value) == json_type(allowed) and bool(value == allowed)


def _unsupported(name: str, neutral: tuple[Any, ...]) -> ProblemError:
    only = f"; only {' or '.join(map(_as_json, neutral))} is accepted" if neutral else ""
    return invalid(f"`{name}` is not supported here with that value{only}.", name, "unsupported_parameter")


def _as_json(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value).replace("'", '"')


DEFAULT_PAGE = 20
"""Entries of a page if the client sets no limit."""


@attrs.frozen
class ListQuery:
    """Position, size and order of a page. `after`: id of the entry that precedes the page, in `order`; None
    for the beginning.
    """

    after: str | None = None
    limit: int = DEFAULT_PAGE
    order: Order = "desc"


def parse_list_query(args: MultiDict[str, str], order: Order) -> ListQuery:
    """Parse the pagination parameters of a URL's query; a ProblemError (400) names the parameter."""
    limit = query_number(args, "limit", 1, MAX_PAGE) or DEFAULT_PAGE
    return ListQuery(args.get("after") or None, limit, _order(args.get("order"), order))


def query_number(args: MultiDict[str, str], name: str, low: int, high: int) -> int | None:
    """Return a whole number in a URL's query, None if it is not sent; a ProblemError (400) names it."""
    if (text := args.get(name)) is None:
        return None
    # `int` would also accept signs and the digits of other alphabets.
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else -1
    if not low <= number <= high:
        raise invalid(f"`{name}` must be a number from {low} to {high}.", name)
    return number


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def query_boolean(args: MultiDict[str, str], name: str) -> bool | None:
    """Return a switch in a URL's query, None if it is not sent; a ProblemError (400) names it."""
    if (text := args.get(name)) is None:
        return None
    if text.lower() not in _BOOLEANS:
        raise invalid(f"`{name}` must be true or false.", name)
    return _BOOLEANS[text.lower()]


def _order(text: str | None, default: Order) -> Order:
    match text:
        case None:
            return default
        case "asc" | "desc":
            return text
    raise invalid("`order` must be 'asc' or 'desc'.", "order")


MAX_PAIRS = 16
MAX_KEY = 64
"""Longest key, in characters."""
MAX_VALUE = 512
"""Longest value, in characters."""


def parse_metadata(value: Any, field: str = "metadata") -> dict[str, str]:
    """Return a client's metadata; null means none. Raises ProblemError: 400 that names the field: OpenAI's
    limits on pairs, keys and values.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(f"`{field}` must be an object, but is {json_type(value)}.", field, "invalid_type")
    if len(value) > MAX_PAIRS:
        detail = f"`{field}` has {len(value)} pairs, but must have at most {MAX_PAIRS}."
        raise invalid(detail, field)
    for key, entry in value.items():
        _check_pair(key, entry, field)
    return dict(value)


def _check_pair(key: str, entry: Any, field: str) -> None:
    if len(key) > MAX_KEY:
        raise _too_long(f"A key of `{field}`", len(key), MAX_KEY, field)
    name = f"{field}.{key}"
    if not isinstance(entry, str):
        raise invalid(f"`{name}` must be a string, but is {json_type(entry)}.", name, "invalid_type")
    if len(entry) > MAX_VALUE:
        raise _too_long(f"`{name}`", len(entry), MAX_VALUE, name)


def _too_long(what: str, length: int, most: int, field: str) -> ProblemError:
    return invalid(f"{what} has {length} characters, but must have at most {most}.", field)


MAX_INSTRUCTION = 16_384
"""Longest instruction, in characters; it is repeated before every text of the request."""


def checked_embedding(asked: EmbeddingInput) -> EmbeddingInput:
    """Return the input if it is within the limits.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if "" in asked.texts:
        at = asked.texts.index("")
        raise invalid(f"`{asked.param}` must not contain an empty string, but item {at} is one.", asked.param)
    if asked.instruction is not None and len(asked.instruction) > MAX_INSTRUCTION:
        detail = f"`instruction` has {len(asked.instruction)} characters, but may have {MAX_INSTRUCTION}."
        raise invalid(detail, "instruction")
    return asked
