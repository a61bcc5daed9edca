"""JSON Schemas of wire types (JSON Schema 2020-12, as OpenAPI 3.1 has it)."""

from __future__ import annotations

import inspect
import re
import types
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import attrs
import cattrs

from greenroom.schemas.wire import AtMost

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}
_OWN_READERS = "greenroom.schemas."
_WIRE = "greenroom.schemas.wire"


class WireSchemas:
    """Schemas of wire types, each class once.

    Attributes:
        components: Schemas by the names to which references point.
    """

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._named: dict[type, str] = {}

    def schema_of(self, kind: Any, converter: cattrs.Converter | None = None) -> Schema:
        """Return the schema of a type.

        Args:
            converter: Converter that reads the type from a request's body, where everything with a default
                may be missing. A type with a reader of its own has several forms, so its schema only
                describes it. None for a type of answers, where nothing is missing.
        """
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._bounded(arguments, converter)
        if isinstance(kind, NewType):
            return self.schema_of(kind.__supertype__, converter)
        if converter is not None and _has_own_reader(kind, converter):
            return _described(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return _either([self.schema_of(each, converter) for each in arguments])
        if origin in (tuple, list):
            return {"type": "array", "items": self.schema_of(arguments[0], converter)}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1], converter)}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        if isinstance(kind, type) and attrs.has(kind):
            return {"$ref": f"#/components/schemas/{self._name(kind, converter)}"}
        return {}

    def _bounded(self, arguments: tuple[Any, ...], converter: cattrs.Converter | None) -> Schema:
        schema = self.schema_of(arguments[0], converter)
        bounds = [bound for bound in arguments[1:] if isinstance(bound, AtMost)]
        return {**schema, "maxItems": bounds[0].items} if bounds else schema

    def _name(self, kind: type[attrs.AttrsInstance], converter: cattrs.Converter | None) -> str:
        if kind not in self._named:
            taken = kind.__name__ in self.components
            protocol = kind.__module__.split(".")[2].title()
            name = f"{protocol}{kind.__name__}" if taken else kind.__name__
            self._named[kind] = name
            self.components[name] = {}  # for a type that contains itself
            self.components[name] = self._object(kind, converter)
        return self._named[kind]

    def _object(self, kind: type[attrs.AttrsInstance], converter: cattrs.Converter | None) -> Schema:
        hints, meanings = get_type_hints(kind, include_extras=True), field_meanings(kind)
        properties, required = {}, []
        for field in attrs.fields(kind):
            schema = self.schema_of(hints[field.name], converter)
            meaning = meanings.get(field.name)
            properties[field.name] = {**schema, "description": meaning} if meaning else schema
            left_out = (
                field.metadata.get("optional") if converter is None else field.default is not attrs.NOTHING
            )
            if not left_out:
                required.append(field.name)
        schema = {"type": "object", "properties": properties, **_described(kind)}
        return {**schema, "required": required} if required else schema


def field_meanings(kind: type) -> dict[str, str]:
    """Return the meanings of a class's fields, from the `Args:` of its docstring."""
    _, _, block = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.+(?:\n      +.+)*)", block, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _described(kind: Any) -> Schema:
    named = next((each for each in (kind, *get_args(kind)) if attrs.has(each)), None)
    text = (inspect.getdoc(named) or "").partition("\n")[0] if named is not None else ""
    return {"description": text} if text else {}


def _either(schemas: list[Schema]) -> Schema:
    plain = [schema for schema in schemas if schema.keys() == {"type"}]
    if len(plain) == len(schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {} if {} in schemas else {"anyOf": schemas}


def _has_own_reader(kind: Any, converter: cattrs.Converter) -> bool:
    """Return whether a wire module reads the type by a function of its own, not field by field."""
    if kind is Any or not isinstance(kind, type | types.UnionType):
        return False
    reader = getattr(converter.get_structure_hook(kind), "__module__", None) or ""
    return reader.startswith(_OWN_READERS) and reader != _WIRE
