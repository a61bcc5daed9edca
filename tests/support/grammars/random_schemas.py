"""Random schemas of tool arguments that only short values satisfy."""

from __future__ import annotations

import random
from typing import Any

from greenroom.schemas.messages.messages import Tool

_NAMES = ("city", "days", "unit", "point", "tags", "note", "ratio", "is_open", "kind", "max_rows")
_WORDS = ("celsius", "Zürich", "two words", "a/b", "x", "null and void", "007", "<b>", "3D", "No")
_PATTERNS = ("^[A-Z]{2}[0-9]{1,3}$", "^(?:north|south)-[a-f]{1,4}$", "[0-9]", "^[^<>]{0,5}$")
_FORMATS = ("date", "time", "ipv4", "uuid", "hostname", "email", "uri", "duration")
_SHORT_FORMATS = ("date", "time", "ipv4", "uuid")
_MAX_LEVELS = 2

Schema = dict[str, Any]


class RandomSchemas:
    """A reproducible source of random schemas.

    Args:
        formats: True to use `format`. Most formats bound no length, so a random model may write on and on.
    """

    def __init__(self, seed: int, *, formats: bool = True) -> None:
        self._chance = random.Random(seed)
        self._formats = _FORMATS if formats else _SHORT_FORMATS

    def tool(self, name: str, *, strict: bool) -> Tool:
        """Return a tool with bounded arguments."""
        return Tool(name, "Does it.", self.object(0), strict=strict)

    def object(self, level: int) -> Schema:
        """Return the schema of an object with required and optional members."""
        names = self._chance.sample(_NAMES, self._chance.randint(0 if level else 1, 4 - level))
        required = [name for name in names if self._chance.random() < 0.6]
        return {
            "type": "object",
            "properties": {name: self.value(level + 1) for name in names},
            "required": required,
            "additionalProperties": False,
        }

    def value(self, level: int) -> Schema:
        """Return the schema of a value."""
        kinds = [self._text, self._number, self._choice, self._other, self._either]
        if level <= _MAX_LEVELS:
            kinds += [lambda: self.object(level), lambda: self._array(level)]
        return self._chance.choice(kinds)()

    def _text(self) -> Schema:
        shortest = self._chance.randint(0, 4)
        longest = shortest + self._chance.randint(0, 8)
        return self._chance.choice(
            [
                {"type": "string", "minLength": shortest, "maxLength": longest},
                {"type": "string", "pattern": self._chance.choice(_PATTERNS), "maxLength": 16},
                {"type": "string", "format": self._chance.choice(self._formats)},
            ]
        )

    def _number(self) -> Schema:
        least = self._chance.randint(-1000, 1000)
        return self._chance.choice(
            [
                {"type": "integer", "minimum": least, "maximum": least + self._chance.randint(0, 500)},
                {"type": "integer", "minimum": 0, "maximum": 90, "multipleOf": 5},
                {"type": "number", "minimum": 0, "exclusiveMaximum": 10, "multipleOf": 0.25},
            ]
        )

    def _choice(self) -> Schema:
        texts = self._chance.sample(_WORDS, self._chance.randint(1, 4))
        mixed = [*self._chance.sample(("sun", "fog", "snow"), 2), 3, None, True]
        return self._chance.choice([{"type": "string", "enum": texts}, {"enum": texts}, {"enum": mixed}])

    def _other(self) -> Schema:
        return self._chance.choice([{"type": "boolean"}, {"type": "null"}, {"const": 5}])

    def _either(self) -> Schema:
        """Return the schema of a value of several types, as clients write optional values."""
        text: Schema = {"type": "string", "minLength": 1, "maxLength": 6}
        return self._chance.choice(
            [
                {"type": ["string", "null"], "maxLength": 6},
                {"anyOf": [text, {"type": "null"}]},
                {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 99}, {"type": "null"}]},
                {"anyOf": [text, {"type": "integer", "minimum": 0, "maximum": 99}, {"type": "boolean"}]},
                {"anyOf": [{"enum": ["low", "high"]}, {"type": "null"}]},
            ]
        )

    def _array(self, level: int) -> Schema:
        least = self._chance.randint(0, 2)
        most = least + self._chance.randint(0, 2)
        return {"type": "array", "items": self.value(level + 1), "minItems": least, "maxItems": most}
