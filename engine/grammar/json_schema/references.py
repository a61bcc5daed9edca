"""Resolution of references in checked JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from greenroom.engine.grammar.json_schema import keywords
from greenroom.engine.grammar.json_schema.json_path import JsonPath, shown
from greenroom.engine.grammar.json_schema.keyword_values import refusal


def check_references(schema: Any, references: Iterable[tuple[JsonPath, str]]) -> dict[str, Any]:
    """Return the target subschema of each reference.

    Args:
        references: Place and value of each `$ref`, `#` or `#/…`.

    Raises:
        ProblemError: 400 that names the place of a reference without a target.
    """
    found: dict[str, Any] = {}
    for path, said in references:
        if said not in found:
            target = _subschema(schema, unquote(said[1:]).split("/")[1:])
            if target is None:
                raise refusal(path, f"refers to '{shown(said)}', where no schema stands")
            found[said] = target
    return found


def rebased(schema: Any, base: str) -> Any:
    """Return a checked schema with references adjusted to its place in a larger one.

    Args:
        base: JSON pointer to that place.
    """
    if not isinstance(schema, dict):
        return schema
    moved = dict(schema)
    for keyword, value in schema.items():
        if keyword == "$ref":
            moved[keyword] = base + value[1:]
        elif keyword in keywords.SCHEMA_MAPS:
            moved[keyword] = {name: rebased(part, base) for name, part in value.items()}
        elif keyword in keywords.SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
            moved[keyword] = [rebased(part, base) for part in value]
        elif keyword in (*keywords.SINGLE_SCHEMAS, "items"):
            moved[keyword] = rebased(value, base)
    return moved


def _subschema(schema: Any, pointer: list[str]) -> Any:
    """Return the schema at a JSON pointer, given as its parts; None if there is none."""
    parts = iter(pointer)
    for keyword in parts:
        if not isinstance(schema, dict) or keyword not in schema:
            return None
        schema = schema[keyword]
        if keyword in keywords.SCHEMA_MAPS:
            name = next(parts, None)
            schema = None if name is None else schema.get(name.replace("~1", "/").replace("~0", "~"))
        elif keyword in keywords.SCHEMA_LISTS or isinstance(schema, list):
            schema = _item(schema, next(parts, ""))
        elif keyword not in (*keywords.SINGLE_SCHEMAS, "items"):
            return None
    return schema


def _item(schemas: list[Any], index: str) -> Any:
    known = index.isascii() and index.isdigit() and len(index) < 9 and str(int(index)) == index
    return schemas[int(index)] if known and int(index) < len(schemas) else None
