"""Finds schemas that only endless values satisfy: a tree whose every node requires another node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from greenroom.schemas.problems import invalid


def refuse_endless(
    root: Any, schemas: Mapping[str, Any], refs: Sequence[tuple[str, str]], base: str, param: str
) -> None:
    """Refuse a schema in which some reference can never be written out to its end.

    Args:
        root: The checked schema.
        schemas: Checked subschemas by JSON pointer.
        refs: Path of each `$ref`, and the pointer it names.
        base: What the references in the checked schema begin with.

    Raises:
        ProblemError: 400 that names the reference.
    """
    if not refs:
        return
    ends: set[str] = set()
    targets = {pointer for _, pointer in refs}
    found = True
    while found:  # a least fixed point: what ends without the help of anything not yet known to end
        new = {target for target in targets - ends if _ends(schemas[target], ends, base)}
        ends |= new
        found = bool(new)
    for path, pointer in refs:
        if pointer not in ends:
            raise invalid(f"{path} leads back to itself for ever: no finite value satisfies it", path)
    if not _ends(root, ends, base):
        raise invalid("No finite value satisfies the schema", param)


def _ends(schema: Any, known: set[str], base: str) -> bool:
    if isinstance(schema, bool):
        return True  # `false` satisfies nothing, finite or not; the compiler says so where it matters
    if "enum" in schema or "const" in schema:
        return True
    if "$ref" in schema and unquote(schema["$ref"].removeprefix(base)) not in known:
        return False
    if not all(_ends(part, known, base) for part in schema.get("allOf", ())):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema and not any(_ends(part, known, base) for part in schema[keyword]):
            return False
    return any(_type_ends(name, schema, known, base) for name in _types(schema))


def _types(schema: Mapping[str, Any]) -> Iterable[str]:
    names = schema.get("type", "any")
    return [names] if isinstance(names, str) else names


def _type_ends(name: str, schema: Mapping[str, Any], known: set[str], base: str) -> bool:
    if name == "object":
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        needed = [properties.get(key, others) for key in schema.get("required", ())]
        return all(_ends(part, known, base) for part in needed)
    if name == "array":
        items = schema.get("items", True)
        first = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        least = schema.get("minItems", 0)
        needed = first[:least] + ([rest] if least > len(first) else [])
        return all(_ends(part, known, base) for part in needed)
    return True
