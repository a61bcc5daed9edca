"""Schemas of single arguments, split into string values and all other values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.engine.grammar.cost.limits import MAX_DEPTH
from greenroom.engine.grammar.json_schema import keywords
from greenroom.engine.parsers.values.json_pointer import value_at

NO_STRING = ("object", "array", "number", "boolean", "null")
_STRING_KEYWORDS = {"type", "minLength", "maxLength", "pattern", "format", "allOf", "enum", "const"}
_OBJECT_KEYWORDS = {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}
_CHOICES = ("anyOf", "oneOf")
_MAX_BRANCHES = 64


class CannotBeWritten(Exception):
    """The format cannot enforce an argument's schema; the message names the offending part."""


@attrs.frozen
class ArgumentSchema:
    """An argument's schema, split by kind of value.

    Args:
        strings: Alternative schemas of its string values, without `type`.
        others: Alternative schemas of its other values.
    """

    strings: tuple[Mapping[str, Any], ...]
    others: tuple[Any, ...]

    @property
    def mixes(self) -> bool:
        """True if the argument admits both strings and other values."""
        return bool(self.strings) and bool(self.others)


def argument_schema(value: Any, root: Any) -> ArgumentSchema:
    """Return an argument's schema, split into strings and other values.

    Args:
        value: Checked schema of the argument.
        root: Root schema that references point into.

    Raises:
        CannotBeWritten: The schema does not separate strings from other values.
    """
    strings, others = list[Mapping[str, Any]](), list[Any]()
    waiting = [value]
    for _ in range(_MAX_BRANCHES):
        if not waiting:
            return ArgumentSchema(tuple(strings), tuple(others))
        schema = resolved(waiting.pop(0), root)
        branches = next((schema[name] for name in _CHOICES if name in schema), None) if schema else None
        if branches is None:
            _add_plain(schema, strings, others)
        elif len(schema) == 1:
            waiting[:0] = branches
        else:
            raise CannotBeWritten("alternatives beside other keywords")
    raise CannotBeWritten("more alternatives than can be told apart")


def _add_plain(schema: Any, strings: list[Mapping[str, Any]], others: list[Any]) -> None:
    """Add a schema without alternatives to the list of strings, of other values, or to both."""
    if not isinstance(schema, Mapping):
        schema = {} if schema else {"enum": []}
    types, values = _types(schema), _listed(schema)
    if values is not None:
        texts = [item for item in values if isinstance(item, str) and "string" in types]
        rest = [item for item in values if not isinstance(item, str)]
        unlisted = {key: item for key, item in schema.items() if key not in ("enum", "const", "type")}
        if texts:
            strings.append({**unlisted, "enum": texts})
        if rest:
            others.append({**schema, "enum": rest} if "enum" in schema else schema)
        return
    if "string" in types:
        strings.append({key: item for key, item in schema.items() if key != "type"})
    if named := [name for name in types if name != "string"]:
        others.append({**schema, "type": named[0] if len(named) == 1 else named})


def check_string(schema: Mapping[str, Any]) -> None:
    """Check that a string schema can be enforced on unquoted strings.

    Raises:
        CannotBeWritten: The schema has other keywords.
    """
    other = set(schema) - _STRING_KEYWORDS
    parts = schema.get("allOf", ())
    if other or any(set(part) != {"pattern"} for part in parts):
        raise CannotBeWritten("the keywords")


def check_object(schema: Mapping[str, Any]) -> None:
    """Refuse a tool's schema that a call format which writes arguments one by one cannot enforce.

    Raises:
        CannotBeWritten: The schema has a keyword beside `properties` and `required`, or requires an argument
            that `properties` does not describe.
    """
    if other := set(schema) - _OBJECT_KEYWORDS:
        raise CannotBeWritten(f"the keywords {sorted(other)}")
    if missing := set(schema.get("required", ())) - set(schema.get("properties", {})):
        raise CannotBeWritten(f"required arguments without a schema: {sorted(missing)}")


def loosened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a loose tool's schema without what formats that write arguments one by one cannot enforce.

    Raises:
        CannotBeWritten: The schema names no arguments.
    """
    kept = {key: value for key, value in schema.items() if key in _OBJECT_KEYWORDS}
    kept["properties"] = {**schema.get("properties", {})}
    for name in schema.get("required", ()):
        kept["properties"].setdefault(name, True)
    if not kept["properties"] and schema.get("additionalProperties", True) is not False:
        raise CannotBeWritten("a schema without properties")
    return kept


def patterns(schema: Mapping[str, Any]) -> list[str]:
    """Return the regular expressions that must match somewhere in a string."""
    own = [schema["pattern"]] if "pattern" in schema else []
    return own + [part["pattern"] for part in schema.get("allOf", ())]


def resolved(value: Any, root: Any) -> Any:
    """Return the target of a chain of references.

    Raises:
        CannotBeWritten: A reference has other keywords beside it.
    """
    schema = _followed(value, root)
    if isinstance(schema, Mapping) and "$ref" in schema and len(schema) > 1:
        raise CannotBeWritten("a reference beside other keywords")
    return schema


def with_definitions(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a subschema as a standalone schema, with the definitions of the root schema."""
    schema = _followed(schema, root)
    if not isinstance(schema, Mapping):
        return schema
    return {**schema, **{name: root[name] for name in ("$defs", "definitions") if name in root}}


def _followed(value: Any, root: Any) -> Any:
    """Return the target of a chain of references without other keywords beside them."""
    for _ in range(MAX_DEPTH):
        if not (isinstance(value, Mapping) and set(value) == {"$ref"} and value["$ref"].startswith("#/")):
            break
        target = value_at(root, value["$ref"])
        if target is None:
            break
        value = target
    return value


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    return list(schema["enum"]) if "enum" in schema else [schema["const"]] if "const" in schema else None


def _types(schema: Mapping[str, Any]) -> list[str]:
    named = schema.get("type")
    if named is None:
        return ["string", *NO_STRING]
    return [named] if isinstance(named, str) else [name for name in keywords.TYPES if name in named]
