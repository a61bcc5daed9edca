"""Resolution of references in checked JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, unquote

from greenroom.engine.grammar.json_schema import keywords
from greenroom.engine.grammar.json_schema.json_path import JsonPath, shown
from greenroom.engine.grammar.json_schema.keyword_values import refusal
from greenroom.schemas.problems import ProblemError


def check_references(
    schema: Any,
    references: Iterable[tuple[JsonPath, dict[str, Any]]],
    leave_out: Callable[[ProblemError], None],
) -> dict[str, Any]:
    """Return the target subschema of each reference; references into `oneOf` then lead to its later place.

    Args:
        references: Place of each `$ref`, `#` or `#/…`, and the schema that holds it.
        leave_out: Function that takes the 400 for a reference without a target, and may raise it.
    """
    found: dict[str, Any] = {}
    for path, holder in references:
        target, pointer = _subschema(schema, unquote(holder["$ref"][1:]).split("/")[1:])
        if target is None:
            leave_out(refusal(path, f"refers to '{shown(holder.pop('$ref'))}', where no schema stands"))
            continue
        if "/oneOf/" in holder["$ref"]:
            holder["$ref"] = "".join(["#", *(f"/{quote(part, safe='~$')}" for part in pointer)])
        found[holder["$ref"]] = target
    _break_circles([(path, holder) for path, holder in references if "$ref" in holder], found, leave_out)
    return found


def _break_circles(
    references: Iterable[tuple[JsonPath, dict[str, Any]]],
    targets: dict[str, Any],
    leave_out: Callable[[ProblemError], None],
) -> None:
    """Refuse references that lead back to themselves without a step into the value."""
    ends: set[int] = set()
    for path, holder in references:
        passed = set[int]()
        part: Any = holder
        while isinstance(part, dict) and id(part) not in ends and id(part) not in passed:
            passed.add(id(part))
            lists = [part[word] for word in ("allOf", "anyOf", "oneOf") if len(part.get(word, ())) == 1]
            part = targets[part["$ref"]] if "$ref" in part else lists[0][0] if lists else None
        if id(part) in passed:
            why = f"refers to '{shown(holder.pop('$ref'))}', which only leads back here"
            leave_out(refusal(path, why))
        else:
            ends.update(passed)


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


def _subschema(schema: Any, pointer: list[str]) -> tuple[Any, list[str]]:
    """Return the schema at a JSON pointer, given as its parts, or None; and its pointer without `oneOf`."""
    parts, written = iter(pointer), list[str]()
    for keyword in parts:
        if not isinstance(schema, dict) or keyword not in schema:
            return None, pointer
        written += _place_of_one_of(schema) if keyword == "oneOf" else [keyword]
        schema = schema[keyword]
        part = None
        if keyword in keywords.SCHEMA_MAPS:
            part = next(parts, None)
            schema = None if part is None else schema.get(part.replace("~1", "/").replace("~0", "~"))
        elif keyword in keywords.SCHEMA_LISTS or isinstance(schema, list):
            part = next(parts, "")
            schema = _item(schema, part)
        elif keyword not in (*keywords.SINGLE_SCHEMAS, "items"):
            return None, pointer
        written += [part] if part is not None else []
    return schema, written


def _place_of_one_of(schema: dict[str, Any]) -> list[str]:
    """Return the place of a schema's `oneOf` as `anyOf`: in a new part of `allOf` if it has both."""
    return ["allOf", str(len(schema.get("allOf", ()))), "anyOf"] if "anyOf" in schema else ["anyOf"]


def _item(schemas: list[Any], index: str) -> Any:
    known = index.isascii() and index.isdigit() and len(index) < 9 and str(int(index)) == index
    return schemas[int(index)] if known and int(index) < len(schemas) else None
