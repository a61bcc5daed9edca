"""Messages between callers, pool and model are plain frozen data that could be sent to another machine."""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from greenroom.schemas.events import events
from greenroom.schemas.protocols import model_protocol, pool_protocol

PLAIN = {str, int, float, bool, bytes, type(None)}
CONTAINERS = {tuple, frozenset, dict, list, Mapping}

CONTRACT = {
    *get_args(model_protocol.ModelMessage),
    *get_args(model_protocol.ModelCommand),
    *get_args(model_protocol.ModelReport),
    *get_args(pool_protocol.PoolMessage),
    *get_args(events.InferenceEvent),
    pool_protocol.PoolStatus,
    pool_protocol.Drained,
}


JSON = {
    "Tool.parameters",
    "ChatInput.template_options",
    "JsonSchemaFormat.schema",
    "InferenceRequest.overrides",
    "InferenceRequest.defaults",
}
"""Fields that hold JSON values without a static type; overrides have been checked against their types."""


def impurities(kind: Any, path: str, seen: set[Any]) -> list[str]:
    """Return the paths below `kind` whose types allow anything but plain frozen data."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in PLAIN or origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return []
    if origin in CONTAINERS or origin in (Union, types.UnionType):
        return [found for arg in args if arg is not ... for found in impurities(arg, path, seen)]
    if not attrs.has(kind) or kind.__setattr__ is object.__setattr__:
        return [f"{path}: {kind}"]
    if kind in seen:
        return []
    seen.add(kind)
    hints = get_type_hints(kind, localns={"tuple": tuple})  # a field named `tuple` would hide the type
    fields = [field.name for field in attrs.fields(kind) if f"{kind.__name__}.{field.name}" not in JSON]
    return [found for name in fields for found in impurities(hints[name], f"{kind.__name__}.{name}", seen)]


def test_the_contract_is_frozen_plain_data() -> None:
    assert [found for kind in CONTRACT for found in impurities(kind, kind.__name__, set())] == []


@attrs.frozen
class Impure:
    matcher: object


@attrs.define
class Mutable:
    count: int


@attrs.frozen
class Nested:
    inner: tuple[Impure | Mutable | str, ...]


def test_anything_else_would_be_found() -> None:
    assert len(impurities(Nested, "Nested", set())) == 2
