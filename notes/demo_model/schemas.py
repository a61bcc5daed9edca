"""Random JSON schemas, as users' programs send them, with what the model needs to know to write an answer."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from . import fields
from .filler import sentence
from .vocabulary import ADJECTIVES, VERBS, word

FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.com",
    "uri": "https://example.com",
    "uuid": "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
    "ipv4": "192.0.2.1",
    "hostname": "example.com",
    "duration": "P1D",
}


@attrs.frozen
class Field:
    """One value of a schema.

    Args:
        name: Its name in the object around it; that of the list for an item.
        kind: text, format, choice, whole, fraction, flag, nothing, list, mapping or object.
        schema: Its JSON schema.
        parts: Fields of an object; the item of a list or mapping.
        required: Whether the object around it requires it.
    """

    name: str
    kind: str
    schema: dict[str, Any]
    parts: tuple[Field, ...] = ()
    required: bool = True


def random_object(random: Random, name: str = "", depth: int = 0, most: int = 6) -> Field:
    """Return an object of one to several fields; deeper ones are smaller."""
    count = random.choice([1, 1, 2, 2, 2, 3, 3, 4, 5, 6] if depth == 0 else [1, 1, 2, 2, 3])
    parts: dict[str, Field] = {}
    optional = random.random() < 0.25
    for _ in range(min(count, most)):
        part = random_field(random, depth + 1)
        parts[part.name] = attrs.evolve(part, required=not (optional and random.random() < 0.5))
    return object_field(random, name, tuple(parts.values()))


def object_field(random: Random, name: str, parts: tuple[Field, ...]) -> Field:
    """Return the object that has these fields."""
    schema: dict[str, Any] = {"type": "object", "properties": {part.name: part.schema for part in parts}}
    required = [part.name for part in parts if part.required]
    if required:
        schema["required"] = required
    if random.random() < 0.4:
        schema["additionalProperties"] = False
    return Field(name, "object", _titled(random, name, schema), parts)


def random_field(random: Random, depth: int) -> Field:
    """Return a field of any type."""
    draw = random.random()
    if draw < 0.44 or (depth > 2 and draw > 0.84):
        name = fields.field_name(random, [*fields.KNOWN_TEXTS, *fields.SPEAKING, *fields.ASKING])
        return Field(name, "text", _titled(random, name, {"type": "string"}))
    if draw < 0.49:
        name = fields.field_name(
            random, ["email", "url", "date", "created_at", "id", "start", "end", "website"]
        )
        form = random.choice(list(FORMATS))
        return Field(name, "format", _titled(random, name, {"type": "string", "format": form}))
    if draw < 0.56:
        return _choice(random)
    if draw < 0.66:
        return _number(random, "whole", fields.WHOLE_NUMBERS, "integer")
    if draw < 0.73:
        return _number(random, "fraction", fields.FRACTIONS, "number")
    if draw < 0.79:
        name = fields.field_name(random, [*fields.FLAGS, *(f"is_{a}" for a in fields.FLAGS)])
        return Field(name, "flag", _titled(random, name, {"type": "boolean"}))
    if draw < 0.81:
        name = fields.field_name(random, fields.ASKING)
        union = (
            {"anyOf": [{"type": "string"}, {"type": "null"}]}
            if random.random() < 0.6
            else {"type": ["string", "null"]}
        )
        return Field(name, random.choice(["nothing", "text"]), _titled(random, name, union))
    if draw < 0.84:
        name = fields.field_name(random, fields.OBJECTS)
        item = attrs.evolve(scalar(random), name=word(random))
        return Field(name, "mapping", {"type": "object", "additionalProperties": item.schema}, (item,))
    if draw < 0.94:
        name = fields.field_name(random, fields.LISTS, plural=True)
        if random.random() < 0.12:
            return _nested(random, name)
        item = scalar(random) if random.random() < 0.7 or depth > 1 else random_object(random, "", depth + 1)
        schema = {"type": "array", "items": item.schema}
        return Field(name, "list", _titled(random, name, schema), (attrs.evolve(item, name=name),))
    return random_object(random, fields.field_name(random, fields.OBJECTS), depth + 1)


def _nested(random: Random, name: str) -> Field:
    """Return a list of objects that hold such lists again, the inner ones empty or absent."""
    inner = Field(name, "list", {"type": "array", "items": {"$ref": "#"}})
    if random.random() < 0.3:
        inner = Field(name, "nothing", {"anyOf": [{"$ref": "#"}, {"type": "null"}]})
    text = scalar(random)
    item = object_field(random, "", (text, inner) if text.name != name else (inner,))
    return Field(name, "list", {"type": "array", "items": item.schema}, (item,))


def scalar(random: Random) -> Field:
    """Return a field that holds no others."""
    while True:
        field = random_field(random, 9)
        if field.kind not in ("list", "mapping", "object"):
            return field


def _number(random: Random, kind: str, known: list[str], typed: str) -> Field:
    name = fields.field_name(random, known)
    schema: dict[str, Any] = {"type": typed}
    if random.random() < 0.2:
        schema["minimum"] = random.choice([0, 0, 1])
        if random.random() < 0.6:
            schema["maximum"] = random.choice([5, 10, 100])
    return Field(name, kind, _titled(random, name, schema))


def _choice(random: Random) -> Field:
    name = fields.field_name(
        random, ["status", "category", "type", "kind", "level", "priority", "unit", "sentiment", "label"]
    )
    options: list[str] = []
    for _ in range(random.choice([1, 2, 2, 3, 3, 4])):
        options.append(random.choice([random.choice(ADJECTIVES), random.choice(VERBS), word(random)]))
    if random.random() < 0.2:
        options = [option.upper() for option in options]
    schema = {"type": "string", "enum": list(dict.fromkeys(options))}
    if len(options) == 1 and random.random() < 0.7:
        schema = {"type": "string", "const": options[0]}
    return Field(name, "choice", _titled(random, name, schema))


def _titled(random: Random, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Add what pydantic and careful users add."""
    if name and random.random() < 0.25:
        schema = {**schema, "title": name.replace("_", " ").title()}
    if random.random() < 0.2:
        described = random.choice(
            [f"The {fields.spoken(name)}", fields.spoken(name).capitalize(), sentence(random)]
        )
        schema = {**schema, "description": described}
    return schema
